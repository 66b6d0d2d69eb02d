// Sets and tests as all kernels of the family take them.
#pragma once

#include "nonlinear/kernels/lanes.cuh"

// Sets of one size, each a row of 1 + level numbers: the permuted variable, then the members of S ascending.
template <class T>
struct Sets {
    const T* values;   // (p, n)
    const int* first;  // (sets, 1 + level)
    const int* order;  // (p, n) the samples in ascending order of each variable, or null
    int n, level;

    __device__ __forceinline__ const T* of(int variable) const { return values + static_cast<long long>(variable) * n; }
    __device__ __forceinline__ const int* set(int number) const {
        return first + static_cast<long long>(number) * (level + 1);
    }
    // Of the samples in the order of S[0], or as they are where there is no order, the one at a place.
    __device__ __forceinline__ int sample(int number, int place) const {
        return order == nullptr ? place : order[static_cast<long long>(set(number)[1]) * n + place];
    }
};

// Tests of permutations of such sets.
struct Tests {
    const int* first;  // (count, 2) a set's number and V_j
    int count;
    int lanes;                     // of this launch, of V_i itself and its permutations ...
    int row;                       // ... and of all launches
    int k;                         // k_CMI
    const long long* psi;          // (n + 1)
    unsigned long long* partials;  // (count, row) sums of psi(n_xz) + psi(n_yz) - psi(n_z) [- psi(k~), with ties]
    unsigned char* open;           // (count) whether more lanes are of use to a test, or null: they are

    __device__ __forceinline__ bool closed(int number) const { return open != nullptr && !open[number]; }
    __device__ __forceinline__ unsigned long long* sums(int number) const {
        return partials + static_cast<long long>(number) * row;
    }
};

// At level 0: how many of the n sorted values of V_i are nearer to x than `radius` (a key of at least 1).
template <class T, class Rule>
__device__ int count_around(const T* sorted, int n, bool ranks, T x, KeyOf<T> radius) {
    if (ranks) {  // sorted[q] = q, or a constant variable
        if (sorted[n - 1] == sorted[0]) return n;
        int reach = static_cast<int>(radius);
        if constexpr (!Number<T>::whole) reach = static_cast<int>(ceil(Number<T>::value(radius)));
        const int place = static_cast<int>(x);
        return min(place + reach, n) - max(place - reach + 1, 0);
    }
    int first = 0, last = n;
    for (int low = 0, high = n; low < high; first = low) {  // the first that is not too far below
        const int q = (low + high) / 2;
        if (sorted[q] < x && Rule::template distance<T>(x, sorted[q]) >= radius) {
            low = q + 1;
        } else {
            high = q;
        }
    }
    for (int low = first, high = n; low < high; last = low) {  // the first that is too far above
        const int q = (low + high) / 2;
        if (sorted[q] <= x || Rule::template distance<T>(x, sorted[q]) < radius) {
            low = q + 1;
        } else {
            high = q;
        }
    }
    return last - first;
}
