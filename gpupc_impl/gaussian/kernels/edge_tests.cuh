// The tests of one edge by one thread, set after set, as cuPC-E and both baselines make them.
#pragma once

#include "gaussian/kernels/search.cuh"

// Makes tests number first, first + step, ... of the edge between row.i and its neighbour at `position` (cuPC,
// Algorithm 4, lines 5-16), whose sets S are taken from the other neighbours of row.i.
template <class Size>
__device__ void test_edge(const Search& search, Size L, const Binomials& binomial, const Row& row, int position,
                          unsigned long long first, unsigned long long step) {
    const int i = row.i, j = row.neighbours[position];
    const double* C = search.C;
    const int p = search.best.p;
    const double c_ij = C[search.best.cell(i, j)];
    const unsigned long long sets = binomial(row.n - 1, L);
    Tally tally;
    for (unsigned long long t = first; t < sets; t += step) {
        const unsigned long long key = set_key(i, j, t);
        if (search.best.settled(i, j, key)) break;  // Later keys are larger still.
        ConditioningSet<Size> S(L);
        unrank_combination(binomial, row.n - 1, L, t, S.members);
#pragma unroll
        for (int a = 0; a < L; ++a) S.members[a] = row.neighbours[S.members[a] + (S.members[a] >= position)];
        S.factorise(C, p, i, search.pivot_tolerance);
        tally.pseudo_inverses += S.singular;
        search.test(tally, S.residuals(C, p, i, j, c_ij), i, j, key);
    }
    tally.add_to(search.counters);
}
