// Combinations by rank, one a thread.
#include "backends/simt/portable.cuh"
#include "engine/kernels/combinations.cuh"

__global__ void unrank(const unsigned long long* binomials, int max_n, int n, int level,
                       const unsigned long long* ranks, int count, int* out) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < count) unrank_combination(Binomials{binomials, max_n}, n, level, ranks[t], out + t * level);
}
