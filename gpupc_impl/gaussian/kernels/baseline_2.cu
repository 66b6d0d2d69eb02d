// Baseline 2 (cuPC, section 5.3): a block takes an edge, and its threads make the tests of the edge in parallel.
#include "gaussian/kernels/edge_tests.cuh"

// Grid (p, n'), where n' is the largest degree, block (threads).
template <class Size>
__global__ void __launch_bounds__(1024)
    baseline_2(const __grid_constant__ Rows rows, const __grid_constant__ Search search, bool use_shared) {
    GPUPC_DYNAMIC_SHARED(int, shared);
    const Size L(search.level);
    const int i = blockIdx.x, n = rows.degrees[i];
    if (n < L + 1 || static_cast<int>(blockIdx.y) >= n) return;
    const Row row = load_row(i, n, rows.of(i), use_shared, shared);
    for (int position = blockIdx.y; position < n; position += gridDim.y) {
        test_edge(search, L, rows.binomial, row, position, threadIdx.x, blockDim.x);
    }
}
