// Any level from 1 on, on sub-matrices of the correlation matrix that do not need the whole matrix on the device. The
// tests of a row i draw their sets S from adj(i) and test each neighbour j outside S. These tests therefore read only
// the correlations among i and adj(i). The host gathers that sub-matrix for a group of rows with common neighbours, and
// renumbers its variables in ascending order. Renumbering keeps the order of variables, so that ranks, sides, and with
// them keys, are those of the whole graph. The loops are cuPC-S's (cuPC, section 3.4, Algorithm 5): the pseudo-inverse
// of C[S, S] is computed once for each S, and shared by the tests of all j.
//
// blockIdx.x is the row; its sets are divided among gridDim.y thread blocks, and a thread takes one set after another.
#include "gaussian/kernels/search.cuh"

// The tests of single rows: like Search (gaussian/kernels/search.cuh), but with best keys by slot, not a p x p matrix.
struct RowSearch {
    unsigned long long* keys;           // the best key of each slot
    unsigned long long* min_r_squared;  // the bits of the smallest r^2 of each slot, or null
    unsigned long long* counters;       // see Tally
    Binomials binomial;
    double critical_r_squared, residual_tolerance, pivot_tolerance;
    int level;  // the members of a set
    bool first_come;

    // Decides the test with residuals h and the given key for the edge at `slot`, and counts it. `mirror` is the slot
    // of the same edge in the other end's row, or `slot` if there is none.
    __device__ __forceinline__ void test(Tally& tally, const Residuals& h, long long slot, long long mirror,
                                         unsigned long long key) const {
        ++tally.tests;
        if (h.undefined(residual_tolerance)) {
            ++tally.undefined;
            return;
        }
        if (min_r_squared != nullptr) {
            const unsigned long long bits = __double_as_longlong(h.r_squared(residual_tolerance));
            atomicMin(&min_r_squared[slot], bits);
        }
        if (h.independent(critical_r_squared, residual_tolerance)) {
            atomicMin(&keys[slot], key);
            if (mirror != slot) atomicMin(&keys[mirror], key);
        }
    }
};

// Groups of rows. Row r is variable own[r] of the sub-matrix of sizes[r] variables at matrices[matrix_at[r]]. Its edges
// have slots first_slot[r] to first_slot[r + 1] - 1. neighbours[slot] is the edge's other end in the sub-matrix,
// ascending; mirrors[slot] is the edge's slot in the other end's row, or `slot` if that row is not in this batch.
struct Batch {
    const double* matrices;
    const long long *matrix_at, *first_slot;
    const int *sizes, *own, *neighbours, *mirrors;
};

// Grid (rows, delta), block (theta).
template <class Size>
__global__ void __launch_bounds__(512)
    gathered(const __grid_constant__ Batch batch, const __grid_constant__ RowSearch search, bool use_shared) {
    GPUPC_DYNAMIC_SHARED(int, shared);
    const Size L(search.level);
    const int r = blockIdx.x;
    const long long slots = batch.first_slot[r];
    const int n = static_cast<int>(batch.first_slot[r + 1] - slots);
    if (n < L + 1) return;
    const unsigned long long sets = search.binomial(n, L);
    const unsigned long long first = static_cast<unsigned long long>(blockIdx.y) * blockDim.x;
    if (first >= sets) return;
    const Row row = load_row(batch.own[r], n, batch.neighbours + slots, use_shared, shared);
    const double* C = batch.matrices + batch.matrix_at[r];
    const int p = batch.sizes[r], i = row.i;
    const double* c_i = C + static_cast<long long>(i) * p;

    Tally tally;
    for (unsigned long long t = first + threadIdx.x; t < sets;
         t += static_cast<unsigned long long>(gridDim.y) * blockDim.x) {
        int positions[Size::MOST];
        unrank_combination(search.binomial, n, L, t, positions);
        ConditioningSet<Size> S(L);
#pragma unroll
        for (int a = 0; a < L; ++a) S.members[a] = row.neighbours[positions[a]];
        S.factorise(C, p, i, search.pivot_tolerance);
        tally.pseudo_inverses += S.singular;
        // The key is loaded one neighbour ahead, to hide latency.
        unsigned long long next = load_relaxed(&search.keys[slots]);
        for (int position = 0; position < n; ++position) {
            const int j = row.neighbours[position];
            const long long slot = slots + position;
            const unsigned long long best = next, key = set_key(i, j, t);
            if (position + 1 < n) next = load_relaxed(&search.keys[slot + 1]);
            bool member = false;
#pragma unroll
            for (int a = 0; a < L; ++a) member |= position == positions[a];
            if (member || settled(search.first_come, best, key)) continue;
            search.test(tally, S.residuals(C, p, i, j, c_i[j]), slot, batch.mirrors[slot], key);
        }
    }
    tally.add_to(search.counters);
}
