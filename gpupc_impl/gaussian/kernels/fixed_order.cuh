// Correlations whose bits do not depend on the backend, the tile, or the other entries that are computed with them.
//
// Entry (i, j) of standardised samples x is the sum over s = 0, 1, ..., m - 1, in order, of fused multiply-adds:
//
//     sum = fma(x[s][i], x[s][j], sum)
//
// Every entry is computed by one thread in this one order, and entry (j, i) has the same bits because products commute.
// A correlation computed again on another machine therefore has the same bits, which no BLAS guarantees.
#pragma once

#include "backends/simt/portable.cuh"

// Clamps a sum to [-1, 1], which rounding may leave by a little; the diagonal is exactly 1.
__device__ __forceinline__ double as_correlation(double product, int i, int j) {
    if (i == j) return 1.0;
    return product > 1.0 ? 1.0 : product < -1.0 ? -1.0 : product;
}

// Entry (i, j) of standardised samples (m, p), by one thread.
__device__ __forceinline__ double fixed_order_correlation(const double* samples, int m, int p, int i, int j) {
    double sum = 0.0;
#pragma unroll 8
    for (int s = 0; s < m; ++s) {
        const double* sample = samples + static_cast<long long>(s) * p;
        sum = fma(sample[i], sample[j], sum);
    }
    return as_correlation(sum, i, j);
}
