// Levels 0 and 1 on blocks of the correlation matrix (Out-of-Core, section 4.2, Algorithm 2).
#include "out_of_core/kernels/pair_blocks.cuh"

// Level 0: a thread 32 pairs of a row of the (n_i, n_j) block `c`; bit j of row i of `edges` tells the edge. Grid
// (ceil(n_i * words / threads)).
__global__ void level_zero_block(const double* c, int n_i, int n_j, int i0, int j0, double critical_r_squared,
                                 unsigned* edges, int words) {
    const long long at = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    const long long i = at / words;
    if (i >= n_i) return;
    const int first = static_cast<int>(at % words) * 32, last = min(first + 32, n_j);
    unsigned found = 0;
    for (int j = first; j < last; ++j) {
        const double r = c[i * n_j + j];
        found |= static_cast<unsigned>(i0 + i != j0 + j && r * r > critical_r_squared) << (j - first);
    }
    edges[at] = found;
}

// Level 1 where edges are few: threadIdx.y goes through the edges of row i, threadIdx.x through the neighbours of both
// ends that lie in the set block. Grid (n_i), any block.
__global__ void __launch_bounds__(512) level_one_edges(const __grid_constant__ PairBlock block) {
    const int i = blockIdx.x;
    const double* c_i = block.rows_i + i * block.pitch;
    const unsigned* near_i = block.bits_i + static_cast<long long>(i) * block.words;
    Tally tally;
    for (int j = threadIdx.y; j < block.n_j; j += blockDim.y) {
        if (!block.active(i, j)) continue;
        const double* c_j = block.rows_j + j * block.pitch;
        const unsigned* near_j = block.bits_j + static_cast<long long>(j) * block.words;
        const double c_ij = block.c[i * block.c_pitch + j];
        unsigned* const best = &block.keys[block.cell(i, j)];
        const int other[2] = {block.j0 + j, block.i0 + i};  // no set holds an end of the edge
        bool done = false;
        for (int side = 0; side < 2 && !done; ++side) {
            for (int word = threadIdx.x; word < block.words && !done; word += blockDim.x) {
                unsigned members = side == 0 ? near_i[word] : near_j[word] & ~near_i[word];
                for (; members != 0 && !done; members &= members - 1) {
                    const int k = word * 32 + __ffs(static_cast<int>(members)) - 1;
                    const int s = block.s0 + k;
                    if (s == other[side]) continue;
                    const unsigned key = (side == 0 ? 0 : SECOND_SIDE_MEMBER) | static_cast<unsigned>(s);
                    done = block.settled(load_relaxed(best), key);  // later keys are larger still
                    if (done) break;
                    const Residuals h = residuals_given_one(c_i[k], c_j[k], c_ij);
                    ++tally.tests;
                    if (h.undefined(block.residual_tolerance)) {
                        ++tally.undefined;
                        continue;
                    }
                    if (block.min_r_squared != nullptr) {
                        const unsigned long long bits = __double_as_longlong(h.r_squared(block.residual_tolerance));
                        atomicMin(&block.min_r_squared[block.cell(i, j)], bits);
                    }
                    if (h.independent(block.critical_r_squared, block.residual_tolerance)) atomicMin(best, key);
                }
            }
        }
    }
    tally.add_to(block.counters);
}

// Best keys of level 1 by members as the keys by ranks that rows of the graph have, for both triangles. Grid (p), any
// block.
__global__ void rank_members(const __grid_constant__ Rows rows, const unsigned* members, unsigned long long* best) {
    const int i = blockIdx.x;
    const long long p = rows.p;
    for (int j = i + 1 + static_cast<int>(threadIdx.x); j < p; j += blockDim.x) {
        const unsigned key = members[i * p + j];
        if (key == NO_MEMBER) continue;
        const bool second = (key & SECOND_SIDE_MEMBER) != 0;
        const int owner = second ? j : i, member = static_cast<int>(key & ~SECOND_SIDE_MEMBER);
        const int* row = rows.of(owner);
        int low = 0, high = rows.degrees[owner];
        while (low < high) {
            const int middle = (low + high) / 2;
            if (row[middle] < member) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        best[i * p + j] = best[j * p + i] = second ? SECOND_SIDE | low : low;
    }
}

constexpr int TILE = 64, STEP = 32, SIDE = 16, PER_THREAD = TILE / SIDE;

__device__ __forceinline__ unsigned without(unsigned members, int at) {
    return at >= 0 && at < STEP ? members & ~(1u << at) : members;
}

// Level 1 where edges are many: a block of threads TILE x TILE pairs, a thread PER_THREAD^2 of them in registers, and
// the correlations with STEP variables s at a time in shared memory. Grid (ceil(n_j / TILE), ceil(n_i / TILE)), block
// (SIDE, SIDE). min_r_squared must be null; WITH_TOLERANCE: whether the problem's residual tolerance is above zero.
template <bool WITH_TOLERANCE>
__global__ void __launch_bounds__(SIDE* SIDE) level_one_tile(const __grid_constant__ PairBlock block) {
    __shared__ double c_i[STEP][TILE + 1], c_j[STEP][TILE + 1];
    __shared__ unsigned undefined_i[2][TILE], undefined_j[2][TILE];
    const int tile_i = blockIdx.y * TILE, tile_j = blockIdx.x * TILE;
    const int thread = threadIdx.y * SIDE + threadIdx.x;

    double c_ij[PER_THREAD][PER_THREAD];
    unsigned best[PER_THREAD][PER_THREAD];
    unsigned alive = 0;  // pairs that are not settled, a bit each
#pragma unroll
    for (int a = 0; a < PER_THREAD; ++a) {
#pragma unroll
        for (int b = 0; b < PER_THREAD; ++b) {
            const int i = tile_i + threadIdx.y + a * SIDE, j = tile_j + threadIdx.x + b * SIDE;
            const bool active = block.active(i, j);
            c_ij[a][b] = active ? block.c[i * block.c_pitch + j] : 0.0;
            best[a][b] = active ? block.keys[block.cell(i, j)] : NO_MEMBER;
            alive |= static_cast<unsigned>(active) << (a * PER_THREAD + b);
        }
    }
    if (thread < TILE) undefined_i[0][thread] = undefined_j[0][thread] = 0;

    Tally tally;
    for (int first = 0, step = 0; first < block.width; first += STEP, ++step) {
        if (!__syncthreads_or(alive != 0)) break;
        const int half = step % 2;
        if (thread < TILE) undefined_i[1 - half][thread] = undefined_j[1 - half][thread] = 0;
        for (int q = thread; q < 2 * TILE * STEP; q += SIDE * SIDE) {
            const int k = q % STEP, row = q / STEP % TILE;
            const bool of_j = q >= TILE * STEP;
            const int r = (of_j ? tile_j : tile_i) + row;
            double value = 0.0;
            if (r < (of_j ? block.n_j : block.n_i) && first + k < block.width) {
                value = (of_j ? block.rows_j : block.rows_i)[r * block.pitch + first + k];
            }
            (of_j ? c_j : c_i)[k][row] = value;
            if (fma(-value, value, 1.0) <= block.residual_tolerance) {
                atomicOr(&(of_j ? undefined_j : undefined_i)[half][row], 1u << k);
            }
        }
        __syncthreads();

        const int s_first = block.s0 + first;
        unsigned near_i[PER_THREAD], near_j[PER_THREAD], left[PER_THREAD][PER_THREAD], all = 0;
#pragma unroll
        for (int a = 0; a < PER_THREAD; ++a) {
            const int i = tile_i + threadIdx.y + a * SIDE, j = tile_j + threadIdx.x + a * SIDE;
            near_i[a] = i < block.n_i ? block.bits_i[static_cast<long long>(i) * block.words + first / STEP] : 0;
            near_j[a] = j < block.n_j ? block.bits_j[static_cast<long long>(j) * block.words + first / STEP] : 0;
        }
#pragma unroll
        for (int a = 0; a < PER_THREAD; ++a) {
#pragma unroll
            for (int b = 0; b < PER_THREAD; ++b) {
                const int row_i = threadIdx.y + a * SIDE, row_j = threadIdx.x + b * SIDE;
                unsigned members = 0;
                if (alive >> (a * PER_THREAD + b) & 1u) {
                    if (block.settled(best[a][b], static_cast<unsigned>(s_first))) {
                        alive &= ~(1u << (a * PER_THREAD + b));
                    } else {
                        members = near_i[a];
                        const unsigned key = SECOND_SIDE_MEMBER | static_cast<unsigned>(s_first);
                        if (!block.settled(best[a][b], key)) members |= near_j[b];
                    }
                }
                members = without(members, block.i0 + tile_i + row_i - s_first);
                members = without(members, block.j0 + tile_j + row_j - s_first);
                const unsigned undefined = members & (undefined_i[half][row_i] | undefined_j[half][row_j]);
                tally.tests += __popc(members);
                tally.undefined += __popc(undefined);
                left[a][b] = members & ~undefined;
                all |= left[a][b];
            }
        }
        for (; all != 0; all &= all - 1) {
            const int k = __ffs(static_cast<int>(all)) - 1;
            double i_k[PER_THREAD], j_k[PER_THREAD];
#pragma unroll
            for (int a = 0; a < PER_THREAD; ++a) {
                i_k[a] = c_i[k][threadIdx.y + a * SIDE];
                j_k[a] = c_j[k][threadIdx.x + a * SIDE];
            }
#pragma unroll
            for (int a = 0; a < PER_THREAD; ++a) {
#pragma unroll
                for (int b = 0; b < PER_THREAD; ++b) {
                    const Residuals h = residuals_given_one(i_k[a], j_k[b], c_ij[a][b]);
                    if (!(left[a][b] >> k & 1u)) continue;
                    if (!h.independent(block.critical_r_squared, WITH_TOLERANCE ? 1.0 : 0.0)) continue;
                    const bool from_i = near_i[a] >> k & 1u;
                    const unsigned s = static_cast<unsigned>(s_first + k);
                    best[a][b] = min(best[a][b], from_i ? s : SECOND_SIDE_MEMBER | s);
                    // What is left can matter only if it comes from row i, and this did not.
                    const unsigned later = left[a][b] & (~1u << k);
                    left[a][b] = from_i || block.first_come ? 0 : later & near_i[a];
                    tally.tests -= __popc(later & ~left[a][b]);
                }
            }
        }
    }

#pragma unroll
    for (int a = 0; a < PER_THREAD; ++a) {
#pragma unroll
        for (int b = 0; b < PER_THREAD; ++b) {
            const int i = tile_i + threadIdx.y + a * SIDE, j = tile_j + threadIdx.x + b * SIDE;
            if (block.active(i, j)) block.keys[block.cell(i, j)] = best[a][b];
        }
    }
    tally.add_to(block.counters);
}
