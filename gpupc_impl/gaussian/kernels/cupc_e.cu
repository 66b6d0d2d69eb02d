// cuPC-E (cuPC, section 3.3, Algorithm 4): beta edges of a row a block, gamma threads an edge.
#include "gaussian/kernels/edge_tests.cuh"

// Grid (p, ceil(n' / beta)), block (beta, gamma).
template <int L>
__global__ void __launch_bounds__(512)
    cupc_e(const double* C, int p, const int* rows, int stride, const int* degrees, const unsigned long long* binomials,
           int max_degree, double critical_r_squared, unsigned long long* best, unsigned long long* min_r_squared,
           int first_come, unsigned long long* counters, int use_shared) {
    GPUPC_DYNAMIC_SHARED(int, shared);
    const int i = blockIdx.x, n = degrees[i];
    const int beta = blockDim.x;
    if (n < L + 1) return;                                       // section 4.1, I
    if (static_cast<long long>(blockIdx.y) * beta >= n) return;  // section 4.1, II
    const Search search{C, critical_r_squared, {best, p, first_come != 0}, min_r_squared};
    const Binomials binomial{binomials, max_degree};
    const Row row = load_row(i, n, rows + static_cast<long long>(i) * stride, use_shared != 0, shared);
    for (long long position = static_cast<long long>(blockIdx.y) * beta + threadIdx.x; position < n;
         position += static_cast<long long>(gridDim.y) * beta) {
        test_edge<L>(search, counters, binomial, row, static_cast<int>(position), threadIdx.y, blockDim.y);
    }
}
