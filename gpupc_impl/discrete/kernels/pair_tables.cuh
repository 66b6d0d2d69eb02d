// Tables of pairs from level 0 that reduce the counting at level 1.
#pragma once

#include "discrete/kernels/data.cuh"

// The tables of pairs that level 0 made (products.cu). The tables of the pairs (i, j), j > i, of row i lie one after
// the other from counts[starts[i] - starts[first]] on, each with a row for the sums of its columns: for every plane
// after those of Vi there are |Vi| + 1 cells.
struct PairTables {
    Variables variables;      // `plane_cells` is the largest number of cells of a table here.
    unsigned* counts;         // null if there are none
    const long long* starts;  // (p)
    int first;                // the first variable that has a row here

    __device__ __forceinline__ bool have(int i, int j) const {
        const int *first_plane = variables.first_plane, *categories = variables.categories;
        return first_plane[i] >= 0 && first_plane[j] >= 0 &&
               static_cast<unsigned>(categories[i]) * static_cast<unsigned>(categories[j]) <= variables.plane_cells;
    }
    // The table of Vi and Vj, i < j.
    __device__ __forceinline__ unsigned* of(int i, int j) const {
        const int rows = variables.categories[i];
        const int planes_between = variables.first_plane[j] - variables.first_plane[i] - rows;
        return counts + (starts[i] - starts[first]) + static_cast<long long>(rows + 1) * planes_between;
    }
};

// The table of two variables in either order: (a, b) counts the samples with category a of x and category b of y.
struct PairTable {
    const unsigned* counts;
    int stride_a, stride_b;  // the distance between the cells of two categories

    __device__ __forceinline__ PairTable(const PairTables& pairs, int x, int y)
        : counts(x < y ? pairs.of(x, y) : pairs.of(y, x)),
          stride_a(x < y ? pairs.variables.categories[y] : 1),
          stride_b(x < y ? 1 : pairs.variables.categories[x]) {}
    __device__ __forceinline__ unsigned operator()(int a, int b) const { return counts[a * stride_a + b * stride_b]; }
};

// Whether a table of level 1 is completed from the tables of its pairs, so that only the cells without any last
// category are counted. Completing takes time, so this is done only if there are at most half as many such cells as a
// table that is counted by planes may have.
__device__ __forceinline__ bool completes(const PairTables& pairs, const Shape& shape, int member) {
    const unsigned long long counted = (shape.strata - 1) * (shape.rows - 1) * (shape.columns - 1);
    return 2 * counted <= pairs.variables.plane_cells && pairs.have(shape.low, shape.high) &&
           pairs.have(shape.low, member) && pairs.have(shape.high, member);
}

// Writes the cells of a table of level 1 that count_planes omitted. N(a, b, s) summed over the categories s of S[0] is
// the pair's count N(a, b), so one category of each variable is a difference: first the last of Vj, then of Vi, then of
// S[0]. All threads of the block must call this function, with `present` false if their team has no such table; `join`
// is the barrier between steps that depend on each other.
template <class Join>
__device__ __forceinline__ void complete(const PairTables& pairs, const Shape& shape, const int* members, bool present,
                                         const Team& team, unsigned* table, Join&& join) {
    const int last_row = shape.rows - 1, columns = shape.columns, last_column = columns - 1;
    const int last_stratum = static_cast<int>(shape.strata) - 1, block = static_cast<int>(shape.block());
    if (present) {
        const PairTable of_low(pairs, shape.low, members[0]);
        share_out(team, last_stratum, last_row, [&](int s, int a) {
            unsigned* const row = table + s * block + a * columns;
            unsigned count = of_low(a, s);
            for (int b = 0; b < last_column; ++b) count -= row[b];
            row[last_column] = count;
        });
    }
    join();
    if (present) {
        const PairTable of_high(pairs, shape.high, members[0]);
        share_out(team, last_stratum, columns, [&](int s, int b) {
            unsigned* const column = table + s * block + b;
            unsigned count = of_high(b, s);
            for (int a = 0; a < last_row; ++a) count -= column[a * columns];
            column[last_row * columns] = count;
        });
    }
    join();
    if (present) {
        const PairTable of_both(pairs, shape.low, shape.high);
        share_out(team, shape.rows, columns, [&](int a, int b) {
            unsigned* const cell = table + a * columns + b;
            unsigned count = of_both(a, b);
            for (int s = 0; s < last_stratum; ++s) count -= cell[s * block];
            cell[last_stratum * block] = count;
        });
    }
    join();
}
