// Warps of any size up to 32 threads, and computations of their threads.
#pragma once

#include "backends/simt/portable.cuh"

// The warp of the calling thread; the last warp of a block may have fewer than 32 threads.
struct Warp {
    int thread, threads;
    unsigned mask;

    __device__ __forceinline__ Warp()
        : thread(threadIdx.x % 32),
          threads(min(32, static_cast<int>(blockDim.x) - static_cast<int>(threadIdx.x) / 32 * 32)),
          mask(~0u >> (32 - threads)) {}
    __device__ __forceinline__ void join() const { __syncwarp(mask); }

    // Exclusive prefix sum: the sum of the numbers of the threads before this one.
    __device__ __forceinline__ int sum_before(int own) const {
        int sum = own;
        for (int distance = 1; distance < threads; distance *= 2) {
            const int other = __shfl_up_sync(mask, sum, distance);
            if (thread >= distance) sum += other;
        }
        return sum - own;
    }

    // Returns the value of the first thread whose `chosen` is true.
    template <class Value>
    __device__ __forceinline__ Value broadcast(bool chosen, Value own) const {
        return __shfl_sync(mask, own, __ffs(static_cast<int>(__ballot_sync(mask, chosen))) - 1);
    }
};

// The bin of a histogram with the `rank`-th item, counted from 1, which must exist. All threads of a warp call this.
__device__ inline int bin_with(int rank, const int* counts, int bins, const Warp& warp) {
    const int width = (bins + warp.threads - 1) / warp.threads;
    const int first = min(warp.thread * width, bins), last = min(first + width, bins);
    int own = 0;
    for (int b = first; b < last; ++b) own += counts[b];
    int bin = first, before = warp.sum_before(own);
    const bool chosen = before < rank && rank <= before + own;
    if (chosen) {
        while (before + counts[bin] < rank) before += counts[bin++];
    }
    return warp.broadcast(chosen, bin);
}
