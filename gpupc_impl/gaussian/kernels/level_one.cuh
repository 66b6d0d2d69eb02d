// Level 1 of a pair, written with the warp of engine/kernels/warp.cuh: the test of (i, j, k) is the same from either
// end, so one ascending pass over k serves both sides. A hit in adj(i) ends the pass; the first hit in adj(j) is kept
// in case adj(i) has none. That is the canonical separating set, without keys or atomics. Decisions are those of
// fisher_z.cuh to the bit.
#pragma once

#include "engine/kernels/bit_graph.cuh"
#include "gaussian/kernels/fisher_z.cuh"

// Of the `count` variables whose correlations with another begin at `c`: those that have no variance left given it. The
// variable itself is among them.
__device__ __forceinline__ unsigned twins_among(const double* c, int count, double residual_tolerance) {
    return ballot(count, [&](int lane) {
        const double r = c[lane];
        return fma(-r, r, 1.0) <= residual_tolerance;
    });
}

constexpr double NOTHING_TESTED = 1e300;

#ifdef GPUPC_HOST
constexpr int AT_ONCE = 1;
#else
constexpr int AT_ONCE = 4;  // words of 32 variables, whose loads are in flight together
#endif

struct Words {
    unsigned at[AT_ONCE];

    __device__ __forceinline__ Words() {}
    __device__ __forceinline__ explicit Words(const unsigned* bits) {
#ifdef GPUPC_HOST
        at[0] = *bits;
#else
        const uint4 four = *reinterpret_cast<const uint4*>(bits);
        at[0] = four.x, at[1] = four.y, at[2] = four.z, at[3] = four.w;
#endif
    }
    __device__ __forceinline__ unsigned any() const {
        unsigned together = 0;
#pragma unroll
        for (int q = 0; q < AT_ONCE; ++q) together |= at[q];
        return together;
    }
    __device__ __forceinline__ int count() const {
        int n = 0;
#pragma unroll
        for (int q = 0; q < AT_ONCE; ++q) n += __popc(at[q]);
        return n;
    }
};

// H of the test of Vi and Vj given Vk.
__device__ __forceinline__ Residuals given_one(double r_ij, double r_ik, double r_jk) {
    return {fma(-r_ik, r_ik, 1.0), fma(-r_jk, r_jk, 1.0), fma(-r_ik, r_jk, r_ij)};
}

// Which of the variables from `first` on separate Vi and Vj, where the test is defined; WITH_TOLERANCE: whether the
// problem's is above zero.
template <bool WHOLE, bool WITH_TOLERANCE>
__device__ __forceinline__ Words separating(const double* c_i, const double* c_j, double r_ij,
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
    Words found;
#pragma unroll
    for (int q = 0; q < AT_ONCE; ++q) {
        found.at[q] = ballot(WHOLE ? LANES : max(min(p - first - 32 * q, LANES), 0), [&](int lane) {
            return given_one(r_ij, of_i(q, lane), of_j(q, lane))
                .independent(critical_r_squared, WITH_TOLERANCE ? 1.0 : 0.0);
        });
    }
    return found;
}

// Of the next `count` variables those given which the test of two others is undefined. Out of line, since it is rare
// and registers are short.
__device__ __noinline__ unsigned undefined_given(const double* c_i, const double* c_j, int count,
                                                 double residual_tolerance) {
    return twins_among(c_i, count, residual_tolerance) | twins_among(c_j, count, residual_tolerance);
}

// A variable's whole row of the matrix and of the graph; has_twin: whether it has no variance left given another one.
struct PairEnd {
    const double* c;
    const unsigned* near;
    bool has_twin;
};

// The scans of a warp.
template <bool WITH_SMALLEST>
struct PairScanner {
    int p, words;
    double critical_r_squared, residual_tolerance;
    unsigned long long tests = 0, undefined = 0;  // made so far
    double least = NOTHING_TESTED;                // r^2 met for the last pair, WITH_SMALLEST

    // The member of the set that separates Vi and Vj, i < j; -1 where there is none. Counted are the tests up to the
    // one that decides.
    __device__ __forceinline__ int scan(int i, int j, const PairEnd& of_i, const PairEnd& of_j) {
        const double *const c_i = of_i.c, *const c_j = of_j.c;
        const double r_ij = c_i[j];
        const bool with_twins = of_i.has_twin | of_j.has_twin;
        PerLane<double> least_of;
        if (WITH_SMALLEST) each_lane(LANES, [&](int lane) { least_of[lane] = NOTHING_TESTED; });
        int in_i = -1, in_j = -1;
        for (int w = 0; w < words && in_i < 0; w += AT_ONCE) {
            const Words a(of_i.near + w), b(of_j.near + w);
            Words tested, vain;
#pragma unroll
            for (int q = 0; q < AT_ONCE; ++q) {
                tested.at[q] = in_j < 0 ? a.at[q] | b.at[q] : a.at[q];
                vain.at[q] = 0;
            }
            if (tested.any() == 0) continue;
            Words hits;
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
                    vain.at[q] = undefined_given(c_i + first, c_j + first, count, residual_tolerance);
                }
            }
#pragma unroll
            for (int q = 0; q < AT_ONCE; ++q) hits.at[q] &= tested.at[q];
            if (hits.any() != 0) {  // Vi and Vj themselves are always among them
#pragma unroll
                for (int q = 0; q < AT_ONCE; ++q) {
                    if (in_j >= 0) tested.at[q] &= a.at[q];
                    if (w + q == i / 32) tested.at[q] &= ~(1u << (i % 32));
                    if (w + q == j / 32) tested.at[q] &= ~(1u << (j % 32));
                    if (in_i >= 0) tested.at[q] = 0;
                    const unsigned found = hits.at[q] & tested.at[q] & ~vain.at[q];
                    if ((found & a.at[q]) != 0) {
                        const int lane = __ffs(found & a.at[q]) - 1;
                        in_i = 32 * (w + q) + lane;
                        tested.at[q] &= lanes_through(lane);
                    } else if (found != 0 && in_j < 0) {
                        in_j = 32 * (w + q) + __ffs(found) - 1;
                    }
                }
            }
            tests += tested.count();
            if (with_twins) {
#pragma unroll
                for (int q = 0; q < AT_ONCE; ++q) undefined += __popc(vain.at[q] & tested.at[q]);
            }
            if (WITH_SMALLEST) {
                for (int q = 0; q < AT_ONCE; ++q) {
                    each_lane(LANES, [&](int lane) {
                        if (!((tested.at[q] & ~vain.at[q]) >> lane & 1)) return;
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
