// The tests of a pair at level 1 by one warp (engine/kernels/warp.cuh). The test of (i, j | k) is the same from either
// end, so one ascending scan serves both sides. A separating k in adj(i) ends it; the first in adj(j) is kept in case
// adj(i) has none. It yields the canonical set without keys or atomics. Decisions have the bits of fisher_z.cuh.
#pragma once

#include "engine/kernels/bit_graph.cuh"
#include "gaussian/kernels/fisher_z.cuh"

// Returns a mask of those of `count` variables that have no variance left given one other variable; their correlations
// with it begin at `c`. The mask includes the conditioning variable itself if it is one of the `count` variables.
__device__ __forceinline__ unsigned twins_among(const double* c, int count, double residual_tolerance) {
    return ballot(count, [&](int lane) {
        const double r = c[lane];
        return fma(-r, r, 1.0) <= residual_tolerance;
    });
}

constexpr double NOTHING_TESTED = 1e300;

// A step of a scan takes AT_ONCE words of 32 variables, so that their loads overlap. The results for a word are kept
// only by the threads whose own_word() is this word.
#ifdef GPUPC_HOST
constexpr int AT_ONCE = 1;
inline int own_word() { return 0; }
inline unsigned words_where(bool holds) { return holds; }
inline unsigned of_word(unsigned value, int) { return value; }
inline unsigned long long sum_of_words(unsigned long long value) { return value; }
#else
constexpr int AT_ONCE = 4;
__device__ __forceinline__ int own_word() { return threadIdx.x % AT_ONCE; }
// Returns a mask with a bit for each word, which is set if the condition holds for the word.
__device__ __forceinline__ unsigned words_where(bool holds) {
    return __ballot_sync(~0u, holds) & ((1u << AT_ONCE) - 1);
}
// Broadcasts the value of one word to all threads.
__device__ __forceinline__ unsigned of_word(unsigned value, int word) { return __shfl_sync(~0u, value, word); }
__device__ __forceinline__ unsigned long long sum_of_words(unsigned long long value) {
#pragma unroll
    for (int distance = 1; distance < AT_ONCE; distance *= 2) value += __shfl_xor_sync(~0u, value, distance);
    return value;
}
#endif

// Returns a mask of the variables of the thread's own word that separate Vi and Vj if their test is defined. The words
// of this step begin at variable `first`. WHOLE: whether all words have 32 variables; WITH_TOLERANCE: whether the
// problem's residual tolerance is above zero.
template <bool WHOLE, bool WITH_TOLERANCE>
__device__ __forceinline__ unsigned separating(const double* c_i, const double* c_j, double r_ij,
                                               double critical_r_squared, int first, int p) {
    PerLane<double> r_ik[AT_ONCE], r_jk[AT_ONCE];
#ifdef GPUPC_HOST
    const auto of_i = [&](int q, int lane) { return c_i[first + 32 * q + lane]; };
    const auto of_j = [&](int q, int lane) { return c_j[first + 32 * q + lane]; };
#else
#pragma unroll
    for (int q = 0; q < AT_ONCE; ++q) {
        each_lane(WHOLE ? LANES : max(min(p - first - 32 * q, LANES), 0), [&](int lane) {
            r_ik[q][lane] = c_i[first + 32 * q + lane];
            r_jk[q][lane] = c_j[first + 32 * q + lane];
        });
    }
    const auto of_i = [&](int q, int lane) { return r_ik[q][lane]; };
    const auto of_j = [&](int q, int lane) { return r_jk[q][lane]; };
#endif
    unsigned own = 0;
#pragma unroll
    for (int q = 0; q < AT_ONCE; ++q) {
        const unsigned separated = ballot(WHOLE ? LANES : max(min(p - first - 32 * q, LANES), 0), [&](int lane) {
            return given_one(r_ij, of_i(q, lane), of_j(q, lane))
                .independent(critical_r_squared, WITH_TOLERANCE ? 1.0 : 0.0);
        });
        if (own_word() == q) own = separated;
    }
    return own;
}

// A mask of the next `count` variables given which the test of Vi and Vj is undefined. It is rare, so not inlined.
__device__ __noinline__ unsigned undefined_given(const double* c_i, const double* c_j, int count,
                                                 double residual_tolerance) {
    return twins_among(c_i, count, residual_tolerance) | twins_among(c_j, count, residual_tolerance);
}

// A pair's end: its row of the matrix and of the graph, and whether it has no variance left given another variable.
struct PairEnd {
    const double* c;
    const unsigned* near;
    bool has_twin;
};

template <bool WITH_SMALLEST>
struct PairScanner {
    int p, words;
    double critical_r_squared, residual_tolerance;
    unsigned long long own_tests = 0, own_undefined = 0;  // the tests so far in the words that this thread counts
    double least = NOTHING_TESTED;                        // WITH_SMALLEST: the smallest r^2 of the last pair
    __device__ __forceinline__ unsigned long long tests() const { return sum_of_words(own_tests); }
    __device__ __forceinline__ unsigned long long undefined() const { return sum_of_words(own_undefined); }

    // Returns the member of the canonical set that separates Vi and Vj, i < j; -1 if there is none. The function counts
    // the tests up to the one that decides; this number is the same on every backend.
    __device__ __forceinline__ int scan(int i, int j, const PairEnd& of_i, const PairEnd& of_j) {
        const double *const c_i = of_i.c, *const c_j = of_j.c;
        const double r_ij = c_i[j];
        const bool with_twins = of_i.has_twin | of_j.has_twin;
        const int own = own_word();
        PerLane<double> least_of;
        if (WITH_SMALLEST) each_lane(LANES, [&](int lane) { least_of[lane] = NOTHING_TESTED; });
        int in_i = -1, in_j = -1;
        for (int w = 0; w < words && in_i < 0; w += AT_ONCE) {
            const unsigned a = of_i.near[w + own], b = of_j.near[w + own];
            unsigned tested = in_j < 0 ? a | b : a, undefined = 0;
            if (words_where(tested != 0) == 0) continue;
            unsigned hits;
            if (residual_tolerance == 0.0) {
                hits = separating<false, false>(c_i, c_j, r_ij, critical_r_squared, 32 * w, p);
            } else if (32 * (w + AT_ONCE) <= p) {
                hits = separating<true, true>(c_i, c_j, r_ij, critical_r_squared, 32 * w, p);
            } else {
                hits = separating<false, true>(c_i, c_j, r_ij, critical_r_squared, 32 * w, p);
            }
            if (with_twins) {
#pragma unroll
                for (int q = 0; q < AT_ONCE; ++q) {
                    const int first = 32 * (w + q), count = max(min(p - first, LANES), 0);
                    const unsigned in_word = undefined_given(c_i + first, c_j + first, count, residual_tolerance);
                    if (own == q) undefined = in_word;
                }
            }
            hits &= tested;
            if (words_where(hits != 0) != 0) {  // Hits of Vi and Vj themselves do not count.
                if (w + own == i / 32) tested &= ~(1u << (i % 32));
                if (w + own == j / 32) tested &= ~(1u << (j % 32));
                const unsigned separating_k = hits & tested & ~undefined;
                // `end` is the first word with a separating neighbour of Vi; `kept` is the first word before it with a
                // separating neighbour of Vj alone.
                const unsigned ending = words_where((separating_k & a) != 0);
                const int end = ending == 0 ? AT_ONCE : __ffs(ending) - 1;
                const unsigned keeping = in_j < 0 ? words_where(separating_k != 0) & ~(~0u << end) : 0;
                const int kept = keeping == 0 ? AT_ONCE : __ffs(keeping) - 1;
                if (own > kept) tested &= a;
                if (own == end) tested &= lanes_through(__ffs(separating_k & a) - 1);
                if (own > end) tested = 0;
                if (keeping != 0) in_j = 32 * (w + kept) + __ffs(of_word(separating_k, kept)) - 1;
                if (ending != 0) in_i = 32 * (w + end) + __ffs(of_word(separating_k & a, end)) - 1;
            }
            own_tests += __popc(tested);
            if (with_twins) own_undefined += __popc(undefined & tested);
            if (WITH_SMALLEST) {
                for (int q = 0; q < AT_ONCE; ++q) {
                    const unsigned defined = of_word(tested & ~undefined, q);
                    each_lane(LANES, [&](int lane) {
                        if (!(defined >> lane & 1)) return;
                        const int k = 32 * (w + q) + lane;
                        const double r_squared = given_one(r_ij, c_i[k], c_j[k]).r_squared(residual_tolerance);
                        if (r_squared < least_of[lane]) least_of[lane] = r_squared;
                    });
                }
            }
        }
        if (WITH_SMALLEST) least = smallest(least_of);
        return in_i >= 0 ? in_i : in_j;
    }
};
