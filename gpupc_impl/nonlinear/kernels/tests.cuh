// Sets and tests in the form in which all kernels of the family receive them.
#pragma once

#include "nonlinear/kernels/numbers.cuh"

// Sets of one size, each a row of 1 + level variables: the permuted variable, then the members of S ascending.
template <class T>
struct Sets {
    const T* values;       // (p, n)
    const int* variables;  // (sets, 1 + level)
    const int* order;      // (p, n) the samples in ascending order of each variable, or null
    int n, level;

    __device__ __forceinline__ const T* of(int variable) const { return values + static_cast<long long>(variable) * n; }
    __device__ __forceinline__ const int* set(int index) const {
        return variables + static_cast<long long>(index) * (level + 1);
    }
    // Returns the sample at a position in the order of S[0]; without an order, positions are samples.
    __device__ __forceinline__ int sample(int index, int place) const {
        return order == nullptr ? place : order[static_cast<long long>(set(index)[1]) * n + place];
    }
};

// Tests of the replicates of such sets: replicate 0 has V_i as observed, replicate m + 1 its permutation m.
struct Tests {
    const int* pairs;  // (count, 2) the index of a set, and V_j
    int count;
    int replicates;                // 1 + perm
    int k;                         // k_CMI
    const long long* psi;          // (n + 1) digammas
    unsigned long long* partials;  // (count, replicates) sums of psi(n_xz) + psi(n_yz) - psi(n_z) [- psi(k~)]

    __device__ __forceinline__ unsigned long long* sums(int test) const {
        return partials + static_cast<long long>(test) * replicates;
    }
};

// How many of the n ascending values of V_i are nearer to x than `radius`, a key of at least 1: n_xz at level 0.
template <class T, class Rule>
__device__ int count_around(const T* sorted, int n, bool ranks, T x, KeyOf<T> radius) {
    if (ranks) {  // sorted[q] == q, unless the variable is constant
        if (sorted[n - 1] == sorted[0]) return n;
        int reach = static_cast<int>(radius);
        if constexpr (!Number<T>::whole) reach = static_cast<int>(ceil(Number<T>::value(radius)));
        const int place = static_cast<int>(x);
        return min(place + reach, n) - max(place - reach + 1, 0);
    }
    int first = 0, last = n;
    for (int low = 0, high = n; low < high; first = low) {  // the lower bound: the first value that is near enough
        const int q = (low + high) / 2;
        if (sorted[q] < x && Rule::template distance<T>(x, sorted[q]) >= radius) {
            low = q + 1;
        } else {
            high = q;
        }
    }
    for (int low = first, high = n; low < high; last = low) {  // the upper bound: the first value above that is too far
        const int q = (low + high) / 2;
        if (sorted[q] <= x || Rule::template distance<T>(x, sorted[q]) < radius) {
            low = q + 1;
        } else {
            high = q;
        }
    }
    return last - first;
}
