// The rules of mixed data, columns of numbers beside columns of categories: Mesner and Shalizi, "Conditional Mutual
// Information Estimation for Mixed, Discrete and Continuous Data" (2021), for the kernels of the nonlinear family.
//
// A value tells by itself what it is: categories are negative short integers, or the floating-point numbers from FIRST
// on, which no column of numbers holds (mixed/device.py makes them).
#pragma once

#include "nonlinear/kernels/lanes.cuh"

template <class T>
struct Category;

template <>
struct Category<short> {
    static constexpr short APART = 0x7ffe;  // distance of different categories: beyond all ranks
    template <class V>
    static __device__ __forceinline__ auto is(V v) {
        return v < 0;
    }
};

template <>
struct Category<float> {
    static constexpr int APART = 0x3f800000;  // the bits of 1
    template <class V>
    static __device__ __forceinline__ auto is(V v) {
        return v >= 0x1p127f;
    }
};

template <>
struct Category<double> {
    static constexpr long long APART = 0x3ff0000000000000ll;
    template <class V>
    static __device__ __forceinline__ auto is(V v) {
        return v >= 0x1p1023;
    }
};

struct Mixed {
    static constexpr bool TIES = true, CYCLIC = true;

    template <class T>
    static __device__ __forceinline__ KeyOf<T> distance(T a, T b) {
        if (Category<T>::is(a)) return a == b ? KeyOf<T>(0) : Category<T>::APART;
        return Number<T>::distance(a, b);
    }

    template <class T>
    static __device__ __forceinline__ typename Lanes<T>::Keys distances(typename Lanes<T>::Values a,
                                                                        typename Lanes<T>::Values own) {
#ifdef GPUPC_HOST
        using Keys = typename Lanes<T>::Keys;
        const Keys apart = (Keys)(a != own) & Category<T>::APART;
        return (Keys)Category<T>::is(own) ? apart : Lanes<T>::distance(a, own);
#else
        return distance<T>(a, own);
#endif
    }

    template <class T>
    static __device__ __forceinline__ KeyOf<T> separation(T a, T b) {
        if (Category<T>::is(a)) return a == b ? KeyOf<T>(0) : Number<T>::LARGEST;
        return Number<T>::distance(a, b);
    }
};
