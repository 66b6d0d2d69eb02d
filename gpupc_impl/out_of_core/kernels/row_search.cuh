// The tests of single rows of the graph: like Search (gaussian/kernels/search.cuh), but with a best key for each slot
// of a row instead of a p x p matrix of best keys.
#pragma once

#include "gaussian/kernels/search.cuh"

struct RowSearch {
    unsigned long long* keys;           // the best key of each slot
    unsigned long long* min_r_squared;  // the bits of the smallest r^2 of each slot, or null
    unsigned long long* counters;       // see Tally
    Binomials binomial;
    double critical_r_squared, residual_tolerance, pivot_tolerance;
    int level;  // the members of a set
    bool first_come;

    __device__ __forceinline__ unsigned long long best_key(long long slot) const { return load_relaxed(&keys[slot]); }

    // Returns whether a test with this key can no longer change the answer, given the best key so far.
    __device__ __forceinline__ bool settled(unsigned long long best, unsigned long long key) const {
        return ::settled(first_come, best, key);
    }

    // Decides the test with residuals h and the given key for the edge at `slot`, and counts it. `mirror` is the slot
    // of the same edge in the other end's row, or `slot` if there is none.
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
