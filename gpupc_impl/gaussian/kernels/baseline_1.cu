// Baseline 1 (cuPC, section 5.3): a block takes a row, and a thread makes all tests of an edge in sequence.
#include "gaussian/kernels/edge_tests.cuh"

// Grid (p), block (threads).
template <class Size>
__global__ void __launch_bounds__(MOST_THREADS, BLOCKS_AT_ONCE<Size>)
    baseline_1(const __grid_constant__ Rows rows, const __grid_constant__ Search search, bool use_shared) {
    GPUPC_DYNAMIC_SHARED(int, shared);
    const Size L(search.level);
    const int i = blockIdx.x, n = rows.degrees[i];
    if (n < L + 1) return;
    const Row row = load_row(i, n, rows.of(i), use_shared, shared);
    for (int position = threadIdx.x; position < n; position += blockDim.x) {
        test_edge(search, L, rows.binomial, row, position, 0, 1);
    }
}
