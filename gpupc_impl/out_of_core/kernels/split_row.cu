// Any level for a row whose neighbours do not fit at once (Out-of-Core, section 4.2, Algorithm 2, with separation-set
// blocks at every level): its neighbours are cut into blocks by position, and a launch makes the tests of the sets with
// a given number of members from each of some blocks, against the neighbours of one block.
#include "out_of_core/kernels/row_search.cuh"

// Neighbours [first, first + length) of the row, at variables base, base + 1, ... of the sub-matrix, but that Vi has
// its own place among them; `members` of them are in a set.
struct PositionBlock {
    int first, length, base, members;
};

// Blocks of a row of n neighbours. C is the sub-matrix of `size` variables, Vi its variable i, which follows the first
// `before` neighbours. pieces holds n_pieces blocks of the sets in order of position, and then the block of the other
// ends.
struct SplitRow {
    const double* C;
    const int* pieces;
    int size, i, before, n, n_pieces;
};

template <int L>
__global__ void __launch_bounds__(512)
    split_row(const __grid_constant__ SplitRow row, const __grid_constant__ RowSearch search) {
    const Binomials binomial = search.binomial;
    const double* C = row.C;
    const int size = row.size, i = row.i, before = row.before, n = row.n, n_pieces = row.n_pieces;
    const int* pieces = row.pieces;
    PositionBlock from[L];
    unsigned long long sets = 1;
    for (int q = 0; q < n_pieces; ++q) {
        from[q] = {pieces[4 * q], pieces[4 * q + 1], pieces[4 * q + 2], pieces[4 * q + 3]};
        sets *= binomial(from[q].length, from[q].members);
    }
    const int* other = pieces + 4 * n_pieces;
    const PositionBlock to{other[0], other[1], other[2], 0};
    const double* c_i = C + static_cast<long long>(i) * size;

    Tally tally;
    for (unsigned long long t = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x; t < sets;
         t += static_cast<unsigned long long>(gridDim.x) * blockDim.x) {
        int positions[L];
        ConditioningSet<L> S;
        unsigned long long remaining = t;
        for (int q = 0, a = 0; q < n_pieces; ++q) {
            const unsigned long long choices = binomial(from[q].length, from[q].members);
            unrank_combination(binomial, from[q].length, from[q].members, remaining % choices, positions + a);
            remaining /= choices;
            for (const int end = a + from[q].members; a < end; ++a) {
                const int offset = positions[a];
                positions[a] = from[q].first + offset;
                S.members[a] = from[q].base + offset + (positions[a] >= before);
            }
        }
        // The rank among all sets of the row: those that follow, counted by unrank_combination's sum.
        unsigned long long rank = binomial(n, L) - 1;
#pragma unroll
        for (int a = 0; a < L; ++a) rank -= binomial(n - 1 - positions[a], L - a);
        S.factorise(C, size, i, search.pivot_tolerance);
        tally.pseudo_inverses += S.singular;
        for (int position = to.first; position < to.first + to.length; ++position) {
            bool member = false;
#pragma unroll
            for (int a = 0; a < L; ++a) member |= position == positions[a];
            if (member) continue;
            const unsigned long long key = position >= before ? rank : SECOND_SIDE | rank;
            if (search.settled(search.found(position), key)) continue;
            const int j = to.base + (position - to.first) + (position >= before);
            search.test(tally, S.residuals(C, size, i, j, c_i[j]), position, position, key);
        }
    }
    tally.add_to(search.counters);
}
