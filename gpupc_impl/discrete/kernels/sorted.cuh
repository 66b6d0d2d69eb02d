// Tests whose table would be too large. The samples' cell numbers are sorted, so that memory and time grow with the
// number of samples and not with strata that never occur. Terms are added in the same order as those of a table
// (statistic.cuh), so the statistic has the same bits.
#pragma once

#include "discrete/kernels/decide.cuh"

// The values of a digit. A pass of the radix sort orders by one digit, of whose values each thread counts occurrences.
constexpr int CUDA_DIGITS = 16, HOST_DIGITS = 256;
#ifdef GPUPC_HOST
constexpr int DIGIT_BITS = 8;
constexpr int DIGITS = HOST_DIGITS;
#else
constexpr int DIGIT_BITS = 4;
constexpr int DIGITS = CUDA_DIGITS;
#endif
static_assert(DIGITS == 1 << DIGIT_BITS, "a digit has this many values");

// The test that a team is making, in shared memory.
struct Unit {
    Shape shape;
    unsigned long long key, df;
    // `testing`: whether there is a test; `completed`: whether its table is completed from the tables of its pairs
    short testing, completed;
};

__device__ __forceinline__ bool single_thread() { return blockDim.x * blockDim.y * blockDim.z == 1; }

__device__ __forceinline__ void sync_block() {
    if (!single_thread()) __syncthreads();
}

// A team's scratch space, whose size discrete/block_tables.py computes (sorted_cells).
struct Sorting {
    unsigned long long *cells, *other;  // (n) each: the number of every sample's cell, and working memory for sorting
    double* sums;                       // (n): the terms of chunks
    unsigned* counts;                   // (DIGITS, team) counts of digits
    unsigned* totals;                   // (DIGITS) the counts of the whole team
    int first, last;                    // the samples of this thread

    __device__ Sorting(unsigned* memory, int n, const Team& team)
        : cells(reinterpret_cast<unsigned long long*>(memory)),
          other(cells + n),
          sums(reinterpret_cast<double*>(other + n)),
          counts(reinterpret_cast<unsigned*>(sums + n)),
          totals(counts + static_cast<long long>(DIGITS) * team.size),
          first(static_cast<int>(static_cast<long long>(n) * team.rank / team.size)),
          last(static_cast<int>(static_cast<long long>(n) * (team.rank + 1) / team.size)) {}

    // Calls f(k) for each sorted sample k of this thread that is the first one in a group of `width` consecutive cells.
    template <class F>
    __device__ __forceinline__ void each_start(unsigned long long width, F f) const {
        unsigned long long end = first == 0 ? 0 : (cells[first - 1] / width + 1) * width;
        for (int k = first; k < last; ++k) {
            if (cells[k] < end) continue;
            end = (cells[k] / width + 1) * width;
            f(k);
        }
    }
};

// Writes the number of each sample's cell in a table without the sums of columns.
template <class Code>
__device__ void number_cells(const Data<Code>& data, const Shape& shape, const int* members, int level,
                             const Team& team, unsigned long long* cells) {
    const Code *low = data.of(shape.low), *high = data.of(shape.high);
    for (int k = team.rank; k < data.n; k += team.size) {
        unsigned long long cell = static_cast<unsigned long long>(low[k]) * shape.columns + high[k];
        unsigned long long stride = static_cast<unsigned long long>(shape.rows) * shape.columns;
        for (int a = 0; a < level; ++a) {
            cell += data.of(members[a])[k] * stride;
            stride *= data.variables.categories[members[a]];
        }
        cells[k] = cell;
    }
}

// A stratum's part of the statistic, as by stratum_statistic, from the sorted cells of its samples, cells[start] to
// cells[stop - 1]. `base` is the number of the stratum's first cell; `used` has room for as many columns as there are
// samples: for each column that occurs, its number in the upper 32 bits and its sum in the lower.
__device__ double sorted_stratum(const Rules& rules, int columns, unsigned long long base,
                                 const unsigned long long* cells, int start, int stop, unsigned long long* used,
                                 unsigned long long& df) {
    const unsigned total = stop - start, width = columns;
    int columns_met = 0, rows_met = 0;
    for (int k = start; k < stop;) {
        const unsigned long long cell = cells[k];
        const int begin = k;
        while (k < stop && cells[k] == cell) ++k;
        const unsigned long long column = static_cast<unsigned>(cell - base) % width;
        int low = 0, high = columns_met;
        while (low < high) {
            const int middle = low + (high - low) / 2;
            if (used[middle] >> 32 < column) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if (low == columns_met || used[low] >> 32 != column) {
            for (int q = columns_met; q > low; --q) used[q] = used[q - 1];
            used[low] = column << 32;
            ++columns_met;
        }
        used[low] += k - begin;
    }
    double sum = 0.0;
    for (int k = start; k < stop;) {
        const unsigned row = static_cast<unsigned>(cells[k] - base) / width;
        const unsigned long long row_base = base + static_cast<unsigned long long>(row) * width;
        int end = k;
        while (end < stop && cells[end] < row_base + width) ++end;
        const unsigned row_total = end - k;
        ++rows_met;
        for (int q = 0; q < columns_met; ++q) {
            const unsigned long long cell = row_base + (used[q] >> 32);
            const int begin = k;
            while (k < end && cells[k] == cell) ++k;
            const unsigned column_total = static_cast<unsigned>(used[q]), count = k - begin;
            if (rules.logs == nullptr) {
                sum += chi_square_term(count, row_total, column_total, total);
            } else if (count != 0) {
                sum += g_square_term(rules.logs, count, row_total, column_total, total);
            }
        }
    }
    df += static_cast<unsigned long long>(rows_met - 1) * (columns_met - 1);
    return sum;
}

// Sorts the team's cell numbers of `bits` bits, below `end`, by a radix sort from the least significant digit.
__device__ __forceinline__ void sort_cells(Sorting& sorting, const Team& team, bool testing, unsigned long long end,
                                           int bits) {
    unsigned *const counts = sorting.counts, *const totals = sorting.totals;
    const int size = team.size;
    for (int shift = 0; shift < bits; shift += DIGIT_BITS) {
        const bool sorts = testing && (end - 1) >> shift != 0;
        const auto digit = [&](int k) { return static_cast<int>(sorting.cells[k] >> shift & (DIGITS - 1)); };
        if (sorts) {
            for (int d = 0; d < DIGITS; ++d) counts[d * size + team.rank] = 0;
            for (int k = sorting.first; k < sorting.last; ++k) ++counts[digit(k) * size + team.rank];
        }
        sync_block();
        if (sorts) {  // These are prefix sums over the threads, then over the digits.
            for (int d = team.rank; d < DIGITS; d += size) {
                unsigned before = 0;
                for (int r = 0; r < size; ++r) {
                    const unsigned own = counts[d * size + r];
                    counts[d * size + r] = before;
                    before += own;
                }
                totals[d] = before;
            }
        }
        sync_block();
        if (sorts) {
            unsigned before = 0;
            for (int d = 0; d < DIGITS; ++d) {
                counts[d * size + team.rank] += before;
                before += totals[d];
            }
            for (int k = sorting.first; k < sorting.last; ++k) {
                sorting.other[counts[digit(k) * size + team.rank]++] = sorting.cells[k];
            }
        }
        sync_block();
        if (sorts) {
            unsigned long long* const sorted = sorting.other;
            sorting.other = sorting.cells;
            sorting.cells = sorted;
        }
    }
}

// Writes the part of each stratum of this thread to parts[start], where the stratum's samples begin and, where there is
// more than one, their end to parts[start + 1]. Returns the adjusted degrees of freedom.
__device__ __forceinline__ unsigned long long write_parts(const Rules& rules, const Sorting& sorting,
                                                          const Shape& shape, int n) {
    const unsigned long long stratum = static_cast<unsigned long long>(shape.rows) * shape.columns;
    const unsigned long long* const cells = sorting.cells;
    unsigned long long* const parts = sorting.other;
    unsigned long long df = 0;
    sorting.each_start(stratum, [&](int start) {
        const unsigned long long base = cells[start] / stratum * stratum;
        int stop = start + 1;
        while (stop < n && cells[stop] < base + stratum) ++stop;
        double part = 0.0;  // The count of a single sample equals its expectation.
        if (stop - start > 1) {
            part = sorted_stratum(rules, shape.columns, base, cells, start, stop, parts + start, df);
            parts[start + 1] = stop;
        }
        parts[start] = __double_as_longlong(part);
    });
    return df;
}

// Adds the parts of the strata of one chunk, whose first sample is `start`.
__device__ __forceinline__ double sum_of_chunk(const Sorting& sorting, unsigned long long stratum, int start, int n) {
    const unsigned long long *const cells = sorting.cells, *const parts = sorting.other;
    const unsigned long long end = (cells[start] / (stratum * CHUNK) + 1) * (stratum * CHUNK);
    double sum = 0.0;
    for (int k = start; k < n && cells[k] < end;) {
        sum += __longlong_as_double(static_cast<long long>(parts[k]));
        const bool single = k + 1 == n || cells[k + 1] / stratum != cells[k] / stratum;
        k = single ? k + 1 : static_cast<int>(parts[k + 1]);
    }
    return sum;
}

// Makes a test like make_test, but sorts the samples in `memory` instead of making a table. `bits`, the number of bits
// of the largest cell number, is the same for all threads of the block.
template <class Code>
__device__ void make_sorted_test(const DiscreteSearch& search, const Data<Code>& data, Unit& unit, const int* members,
                                 int level, const Team& team, unsigned* memory, int bits) {
    const bool testing = unit.testing != 0;
    const Shape shape = unit.shape;
    const unsigned long long stratum = static_cast<unsigned long long>(shape.rows) * shape.columns;
    const int n = data.n;
    Sorting sorting(memory, n, team);
    if (testing) number_cells(data, shape, members, level, team, sorting.cells);
    sync_block();
    sort_cells(sorting, team, testing, shape.strata * stratum, bits);
    if (testing) {
        const unsigned long long df = write_parts(search.rules, sorting, shape, n);
        if (df != 0) atomicAdd(&unit.df, df);
        int chunks = 0;
        sorting.each_start(stratum * CHUNK, [&](int) { ++chunks; });
        sorting.counts[team.rank] = chunks;
    }
    sync_block();
    if (testing) {
        int place = 0;
        for (int r = 0; r < team.rank; ++r) place += sorting.counts[r];
        sorting.each_start(stratum * CHUNK,
                           [&](int start) { sorting.sums[place++] = sum_of_chunk(sorting, stratum, start, n); });
    }
    sync_block();
    if (testing && team.rank == 0) {
        int chunks = 0;
        for (int r = 0; r < team.size; ++r) chunks += sorting.counts[r];
        double sum = 0.0;
        for (int k = 0; k < chunks; ++k) sum += sorting.sums[k];
        search.decide(shape, sum, unit.df, unit.key);
    }
}
