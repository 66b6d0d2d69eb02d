// Rows of A'_G, the compacted graph (cuPC, section 3.3).
#pragma once

#include "engine/kernels/combinations.cuh"

// All rows at the start of a level, and the binomials from which ranks of subsets of a row are computed.
struct Rows {
    const int* neighbours;  // (p, stride): row i begins with the neighbours of Vi, ascending
    const int* degrees;     // (p): the number of neighbours of each variable
    Binomials binomial;
    int p, stride;
    __device__ __forceinline__ const int* of(int i) const { return neighbours + static_cast<long long>(i) * stride; }
};

// Row i of A'_G: the n neighbours of Vi in ascending order.
struct Row {
    int i, n;
    const int* neighbours;
};

// Copies row i into the block's shared memory; all threads of the block must call it. If rows do not fit into shared
// memory, kernels are launched with `use_shared` false and read rows in global memory.
__device__ __forceinline__ Row load_row(int i, int n, const int* stored, bool use_shared, int* shared) {
    if (!use_shared) return {i, n, stored};
    const int threads = blockDim.x * blockDim.y;
    for (int q = threadIdx.y * blockDim.x + threadIdx.x; q < n; q += threads) shared[q] = stored[q];
    __syncthreads();
    return {i, n, shared};
}
