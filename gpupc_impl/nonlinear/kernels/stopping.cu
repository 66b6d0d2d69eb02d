// Ends tests whose verdict no further permutation can change.
#include "nonlinear/kernels/tests.cuh"

// Count which permutations of the lanes from `first` on, up to `last`, reach the data's CMI (lane 0), and close the
// tests whose count has come to `critical`, or cannot with the lanes that are left. A thread a test.
__global__ void close_tests(const __grid_constant__ Tests tests, int first, int last, int critical, int* counts) {
    const int test = blockIdx.x * blockDim.x + threadIdx.x;
    if (test >= tests.count || tests.closed(test)) return;
    const unsigned long long* own = tests.sums(test);
    int count = counts[test];
    for (int lane = max(first, 1); lane < last; ++lane) {  // a larger CMI has a smaller partial
        count += static_cast<long long>(own[lane]) <= static_cast<long long>(own[0]);
    }
    counts[test] = count;
    tests.open[test] = count < critical && count + (tests.row - last) >= critical;
}
