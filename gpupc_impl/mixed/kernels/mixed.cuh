// The rule for mixed data, columns of numbers beside columns of categories (Mesner and Shalizi, "Conditional Mutual
// Information Estimation for Mixed, Discrete and Continuous Data", 2021), for the kernels of the nonlinear family.
// Categories are negative short integers, or floating-point numbers from 2^127 (2^1023) on, which no column of numbers
// holds (mixed/gpucmiknn_mixed.py encodes them). Equal categories have distance 0, different ones DISTANCE.
#pragma once

#include "nonlinear/kernels/numbers.cuh"

template <class T>
struct Category;

template <>
struct Category<short> {
    static constexpr short DISTANCE = 0x7ffe;  // exceeds all distances of ranks
    template <class V>
    static __device__ __forceinline__ auto is(V v) {
        return v < 0;
    }
};

template <>
struct Category<float> {
    static constexpr int DISTANCE = 0x3f800000;  // the bits of 1
    template <class V>
    static __device__ __forceinline__ auto is(V v) {
        return v >= 0x1p127f;
    }
};

template <>
struct Category<double> {
    static constexpr long long DISTANCE = 0x3ff0000000000000ll;
    template <class V>
    static __device__ __forceinline__ auto is(V v) {
        return v >= 0x1p1023;
    }
};

// `Continuous` explains the members.
struct Mixed {
    static constexpr bool TIES = true, CYCLIC = true;

    template <class T>
    static __device__ __forceinline__ KeyOf<T> distance(T a, T b) {
        if (Category<T>::is(a)) return a == b ? KeyOf<T>(0) : Category<T>::DISTANCE;
        return Number<T>::distance(a, b);
    }

    template <class T>
    static __device__ __forceinline__ typename Vector<T>::Keys distances(typename Vector<T>::Values a,
                                                                         typename Vector<T>::Values own) {
#ifdef GPUPC_HOST
        using Keys = typename Vector<T>::Keys;
        const Keys distance = (Keys)(a != own) & Category<T>::DISTANCE;
        return (Keys)Category<T>::is(own) ? distance : Vector<T>::distance(a, own);
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
