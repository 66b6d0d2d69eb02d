// The residuals of tests, computed in two ways: by prefixes (prefix.cuh) and by sets (fisher_z.cuh).
#include "gaussian/kernels/prefix.cuh"

// Writes {ii, jj, ij} of the test of Vi and row[q] given S, for every set S of L among the first n - 1 neighbours, in
// order, and every neighbour q; and for each set whether either way calls M2 near singular. One warp.
template <class Size>
__global__ void eliminate(const double* C, int p, int i, const int* row, int n, double residual_tolerance,
                          double* cells, double* by_prefix, double* by_set, int* singular, int level) {
    const Size L(level);
    Prefix<Size> P(L, cells, n);
    for (int a = 0; a < L; ++a) P.positions[a] = a;
    P.begin(C + static_cast<long long>(i) * p, row);
    long long t = 0;
    for (int changed = 0; changed >= 0; changed = P.advance(), ++t) {
        P.add(C, p, row, changed, residual_tolerance);
        ConditioningSet<Size> S(L);
        for (int a = 0; a < L; ++a) S.members[a] = row[P.positions[a]];
        S.factorise(C, p, i, residual_tolerance);
        singular[2 * t] = P.singular < L;
        singular[2 * t + 1] = S.singular;
        for (int q = 0; q < n; ++q) {
            const Residuals h = S.residuals(C, p, i, row[q], C[static_cast<long long>(i) * p + row[q]]);
            const double of_prefix[3] = {P.residual[L], P.variance(L, q), P.covariance(L, q)};
            const double of_set[3] = {h.ii, h.jj, h.ij};
            for (int k = 0; k < 3; ++k) {
                by_prefix[3 * (t * n + q) + k] = of_prefix[k];
                by_set[3 * (t * n + q) + k] = of_set[k];
            }
        }
    }
}
