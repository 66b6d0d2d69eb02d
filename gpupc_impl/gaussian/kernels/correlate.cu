// Correlations on the device: columns of samples are standardised, and their products are made exact.
#include "backends/simt/portable.cuh"

// Standardises the columns of an (m, p) matrix to mean zero and length one, and constant ones to zeros. A column is
// shifted by its first value, so that a column far from zero loses no digits. It is also divided by about its largest
// magnitude, so that nothing overflows when it is squared; matrix.py, `standardized`, does the same. The divisor is a
// power of two here, so the division is exact. Grid (ceil(p / threads)), block (threads): a thread takes a column.
__global__ void standardise(double* samples, int m, int p) {
    const int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= p) return;
    double* column = samples + j;
    const auto at = [&](int s) -> double& { return column[static_cast<long long>(s) * p]; };
    const double first = at(0);
    double largest = 0.0;
    bool constant = true;
    for (int s = 0; s < m; ++s) {
        const double value = at(s);
        constant = constant && value == first;
        largest = fabs(value) > largest ? fabs(value) : largest;
    }
    // The exponent is clamped to -1022, ..., 1000, within which the power is finite and keeps every column in range.
    const double scale = largest > 0.0 ? ldexp(1.0, max(-1022, min(1000, -ilogb(largest)))) : 1.0;
    const double shift = first * scale;
    double sum = 0.0, square = 0.0;
    for (int s = 0; s < m; ++s) sum += at(s) * scale - shift;
    const double mean = sum / m;
    for (int s = 0; s < m; ++s) {
        const double value = at(s) * scale - shift - mean;
        square = fma(value, value, square);
    }
    constant = constant || square == 0.0;
    const double length = constant ? 1.0 : sqrt(square);
    for (int s = 0; s < m; ++s) at(s) = constant ? 0.0 : (at(s) * scale - shift - mean) / length;
}

// Makes the products of standardised columns exact correlations: clamped to [-1, 1], with ones on the diagonal and with
// the upper triangle mirrored to the lower one. Grid (ceil(p / 32), ceil(p / 32)), block (32, 8).
__global__ void make_exact(double* products, int p) {
    __shared__ double tile[32][33];
    if (blockIdx.x < blockIdx.y) return;
    const int column = blockIdx.x * 32 + threadIdx.x;
    for (int y = threadIdx.y; y < 32; y += blockDim.y) {
        const int row = blockIdx.y * 32 + y;
        if (row >= p || column >= p || column < row) continue;
        const long long cell = static_cast<long long>(row) * p + column;
        const double r = row == column ? 1.0 : products[cell];
        tile[y][threadIdx.x] = products[cell] = r > 1.0 ? 1.0 : r < -1.0 ? -1.0 : r;
    }
    __syncthreads();
    const int row = blockIdx.y * 32 + threadIdx.x;
    for (int y = threadIdx.y; y < 32; y += blockDim.y) {
        const int below = blockIdx.x * 32 + y;
        if (below > row && below < p && row < p) {
            products[static_cast<long long>(below) * p + row] = tile[threadIdx.x][y];
        }
    }
}
