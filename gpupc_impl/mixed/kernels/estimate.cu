// CMI by counting and the rules of mixed data.
#include "mixed/kernels/mixed.cuh"
#include "nonlinear/kernels/estimate.cu"
