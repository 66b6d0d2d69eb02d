// Kernels of pair-scan that run before and after the tests of a level from 2 on. The tests are in a file of their own
// (prefix_scan.cu), so that a compiler has less to do for each kernel.
#include "gaussian/kernels/prefix_level.cuh"

// See prepare. Grid (any), block (warps).
__global__ void begin_level(const PairScan s, int level, int graph, int copy, int other_copy) {
    prepare(s, level, graph, copy, other_copy, run_of(level));
}

// See list_sets. Grid (any), block (warps).
__global__ void list_removed(const PairScan s, int level, int before, int after, int* pairs, int* sets) {
    list_sets(s, level, before, after, pairs, sets);
}
