// Which tests are made many at a time (batches.cu).
#pragma once

#include "discrete/kernels/tables.cuh"

// Which tests these are, and a warp's room in shared memory. discrete/device.py, BATCHES, declares the same.
struct Batches {
    unsigned cells;  // of a table, without sums of columns, at most; 0: none
    int words;       // room for the counts of strata that are worked on, with sums of columns
    int parts;       // room for the shares that strata have in their tests' statistics
    int splits;      // blocks that share out the sets of an edge

    // Counts from one stratum to the next: an odd number, so that lanes meet in few banks.
    __device__ __forceinline__ static int stride(const Shape& shape) { return static_cast<int>(shape.block()) | 1; }

    // Whether a test's table is made this way; `last`: the categories of the last member.
    __device__ __forceinline__ bool fit(const Shape& shape, int last) const {
        return shape.strata * shape.rows * shape.columns <= cells &&
               shape.strata <= static_cast<unsigned long long>(parts) &&
               static_cast<unsigned long long>(stride(shape)) * last <= static_cast<unsigned long long>(words);
    }

    // The same of a test with these members, which all have planes then.
    template <class Code>
    __device__ __forceinline__ bool take(const Data<Code>& data, const Shape& shape, const int* members,
                                         int level) const {
        return cells != 0 && fit(shape, data.categories[members[level - 1]]) &&
               all_have_planes(data, shape, members, level);
    }
};
