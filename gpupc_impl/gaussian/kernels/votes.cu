// The subsets of lists of candidates that separate pairs (core/colliders.py), by Fisher's z test in the canonical
// evaluation.
#include "gaussian/kernels/fisher_z.cuh"

constexpr int MOST_MEMBERS = 24;
constexpr int MOST = MOST_MEMBERS;

// Pair number q, the variables pairs[2 q] and pairs[2 q + 1], has the ascending candidates[starts[q]], ...,
// candidates[starts[q + 1] - 1]. The counters of all subsets that separate it, and of those with each candidate, begin
// at zero.
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

// Subsets in lexicographic order, whose Cholesky factor is kept as a stack: a subset shares the work for all members but
// the last. Every number comes from the same operations on the same operands as in `ConditioningSet`.
struct Stack {
    int positions[MOST], members[MOST];
    double rows[MOST][MOST];  // the factor below its diagonal
    double scale[MOST];       // the reciprocals of its diagonal
    double of_i[MOST], of_j[MOST];
    Residuals given[MOST + 1];  // the first 0, 1, ... members
    int singular;               // the first member that has no variance given those before it; MOST if there is none

    // Computes entry t of the solution for variable v, given the entries before it.
    __device__ double project(const double* C, int p, int t, int v, const double* solution) const {
        double sum = correlation(C, p, members[t], v);
        for (int k = 0; k < t; ++k) sum = fma(-rows[t][k], solution[k], sum);
        return sum * scale[t];
    }

    // Computes what belongs to member t.
    __device__ void add(const Test& test, int t, int i, int j) {
        if (singular >= t) singular = MOST;
        if (singular < t) return;
        double pivot = 1.0;
        for (int u = 0; u < t; ++u) {
            double sum = correlation(test.C, test.p, members[t], members[u]);
            for (int k = 0; k < u; ++k) sum = fma(-rows[t][k], rows[u][k], sum);
            rows[t][u] = sum * scale[u];
            pivot = fma(-rows[t][u], rows[t][u], pivot);
        }
        if (t > 0 && pivot <= test.pivot_tolerance) {  // The first pivot is one.
            singular = t;
            return;
        }
        scale[t] = 1.0 / sqrt(pivot);
        of_i[t] = project(test.C, test.p, t, i, of_i);
        of_j[t] = project(test.C, test.p, t, j, of_j);
        given[t + 1].ii = fma(-of_i[t], of_i[t], given[t].ii);
        given[t + 1].jj = fma(-of_j[t], of_j[t], given[t].jj);
        given[t + 1].ij = fma(-of_i[t], of_j[t], given[t].ij);
    }

    __device__ Residuals residuals(const Test& test, int size, int i, int j) const {
        if (singular >= size) return given[size];
        PseudoInverse<MOST> pseudo;
        pseudo.size = size;
        for (int a = 0; a < size; ++a) pseudo.members[a] = members[a];
        pseudo.compute(test.C, test.p, i);
        return pseudo.residuals(test.C, test.p, j);
    }
};

// Grid (ceil(n_pairs / threads)), block (threads).
__global__ void votes(const __grid_constant__ Votes votes, const __grid_constant__ Test test) {
    const long long q = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (q >= votes.n_pairs) return;
    const int i = min(votes.pairs[2 * q], votes.pairs[2 * q + 1]), j = max(votes.pairs[2 * q], votes.pairs[2 * q + 1]);
    const int* candidates = votes.candidates + votes.starts[q];
    long long* containing = votes.containing + votes.starts[q];
    const int n = static_cast<int>(votes.starts[q + 1] - votes.starts[q]);
    const int most = min(votes.most, n);
    Stack stack;
    stack.singular = MOST;
    stack.given[0] = {1.0, 1.0, correlation(test.C, test.p, i, j)};
    long long separating = 0;
    for (int size = 0; size >= 0;) {
        const Residuals h = stack.residuals(test, size, i, j);
        const bool separates = size == 0 ? h.ij * h.ij <= test.critical_r_squared[0]
                                         : !h.undefined(test.residual_tolerance) &&
                                               h.independent(test.critical_r_squared[size], test.residual_tolerance);
        if (separates) {
            ++separating;
            for (int a = 0; a < size; ++a) ++containing[stack.positions[a]];
        }
        // The next subset has one member more, or the last member that can be replaced by a later candidate is.
        int next = size == 0 ? 0 : stack.positions[size - 1] + 1;
        if (size == most) next = --size < 0 ? n : stack.positions[size] + 1;
        while (next == n) {
            if (--size < 0) break;
            next = stack.positions[size] + 1;
        }
        if (size < 0) break;
        stack.positions[size] = next;
        stack.members[size] = candidates[next];
        stack.add(test, size, i, j);
        ++size;
    }
    votes.separating[q] = separating;
}
