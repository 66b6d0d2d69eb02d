// Level 1 on tiles of pairs, for graphs with many edges of which few are removed. Vk separates Vi and Vj where |r_ij -
// r_ik r_jk| <= sqrt(c (1 - r_ik^2) (1 - r_jk^2)), c being the critical r^2. If few sets separate, nearly every test
// does not separate, which a bound in single precision shows in three instructions. Only a test that the bound lets
// through is decided by the canonical evaluation (fisher_z.cuh) in double precision; of the tests that do not separate,
// the bound lets about one in a hundred thousand through. The answer therefore has the bits of every other method.
//
// Why the bound never rules out a set that separates: let u = 2^-24 be the relative error of one rounding. The left
// side is off by at most 5 u (its two factors, r_ij and the difference, each of which is at most 2). The right side is
// off by at most 9 u (two roots of 3.75 u each, their product, and the addition of SLACK, each of which is at most 1).
// Adding SLACK = 16 u to the right side covers both. With a residual tolerance of zero, a correlation above one counts
// as its inverse, so a set also separates if the right side is at most c times the left one. The error of that
// comparison is at most 7.5 u sqrt(c) + 11 u c, which INVERSE_SLACK sqrt(c) covers.
//
// A thread block takes a tile of TILE x TILE pairs of a `PairBlock`, and each of its SIDE x SIDE threads EACH x EACH
// pairs, whose correlations stay in registers. The block processes the possible members of a set STEP at a time: it
// stages their correlations with the tile's variables in shared memory, counts the tests from words of adjacency,
// evaluates the bound for all pairs and members, and decides the tests that the bound does not rule out.
#include "gaussian/kernels/pair_block.cuh"

constexpr int TILE = 64, STEP = 32;           // the variables on a side of a tile; the members in a step
constexpr int SIDE = 16, EACH = TILE / SIDE;  // the threads on a side; a thread has EACH x EACH pairs
constexpr unsigned ALL = (1u << (EACH * EACH)) - 1;
constexpr float SLACK = 0x1p-20f;
constexpr float INVERSE_SLACK = 0x1p-19f, TINY = 1e-18f;  // TINY exceeds every product that is flushed to zero.

// The values of a thread's EACH variables on one side, or of as many neighbouring variables.
struct alignas(16) Few {
    float of[EACH];
};

// The correlations r of the variables of a side with STEP members, and c^(1/4) sqrt(1 - r^2).
struct Side {
    Few r[STEP][SIDE + 1], root[STEP][SIDE + 1];
};

// NaN stands in place of the correlation of a pair that needs no test, since every comparison with NaN is false.
__device__ __forceinline__ float closed() { return __int_as_float(0x7fc00000); }

// The square root of a number from 0 to 1, with a relative error of at most 2 u.
__device__ __forceinline__ float square_root(float v) {
#ifdef GPUPC_HOST
    return sqrtf(v);
#else
    float root;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(v));
    return root;
#endif
}

// c^(1/4) times the root of a residual variance; `critical_r` is the root of c.
__device__ __forceinline__ float root_of(double variance, float critical_r) {
    return square_root(critical_r * fabsf(static_cast<float>(variance)));
}

struct Critical {
    float r_squared, r, inverse_slack;
    __device__ __forceinline__ explicit Critical(double critical_r_squared)
        : r_squared(static_cast<float>(critical_r_squared)),
          r(sqrtf(r_squared)),
          inverse_slack(fmaf(INVERSE_SLACK, r, TINY)) {}
};

// Whether Vk may separate Vi and Vj; true if it does. WITH_TOLERANCE: whether the residual tolerance is above 0.
template <bool WITH_TOLERANCE>
__device__ __forceinline__ bool may_separate(float r_ik, float r_jk, float r_ij, float root_i, float root_j,
                                             const Critical& critical) {
    const float left = fabsf(fmaf(-r_ik, r_jk, r_ij));
    bool may = left <= fmaf(root_i, root_j, SLACK);
    if (!WITH_TOLERANCE) may |= root_i * root_j <= fmaf(critical.r_squared, left, critical.inverse_slack);
    return may;
}

// Evaluates the bounds of a thread's pairs given member number k of the step.
template <bool WITH_TOLERANCE>
struct Bounds {
    Few x, y, root_x, root_y;
    const Critical& critical;

    __device__ __forceinline__ Bounds(const Side& of_i, const Side& of_j, int k, const Critical& critical)
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

// What a thread block shares during a step.
struct Stage {
    Side of_i, of_j;
    // For each variable, the members of the step given which it has no variance left. A step uses one half and clears
    // the other one for the step that follows.
    unsigned undefined_i[2][TILE], undefined_j[2][TILE];
};

// Members `first` to first + STEP - 1 of the separation-set block, as one thread sees them.
struct Step {
    int first, half;   // `half`: the half of the stage's masks that this step uses
    int member;        // the index of the variable that is the first member
    int own_i, own_j;  // the positions of the tile's first row and first column among the members
    bool with_own;     // whether a row or column of the tile is itself among the members
    unsigned open_j;   // the pairs for which sets from adj(j) could change the answer when the step began
};

// The EACH * EACH pairs of a thread. Pair q is in row row_i + q / EACH and column row_j + q % EACH.
template <bool WITH_TOLERANCE>
struct TilePairs {
    const PairBlock& block;
    Stage& stage;
    const Critical critical;
    const int tile_i, tile_j;  // the first row and column of the tile
    const int row_i, row_j;    // the first row and column of the thread
    float r_ij[EACH][EACH];
    // a bit for each pair: whether sets from adj(i) can change the answer, and whether sets from adj(j) can
    unsigned open_i = 0, open_j = 0;
    Tally tally;

    __device__ __forceinline__ TilePairs(const PairBlock& block, Stage& stage, int tile_i, int tile_j)
        : block(block),
          stage(stage),
          critical(block.critical_r_squared),
          tile_i(tile_i),
          tile_j(tile_j),
          row_i(tile_i + EACH * threadIdx.y),
          row_j(tile_j + EACH * threadIdx.x) {
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
    }

    // Stages correlations of both sides with the step's members; returns whether a variable of this thread's has no
    // variance given one. Rows and members beyond the last are clamped: the bit of adjacency for a test of them is 0.
    __device__ __forceinline__ bool load(int first, int half) {
        const int thread = threadIdx.y * SIDE + threadIdx.x;
        bool some_undefined = false;
#pragma unroll
        for (int part = 0; part < 2 * TILE * STEP / (SIDE * SIDE * EACH); ++part) {
            const int task = part * SIDE * SIDE + thread, k = task % STEP, group = task / STEP % SIDE;
            const bool is_j = part >= TILE * STEP / (SIDE * SIDE * EACH);
            const double* rows = (is_j ? block.rows_j : block.rows_i) + min(first + k, block.width - 1);
            const int row = (is_j ? tile_j : tile_i) + EACH * group, last = (is_j ? block.n_j : block.n_i) - 1;
            Few r, root;
            unsigned undefined = 0;
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
                const double value = rows[min(row + e, last) * block.pitch], left = fma(-value, value, 1.0);
                undefined |= static_cast<unsigned>(WITH_TOLERANCE ? left <= block.residual_tolerance : left == 0.0)
                             << e;
                r.of[e] = static_cast<float>(value);
                root.of[e] = root_of(left, critical.r);
            }
            (is_j ? stage.of_j : stage.of_i).r[k][group] = r;
            (is_j ? stage.of_j : stage.of_i).root[k][group] = root;
            some_undefined |= undefined != 0;
            for (; undefined != 0; undefined &= undefined - 1) {
                const int e = __ffs(static_cast<int>(undefined)) - 1;
                atomicOr(&(is_j ? stage.undefined_j : stage.undefined_i)[half][EACH * group + e], 1u << k);
            }
        }
        return some_undefined;
    }

    // Returns the mask of the members that pair q is tested with, from the words of adjacency of its row and column.
    __device__ __forceinline__ unsigned tested(const Step& step, int q, unsigned near_i, unsigned near_j) const {
        unsigned members = (open_i >> q & 1u ? near_i : 0) | (step.open_j >> q & 1u ? near_j : 0);
        if (step.with_own) {
            members = without(members, step.own_i + EACH * static_cast<int>(threadIdx.y) + q / EACH);
            members = without(members, step.own_j + EACH * static_cast<int>(threadIdx.x) + q % EACH);
        }
        return members;
    }

    // Returns the mask of the members given which the test of pair q is undefined.
    __device__ __forceinline__ unsigned undefined(const Step& step, int q) const {
        return stage.undefined_i[step.half][EACH * threadIdx.y + q / EACH] |
               stage.undefined_j[step.half][EACH * threadIdx.x + q % EACH];
    }

    // Counts the step's tests, as if no set in it separated a pair; `decide` takes back those that are not needed.
    __device__ __forceinline__ void count(const Step& step, bool some_undefined) {
        unsigned near_i[EACH], near_j[EACH];
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            const long long word = step.first / STEP, words = block.words;
            near_i[e] = row_i + e < block.n_i ? block.bits_i[(row_i + e) * words + word] : 0;
            near_j[e] = row_j + e < block.n_j ? block.bits_j[(row_j + e) * words + word] : 0;
        }
        if (step.with_own || some_undefined || (open_i & open_j) != ALL) {
#pragma unroll
            for (int q = 0; q < EACH * EACH; ++q) {
                const unsigned members = tested(step, q, near_i[q / EACH], near_j[q % EACH]);
                tally.tests += __popc(members);
                tally.undefined += __popc(members & undefined(step, q));
            }
        } else {
            int tests = 0;
#pragma unroll
            for (int q = 0; q < EACH * EACH; ++q) tests += __popc(near_i[q / EACH] | near_j[q % EACH]);
            tally.tests += tests;
        }
    }

    // Whether the bound lets any pair and member of the step through.
    __device__ __forceinline__ bool any_may_separate() const {
        bool any = false;
#pragma unroll 4
        for (int k = 0; k < STEP; ++k) {
            const Bounds<WITH_TOLERANCE> bounds(stage.of_i, stage.of_j, k, critical);
#pragma unroll
            for (int q = 0; q < EACH * EACH; ++q)
                any |= bounds.may_separate(q / EACH, q % EACH, r_ij[q / EACH][q % EACH]);
        }
        return any;
    }

    // Decides, member by member, the tests that the bound lets through.
    __device__ __forceinline__ void decide(const Step& step) {
#pragma unroll 1
        for (int k = 0; k < STEP; ++k) {
            const Bounds<WITH_TOLERANCE> bounds(stage.of_i, stage.of_j, k, critical);
            unsigned candidates = 0;
#pragma unroll
            for (int q = 0; q < EACH * EACH; ++q) {
                const int a = q / EACH, b = q % EACH;
                candidates |= static_cast<unsigned>(bounds.may_separate(a, b, r_ij[a][b])) << q;
            }
            for (candidates &= open_i; candidates != 0; candidates &= candidates - 1) {
                test(step, __ffs(static_cast<int>(candidates)) - 1, k);
            }
        }
#pragma unroll
        for (int q = 0; q < EACH * EACH; ++q) {
            if (!(open_i >> q & 1u)) r_ij[q / EACH][q % EACH] = closed();
        }
    }

    // The canonical test of pair q given member k of the step, if it is to be made. A set from adj(i) ends the tests of
    // the pair; one from adj(j) is kept in case no later member from adj(i) separates.
    __device__ __forceinline__ void test(const Step& step, int q, int k) {
        const int i = row_i + q / EACH, j = row_j + q % EACH, s = step.member + k;
        const unsigned near_i = block.bits_i[static_cast<long long>(i) * block.words + step.first / STEP];
        const unsigned near_j = block.bits_j[static_cast<long long>(j) * block.words + step.first / STEP];
        const bool from_i = near_i >> k & 1u, from_j = (near_j >> k & 1u) && (open_j >> q & 1u);
        if (!(from_i || from_j) || s == block.i0 + i || s == block.j0 + j) return;
        const Residuals h = given_one(block.c[i * block.c_pitch + j], block.rows_i[i * block.pitch + step.first + k],
                                      block.rows_j[j * block.pitch + step.first + k]);
        if (h.undefined(block.residual_tolerance)) return;
        if (!h.independent(block.critical_r_squared, WITH_TOLERANCE ? 1.0 : 0.0)) return;
        block.keys[block.cell(i, j)] = from_i ? s : SECOND_SIDE_MEMBER | s;
        if (from_i || block.first_come) {
            const unsigned needless = tested(step, q, near_i, near_j) & ~lanes_through(k);
            tally.tests -= __popc(needless);
            tally.undefined -= __popc(needless & undefined(step, q));
            open_i &= ~(1u << q);
        }
        open_j &= ~(1u << q);
    }
};

// Grid (ceil(n_j / TILE), ceil(n_i / TILE)), block (SIDE, SIDE). min_r_squared must be null; WITH_TOLERANCE: whether
// the problem's residual tolerance is above zero.
template <bool WITH_TOLERANCE>
__global__ void __launch_bounds__(SIDE* SIDE, 4) level_one_tile(const __grid_constant__ PairBlock block) {
    __shared__ Stage stage;
    const int tile_i = blockIdx.y * TILE, tile_j = blockIdx.x * TILE;
    if (block.i0 + tile_i >= block.j0 + min(tile_j + TILE, block.n_j) - 1) return;  // The block contains no pair i < j.
    const int thread = threadIdx.y * SIDE + threadIdx.x;
    TilePairs<WITH_TOLERANCE> pairs(block, stage, tile_i, tile_j);
    if (thread < TILE) stage.undefined_i[0][thread] = stage.undefined_j[0][thread] = 0;
    for (int first = 0, half = 0; first < block.width; first += STEP, half = 1 - half) {
        if (!__syncthreads_or(pairs.open_i != 0)) break;
        if (thread < TILE) stage.undefined_i[1 - half][thread] = stage.undefined_j[1 - half][thread] = 0;
        const bool some_undefined = __syncthreads_or(pairs.load(first, half));
        const int member = block.s0 + first, own_i = block.i0 + tile_i - member, own_j = block.j0 + tile_j - member;
        const bool with_own = (own_i < STEP && own_i > -TILE) || (own_j < STEP && own_j > -TILE);
        const Step step{first, half, member, own_i, own_j, with_own, pairs.open_j};
        pairs.count(step, some_undefined);
        if (pairs.any_may_separate()) pairs.decide(step);
    }
    pairs.tally.add_to(block.counters);
}
