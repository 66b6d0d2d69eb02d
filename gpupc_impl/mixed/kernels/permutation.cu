// Local permutations by the rules of mixed data.
#include "mixed/kernels/mixed.cuh"
#include "nonlinear/kernels/permutation.cu"
