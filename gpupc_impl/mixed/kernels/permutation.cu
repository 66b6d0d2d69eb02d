// Local permutations, by the rule for mixed data.
#include "mixed/kernels/mixed.cuh"
#include "nonlinear/kernels/permutation.cu"
