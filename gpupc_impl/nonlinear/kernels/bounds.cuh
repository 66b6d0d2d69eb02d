// The interval that contains a k-th smallest distance, and the choice of the limit at which to count next.
#pragma once

#include "backends/simt/portable.cuh"

// Fast approximations of x^y, 1 / x and the square root of x. They only choose limits, at which counts are exact.
__device__ __forceinline__ float power(float x, float y) {
#ifdef GPUPC_HOST
    return powf(x, y);
#else
    float z;
    asm("{ .reg .f32 l; lg2.approx.f32 l, %1; mul.rn.f32 l, l, %2; ex2.approx.f32 %0, l; }" : "=f"(z) : "f"(x), "f"(y));
    return z;
#endif
}

__device__ __forceinline__ float inverse(float x) {
#ifdef GPUPC_HOST
    return 1 / x;
#else
    float z;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(z) : "f"(x));
    return z;
#endif
}

__device__ __forceinline__ float root(float x) {
#ifdef GPUPC_HOST
    return sqrtf(x);
#else
    float z;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(z) : "f"(x));
    return z;
#endif
}

// The k-th distance is a whole number in [from, to): fewer than k distances are below `from`, and k or more below `to`.
struct Bounds {
    float from, to;
    float before = 0, after = 0;  // how many distances are below `from` (0 until that is counted) and below `to`
    __device__ __forceinline__ bool meet() const { return to - from <= 1; }

    // The next limit to count at. Interpolation estimates the k-th distance: as if counts grew like limit^dimensions,
    // or linearly if both ends are counted. One standard deviation of the count there, of a Brownian bridge between the
    // ends, is added to the farther end, so that the k-th distance is mostly between the limit and the nearer end.
    __device__ __forceinline__ float between(int k, float one_over_dimensions) const {
        const float per_count = inverse(after - before), share = (static_cast<float>(k) - 0.5f - before) * per_count;
        const bool open = before == 0;
        float guess, unit;  // unit: how much the limit grows for one count
        if (open) {
            guess = to * power(share, one_over_dimensions);
            unit = guess * one_over_dimensions * inverse(static_cast<float>(k));
        } else {
            guess = from + share * (to - from);
            unit = (to - from) * per_count;
        }
        const float deviation = root(share * (1 - share) * (after - before)) * unit;
        return within(open || share >= 0.5f ? guess - deviation : guess + deviation);
    }

    __device__ __forceinline__ float middle() const { return within((from + to) / 2); }

 private:
    // An integer strictly between the ends; `from` if there is none.
    __device__ __forceinline__ float within(float limit) const {
        constexpr float WHOLE = 0x1.8p23f;  // Adding and subtracting it rounds to an integer.
        return fminf(fmaxf(limit + WHOLE - WHOLE, from + 1), to - 1);
    }
};
