// Fisher's z test given subsets of lists of candidates, in the canonical evaluation: numbered ones (core/subsets.py),
// or all of them, which are counted (core/colliders.py).
#include "engine/kernels/combinations.cuh"
#include "gaussian/kernels/fisher_z.cuh"

// Pair q is of pairs[2 q] and pairs[2 q + 1], with ascending candidates[starts[q]] to candidates[starts[q + 1] - 1].
struct Candidates {
    const int* pairs;
    const long long* starts;
    const int* candidates;
    long long n_pairs;

    __device__ int first(long long q) const { return min(pairs[2 * q], pairs[2 * q + 1]); }
    __device__ int second(long long q) const { return max(pairs[2 * q], pairs[2 * q + 1]); }
    __device__ int count(long long q) const { return static_cast<int>(starts[q + 1] - starts[q]); }
};

// Correlations of p variables; or, unless `places` is null, a matrix of widths[q] rows from C[places[q]] on for pair q.
struct Matrices {
    const double* C;
    const long long* places;
    const int* widths;
    int p;
};

struct Test {
    const double* critical_r_squared;  // by level
    double residual_tolerance, pivot_tolerance;

    __device__ bool separates(const Residuals& h, int level) const {
        return !h.undefined(residual_tolerance) && h.independent(critical_r_squared[level], residual_tolerance);
    }
};

// The pair to which a subset belongs: ends[q] is the number that follows the last subset of pair q.
__device__ long long owner_of(const long long* ends, long long n_pairs, long long number) {
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

// Writes to r_squared[t], for the subset number first + t among those of `size` members, the squared partial
// correlation if the subset separates its pair, else infinity. Grid (ceil(count / threads)), block (threads).
template <class Size>
__global__ void subset_tests(const __grid_constant__ Candidates of, const __grid_constant__ Matrices matrices,
                             const __grid_constant__ Test test, const long long* ends,
                             const __grid_constant__ Binomials binomial, int size, long long first, int count,
                             double* r_squared) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= count) return;
    ConditioningSet<Size> set{Size(size)};
    const long long number = first + t, q = owner_of(ends, of.n_pairs, number);
    const int n = of.count(q), i = of.first(q), j = of.second(q);
    const long long before = ends[q] - static_cast<long long>(binomial(n, size));
    unrank_combination(binomial, n, size, static_cast<unsigned long long>(number - before), set.members);
    for (int a = 0; a < size; ++a) set.members[a] = of.candidates[of.starts[q] + set.members[a]];
    const double* const C = matrices.C + (matrices.places ? matrices.places[q] : 0);
    const int p = matrices.places ? matrices.widths[q] : matrices.p;
    set.factorise(C, p, i, test.pivot_tolerance);
    const Residuals h = set.residuals(C, p, i, j, correlation(C, p, i, j));
    r_squared[t] =
        test.separates(h, size) ? h.r_squared(test.residual_tolerance) : __longlong_as_double(0x7ff0000000000000);
}

// Counts the subsets of up to `most` members that separate each pair, and adds those with each candidate to
// `containing`. Grid (n_pairs), block (1).
template <int MOST_MEMBERS>
__global__ void votes(const __grid_constant__ Candidates of, const __grid_constant__ Matrices matrices,
                      const __grid_constant__ Test test, int most, long long* separating, long long* containing) {
    const long long q = blockIdx.x;
    const int n = of.count(q), i = of.first(q), j = of.second(q), p = matrices.p;
    const double* const C = matrices.C;
    const double c_ij = correlation(C, p, i, j);
    separating[q] = c_ij * c_ij <= test.critical_r_squared[0];  // the empty set
    int positions[MOST_MEMBERS];
    ConditioningSet<UpTo<MOST_MEMBERS>> set{UpTo<MOST_MEMBERS>(0)};
    // In lexicographic order: the next subset has a later member more, or its last member that can be is replaced.
    for (int size = 0, next = 0;; next = positions[size - 1] + 1) {
        if (size == most && size > 0) next = positions[--size] + 1;
        while (next == n && size > 0) next = positions[--size] + 1;
        if (next == n || most == 0) break;
        positions[size] = next;
        set.members[size] = of.candidates[of.starts[q] + next];
        set.size = UpTo<MOST_MEMBERS>(++size);
        set.factorise(C, p, i, test.pivot_tolerance);
        if (!test.separates(set.residuals(C, p, i, j, c_ij), size)) continue;
        ++separating[q];
        for (int a = 0; a < size; ++a) ++containing[of.starts[q] + positions[a]];
    }
}
