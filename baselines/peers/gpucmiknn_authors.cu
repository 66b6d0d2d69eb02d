// The functions of GPU-CMIknn's program that its adapter calls, for ctypes: compiled with its sources (build.py), of
// which only the header's declarations are used. Each answers with the CUDA error of its call, which the program does
// not ask for.

#include <cstddef>
#include <cuda_runtime.h>

#include "gpucmiknn.h"

extern "C" {

// Makes the device ready; returns its free bytes.
size_t gpucmiknn_free_bytes() { return call_init_gpu_cuda(); }

const char* gpucmiknn_error(int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }

// --- gpu_row (Parallel): data (p, n); others: the variables that are tested with x ----------------------------------

// p_values (others): of x with each, without a set.
int gpucmiknn_row_level_0(const float* data, size_t n, size_t p, int k, size_t permutations, int x, int* others,
                          size_t count, float* p_values) {
    pval_l0_row_cuda(data, n, k, permutations, x, p, p_values, others, count);
    return cudaGetLastError();
}

// permuted (count, permutations, n): values of x, permuted within neighbours in each of the sets (count, level).
int gpucmiknn_row_permute(const float* data, size_t n, size_t p, size_t permutations, int* sets, size_t level,
                          size_t count, int x, float* permuted) {
    perm_cuda_multi_all(data, n, p, permutations, permuted, sets, level, count, x);
    return cudaGetLastError();
}

// found (p, level), p_values (p): a set that separates x from a variable, and its p-value. `others` ends with the
// variables that are left, *left of them.
int gpucmiknn_row_level(const float* data, const float* permuted, size_t n, size_t p, int k, int k_perm,
                        size_t permutations, int x, int level, int* sets, size_t count, float alpha, int* others,
                        size_t* left, size_t degree, bool split, int* found, float* p_values) {
    pval_ln_row_cuda(data, permuted, n, k, k_perm, permutations, x, p, level, sets, count, found, p_values, alpha,
                     others, left, degree, split);
    return cudaGetLastError();
}

// --- gpu_single (Single): data (2 + level, n): x, y and the set -----------------------------------------------------

int gpucmiknn_single_level_0(const float* data, size_t n, int k, size_t permutations, float* p_value) {
    *p_value = pval_l0_cuda_shared(data, n, 2, k, permutations);
    return cudaGetLastError();
}

// order (permutations, n): where the permuted value of each sample comes from, for a set (level, n).
int gpucmiknn_single_permute(const float* set, size_t n, size_t level, size_t permutations, int* order) {
    perm_cuda_multi(set, n, level, permutations, order);
    return cudaGetLastError();
}

// permuted (permutations, n): values of x.
int gpucmiknn_single_level(const float* data, const float* permuted, size_t n, size_t variables, int k, int k_perm,
                           size_t permutations, float* p_value) {
    *p_value = pval_ln_cuda(data, permuted, n, variables, k, k_perm, permutations);
    return cudaGetLastError();
}

}  // extern "C"
