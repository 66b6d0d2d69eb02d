// Levels 0 and 1 on blocks of the correlation matrix (Out-of-Core, section 4.2, Algorithm 2). Level 1 here processes
// the edges of a block one by one, fast if they are few; gaussian/kernels/level_one_tile.cu serves dense blocks.
#include "engine/kernels/rows.cuh"
#include "gaussian/kernels/pair_block.cuh"

// Level 0: bit j of row i of `edges` is set if the pair in row i and column j of the (n_i, n_j) block `c` is an edge,
// that is, if c[i, j]^2 exceeds the critical r^2. A thread computes one word, and so 32 pairs of a row.
__global__ void level_zero_block(const double* c, int n_i, int n_j, int i0, int j0, double critical_r_squared,
                                 unsigned* edges, int words) {
    const long long at = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    const long long i = at / words;
    if (i >= n_i) return;
    const int first = static_cast<int>(at % words) * 32, last = min(first + 32, n_j);
    unsigned bits = 0;
    for (int j = first; j < last; ++j) {
        const double r = c[i * n_j + j];
        bits |= static_cast<unsigned>(i0 + i != j0 + j && r * r > critical_r_squared) << (j - first);
    }
    edges[at] = bits;
}

// Level 1 of a block of pairs with one separation-set block: the tests of each edge (i, j) given each variable s that
// is a neighbour of i or of j and lies in the separation-set block. A variable that is a neighbour of both is tested
// once, as a set from adj(i). The smallest key of a separating set is kept across separation-set blocks by atomicMin.
// blockIdx.x is the row i, threadIdx.y goes through its edges, and threadIdx.x through the words of neighbours.
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
        const int other[2] = {block.j0 + j, block.i0 + i};  // No set contains an end of the edge.
        bool done = false;
        for (int side = 0; side < 2 && !done; ++side) {
            for (int word = threadIdx.x; word < block.words && !done; word += blockDim.x) {
                unsigned members = side == 0 ? near_i[word] : near_j[word] & ~near_i[word];
                for (; members != 0 && !done; members &= members - 1) {
                    const int k = word * 32 + __ffs(static_cast<int>(members)) - 1;
                    const int s = block.s0 + k;
                    if (s == other[side]) continue;
                    const unsigned key = (side == 0 ? 0 : SECOND_SIDE_MEMBER) | static_cast<unsigned>(s);
                    done = block.settled(load_relaxed(best), key);  // Later keys are larger still.
                    if (done) break;
                    const Residuals h = given_one(c_ij, c_i[k], c_j[k]);
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

// Converts best keys of level 1 that hold a member (see pair_block.cuh) into keys that hold its rank (see keys.cuh), in
// both triangles of `best`. The rank of a set {s} is the position of s in the row of the edge's owner, which is found
// by bisection. blockIdx.x is the row i, and threads go through the columns j > i.
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
