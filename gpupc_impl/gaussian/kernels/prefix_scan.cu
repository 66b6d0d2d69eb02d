// pair-scan, a level from 2 on in four launches: begin_level, prefix_scan for either side, list_removed
// (prefix_level.cu). side_scan.cuh describes how the tests are made.
#include "gaussian/kernels/side_scan.cuh"

// See scan_side; Size is Exactly<level> or UpTo<a larger level>. Grid (any), block (warps), dynamic shared memory: the
// cells of each warp, unless they are in s.scratch.
template <class Size, bool WITH_SMALLEST, bool IN_SHARED>
__global__ void __launch_bounds__(128, 5)
    prefix_scan(const PairScan s, int level, double critical_r_squared, int start, int left, int side, int longest) {
    GPUPC_DYNAMIC_SHARED(double, shared);
    const Size size(level);
    const long long of_warp = cells_of_warp(size, longest);
    double* const cells =
        (IN_SHARED ? shared : s.scratch + blockIdx.x * warp_count() * of_warp) + warp_index() * of_warp;
    scan_side<WITH_SMALLEST>(s, size, critical_r_squared, start, left, side, run_of(level), longest, cells);
}
