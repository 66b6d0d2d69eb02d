// CMI by counting in buckets, by the rule for mixed data.
#include "mixed/kernels/mixed.cuh"
#include "nonlinear/kernels/buckets.cu"
