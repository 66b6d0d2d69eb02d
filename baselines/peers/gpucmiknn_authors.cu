// The functions of GPU-CMIknn's program that its adapter calls by ctypes. This file is compiled with the program's
// sources (build.py) and uses the declarations of the program's header. The program does not check for CUDA errors, so
// each function here returns the CUDA error of its call.

#include <cstddef>
#include <cuda_runtime.h>

#include "gpucmiknn.h"

extern "C" {

// Initializes the device, and returns the number of its free bytes.
size_t gpucmiknn_free_bytes() { return call_init_gpu_cuda(); }

const char* gpucmiknn_error(int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }

// --- gpu_row (Parallel): data is (p, n), and others holds the variables that are tested with x ----------------------
// Writes p_values (count): the p-value of the test of x with each of the others, without a set.
int gpucmiknn_row_level_0(const float* data, size_t n, size_t p, int k, size_t permutations, int x, int* others,
                          size_t count, float* p_values) {
    pval_l0_row_cuda(data, n, k, permutations, x, p, p_values, others, count);
    return cudaGetLastError();
}

// Writes permuted (count, permutations, n): x permuted among the neighbours in each of the sets (count, level).
int gpucmiknn_row_permute(const float* data, size_t n, size_t p, size_t permutations, int* sets, size_t level,
                          size_t count, int x, float* permuted) {
    perm_cuda_multi_all(data, n, p, permutations, permuted, sets, level, count, x);
    return cudaGetLastError();
}

// For each variable that a set separates from x, writes that set to found (p, level) and its p-value to p_values (p).
// On return, the first *left of the others are the variables that are left.
int gpucmiknn_row_level(const float* data, const float* permuted, size_t n, size_t p, int k, int k_perm,
                        size_t permutations, int x, int level, int* sets, size_t count, float alpha, int* others,
                        size_t* left, size_t degree, bool split, int* found, float* p_values) {
    pval_ln_row_cuda(data, permuted, n, k, k_perm, permutations, x, p, level, sets, count, found, p_values, alpha,
                     others, left, degree, split);
    return cudaGetLastError();
}

// --- gpu_single (Single): data is (2 + level, n), with x, y and the set ----------------------------------------------
int gpucmiknn_single_level_0(const float* data, size_t n, int k, size_t permutations, float* p_value) {
    *p_value = pval_l0_cuda_shared(data, n, 2, k, permutations);
    return cudaGetLastError();
}

// Writes order (permutations, n): the sample from which each permuted value comes, for a set (level, n).
int gpucmiknn_single_permute(const float* set, size_t n, size_t level, size_t permutations, int* order) {
    perm_cuda_multi(set, n, level, permutations, order);
    return cudaGetLastError();
}

// permuted (permutations, n) holds the permuted values of x.
int gpucmiknn_single_level(const float* data, const float* permuted, size_t n, size_t variables, int k, int k_perm,
                           size_t permutations, float* p_value) {
    *p_value = pval_ln_cuda(data, permuted, n, variables, k, k_perm, permutations);
    return cudaGetLastError();
}

}  // extern "C"
