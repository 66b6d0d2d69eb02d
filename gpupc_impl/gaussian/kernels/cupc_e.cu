// cuPC-E (cuPC, section 3.3, Algorithm 4): a block takes beta edges of a row, and gamma threads take each edge.
#include "gaussian/kernels/edge_tests.cuh"

// Grid (p, ceil(n' / beta)), where n' is the largest degree, block (beta, gamma).
template <class Size>
__global__ void __launch_bounds__(MOST_THREADS, BLOCKS_AT_ONCE<Size>)
    cupc_e(const __grid_constant__ Rows rows, const __grid_constant__ Search search, bool use_shared) {
    GPUPC_DYNAMIC_SHARED(int, shared);
    const Size L(search.level);
    const int i = blockIdx.x, n = rows.degrees[i];
    const int beta = blockDim.x;
    if (n < L + 1) return;                                       // section 4.1, I
    if (static_cast<long long>(blockIdx.y) * beta >= n) return;  // section 4.1, II
    const Row row = load_row(i, n, rows.of(i), use_shared, shared);
    for (long long position = static_cast<long long>(blockIdx.y) * beta + threadIdx.x; position < n;
         position += static_cast<long long>(gridDim.y) * beta) {
        test_edge(search, L, rows.binomial, row, static_cast<int>(position), threadIdx.y, blockDim.y);
    }
}
