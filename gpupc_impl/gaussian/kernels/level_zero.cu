// Level 0 (cuPC, Algorithm 3): each thread tests one pair.
#include "backends/simt/portable.cuh"

// Grid (ceil(p / 32), ceil(p / 32)), block (32, 32).
__global__ void level_zero(const double* C, int p, double critical_r_squared, unsigned char* adjacency) {
    const int i = blockIdx.y * 32 + threadIdx.y;
    const int j = blockIdx.x * 32 + threadIdx.x;
    if (i >= p || j >= p || i > j) return;
    const double r = C[static_cast<long long>(i) * p + j];
    const bool edge = i != j && r * r > critical_r_squared;
    adjacency[static_cast<long long>(i) * p + j] = edge;
    adjacency[static_cast<long long>(j) * p + i] = edge;
}
