// What the kernels of levels from 1 on share.
#pragma once

#include "discrete/kernels/decide.cuh"
#include "engine/kernels/rows.cuh"
#include "engine/kernels/tally.cuh"

struct Level {
    Rows rows;
    int level;
    int side;                           // 0: of an edge (i, j), i < j, the sets from adj(i); 1: those from adj(j)
    unsigned long long tests_per_edge;  // of a workload; 0: all
    unsigned long long* counters;       // see Tally

    // How many of row i's sets are tried for its edge to j in this launch. The sets of side 1 can only be the answer
    // where none of side 0 separates, so they wait for those; then: all, or a workload's, which are the edge's first
    // ones and start with those of the smaller index (gpuPC, section 4.1).
    __device__ __forceinline__ unsigned long long sets_to_try(int i, int j) const {
        if ((i < j) != (side == 0)) return 0;
        const unsigned long long sets = rows.binomial(rows.degrees[i] - 1, level);
        if (tests_per_edge == 0) return sets;
        if (i < j) return min(sets, tests_per_edge);
        const int degree = rows.degrees[j];
        const unsigned long long before = degree > level ? rows.binomial(degree - 1, level) : 0;
        return before >= tests_per_edge ? 0 : min(sets, tests_per_edge - before);
    }
};
