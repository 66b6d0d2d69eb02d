// Early stopping: ends tests whose verdict no further permutation can change.
//
// A set separates if at least `critical` permutations have a CMI that reaches the data's. This is decided as soon as
// that many were counted, or as soon as the count would stay smaller even if all remaining permutations reached it.
#include "nonlinear/kernels/tests.cuh"

// Adds to `counts` the permutations among the replicates first, ..., last - 1 that reach the data's CMI, replicate 0,
// and closes the tests that are decided. A thread for each test.
__global__ void close_tests(const __grid_constant__ Tests tests, int first, int last, int critical, int* counts) {
    const int test = blockIdx.x * blockDim.x + threadIdx.x;
    if (test >= tests.count || tests.closed(test)) return;
    const unsigned long long* own = tests.sums(test);
    int count = counts[test];
    for (int replicate = max(first, 1); replicate < last; ++replicate) {  // A larger CMI has a smaller partial.
        count += static_cast<long long>(own[replicate]) <= static_cast<long long>(own[0]);
    }
    counts[test] = count;
    tests.open[test] = count < critical && count + (tests.all_replicates - last) >= critical;
}
