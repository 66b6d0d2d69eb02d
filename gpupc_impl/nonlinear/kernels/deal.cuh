// Dynamic scheduling of pieces of work to the warps of a launch, with locality.
#pragma once

#include "nonlinear/kernels/warp.cuh"

__device__ __forceinline__ unsigned multiprocessor() {
#ifdef GPUPC_HOST
    return blockIdx.x;  // The host has no multiprocessors, so this number stands for one.
#else
    unsigned number;
    asm("mov.u32 %0, %%smid;" : "=r"(number));
    return number;
#endif
}

// Assigns pieces of work, numbered from 0, to warps. Each multiprocessor has a share of consecutive pieces, so that its
// warps work at the same time on neighbouring pieces, whose data its cache holds. Once its share is done, its warps
// steal from the share with the most pieces left.
class Deal {
 public:
    // taken: (shares) how many pieces of each share were taken, zeros before the launch.
    __device__ __forceinline__ Deal(unsigned* taken_, int pieces_, int shares_)
        : taken(taken_),
          pieces(pieces_),
          shares(shares_),
          share(static_cast<int>(multiprocessor() % static_cast<unsigned>(shares_))) {}

    // The next piece for the warp, or -1 when none is left. All threads of the warp call this.
    __device__ __forceinline__ int next(const Warp& warp) {
        while (share >= 0) {
            int piece = 0;
            if (warp.thread == 0) piece = begin(share) + static_cast<int>(atomicAdd(&taken[share], 1u));
            piece = __shfl_sync(warp.mask, piece, 0);
            if (piece < begin(share + 1)) return piece;
            share = fullest(warp);
        }
        return -1;
    }

 private:
    unsigned* taken;
    int pieces, shares, share;

    // Returns the first piece of a share.
    __device__ __forceinline__ int begin(int of) const {
        return static_cast<int>(static_cast<long long>(pieces) * of / shares);
    }

    // Returns the share with the most pieces left; -1 if all are empty.
    __device__ __forceinline__ int fullest(const Warp& warp) const {
        int most = 0, fullest = -1;
        for (int other = warp.thread; other < shares; other += warp.threads) {
            const int left = begin(other + 1) - begin(other) - static_cast<int>(load_relaxed(&taken[other]));
            if (left > most) {
                most = left;
                fullest = other;
            }
        }
        for (int distance = 1; distance < warp.threads; distance *= 2) {
            const int other_most = __shfl_down_sync(warp.mask, most, distance);
            const int other_share = __shfl_down_sync(warp.mask, fullest, distance);
            if (warp.thread + distance < warp.threads && other_most > most) {
                most = other_most;
                fullest = other_share;
            }
        }
        return __shfl_sync(warp.mask, fullest, 0);
    }
};
