// Searching rows of the graph one by one, each with a best key an edge: what Search (gaussian/kernels/search.cuh) does
// for a whole matrix of best keys.
#pragma once

#include "gaussian/kernels/search.cuh"

struct RowSearch {
    unsigned long long* keys;           // best key of the edge to each neighbour
    unsigned long long* min_r_squared;  // bits of the smallest r^2 met with each neighbour, or null
    unsigned long long* counters;       // see Tally
    Binomials binomial;
    double critical_r_squared, residual_tolerance, pivot_tolerance;
    bool first_come;

    __device__ __forceinline__ unsigned long long found(long long slot) const { return load_relaxed(&keys[slot]); }

    // Whether a test with this key can no longer change the answer, given the best key found so far.
    __device__ __forceinline__ bool settled(unsigned long long found, unsigned long long key) const {
        return ::settled(first_come, found, key);
    }

    // The test behind `key` of the edge at `slot`; `mirror` is where the same edge stands in its other end's row.
    __device__ __forceinline__ void test(Tally& tally, const Residuals& h, long long slot, long long mirror,
                                         unsigned long long key) const {
        ++tally.tests;
        if (h.undefined(residual_tolerance)) {
            ++tally.undefined;
            return;
        }
        if (min_r_squared != nullptr) {
            const unsigned long long bits = __double_as_longlong(h.r_squared(residual_tolerance));
            atomicMin(&min_r_squared[slot], bits);
        }
        if (h.independent(critical_r_squared, residual_tolerance)) {
            atomicMin(&keys[slot], key);
            if (mirror != slot) atomicMin(&keys[mirror], key);
        }
    }
};
