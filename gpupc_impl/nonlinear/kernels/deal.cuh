// Work that the warps of a launch share out among themselves.
#pragma once

#include "nonlinear/kernels/warp.cuh"

// Which multiprocessor a block runs on.
__device__ __forceinline__ unsigned multiprocessor() {
#ifdef GPUPC_HOST
    return blockIdx.x;  // there is none
#else
    unsigned number;
    asm("mov.u32 %0, %%smid;" : "=r"(number));
    return number;
#endif
}

// Deals pieces of work, numbered from 0, to warps. Each multiprocessor has a share of its own, pieces that follow one
// another, so that its warps work beside each other on what it has in its cache. When that is done they help where most
// is left.
class Deal {
 public:
    // taken: (shares) pieces taken of each share, zeros before the launch.
    __device__ __forceinline__ Deal(unsigned* taken_, int pieces_, int shares_)
        : taken(taken_),
          pieces(pieces_),
          shares(shares_),
          share(static_cast<int>(multiprocessor() % static_cast<unsigned>(shares_))) {}

    // The next piece for the warp, all of whose threads ask; -1 when there is none.
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

    __device__ __forceinline__ int begin(int of) const {
        return static_cast<int>(static_cast<long long>(pieces) * of / shares);
    }

    // The share that has most left, or -1.
    __device__ __forceinline__ int fullest(const Warp& warp) const {
        int most = 0, where = -1;
        for (int other = warp.thread; other < shares; other += warp.threads) {
            const int left = begin(other + 1) - begin(other) - static_cast<int>(load_relaxed(&taken[other]));
            if (left > most) {
                most = left;
                where = other;
            }
        }
        for (int apart = 1; apart < warp.threads; apart *= 2) {
            const int its = __shfl_down_sync(warp.mask, most, apart);
            const int there = __shfl_down_sync(warp.mask, where, apart);
            if (warp.thread + apart < warp.threads && its > most) {
                most = its;
                where = there;
            }
        }
        return __shfl_sync(warp.mask, where, 0);
    }
};
