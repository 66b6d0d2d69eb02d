// Sets and tests as all kernels of the family take them.
#pragma once

#include "nonlinear/kernels/lanes.cuh"

// Sets of one size, each a row of 1 + level numbers: the permuted variable, then the members of S ascending.
template <class T>
struct Sets {
    const T* values;   // (p, n)
    const int* first;  // (sets, 1 + level)
    int n, level;

    __device__ __forceinline__ const T* of(int variable) const { return values + static_cast<long long>(variable) * n; }
    __device__ __forceinline__ const int* set(int number) const {
        return first + static_cast<long long>(number) * (level + 1);
    }
};

// Tests of permutations of such sets.
struct Tests {
    const int* first;  // (count, 2) a set's number and V_j
    int count;
    int lanes;                     // V_i itself and its permutations
    int k;                         // k_CMI
    const long long* psi;          // (n + 1)
    unsigned long long* partials;  // (count, lanes) sums of psi(n_xz) + psi(n_yz) - psi(n_z)
};
