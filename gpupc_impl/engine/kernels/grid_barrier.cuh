// A barrier of all threads of a cooperative launch, whose blocks are all resident at once.
#pragma once

#include "backends/simt/portable.cuh"

struct GridBarrier {
    unsigned long long* arrived;  // arrivals of blocks at barriers of this launch; 0 when it begins
    unsigned long long expected = 0;

    // Waits for all threads of the grid, every one of which must call it; what they wrote before is then visible to
    // all.
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
