// A barrier of all threads of a cooperative launch, whose blocks are all resident at once.
#pragma once

#include "backends/simt/portable.cuh"

struct GridBarrier {
    // the number of blocks that have arrived at barriers of this launch; 0 when the launch begins
    unsigned long long* arrived;
    unsigned long long expected = 0;

    // Waits for all threads of the grid, every one of which must call it. Writes before it are then visible to all.
    __device__ __forceinline__ void wait() {
        expected += gridDim.x;
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd(arrived, 1ull);
            while (load_relaxed(arrived) < expected) {
            }
            __threadfence();
        }
        __syncthreads();
    }
};
