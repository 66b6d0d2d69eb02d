// cuPC-S (cuPC, section 3.4, Algorithm 5): a thread a set S, shared by the tests of all edges of the row.
#include "gaussian/kernels/search.cuh"

// Grid (p, delta), block (theta).
template <int L>
__global__ void __launch_bounds__(512, BLOCKS_AT_ONCE<L>)
    cupc_s(const __grid_constant__ Rows rows, const __grid_constant__ Search search, bool use_shared) {
    GPUPC_DYNAMIC_SHARED(int, shared);
    const int i = blockIdx.x, n = rows.degrees[i];
    if (n < L + 1) return;  // section 4.1, I
    const unsigned long long sets = rows.binomial(n, L);
    const unsigned long long first = static_cast<unsigned long long>(blockIdx.y) * blockDim.x;
    if (first >= sets) return;  // section 4.1, III
    const Row row = load_row(i, n, rows.of(i), use_shared, shared);
    const double* C = search.C;
    const int p = rows.p;
    const double* c_i = C + search.best.cell(i, 0);

    Tally tally;
    for (unsigned long long t = first + threadIdx.x; t < sets;
         t += static_cast<unsigned long long>(gridDim.y) * blockDim.x) {
        int positions[L];
        unrank_combination(rows.binomial, n, L, t, positions);
        ConditioningSet<L> S;
#pragma unroll
        for (int a = 0; a < L; ++a) S.members[a] = row.neighbours[positions[a]];
        S.factorise(C, p, i, search.pivot_tolerance);
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
    tally.add_to(search.counters);
}
