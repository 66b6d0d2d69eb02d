// Baseline 1 (cuPC, section 5.3): a block a row, a thread an edge, an edge's tests in sequence.
#include "gaussian/kernels/edge_tests.cuh"

// Grid (p), block (threads).
template <int L>
__global__ void __launch_bounds__(512)
    baseline_1(const double* C, int p, const int* rows, int stride, const int* degrees,
               const unsigned long long* binomials, int max_degree, double critical_r_squared, unsigned long long* best,
               unsigned long long* min_r_squared, int first_come, unsigned long long* counters, int use_shared) {
    GPUPC_DYNAMIC_SHARED(int, shared);
    const int i = blockIdx.x, n = degrees[i];
    if (n < L + 1) return;
    const Search search{C, critical_r_squared, {best, p, first_come != 0}, min_r_squared};
    const Binomials binomial{binomials, max_degree};
    const Row row = load_row(i, n, rows + static_cast<long long>(i) * stride, use_shared != 0, shared);
    for (int position = threadIdx.x; position < n; position += blockDim.x) {
        test_edge<L>(search, counters, binomial, row, position, 0, 1);
    }
}
