// cuPC-S (cuPC, section 3.4, Algorithm 5): a thread a set S, shared by the tests of all edges of the row.
#include "gaussian/kernels/search.cuh"

// Grid (p, delta), block (theta).
template <int L>
__global__ void __launch_bounds__(512)
    cupc_s(const double* C, int p, const int* rows, int stride, const int* degrees, const unsigned long long* binomials,
           int max_degree, double critical_r_squared, unsigned long long* best, unsigned long long* min_r_squared,
           int first_come, unsigned long long* counters, int use_shared) {
    GPUPC_DYNAMIC_SHARED(int, shared);
    const int i = blockIdx.x, n = degrees[i];
    const Binomials binomial{binomials, max_degree};
    if (n < L + 1) return;  // section 4.1, I
    const unsigned long long sets = binomial(n, L);
    const unsigned long long first = static_cast<unsigned long long>(blockIdx.y) * blockDim.x;
    if (first >= sets) return;  // section 4.1, III
    const Search search{C, critical_r_squared, {best, p, first_come != 0}, min_r_squared};
    const Row row = load_row(i, n, rows + static_cast<long long>(i) * stride, use_shared != 0, shared);
    const double* c_i = C + search.best.cell(i, 0);

    Tally tally;
    for (unsigned long long t = first + threadIdx.x; t < sets;
         t += static_cast<unsigned long long>(gridDim.y) * blockDim.x) {
        int positions[L];
        unrank_combination(binomial, n, L, t, positions);
        ConditioningSet<L> S;
#pragma unroll
        for (int a = 0; a < L; ++a) S.members[a] = row.neighbours[positions[a]];
        S.factorise(C, p, i);
        tally.pseudo_inverses += S.singular;
        // Keys are loaded one neighbour ahead: on a GPU the load then runs beside the test before it.
        unsigned long long next = search.best.found(i, row.neighbours[0]);
        for (int position = 0; position < n; ++position) {
            const int j = row.neighbours[position];
            const unsigned long long found = next, key = set_key(i, j, t);
            if (position + 1 < n) next = search.best.found(i, row.neighbours[position + 1]);
            bool member = false;
#pragma unroll
            for (int a = 0; a < L; ++a) member |= position == positions[a];
            if (member || search.best.settled(found, key)) continue;
            search.test(tally, S.residuals(C, p, i, j, c_i[j]), i, j, key);
        }
    }
    tally.add_to(counters);
}
