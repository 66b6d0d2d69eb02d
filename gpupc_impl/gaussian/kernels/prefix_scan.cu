// pair-scan, a level from 2 on in four launches: begin_level, prefix_scan for either side, list_removed. side_scan.cuh
// describes how the tests are made.
#include "gaussian/kernels/prefix_level.cuh"

// See prepare. Grid (any), block (warps).
template <int L>
__global__ void begin_level(const PairScan s, int graph, int copy, int other_copy, int requested_run) {
    prepare(s, L, graph, copy, other_copy, requested_run);
}

// See scan_side. Grid (any), block (warps), dynamic shared memory: the cells of each warp, unless they are in
// s.scratch.
template <int L, bool WITH_SMALLEST, bool IN_SHARED>
__global__ void __launch_bounds__(128, 5) prefix_scan(const PairScan s, double critical_r_squared, int start, int left,
                                                      int side, int requested_run, int longest) {
    GPUPC_DYNAMIC_SHARED(double, shared);
    const long long of_warp = cells_of_warp<L>(longest);
    double* const cells =
        (IN_SHARED ? shared : s.scratch + blockIdx.x * warp_count() * of_warp) + warp_index() * of_warp;
    scan_side<L, WITH_SMALLEST>(s, critical_r_squared, start, left, side, requested_run, longest, cells);
}

// See list_sets. Grid (any), block (warps).
template <int L>
__global__ void list_removed(const PairScan s, int before, int after, int* pairs, int* sets) {
    list_sets(s, L, before, after, pairs, sets);
}
