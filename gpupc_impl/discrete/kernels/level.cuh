// The description of one level from 1 on for the kernels that make its tests.
#pragma once

#include "discrete/kernels/decide.cuh"
#include "engine/kernels/rows.cuh"
#include "engine/kernels/tally.cuh"

struct Level {
    Rows rows;
    int level;
    int side;                           // 0: the sets from adj(i) of an edge (i, j), i < j; 1: those from adj(j)
    unsigned long long tests_per_edge;  // the number of tests per edge of a workload; 0: all tests are made
    unsigned long long* counters;       // see Tally

    // The number of row i's sets that are tried for its edge to j in this launch. A set of side 1 can be the answer
    // only if no set of side 0 separates, so each side has its own launch. A workload tries the first tests_per_edge
    // sets of an edge, those from the neighbours of the smaller index first (gpuPC, section 4.1).
    __device__ __forceinline__ unsigned long long sets_to_try(int i, int j) const {
        if ((i < j) != (side == 0)) return 0;
        const unsigned long long sets = rows.binomial(rows.degrees[i] - 1, level);
        if (tests_per_edge == 0) return sets;
        if (i < j) return min(sets, tests_per_edge);
        const int degree = rows.degrees[j];
        const unsigned long long before = degree > level ? rows.binomial(degree - 1, level) : 0;
        return before >= tests_per_edge ? 0 : min(sets, tests_per_edge - before);
    }

    // Writes the members of set number t of the `degree` neighbours of a row without the one at `position`.
    __device__ __forceinline__ void set_members(const int* neighbours, int degree, long long position,
                                                unsigned long long t, int* members) const {
        unrank_combination(rows.binomial, degree - 1, level, t, members);
#pragma unroll 1
        for (int a = 0; a < level; ++a) members[a] = neighbours[members[a] + (members[a] >= position)];
    }
};
