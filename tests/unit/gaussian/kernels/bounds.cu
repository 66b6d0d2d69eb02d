// Decides tests with one member: may[t] is the bound of level_one_tile.cu, is[t] the decision of fisher_z.cuh, for
// r_ij, r_ik and r_jk in r[3 * t], r[3 * t + 1] and r[3 * t + 2]. Grid (any), any block.
#include "gaussian/kernels/level_one_tile.cu"

template <bool WITH_TOLERANCE>
__global__ void decide(const double* r, int tests, double critical_r_squared, double residual_tolerance,
                       unsigned char* may, unsigned char* is) {
    const Critical critical(critical_r_squared);
    for (int t = blockIdx.x * blockDim.x + threadIdx.x; t < tests; t += gridDim.x * blockDim.x) {
        const double r_ij = r[3 * t], r_ik = r[3 * t + 1], r_jk = r[3 * t + 2];
        const Residuals h = given_one(r_ij, r_ik, r_jk);
        is[t] = !h.undefined(residual_tolerance) && h.independent(critical_r_squared, residual_tolerance);
        may[t] =
            may_separate<WITH_TOLERANCE>(static_cast<float>(r_ik), static_cast<float>(r_jk), static_cast<float>(r_ij),
                                         root_of(h.ii, critical.r), root_of(h.jj, critical.r), critical);
    }
}
