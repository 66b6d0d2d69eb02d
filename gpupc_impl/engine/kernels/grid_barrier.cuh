// A barrier of all the threads of a launch, whose blocks must all be on the device (`cooperative=True` at the launch).
#pragma once

#include "backends/simt/portable.cuh"

struct GridBarrier {
    unsigned long long* arrived;  // blocks that have come to barriers of this launch; 0 when it begins
    unsigned long long expected = 0;

    // What any thread wrote before, all of them read after. Every thread of the grid must come here.
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
