// CMI by bisection, by the rule for mixed data.
#include "mixed/kernels/mixed.cuh"
#include "nonlinear/kernels/estimate.cu"
