// cuPC-E (cuPC, section 3.3, Algorithm 4) and two baselines (section 5.3), where a thread tests an edge set by set.
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

// A block takes beta edges of a row, and gamma threads take each edge. Baseline 1 has blocks of one row, whose edges
// take a thread each. Grid (p, ceil(n' / beta)), where n' is the largest degree, block (beta, gamma).
template <class Size>
__global__ void __launch_bounds__(MOST_THREADS, BLOCKS_AT_ONCE<Size>)
    cupc_e(const __grid_constant__ Rows rows, const __grid_constant__ Search search, bool use_shared) {
    GPUPC_DYNAMIC_SHARED(int, shared);
    const Size L(search.level);
    const int i = blockIdx.x, n = rows.degrees[i];
    const int beta = blockDim.x;
    if (n < L + 1) return;                                       // section 4.1, I
    if (static_cast<long long>(blockIdx.y) * beta >= n) return;  // section 4.1, II
    const Row row = load_row(i, n, rows.of(i), use_shared, shared);
    for (long long position = static_cast<long long>(blockIdx.y) * beta + threadIdx.x; position < n;
         position += static_cast<long long>(gridDim.y) * beta) {
        test_edge(search, L, rows.binomial, row, static_cast<int>(position), threadIdx.y, blockDim.y);
    }
}

// Baseline 2: a block takes an edge, whose tests its threads make in parallel. Grid (p, n'), block (threads).
template <class Size>
__global__ void __launch_bounds__(1024)
    baseline_2(const __grid_constant__ Rows rows, const __grid_constant__ Search search, bool use_shared) {
    GPUPC_DYNAMIC_SHARED(int, shared);
    const Size L(search.level);
    const int i = blockIdx.x, n = rows.degrees[i];
    if (n < L + 1 || static_cast<int>(blockIdx.y) >= n) return;
    const Row row = load_row(i, n, rows.of(i), use_shared, shared);
    for (int position = blockIdx.y; position < n; position += gridDim.y) {
        test_edge(search, L, rows.binomial, row, position, threadIdx.x, blockDim.x);
    }
}
