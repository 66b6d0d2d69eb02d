// What the kernels of a pair-scan search share: gaussian/pair_scan.py, SEARCH, declares the same.
#pragma once

#include "engine/kernels/bit_graph.cuh"
#include "gaussian/kernels/fisher_z.cuh"

struct PairScan {
    BitGraphs graphs;
    const double* C;  // (p, p) correlations
    double residual_tolerance, pivot_tolerance;
    // Levels 0 and 1: see pair_scan.cu. Behind tiles the members have a side in bit 31 (pair_block.cuh).
    unsigned char* has_twin;
    int* members;
    unsigned long long* smallest_r_squared;  // (p, p) bits of the smallest r^2 met in a level, or null
    // From level 2 on, the graph at its start: row i's neighbours, ascending, from neighbours[starts[i]] on; for each
    // the best rank found; the runs of prefixes in the rows before (prefix_scan.cu); binomials for rows of up to
    // `widest`.
    long long* starts;
    int* neighbours;
    unsigned long long* best;
    unsigned long long* run_starts;
    const unsigned long long* binomials;
    int widest;
    double* scratch;  // cells of warps, where rows are too long for shared memory
    // Background knowledge, both or none: graphs of the edges that stay and of those that are none from the start.
    const unsigned *required, *forbidden;

    __device__ __forceinline__ long long cell(int i, int j) const { return static_cast<long long>(i) * graphs.p + j; }
    // Of a word of row i, the edges that are required, and so never tested.
    __device__ __forceinline__ unsigned untested(int i, int word) const {
        return required == nullptr ? 0 : BitRow(required, graphs.words, i).bits[word];
    }
};

// Lists the pairs removed in level 1, ascending, and the member of their set.
__device__ __forceinline__ void list_members(const PairScan& s, int before, int after, int* pairs, int* sets) {
    each_removed(s.graphs, before, after, [&](int i, int j, long long slot) {
        pairs[2 * slot] = i;
        pairs[2 * slot + 1] = j;
        sets[slot] = s.members[s.cell(i, j)] & 0x7fffffff;
    });
}
