// Counts the subsets of lists of candidates that separate pairs (core/colliders.py), by Fisher's z test in the
// canonical evaluation.
#include "gaussian/kernels/fisher_z.cuh"

constexpr int MOST_MEMBERS = 24;

// Pair number q, the variables pairs[2 q] and pairs[2 q + 1], has the ascending candidates[starts[q]], ...,
// candidates[starts[q + 1] - 1]. The counters of the subsets with a candidate begin at zero.
struct Votes {
    const int* pairs;
    const long long* starts;
    const int* candidates;
    long long* separating;  // of each pair
    long long* containing;  // of each candidate
    long long n_pairs;
    int most;  // the size of the largest subsets
};

struct Test {
    const double* C;
    int p;
    const double* critical_r_squared;  // by level
    double residual_tolerance, pivot_tolerance;
};

// Grid (ceil(n_pairs / threads)), block (threads).
__global__ void votes(const __grid_constant__ Votes votes, const __grid_constant__ Test test) {
    const long long q = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (q >= votes.n_pairs) return;
    const int i = min(votes.pairs[2 * q], votes.pairs[2 * q + 1]), j = max(votes.pairs[2 * q], votes.pairs[2 * q + 1]);
    const int* candidates = votes.candidates + votes.starts[q];
    long long* containing = votes.containing + votes.starts[q];
    const int n = static_cast<int>(votes.starts[q + 1] - votes.starts[q]);
    const double c_ij = correlation(test.C, test.p, i, j);
    long long separating = c_ij * c_ij <= test.critical_r_squared[0];  // the empty set
    int positions[MOST_MEMBERS];
    ConditioningSet<UpTo<MOST_MEMBERS>> set{UpTo<MOST_MEMBERS>(0)};
    // In lexicographic order: the next subset has a later member more, or its last member that can be is replaced.
    for (int size = 0, next = 0;; next = positions[size - 1] + 1) {
        if (size == votes.most && size > 0) next = positions[--size] + 1;
        while (next == n && size > 0) next = positions[--size] + 1;
        if (next == n || votes.most == 0) break;
        positions[size] = next;
        set.members[size] = candidates[next];
        set.size = UpTo<MOST_MEMBERS>(++size);
        set.factorise(test.C, test.p, i, test.pivot_tolerance);
        const Residuals h = set.residuals(test.C, test.p, i, j, c_ij);
        if (h.undefined(test.residual_tolerance)) continue;
        if (!h.independent(test.critical_r_squared[size], test.residual_tolerance)) continue;
        ++separating;
        for (int a = 0; a < size; ++a) ++containing[positions[a]];
    }
    votes.separating[q] = separating;
}
