#include "discrete/kernels/statistic.cuh"

__global__ void quotients(const double* x, const double* y, int number, double* out) {
    const int stride = gridDim.x * blockDim.x;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < number; k += stride) out[k] = quotient(x[k], y[k]);
}
