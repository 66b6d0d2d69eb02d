// Rows of A'_G, the compacted graph (cuPC, section 3.3).
#pragma once

#include "backends/simt/portable.cuh"

// Row i of A'_G: the n neighbours of Vi in ascending order.
struct Row {
    int i, n;
    const int* neighbours;
};

// Copies row i into the block's shared memory (all threads of the block must call it). A row too long for shared memory
// is launched without any and read where it is.
__device__ __forceinline__ Row load_row(int i, int n, const int* stored, bool use_shared, int* shared) {
    if (!use_shared) return {i, n, stored};
    const int threads = blockDim.x * blockDim.y;
    for (int q = threadIdx.y * blockDim.x + threadIdx.x; q < n; q += threads) shared[q] = stored[q];
    __syncthreads();
    return {i, n, shared};
}
