// The random numbers of the nonlinear family: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011), a function of a 128-bit counter (c0, c1, c2, c3) and a 64-bit key (k0, k1) to four 32-bit words.
//
// A number depends on the seed, the permuted variable, S, the permutation and the sample alone:
//
//   Key.     It starts as (k0, k1) = (0, 0). For each word w of
//              seed mod 2^32, seed div 2^32, permuted variable, |S|, members of S in ascending order
//            in turn, (k0, k1) becomes the first two words of philox(counter (w, 0, 0, FOLD = 0), key (k0, k1)).
//   Words.   Words 4q, ..., 4q + 3 of sample a in permutation m (both from 0) are those of
//              philox(counter (a, m, q, DRAW = 1), key).
//   Priority. That of sample a in m is the 64-bit number of words 0 (high) and 1 (low) with its low 24 bits replaced by
//            a, so that no two samples have the same one. Samples take their turn in ascending order of priorities.
//   Draw.    Draw y = 0, 1, ... of a in m is word w = 2 + y; a number below `bound` is (w * bound) div 2^32.
#pragma once

#include "backends/simt/portable.cuh"

constexpr unsigned PHILOX_FOLD = 0, PHILOX_DRAW = 1;
constexpr unsigned INDEX_MASK = 0xffffffu;  // the low bits of a priority, which contain the sample's index

struct Words {
    unsigned w[4];
};

__device__ __forceinline__ Words philox(unsigned c0, unsigned c1, unsigned c2, unsigned c3, unsigned k0, unsigned k1) {
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const unsigned high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        const unsigned high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return Words{{c0, c1, c2, c3}};
}

struct Key {
    unsigned k0 = 0, k1 = 0;
    __device__ __forceinline__ void fold(unsigned word) {
        const Words next = philox(word, 0, 0, PHILOX_FOLD, k0, k1);
        k0 = next.w[0];
        k1 = next.w[1];
    }

    // Words 4q, ..., 4q + 3 of a sample in a permutation.
    __device__ __forceinline__ Words words(int sample, int permutation, int q) const {
        return philox(sample, permutation, q, PHILOX_DRAW, k0, k1);
    }
};

__device__ __forceinline__ unsigned long long priority(const Words& first, int sample) {
    return static_cast<unsigned long long>(first.w[0]) << 32 | (first.w[1] & ~INDEX_MASK) |
           static_cast<unsigned>(sample);
}

__device__ __forceinline__ int sample_of(unsigned long long priority) {
    return static_cast<int>(priority & INDEX_MASK);
}
