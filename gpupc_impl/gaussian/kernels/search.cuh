// What the Gaussian kernels of one level share: the tests' data, their decision and where it goes.
#pragma once

#include "engine/kernels/combinations.cuh"
#include "engine/kernels/keys.cuh"
#include "engine/kernels/rows.cuh"
#include "engine/kernels/tally.cuh"
#include "gaussian/kernels/fisher_z.cuh"

// Blocks of 512 threads that a multiprocessor shall have registers for, by level: as many as do without many spills.
// The compiler's own choice changes with details of the code, between half and twice as many.
template <int L>
constexpr int BLOCKS_AT_ONCE = L < 3 ? 4 - L : 1;

struct Search {
    const double* C;  // (p, p) correlations
    double critical_r_squared, residual_tolerance, pivot_tolerance;
    BestKeys best;
    unsigned long long* min_r_squared;  // (p, p) bits of the smallest r^2 met, or null
    unsigned long long* counters;       // see Tally

    // The test of Vi and Vj given the set that the key names.
    __device__ __forceinline__ void test(Tally& tally, const Residuals& h, int i, int j, unsigned long long key) const {
        ++tally.tests;
        if (h.undefined(residual_tolerance)) {
            ++tally.undefined;
            return;
        }
        if (min_r_squared != nullptr) {
            const unsigned long long bits =
                __double_as_longlong(h.r_squared(residual_tolerance));  // ordered as the numbers are
            atomicMin(&min_r_squared[i < j ? best.cell(i, j) : best.cell(j, i)], bits);
        }
        if (h.independent(critical_r_squared, residual_tolerance)) best.separate(i, j, key);
    }
};
