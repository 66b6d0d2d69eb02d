// Any level on sub-matrices of the correlation matrix, gathered for groups of rows with their neighbours: cuPC-S's
// loops (cuPC, section 3.4, Algorithm 5) with variables renumbered in their order, so that ranks and sides stay what
// they are.
#include "out_of_core/kernels/row_search.cuh"

// Row r is variable own[r] of the sub-matrix of sizes[r] variables at matrices[matrix_at[r]]. Its edges have the slots
// from first_slot[r] to first_slot[r + 1]: a neighbour, ascending; where the same edge stands in the neighbour's row,
// or the slot itself if that row is elsewhere; and a best key. Grid (rows, delta), block (theta).
template <int L>
__global__ void __launch_bounds__(512)
    gathered(const double* matrices, const long long* matrix_at, const int* sizes, const int* own,
             const long long* first_slot, const int* neighbours, const int* mirrors,
             const unsigned long long* binomials, int max_degree, double critical_r_squared, unsigned long long* best,
             unsigned long long* min_r_squared, int first_come, unsigned long long* counters, int use_shared) {
    GPUPC_DYNAMIC_SHARED(int, shared);
    const int r = blockIdx.x;
    const long long slots = first_slot[r];
    const int n = static_cast<int>(first_slot[r + 1] - slots);
    const Binomials binomial{binomials, max_degree};
    if (n < L + 1) return;
    const unsigned long long sets = binomial(n, L);
    const unsigned long long first = static_cast<unsigned long long>(blockIdx.y) * blockDim.x;
    if (first >= sets) return;
    const RowSearch search{best, min_r_squared, critical_r_squared, first_come != 0};
    const Row row = load_row(own[r], n, neighbours + slots, use_shared != 0, shared);
    const double* C = matrices + matrix_at[r];
    const int p = sizes[r], i = row.i;
    const double* c_i = C + static_cast<long long>(i) * p;

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
        unsigned long long next = search.found(slots);  // keys are loaded one neighbour ahead, as in cupc_s
        for (int position = 0; position < n; ++position) {
            const int j = row.neighbours[position];
            const long long slot = slots + position;
            const unsigned long long found = next, key = set_key(i, j, t);
            if (position + 1 < n) next = search.found(slot + 1);
            bool member = false;
#pragma unroll
            for (int a = 0; a < L; ++a) member |= position == positions[a];
            if (member || search.settled(found, key)) continue;
            search.test(tally, S.residuals(C, p, i, j, c_i[j]), slot, mirrors[slot], key);
        }
    }
    tally.add_to(counters);
}
