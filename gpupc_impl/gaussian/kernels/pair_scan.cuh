// Data and functions that the kernels of a pair-scan search share.
#pragma once

#include "engine/kernels/bit_graph.cuh"
#include "gaussian/kernels/fisher_z.cuh"

struct PairScan {
    BitGraphs graphs;
    const double* C;  // (p, p) correlations
    double residual_tolerance, pivot_tolerance;
    unsigned char* has_twin;  // (p): whether a variable has no variance left given some other one
    int* members;  // (p, p): at level 1 the member of a pair's separating set; in tiles a key (pair_block.cuh)
    unsigned long long* smallest_r_squared;  // (p, p) bits of the smallest r^2 of each pair in a level, or null
    // From level 2 on, the graph at the level's start (prefix_level.cuh).
    long long* starts;  // the neighbours of row i, ascending, begin at neighbours[starts[i]]
    int* neighbours;
    unsigned long long* best;        // for each neighbour the smallest rank of a separating set
    unsigned long long* run_starts;  // the number of runs of prefixes in the rows before
    const unsigned long long* binomials;
    int widest;       // the longest row for which the binomials suffice
    double* scratch;  // the cells of warps, if rows are too long for shared memory
    // Background knowledge: graphs of the required and of the forbidden edges, both null without it.
    const unsigned *required, *forbidden;

    __device__ __forceinline__ long long cell(int i, int j) const { return static_cast<long long>(i) * graphs.p + j; }
    // The required edges, which are never tested, in a word of row i.
    __device__ __forceinline__ unsigned untested(int i, int word) const {
        return required == nullptr ? 0 : BitRow(required, graphs.words, i).bits[word];
    }
};

// Lists the pairs removed in level 1, ascending, and the members of their sets.
__device__ __forceinline__ void list_members(const PairScan& s, int before, int after, int* pairs, int* sets) {
    each_removed(s.graphs, before, after, [&](int i, int j, long long slot) {
        pairs[2 * slot] = i;
        pairs[2 * slot + 1] = j;
        sets[slot] = s.members[s.cell(i, j)] & 0x7fffffff;  // The side of the key is removed.
    });
}
