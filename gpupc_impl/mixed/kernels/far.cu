// Estimates beyond the lists of neighbours, by the rule for mixed data.
#include "mixed/kernels/mixed.cuh"
#include "nonlinear/kernels/far.cu"
