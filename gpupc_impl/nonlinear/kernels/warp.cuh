// What the threads of a warp do together.
#pragma once

#include "backends/simt/portable.cuh"

// A warp, of which a block's last one may have less than 32 threads.
struct Warp {
    int thread, threads;
    unsigned mask;

    __device__ __forceinline__ Warp()
        : thread(threadIdx.x % 32),
          threads(min(32, static_cast<int>(blockDim.x) - static_cast<int>(threadIdx.x) / 32 * 32)),
          mask(~0u >> (32 - threads)) {}

    __device__ __forceinline__ void join() const { __syncwarp(mask); }

    // The sum of the numbers of the threads before this one.
    __device__ __forceinline__ int sum_before(int own) const {
        int sum = own;
        for (int apart = 1; apart < threads; apart *= 2) {
            const int other = __shfl_up_sync(mask, sum, apart);
            if (thread >= apart) sum += other;
        }
        return sum - own;
    }

    // The number of the first thread for which `mine` holds.
    template <class Number>
    __device__ __forceinline__ Number of(bool mine, Number own) const {
        return __shfl_sync(mask, own, __ffs(static_cast<int>(__ballot_sync(mask, mine))) - 1);
    }
};

// One of the parts that a range is divided into: its number, how many are counted in those before it, and in it.
struct Part {
    int number, before, inside;

    // The part with the `wanted`-th of all that is counted, which there is; found by all threads of a warp.
    __device__ static Part with(int wanted, const int* counts, int parts, const Warp& warp) {
        const int width = (parts + warp.threads - 1) / warp.threads;
        const int first = min(warp.thread * width, parts), last = min(first + width, parts);
        int own = 0;
        for (int p = first; p < last; ++p) own += counts[p];
        Part found{first, warp.sum_before(own), 0};
        const bool mine = found.before < wanted && wanted <= found.before + own;
        if (mine) {
            while (found.before + counts[found.number] < wanted) found.before += counts[found.number++];
            found.inside = counts[found.number];
        }
        return Part{warp.of(mine, found.number), warp.of(mine, found.before), warp.of(mine, found.inside)};
    }
};
