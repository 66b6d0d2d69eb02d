// What the kernels of a pair-scan search share: gaussian/pair_scan.py, SEARCH, declares the same.
#pragma once

#include "engine/kernels/bit_graph.cuh"
#include "gaussian/kernels/fisher_z.cuh"

struct PairScan {
    const double* C;  // (p, p) correlations
    int p;
    int words;  // of a row of a graph
    // Level 0 and 1: see pair_scan.cu.
    unsigned* twins;
    unsigned char* has_twins;
    int* members;
    // What is left after a level: neighbours of each variable, and how many pairs with a larger one went.
    int* degrees;
    int* removed;
    // From level 2 on: rows of neighbours at the level's start, the best rank of each place, binomials for ranks, and
    // cells of warps whose rows are too long for shared memory.
    long long* starts;
    int* neighbours;
    unsigned long long* best;
    const unsigned long long* binomials;
    int max_degree;
    double* scratch;
    unsigned long long* smallest_r_squared;  // (p, p) bits of the smallest r^2 met in a level, or null
    unsigned long long* counters;            // COUNTERS of each level

    __device__ __forceinline__ long long cell(int i, int j) const { return static_cast<long long>(i) * p + j; }
    __device__ __forceinline__ unsigned long long* counters_of(int level) const { return counters + COUNTERS * level; }
};
