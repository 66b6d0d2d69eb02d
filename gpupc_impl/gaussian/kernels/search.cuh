// What cuPC's kernels share: the data of a level's tests, their decision, and the storage of the results.
#pragma once

#include "engine/kernels/combinations.cuh"
#include "engine/kernels/keys.cuh"
#include "engine/kernels/rows.cuh"
#include "engine/kernels/tally.cuh"
#include "gaussian/kernels/fisher_z.cuh"

constexpr int MOST_THREADS = 512;  // the threads of a thread block

// The number of thread blocks of MOST_THREADS for which a multiprocessor must have registers: the largest that causes
// few spills at this level. Without this bound the compiler's choice varies with details by a factor of two either way.
template <class Size>
constexpr int BLOCKS_AT_ONCE = Size::MOST < 3 ? 4 - Size::MOST : 1;

struct Search {
    const double* C;  // (p, p) correlations
    double critical_r_squared, residual_tolerance, pivot_tolerance;
    BestKeys best;
    unsigned long long* min_r_squared;  // (p, p) bits of the smallest r^2 of each pair, or null
    unsigned long long* counters;       // see Tally
    int level;                          // the members of a set

    // The test of Vi and Vj given the set that the key names.
    __device__ __forceinline__ void test(Tally& tally, const Residuals& h, int i, int j, unsigned long long key) const {
        ++tally.tests;
        if (h.undefined(residual_tolerance)) {
            ++tally.undefined;
            return;
        }
        if (min_r_squared != nullptr) {
            const unsigned long long bits =
                __double_as_longlong(h.r_squared(residual_tolerance));  // The bits have the same order as the numbers.
            atomicMin(&min_r_squared[i < j ? best.cell(i, j) : best.cell(j, i)], bits);
        }
        if (h.independent(critical_r_squared, residual_tolerance)) best.separate(i, j, key);
    }
};
