// Any level from 1 on for a row whose neighbours do not fit on the device at once (Out-of-Core, section 4.2, Algorithm
// 2, with separation-set blocks at every level).
//
// The row's n neighbours are cut into blocks of consecutive positions. One launch tests the sets S that have a given
// number of members in each of some blocks, against the neighbours in one block, so that only the correlations among
// these blocks are on the device. If q blocks of lengths n_q contribute m_q members each, there are prod C(n_q, m_q)
// sets. Set t of a launch results from reading t as a mixed-radix number whose digits are ranks in the blocks. The rank
// of that set among all C(n, L) sets of the row follows from its positions x_0 < ... < x_{L-1}:
//
//     rank = C(n, L) - 1 - sum_a C(n - 1 - x_a, L - a)
//
// so that keys agree with those of a launch on the whole row. Each thread of the grid takes one set after another.
#include "out_of_core/kernels/row_search.cuh"

// The neighbours at positions [first, first + length) of the row, of which a set contains `members`. These neighbours
// are the variables from `base` on of the sub-matrix; the index of a variable that follows Vi is larger by one.
struct PositionBlock {
    int first, length, base, members;
};

// A row of n neighbours, `before` of which have a smaller variable than Vi. C is the sub-matrix of `size` variables,
// and Vi is its variable i. `pieces` holds the n_pieces blocks that sets are drawn from, by ascending position, and
// then the block of the neighbours that are tested; each is a PositionBlock.
struct SplitRow {
    const double* C;
    const int* pieces;
    int size, i, before, n, n_pieces;
};

template <class Size>
__global__ void __launch_bounds__(512)
    split_row(const __grid_constant__ SplitRow row, const __grid_constant__ RowSearch search) {
    const Size L(search.level);
    const Binomials binomial = search.binomial;
    const double* C = row.C;
    const int size = row.size, i = row.i, before = row.before, n = row.n, n_pieces = row.n_pieces;
    const int* pieces = row.pieces;
    PositionBlock from[Size::MOST];
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
        int positions[Size::MOST];
        ConditioningSet<Size> S(L);
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
        // The sum counts the sets that follow this one, as in unrank_combination.
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
            if (search.settled(search.best_key(position), key)) continue;
            const int j = to.base + (position - to.first) + (position >= before);
            search.test(tally, S.residuals(C, size, i, j, c_i[j]), position, position, key);
        }
    }
    tally.add_to(search.counters);
}
