// Defines which tests are made in batches (batches.cu), so that batches and the other kernels agree.
#pragma once

#include "discrete/kernels/planes.cuh"

// The limits of a batch, including its use of shared memory.
struct Batches {
    unsigned cells;  // the largest number of cells of a table, without sums of columns; 0: there are no batches
    int words;       // the number of counts of the strata that are counted at once, with sums of columns
    int parts;       // the number of terms of all strata in the statistics of a batch's tests
    int splits;      // the number of blocks that share the sets of an edge
    // The distance between the counts of two strata, an odd number, so that lanes have few bank conflicts.
    __device__ __forceinline__ static int stride(const Shape& shape) { return static_cast<int>(shape.block()) | 1; }
    // Returns whether a table is small enough for a batch; `last` is the number of categories of the set's last member.
    __device__ __forceinline__ bool fit(const Shape& shape, int last) const {
        return shape.strata * shape.rows * shape.columns <= cells &&
               shape.strata <= static_cast<unsigned long long>(parts) &&
               static_cast<unsigned long long>(stride(shape)) * last <= static_cast<unsigned long long>(words);
    }

    // Whether this set's test is made in a batch: its table is small enough, and all variables have planes.
    __device__ __forceinline__ bool take(const Variables& variables, const Shape& shape, const int* members,
                                         int level) const {
        return cells != 0 && fit(shape, variables.categories[members[level - 1]]) &&
               all_have_planes(variables, shape, members, level);
    }
};
