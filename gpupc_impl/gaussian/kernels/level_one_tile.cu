// Level 1 where edges are many and few of them go: tiles of pairs, and a bound in single precision that most tests end
// with. The blocks of pairs and of separation sets are those of Out-of-Core, section 4.2, or one of everything.
//
// Vk separates Vi and Vj where |r_ij - r_ik r_jk| <= sqrt(c (1 - r_ik^2) (1 - r_jk^2)), c being the critical r^2. Both
// sides are first worked out in single precision, three instructions a test. With u = 2^-24, which a rounding is
// relative to, the left one is off by at most 5 u (its factors, r_ij and the difference, all of them up to 2), and the
// right one by 9 u (a root for i and one for j, each of 3.75 u, their product, and SLACK added to it, all of them up to
// 1). So with SLACK = 16 u added to the right, whatever separates is found; and what is found, the canonical
// evaluation (fisher_z.cuh) decides. Beside those that separate that is about one test in a hundred thousand.
//
// With a tolerance of zero the inverse of a correlation counts, too: where the right side is at most c times the left
// one. As much as that may be off by is at most 7.5 u sqrt(c) and 11 u c, and INVERSE_SLACK sqrt(c) covers it.
#include "gaussian/kernels/pair_block.cuh"

constexpr int TILE = 64, STEP = 32;           // variables of a side of a tile; members that are looked at together
constexpr int SIDE = 16, EACH = TILE / SIDE;  // threads of a side; of the pairs a thread has EACH x EACH
constexpr unsigned ALL = (1u << (EACH * EACH)) - 1;
constexpr float SLACK = 0x1p-20f;
constexpr float INVERSE_SLACK = 0x1p-19f, TINY = 1e-18f;  // TINY: what is flushed to zero, and more

struct alignas(16) Few {
    float of[EACH];
};

// Of the variables of a side and each of STEP members: their correlations, and c^(1/4) times the root of what is left
// of their variance.
struct Side {
    Few r[STEP][SIDE + 1], root[STEP][SIDE + 1];
};

// In place of the correlation of a pair that needs no test: no number, with which no comparison holds.
__device__ __forceinline__ float closed() { return __int_as_float(0x7fc00000); }

// The root of a number from 0 to 1, off by at most 2 u times it.
__device__ __forceinline__ float square_root(float v) {
#ifdef GPUPC_HOST
    return sqrtf(v);
#else
    float root;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(v));
    return root;
#endif
}

// c^(1/4) times the root of what is left of a variance; `critical_r` is the root of c.
__device__ __forceinline__ float root_of(double left, float critical_r) {
    return square_root(critical_r * fabsf(static_cast<float>(left)));
}

// What decides.
struct Critical {
    float r_squared, r, inverse_slack;

    __device__ __forceinline__ explicit Critical(double critical_r_squared)
        : r_squared(static_cast<float>(critical_r_squared)),
          r(sqrtf(r_squared)),
          inverse_slack(fmaf(INVERSE_SLACK, r, TINY)) {}
};

// Whether Vk may separate Vi and Vj: never false where it does.
template <bool WITH_TOLERANCE>
__device__ __forceinline__ bool may_separate(float r_ik, float r_jk, float r_ij, float root_i, float root_j,
                                             const Critical& critical) {
    const float left = fabsf(fmaf(-r_ik, r_jk, r_ij));
    bool may = left <= fmaf(root_i, root_j, SLACK);
    if (!WITH_TOLERANCE) may |= root_i * root_j <= fmaf(critical.r_squared, left, critical.inverse_slack);
    return may;
}

// The tests of a thread's pairs given one member.
template <bool WITH_TOLERANCE>
struct Tests {
    Few x, y, root_x, root_y;
    const Critical& critical;

    __device__ __forceinline__ Tests(const Side& of_i, const Side& of_j, int k, const Critical& critical)
        : x(of_i.r[k][threadIdx.y]),
          y(of_j.r[k][threadIdx.x]),
          root_x(of_i.root[k][threadIdx.y]),
          root_y(of_j.root[k][threadIdx.x]),
          critical(critical) {}

    __device__ __forceinline__ bool may_separate(int a, int b, float r_ij) const {
        return ::may_separate<WITH_TOLERANCE>(x.of[a], y.of[b], r_ij, root_x.of[a], root_y.of[b], critical);
    }
};

__device__ __forceinline__ unsigned without(unsigned members, int at) {
    return at >= 0 && at < STEP ? members & ~(1u << at) : members;
}

// Grid (ceil(n_j / TILE), ceil(n_i / TILE)), block (SIDE, SIDE). min_r_squared must be null; WITH_TOLERANCE: whether
// the problem's residual tolerance is above zero.
template <bool WITH_TOLERANCE>
__global__ void __launch_bounds__(SIDE* SIDE, 4) level_one_tile(const __grid_constant__ PairBlock block) {
    __shared__ Side of_i, of_j;
    __shared__ unsigned undefined_i[2][TILE], undefined_j[2][TILE];
    const int tile_i = blockIdx.y * TILE, tile_j = blockIdx.x * TILE;
    if (block.i0 + tile_i >= block.j0 + min(tile_j + TILE, block.n_j) - 1) return;  // no pair i < j
    const int thread = threadIdx.y * SIDE + threadIdx.x;
    const int row_i = tile_i + EACH * threadIdx.y, row_j = tile_j + EACH * threadIdx.x;
    const Critical critical(block.critical_r_squared);

    float r_ij[EACH][EACH];
    unsigned open_i = 0, open_j = 0;  // a bit a pair: whether sets from adj(i), and from adj(j), can change the answer
#pragma unroll
    for (int q = 0; q < EACH * EACH; ++q) {
        const int i = row_i + q / EACH, j = row_j + q % EACH;
        const unsigned best = block.active(i, j) ? block.keys[block.cell(i, j)] : 0;
        const auto first = static_cast<unsigned>(block.s0);
        const bool open = block.active(i, j) && !block.settled(best, first);
        r_ij[q / EACH][q % EACH] = open ? static_cast<float>(block.c[i * block.c_pitch + j]) : closed();
        open_i |= static_cast<unsigned>(open) << q;
        open_j |= static_cast<unsigned>(open && !block.settled(best, SECOND_SIDE_MEMBER | first)) << q;
    }
    if (thread < TILE) undefined_i[0][thread] = undefined_j[0][thread] = 0;

    Tally tally;
    for (int first = 0, half = 0; first < block.width; first += STEP, half = 1 - half) {
        if (!__syncthreads_or(open_i != 0)) break;
        if (thread < TILE) undefined_i[1 - half][thread] = undefined_j[1 - half][thread] = 0;
        bool some_undefined = false;
#pragma unroll
        for (int part = 0; part < 2 * TILE * STEP / (SIDE * SIDE * EACH); ++part) {
            const int task = part * SIDE * SIDE + thread, k = task % STEP, group = task / STEP % SIDE;
            const bool is_j = part >= TILE * STEP / (SIDE * SIDE * EACH);
            const double* rows = (is_j ? block.rows_j : block.rows_i) + min(first + k, block.width - 1);
            const int row = (is_j ? tile_j : tile_i) + EACH * group, last = (is_j ? block.n_j : block.n_i) - 1;
            Few r, root;
            unsigned gone = 0;
#pragma unroll
            for (int e = 0; e < EACH; ++e) {  // beyond the last row or member is no pair, and nobody's neighbour
                const double value = rows[min(row + e, last) * block.pitch], left = fma(-value, value, 1.0);
                gone |= static_cast<unsigned>(WITH_TOLERANCE ? left <= block.residual_tolerance : left == 0.0) << e;
                r.of[e] = static_cast<float>(value);
                root.of[e] = root_of(left, critical.r);
            }
            (is_j ? of_j : of_i).r[k][group] = r;
            (is_j ? of_j : of_i).root[k][group] = root;
            some_undefined |= gone != 0;
            for (; gone != 0; gone &= gone - 1) {
                const int e = __ffs(static_cast<int>(gone)) - 1;
                atomicOr(&(is_j ? undefined_j : undefined_i)[half][EACH * group + e], 1u << k);
            }
        }
        some_undefined = __syncthreads_or(some_undefined);

        const int s_first = block.s0 + first, own_i = block.i0 + tile_i - s_first, own_j = block.j0 + tile_j - s_first;
        const bool with_own = (own_i < STEP && own_i > -TILE) || (own_j < STEP && own_j > -TILE);
        unsigned near_i[EACH], near_j[EACH];
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            const long long word = first / STEP, words = block.words;
            near_i[e] = row_i + e < block.n_i ? block.bits_i[(row_i + e) * words + word] : 0;
            near_j[e] = row_j + e < block.n_j ? block.bits_j[(row_j + e) * words + word] : 0;
        }
        // The tests to be made, as it stands here; and those of them that are undefined.
        const unsigned before_j = open_j;
        const auto tested = [&](int q, unsigned of_row_i, unsigned of_row_j) {
            unsigned members = (open_i >> q & 1u ? of_row_i : 0) | (before_j >> q & 1u ? of_row_j : 0);
            if (with_own) {
                members = without(members, block.i0 + row_i + q / EACH - s_first);
                members = without(members, block.j0 + row_j + q % EACH - s_first);
            }
            return members;
        };
        const auto undefined = [&](int q) {
            return undefined_i[half][EACH * threadIdx.y + q / EACH] | undefined_j[half][EACH * threadIdx.x + q % EACH];
        };
        if (with_own || some_undefined || (open_i & open_j) != ALL) {
#pragma unroll
            for (int q = 0; q < EACH * EACH; ++q) {
                const unsigned members = tested(q, near_i[q / EACH], near_j[q % EACH]);
                tally.tests += __popc(members);
                tally.undefined += __popc(members & undefined(q));
            }
        } else {
            int tests = 0;
#pragma unroll
            for (int q = 0; q < EACH * EACH; ++q) tests += __popc(near_i[q / EACH] | near_j[q % EACH]);
            tally.tests += tests;
        }

        bool any = false;
#pragma unroll 4
        for (int k = 0; k < STEP; ++k) {
            const Tests<WITH_TOLERANCE> given(of_i, of_j, k, critical);
#pragma unroll
            for (int q = 0; q < EACH * EACH; ++q) {
                const int a = q / EACH, b = q % EACH;
                any |= given.may_separate(a, b, r_ij[a][b]);
            }
        }
        if (!any) continue;
#pragma unroll 1
        for (int k = 0; k < STEP; ++k) {
            const Tests<WITH_TOLERANCE> given(of_i, of_j, k, critical);
            unsigned found = 0;
#pragma unroll
            for (int q = 0; q < EACH * EACH; ++q) {
                const int a = q / EACH, b = q % EACH;
                found |= static_cast<unsigned>(given.may_separate(a, b, r_ij[a][b])) << q;
            }
            for (found &= open_i; found != 0; found &= found - 1) {
                const int q = __ffs(static_cast<int>(found)) - 1, i = row_i + q / EACH, j = row_j + q % EACH;
                const int s = s_first + k;
                const unsigned of_row_i = block.bits_i[static_cast<long long>(i) * block.words + first / STEP];
                const unsigned of_row_j = block.bits_j[static_cast<long long>(j) * block.words + first / STEP];
                const bool from_i = of_row_i >> k & 1u, from_j = (of_row_j >> k & 1u) && (open_j >> q & 1u);
                if (!(from_i || from_j) || s == block.i0 + i || s == block.j0 + j) continue;
                const Residuals h = given_one(block.c[i * block.c_pitch + j], block.rows_i[i * block.pitch + first + k],
                                              block.rows_j[j * block.pitch + first + k]);
                if (h.undefined(block.residual_tolerance)) continue;
                if (!h.independent(block.critical_r_squared, WITH_TOLERANCE ? 1.0 : 0.0)) continue;
                block.keys[block.cell(i, j)] = from_i ? s : SECOND_SIDE_MEMBER | s;
                if (from_i || block.first_come) {
                    const unsigned vain = tested(q, of_row_i, of_row_j) & ~lanes_through(k);
                    tally.tests -= __popc(vain);
                    tally.undefined -= __popc(vain & undefined(q));
                    open_i &= ~(1u << q);
                }
                open_j &= ~(1u << q);
            }
        }
#pragma unroll
        for (int q = 0; q < EACH * EACH; ++q) {
            if (!(open_i >> q & 1u)) r_ij[q / EACH][q % EACH] = closed();
        }
    }
    tally.add_to(block.counters);
}
