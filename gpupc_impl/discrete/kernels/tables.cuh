// Contingency tables: their shape, how samples are counted into them, and the statistic of a test.
#pragma once

#include "backends/simt/portable.cuh"

#ifdef GPUPC_HOST

#ifdef __AVX512VPOPCNTDQ__
#include <immintrin.h>
#endif

// Samples whose codes a thread takes at a time, and bits of planes: a core wants enough to fill its vector registers.
constexpr int ROWS_AT_ONCE = 256;
typedef unsigned long long Bits __attribute__((vector_size(64), may_alias));

// Bits set in each 64-bit part.
__device__ __forceinline__ Bits count_bits(Bits bits) {
#ifdef __AVX512VPOPCNTDQ__
    return (Bits)_mm512_popcnt_epi64((__m512i)bits);
#else
    for (int k = 0; k < 8; ++k) bits[k] = __popcll(bits[k]);
    return bits;
#endif
}

__device__ __forceinline__ unsigned sum_parts(Bits counts) {
    unsigned long long sum = 0;
    for (int k = 0; k < 8; ++k) sum += counts[k];
    return static_cast<unsigned>(sum);
}

#else

constexpr int ROWS_AT_ONCE = 4;
typedef unsigned long long Bits;

__device__ __forceinline__ Bits count_bits(Bits bits) { return __popcll(bits); }
__device__ __forceinline__ unsigned sum_parts(Bits count) { return static_cast<unsigned>(count); }

#endif

constexpr int WORDS_AT_ONCE = sizeof(Bits) / 8;

// Members of S that counting by planes has registers for.
constexpr int PLANE_MEMBERS = 8;

constexpr int CHUNK = 64;  // strata whose sums are added up before they join the total

// The samples. Category v of variable x has a plane, n bits that tell which samples have it, unless x has too many.
template <class Code>
struct Data {
    const Code* codes;  // (p, stride), stride a multiple of ROWS_AT_ONCE: so many are read at a time
    long long stride;
    int n;
    const int* categories;             // (p)
    const unsigned long long* planes;  // (planes, words)
    const int* first_plane;            // (p), -1 without planes
    int words;                         // of a plane, a multiple of WORDS_AT_ONCE
    unsigned plane_passes;             // the most planes whose bits are combined to count a table

    __device__ __forceinline__ const Code* of(int x) const { return codes + x * stride; }
    __device__ __forceinline__ const unsigned long long* plane(int x, int v) const {
        return planes + static_cast<long long>(first_plane[x] + v) * words;
    }
};

// A test's table: `strata` blocks of `rows` x `columns` counts and one more row, for the sums of the columns. Stratum
// numbers count S[0] fastest (gpuPC, Algorithm 3, lines 13-18).
struct Shape {
    int low, high;      // Vi and Vj, i < j
    int rows, columns;  // |Vi|, |Vj|
    unsigned long long strata;

    __device__ __forceinline__ unsigned long long block() const {
        return static_cast<unsigned long long>(rows + 1) * columns;
    }
    __device__ __forceinline__ unsigned long long cells() const { return strata * block(); }

    __device__ __forceinline__ void set(const int* categories, int i, int j, const int* members, int level) {
        low = min(i, j);
        high = max(i, j);
        rows = categories[low];
        columns = categories[high];
        strata = 1;
        for (int a = 0; a < level; ++a) strata *= categories[members[a]];
    }
};

// Threads that work on one table together: `rank` of `size`.
struct Team {
    int rank, size;
};

__device__ __forceinline__ void add_to(unsigned* cell, unsigned count, const Team& team) {
    if (team.size == 1) {
        *cell += count;
    } else {
        atomicAdd(cell, count);
    }
}

// --- counting sample by sample -----------------------------------------------------------------------------------

// ROWS_AT_ONCE codes. Those behind the last sample are padding, which the caller does not count.
template <class Code>
__device__ __forceinline__ void load_codes(const Code* codes, unsigned (&out)[ROWS_AT_ONCE]) {
#ifdef GPUPC_HOST
    for (int k = 0; k < ROWS_AT_ONCE; ++k) out[k] = codes[k];
#else
    if (sizeof(Code) == 1) {
        const unsigned word = __ldg(reinterpret_cast<const unsigned*>(codes));
#pragma unroll
        for (int k = 0; k < ROWS_AT_ONCE; ++k) out[k] = (word >> (8 * k)) & 0xffu;
    } else {
        const unsigned long long word = __ldg(reinterpret_cast<const unsigned long long*>(codes));
#pragma unroll
        for (int k = 0; k < ROWS_AT_ONCE; ++k) out[k] = static_cast<unsigned>(word >> (16 * k)) & 0xffffu;
    }
#endif
}

// Algorithm 3, lines 12-18, ROWS_AT_ONCE samples at a time. Index numbers the table's cells.
template <class Index, class Code>
__device__ void count_rows(const Data<Code>& data, const Shape& shape, const int* members, int level, const Team& team,
                           unsigned* table) {
    const Code *low = data.of(shape.low), *high = data.of(shape.high);
    for (int first = team.rank * ROWS_AT_ONCE; first < data.n; first += team.size * ROWS_AT_ONCE) {
        Index cell[ROWS_AT_ONCE], stride = static_cast<Index>(shape.block());
        unsigned code[ROWS_AT_ONCE];
        load_codes(low + first, code);
#pragma unroll
        for (int k = 0; k < ROWS_AT_ONCE; ++k) cell[k] = code[k] * static_cast<Index>(shape.columns);
        load_codes(high + first, code);
#pragma unroll
        for (int k = 0; k < ROWS_AT_ONCE; ++k) cell[k] += code[k];
        for (int a = 0; a < level; ++a) {
            load_codes(data.of(members[a]) + first, code);
#pragma unroll
            for (int k = 0; k < ROWS_AT_ONCE; ++k) cell[k] += code[k] * stride;
            stride *= data.categories[members[a]];
        }
        const int there = min(ROWS_AT_ONCE, data.n - first);
#pragma unroll
        for (int k = 0; k < ROWS_AT_ONCE; ++k) {
            if (k < there) add_to(&table[cell[k]], 1, team);
        }
    }
}

template <class Code>
__device__ __forceinline__ void count_samples(const Data<Code>& data, const Shape& shape, const int* members, int level,
                                              const Team& team, unsigned* table) {
    if (shape.cells() >> 32 == 0) {
        count_rows<unsigned>(data, shape, members, level, team, table);
    } else {
        count_rows<unsigned long long>(data, shape, members, level, team, table);
    }
}

// --- counting by planes ------------------------------------------------------------------------------------------

// The samples of one stratum in which Vi has one category: what the bits of several planes have in common.
struct Common {
    const unsigned long long* planes[PLANE_MEMBERS];  // of S, `level` of them
    const unsigned long long* row;                    // of Vi
    int level, words;

    __device__ __forceinline__ static Bits load(const unsigned long long* place) {
        return *reinterpret_cast<const Bits*>(place);
    }
    __device__ __forceinline__ Bits operator()(int w) const {
        Bits mask = load(row + w);
#pragma unroll
        for (int a = 0; a < PLANE_MEMBERS; ++a) {
            if (a >= level) break;
            mask &= load(planes[a] + w);
        }
        return mask;
    }
};

// How often each of COLUMNS consecutive categories of Vj occurs in them.
template <int COLUMNS>
__device__ __forceinline__ void count_columns(const Common& common, const unsigned long long* columns, const Team& part,
                                              const Team& team, unsigned* cells) {
    Bits counts[COLUMNS] = {};
    for (int w = part.rank * WORDS_AT_ONCE; w < common.words; w += part.size * WORDS_AT_ONCE) {
        const Bits mask = common(w);
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            counts[c] += count_bits(mask & Common::load(columns + static_cast<long long>(c) * common.words + w));
        }
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
        const unsigned count = sum_parts(counts[c]);
        if (count != 0) add_to(&cells[c], count, team);
    }
}

// All `number` categories of Vj.
__device__ __forceinline__ void count_row(const Common& common, const unsigned long long* columns, int number,
                                          const Team& part, const Team& team, unsigned* cells) {
    for (; number >= 4; number -= 4, columns += 4ll * common.words, cells += 4) {
        count_columns<4>(common, columns, part, team, cells);
    }
    if (number == 3) {
        count_columns<3>(common, columns, part, team, cells);
    } else if (number == 2) {
        count_columns<2>(common, columns, part, team, cells);
    } else if (number == 1) {
        count_columns<1>(common, columns, part, team, cells);
    }
}

// Whether counting by planes takes few enough passes over their bits.
template <class Code>
__device__ __forceinline__ bool has_planes(const Data<Code>& data, const Shape& shape, const int* members, int level) {
    if (data.planes == nullptr || level > PLANE_MEMBERS) return false;
    if (shape.strata * shape.rows * (level + 1 + shape.columns) > data.plane_passes) return false;
    bool all = data.first_plane[shape.low] >= 0 && data.first_plane[shape.high] >= 0;
    for (int a = 0; a < level; ++a) all = all && data.first_plane[members[a]] >= 0;
    return all;
}

// Each row of the table is cut into so many parts that every thread gets one.
template <class Code>
__device__ void count_planes(const Data<Code>& data, const Shape& shape, const int* members, int level,
                             const Team& team, unsigned* table) {
    const unsigned long long rows = shape.strata * shape.rows;
    const int parts = rows < team.size ? team.size / static_cast<int>(rows) : 1;
    for (unsigned long long item = team.rank; item < rows * parts; item += team.size) {
        const Team part{static_cast<int>(item % parts), parts};
        const unsigned row = static_cast<unsigned>(item / parts);
        const unsigned stratum = row / shape.rows, v = row % shape.rows;
        Common common;
        unsigned left = stratum;
#pragma unroll
        for (int a = 0; a < PLANE_MEMBERS; ++a) {
            common.planes[a] = nullptr;
            if (a >= level) continue;
            const unsigned categories = data.categories[members[a]];
            common.planes[a] = data.plane(members[a], left % categories);
            left /= categories;
        }
        common.row = data.plane(shape.low, v);
        common.level = level;
        common.words = data.words;
        count_row(common, data.plane(shape.high, 0), shape.columns, part, team,
                  table + stratum * shape.block() + v * shape.columns);
    }
}

// --- the statistic -----------------------------------------------------------------------------------------------

// What decides a test.
struct Rules {
    const double* logs;  // log(k) for k = 0..n: G-square; null: chi-square
    bool adjusted;       // degrees of freedom from the rows and columns that occur
};

// A stratum's share of the statistic; `counts` is a block of the table, whose last row gets the sums of the columns.
// Cells are visited row by row, so that every method adds the same numbers in the same order. `df` grows by the
// adjusted degrees of freedom.
__device__ __forceinline__ double stratum_statistic(const Rules& rules, int rows, int columns, unsigned* counts,
                                                    unsigned long long& df) {
    unsigned* const sums = counts + static_cast<long long>(rows) * columns;
    unsigned total = 0, columns_met = 0, rows_met = 0;
    for (int b = 0; b < columns; ++b) sums[b] = counts[b];
    for (int a = 1; a < rows; ++a) {
        for (int b = 0; b < columns; ++b) sums[b] += counts[static_cast<long long>(a) * columns + b];
    }
    for (int b = 0; b < columns; ++b) {
        total += sums[b];
        columns_met += sums[b] != 0;
    }
    if (total == 0) return 0.0;
    double sum = 0.0;
    for (int a = 0; a < rows; ++a) {
        const unsigned* const row = counts + static_cast<long long>(a) * columns;
        unsigned row_total = 0;
        for (int b = 0; b < columns; ++b) row_total += row[b];
        if (row_total == 0) continue;  // nothing expected, nothing found
        ++rows_met;
        if (rules.logs == nullptr) {
            for (int b = 0; b < columns; ++b) {
                if (sums[b] == 0) continue;
                const double expected =
                    static_cast<double>(row_total) * static_cast<double>(sums[b]) / static_cast<double>(total);
                const double difference = static_cast<double>(row[b]) - expected;
                sum += difference * difference / expected;
            }
        } else {
            for (int b = 0; b < columns; ++b) {
                if (row[b] == 0) continue;
                const double found = rules.logs[row[b]] + rules.logs[total];
                const double expected = rules.logs[row_total] + rules.logs[sums[b]];
                sum += static_cast<double>(row[b]) * (found - expected);
            }
        }
    }
    df += static_cast<unsigned long long>(rows_met - 1) * (columns_met - 1);
    return sum;
}

// A double kept where a stratum's first two counts were.
__device__ __forceinline__ void keep(unsigned* place, double value) {
    const unsigned long long bits = __double_as_longlong(value);
    place[0] = static_cast<unsigned>(bits);
    place[1] = static_cast<unsigned>(bits >> 32);
}

__device__ __forceinline__ double kept(const unsigned* place) {
    return __longlong_as_double(static_cast<long long>(static_cast<unsigned long long>(place[1]) << 32 | place[0]));
}
