// Fisher's z test given numbered subsets of lists of candidates (core/subsets.py), in the canonical evaluation.
#include "engine/kernels/combinations.cuh"
#include "gaussian/kernels/fisher_z.cuh"

// All subsets of `size` members: pair number q, the variables pairs[2 q] and pairs[2 q + 1], has those of the ascending
// candidates[starts[q]], ..., candidates[starts[q + 1] - 1], and ends[q] is the number that follows its last subset.
struct Subsets {
    const int* pairs;
    const long long* starts;
    const long long* ends;
    const int* candidates;
    Binomials binomial;
    long long n_pairs;
    int size;

    // The first pair whose end lies beyond a number, by bisection.
    __device__ long long owner(long long number) const {
        long long low = 0, high = n_pairs;
        while (low < high) {
            const long long middle = low + (high - low) / 2;
            if (ends[middle] <= number) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }
};

// The correlations among all p variables; or, if `places` is not null, a matrix for each pair number q, which begins at
// C[places[q]] and has widths[q] rows.
struct Matrices {
    const double* C;
    const long long* places;
    const int* widths;
    int p;
};

struct Test {
    double critical_r_squared, residual_tolerance, pivot_tolerance;
};

// Writes to r_squared[t], for the subset number first + t, the squared partial correlation if the subset separates its
// pair, and infinity if it does not. Grid (ceil(count / threads)), block (threads).
template <class Size>
__global__ void subset_tests(const __grid_constant__ Subsets subsets, const __grid_constant__ Matrices matrices,
                             const __grid_constant__ Test test, long long first, int count, double* r_squared) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= count) return;
    ConditioningSet<Size> set{Size(subsets.size)};
    const long long number = first + t, q = subsets.owner(number), start = subsets.starts[q];
    const int n = static_cast<int>(subsets.starts[q + 1] - start);
    const long long before = subsets.ends[q] - static_cast<long long>(subsets.binomial(n, subsets.size));
    unrank_combination(subsets.binomial, n, subsets.size, static_cast<unsigned long long>(number - before),
                       set.members);
    for (int a = 0; a < subsets.size; ++a) set.members[a] = subsets.candidates[start + set.members[a]];
    const int i = min(subsets.pairs[2 * q], subsets.pairs[2 * q + 1]);
    const int j = max(subsets.pairs[2 * q], subsets.pairs[2 * q + 1]);
    const double* const C = matrices.C + (matrices.places ? matrices.places[q] : 0);
    const int p = matrices.places ? matrices.widths[q] : matrices.p;
    set.factorise(C, p, i, test.pivot_tolerance);
    const Residuals h = set.residuals(C, p, i, j, correlation(C, p, i, j));
    const bool separates =
        !h.undefined(test.residual_tolerance) && h.independent(test.critical_r_squared, test.residual_tolerance);
    r_squared[t] = separates ? h.r_squared(test.residual_tolerance) : __longlong_as_double(0x7ff0000000000000);
}
