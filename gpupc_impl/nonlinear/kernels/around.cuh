// Distances of one sample from the others in (V_j, S) and in S, computed from values in the order of S[0]. A distance
// in (V_j, S) or in S is at least that in S[0]. In the order of S[0] the samples within a bound are therefore in a
// window around the sample, which two binary searches find, and samples beside each other share most neighbours.
#pragma once

#include "nonlinear/kernels/lists.cuh"
#include "nonlinear/kernels/warp.cuh"

// The values of one test in the order of the lists, by dimension: the members of S, then V_j.
template <class T>
struct Arranged {
    const T* first;
    int n;
    __device__ __forceinline__ Arranged(const Sets<T>& sets, const Lists<T>& lists, int test)
        : first(lists.arranged + static_cast<long long>(test) * (sets.level + 1) * sets.n), n(sets.n) {}
    __device__ __forceinline__ const T* of(int dimension) const {
        return first + static_cast<long long>(dimension) * n;
    }
};

// The distances of sample `a` from others in the spaces without V_i. EMPTY: S is empty.
template <class T, bool EMPTY, class Rule>
struct Around {
    static constexpr int AT_ONCE = 4;  // the number of independent reads in flight
    using Key = Wide<T>;
    __device__ __forceinline__ Around(const Arranged<T>& values_, int level_, int a_)
        : values(values_), level(level_), a(a_) {}

    // Calls f(b, x(b), y, z) for b = first, first + step, ... before `end`, whose distance is y in (V_j, S) and z in S.
    template <class X, class F>
    __device__ __forceinline__ void each(int first, int end, int step, X x, F f) const {
        for (; first < end; first += AT_ONCE * step) {
            int samples[AT_ONCE];
            Key xs[AT_ONCE], ys[AT_ONCE], zs[AT_ONCE];
#pragma unroll
            for (int c = 0; c < AT_ONCE; ++c) {
                samples[c] = min(first + c * step, end - 1);
                zs[c] = 0;
            }
            if constexpr (!EMPTY) {
                for (int s = 0; s < level; ++s) widen(values.of(s), samples, zs);
            }
#pragma unroll
            for (int c = 0; c < AT_ONCE; ++c) ys[c] = zs[c];
            widen(values.of(level), samples, ys);
#pragma unroll
            for (int c = 0; c < AT_ONCE; ++c) xs[c] = x(samples[c]);
#pragma unroll
            for (int c = 0; c < AT_ONCE; ++c) {
                if (first + c * step < end) f(samples[c], xs[c], ys[c], zs[c]);
            }
        }
    }

    // Calls f(b, y, z) for the samples from `first` to `end` - 1 except `a`; the threads of the block share them.
    template <class F>
    __device__ __forceinline__ void each_other(int first, int end, F f) const {
        each(
            first + static_cast<int>(threadIdx.x), end, blockDim.x, [](int) { return Key(0); },
            [&](int b, Key, Key y, Key z) {
                if (b != a) f(b, y, z);
            });
    }

 private:
    const Arranged<T>& values;
    int level, a;

    // Includes one more dimension.
    __device__ __forceinline__ void widen(const T* dimension, const int* samples, Key* keys) const {
        const T own = dimension[a];
#pragma unroll
        for (int c = 0; c < AT_ONCE; ++c) {
            keys[c] = larger(keys[c], distance_between<T, Rule>(own, dimension[samples[c]]));
        }
    }
};

// Searches ascending values for those nearer to `a` than `bound`: returns the first, or if `upwards` the end.
template <class T, class Rule>
__device__ int window_end(const T* values, int n, int a, long long bound, bool upwards) {
    int near = a, far = upwards ? n : -1;
    while (near - far > 1 || far - near > 1) {
        const int middle = (near + far) / 2;
        (distance_between<T, Rule>(values[a], values[middle]) < bound ? near : far) = middle;
    }
    return upwards ? far : near;
}
