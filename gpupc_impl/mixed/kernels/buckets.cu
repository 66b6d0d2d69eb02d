// CMI in buckets by the rules of mixed data.
#include "mixed/kernels/mixed.cuh"
#include "nonlinear/kernels/buckets.cu"
