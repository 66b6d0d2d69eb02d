// Contingency tables: their shape, how samples are counted into them, and the statistic of a test.
#pragma once

#include "backends/simt/portable.cuh"

#ifdef GPUPC_HOST

#ifdef __AVX512VPOPCNTDQ__
#include <immintrin.h>
#endif

// What is made for many sizes, and inlined where it is called only on a GPU: g++ takes five times as long for all of
// them in one function.
#define GPUPC_OF_SIZES __device__ __attribute__((noinline))

// Samples whose codes a thread takes at a time, and bits of planes: a core wants enough to fill its vector registers.
constexpr int ROWS_AT_ONCE = 256;
constexpr int PLANE_MEMBERS = 8;  // of S, at most, that counting by planes has registers for
typedef unsigned long long Bits __attribute__((vector_size(64), may_alias));
typedef Bits Counts;

// Bits set in each 64-bit part.
__device__ __forceinline__ Counts count_bits(Bits bits) {
#ifdef __AVX512VPOPCNTDQ__
    return (Counts)_mm512_popcnt_epi64((__m512i)bits);
#else
    for (int k = 0; k < 8; ++k) bits[k] = __popcll(bits[k]);
    return bits;
#endif
}

__device__ __forceinline__ unsigned sum_parts(Counts counts) {
    unsigned long long sum = 0;
    for (int k = 0; k < 8; ++k) sum += counts[k];
    return static_cast<unsigned>(sum);
}

#else

#define GPUPC_OF_SIZES __device__ __forceinline__

constexpr int ROWS_AT_ONCE = 4;
constexpr int PLANE_MEMBERS = 4;  // more have larger tables than are counted by planes
typedef unsigned long long Bits;
typedef unsigned Counts;

__device__ __forceinline__ Counts count_bits(Bits bits) { return __popcll(bits); }
__device__ __forceinline__ unsigned sum_parts(Counts count) { return count; }

#endif

constexpr int WORDS_AT_ONCE = sizeof(Bits) / 8;

constexpr int CHUNK = 64;  // strata whose sums are added up before they join the total

// The samples. Category v of variable x has a plane, n bits that tell which samples have it, unless x has too many.
template <class Code>
struct Data {
    const Code* codes;  // (p, stride), zeros behind the last sample; stride a multiple of what is read at a time
    long long stride;
    int n;
    const int* categories;             // (p)
    const unsigned long long* planes;  // (planes, words)
    const int* first_plane;            // (p), -1 without planes
    int words;                         // of a plane, a multiple of WORDS_AT_ONCE
    unsigned plane_cells;              // the most cells of a table that is counted by planes

    __device__ __forceinline__ const Code* of(int x) const { return codes + x * stride; }
    __device__ __forceinline__ const unsigned long long* plane(int x, int v) const {
        return planes + static_cast<long long>(first_plane[x] + v) * words;
    }
};

// The tables of pairs that level 0 made (products.cu), kept for level 1. Those of row i's pairs (i, j), j > i, lie one
// after the other from counts[starts[i] - starts[first]] on, each with a row for the sums of its columns: as many cells
// for each plane behind those of Vi as Vi has categories, and one. discrete/device.py, PAIR_TABLES, declares the same.
struct PairTables {
    unsigned* counts;         // null: none
    const long long* starts;  // (p)
    const int* categories;    // (p)
    const int* first_plane;   // (p), -1 without planes
    int first;                // the first variable whose row there is
    unsigned plane_cells;     // see Data

    __device__ __forceinline__ bool have(int i, int j) const {
        return first_plane[i] >= 0 && first_plane[j] >= 0 &&
               static_cast<unsigned>(categories[i]) * static_cast<unsigned>(categories[j]) <= plane_cells;
    }
    // i < j.
    __device__ __forceinline__ unsigned* of(int i, int j) const {
        const int behind = first_plane[j] - first_plane[i] - categories[i];
        return counts + (starts[i] - starts[first]) + static_cast<long long>(categories[i] + 1) * behind;
    }
};

// The table of a pair of variables, whichever comes first: how many samples have category a of one and b of the other.
struct PairTable {
    const unsigned* counts;
    int of_a, of_b;  // cells from one category to the next

    __device__ __forceinline__ PairTable(const PairTables& pairs, int x, int y)
        : counts(x < y ? pairs.of(x, y) : pairs.of(y, x)),
          of_a(x < y ? pairs.categories[y] : 1),
          of_b(x < y ? 1 : pairs.categories[x]) {}
    __device__ __forceinline__ unsigned operator()(int a, int b) const { return counts[a * of_a + b * of_b]; }
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

// --- counting sample by sample, in shared memory -----------------------------------------------------------------

// Codes of consecutive samples, as many as a thread loads in one instruction.
struct __align__(16) Codes {
    unsigned words[4];
};

// Variables whose codes are on their way at the same time.
constexpr int VARIABLES_AT_ONCE = 4;

// Adds `stride` times each code to the number of its sample's cell. `cells` has two numbers of 16 bits a word, in some
// order of the samples.
__device__ __forceinline__ void add_codes(const Codes& codes, unsigned stride, unsigned (&cells)[8]) {  // of 8 bits
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        cells[2 * k] += (codes.words[k] & 0x00ff00ffu) * stride;
        cells[2 * k + 1] += (codes.words[k] >> 8 & 0x00ff00ffu) * stride;
    }
}

__device__ __forceinline__ void add_codes(const Codes& codes, unsigned stride, unsigned (&cells)[4]) {  // of 16 bits
#pragma unroll
    for (int k = 0; k < 4; ++k) cells[k] += codes.words[k] * stride;
}

// Up to VARIABLES_AT_ONCE of a test's variables Vj, Vi, S[0], S[1], ..., from number `from` on, and what a code of each
// adds to the number of a cell. `stride` goes from one group to the next.
template <class Code>
struct Group {
    const Code* codes[VARIABLES_AT_ONCE];
    unsigned strides[VARIABLES_AT_ONCE];
    int number;

    __device__ __forceinline__ Group(const Data<Code>& data, const Shape& shape, const int* members, int level,
                                     int from, unsigned& stride)
        : number(min(level + 2 - from, VARIABLES_AT_ONCE)) {
        unsigned factors[VARIABLES_AT_ONCE];
#pragma unroll
        for (int k = 0; k < VARIABLES_AT_ONCE; ++k) {
            codes[k] = nullptr;
            factors[k] = 1;
            if (k >= number) continue;
            const int v = from + k, x = v == 0 ? shape.high : v == 1 ? shape.low : members[v - 2];
            codes[k] = data.of(x);
            factors[k] = data.categories[x] + (v == 1);  // a stratum has one more row, for the sums of the columns
        }
#pragma unroll
        for (int k = 0; k < VARIABLES_AT_ONCE; ++k) {
            strides[k] = stride;
            stride *= factors[k];
        }
    }

    template <int WORDS>
    __device__ __forceinline__ void add_to(unsigned (&cells)[WORDS], int sample) const {
        Codes found[VARIABLES_AT_ONCE] = {};
#pragma unroll
        for (int k = 0; k < VARIABLES_AT_ONCE; ++k) {
            if (k < number) found[k] = *reinterpret_cast<const Codes*>(codes[k] + sample);
        }
#pragma unroll
        for (int k = 0; k < VARIABLES_AT_ONCE; ++k) {
            if (k < number) add_codes(found[k], strides[k], cells);
        }
    }
};

// As count_rows, for a table of up to 2^16 cells, whose numbers are worked out two in a register. Inlined, so that a
// table in shared memory is known for one: then lanes that meet in a cell are counted by one instruction, where
// additions to a memory that is not known take turns.
template <class Code>
__device__ __forceinline__ void count_packed(const Data<Code>& data, const Shape& shape, const int* members, int level,
                                             const Team& team, unsigned* table) {
    constexpr int SAMPLES = sizeof(Codes) / sizeof(Code);
    unsigned behind = 1;
    const Group<Code> pair(data, shape, members, level, 0, behind);
    for (int first = team.rank * SAMPLES; first < data.n; first += team.size * SAMPLES) {
        unsigned cells[SAMPLES / 2] = {}, stride = behind;
        pair.add_to(cells, first);
        for (int v = VARIABLES_AT_ONCE; v < level + 2; v += VARIABLES_AT_ONCE) {
            Group<Code>(data, shape, members, level, v, stride).add_to(cells, first);
        }
#pragma unroll
        for (int k = 0; k < SAMPLES / 2; ++k) {
            atomicAdd(&table[cells[k] & 0xffffu], 1u);
            atomicAdd(&table[cells[k] >> 16], 1u);
        }
        // Codes behind the last sample are zeros, which were counted.
        if (data.n - first < SAMPLES) atomicAdd(table, static_cast<unsigned>(data.n - first - SAMPLES));
    }
}

// --- counting by planes ------------------------------------------------------------------------------------------

// A table is counted in tiles of up to TILE x TILE cells of a stratum, whose counts stay in registers.
constexpr int TILE = 4;

// The planes of the categories of S that make a stratum.
struct Stratum {
    const unsigned long long* planes[PLANE_MEMBERS];  // `level` of them
    int level, words;

    __device__ __forceinline__ static Bits load(const unsigned long long* place) {
        return *reinterpret_cast<const Bits*>(place);
    }
    // Those of these samples that are in the stratum.
    __device__ __forceinline__ Bits operator()(Bits samples, int w) const {
#pragma unroll
        for (int a = 0; a < PLANE_MEMBERS; ++a) {
            if (a >= level) break;
            samples &= load(planes[a] + w);
        }
        return samples;
    }
};

// What a thread of the team counted, added to the cell. All threads of the team call it.
__device__ __forceinline__ void add_of_team(unsigned* cell, unsigned count, const Team& team) {
#ifndef GPUPC_HOST
    if (team.size % 32 == 0) {  // whole warps
#if __CUDA_ARCH__ >= 800
        count = __reduce_add_sync(~0u, count);
#else
        for (int distance = 16; distance > 0; distance /= 2) count += __shfl_xor_sync(~0u, count, distance);
#endif
        if (team.rank % 32 != 0) count = 0;
        if (team.size == 32) {
            if (count != 0) *cell += count;
            return;
        }
    }
#endif
    if (count != 0) add_to(cell, count, team);
}

// The samples of a stratum with each of ROWS consecutive categories of Vi and of COLUMNS of Vj.
template <int ROWS, int COLUMNS>
GPUPC_OF_SIZES void count_tile(const Stratum& stratum, const unsigned long long* rows,
                               const unsigned long long* columns, const Team& team, unsigned* cells, int width) {
    const long long words = stratum.words;
    Counts counts[ROWS][COLUMNS] = {};
#pragma unroll 2
    for (int w = team.rank * WORDS_AT_ONCE; w < stratum.words; w += team.size * WORDS_AT_ONCE) {
        const Bits samples = stratum(~Bits{}, w);
        Bits row[ROWS];
#pragma unroll
        for (int a = 0; a < ROWS; ++a) row[a] = samples & Stratum::load(rows + a * words + w);
#pragma unroll
        for (int b = 0; b < COLUMNS; ++b) {
            const Bits column = Stratum::load(columns + b * words + w);
#pragma unroll
            for (int a = 0; a < ROWS; ++a) counts[a][b] += count_bits(row[a] & column);
        }
    }
#pragma unroll
    for (int a = 0; a < ROWS; ++a) {
#pragma unroll
        for (int b = 0; b < COLUMNS; ++b) add_of_team(&cells[a * width + b], sum_parts(counts[a][b]), team);
    }
}

// ROWS consecutive categories of Vi, the first `left` of Vj, which has `width`.
template <int ROWS>
__device__ __forceinline__ void count_rows_of_tiles(const Stratum& stratum, const unsigned long long* rows,
                                                    const unsigned long long* columns, const Team& team,
                                                    unsigned* cells, int left, int width) {
    for (; left >= TILE; left -= TILE, columns += static_cast<long long>(TILE) * stratum.words, cells += TILE) {
        count_tile<ROWS, TILE>(stratum, rows, columns, team, cells, width);
    }
    if (left == 3) {
        count_tile<ROWS, 3>(stratum, rows, columns, team, cells, width);
    } else if (left == 2) {
        count_tile<ROWS, 2>(stratum, rows, columns, team, cells, width);
    } else if (left == 1) {
        count_tile<ROWS, 1>(stratum, rows, columns, team, cells, width);
    }
}

// Whether a test's variables all have planes.
template <class Code>
__device__ __forceinline__ bool all_have_planes(const Data<Code>& data, const Shape& shape, const int* members,
                                                int level) {
    bool all = data.first_plane[shape.low] >= 0 && data.first_plane[shape.high] >= 0;
    for (int a = 0; a < level; ++a) all = all && data.first_plane[members[a]] >= 0;
    return all;
}

// Whether a table is small enough to be counted by planes, and all its variables have some.
template <class Code>
__device__ __forceinline__ bool has_planes(const Data<Code>& data, const Shape& shape, const int* members, int level) {
    if (data.planes == nullptr || level > PLANE_MEMBERS) return false;
    if (shape.strata * shape.rows * shape.columns > data.plane_cells) return false;
    return all_have_planes(data, shape, members, level);
}

// Whether a table of level 1 is told by those of its pairs and the cells of all categories but the last, and these are
// at most half as many as are counted by planes otherwise, since telling takes time as well.
__device__ __forceinline__ bool pairs_tell(const PairTables& pairs, const Shape& shape, int member) {
    const unsigned long long counted = (shape.strata - 1) * (shape.rows - 1) * (shape.columns - 1);
    return 2 * counted <= pairs.plane_cells && pairs.have(shape.low, shape.high) && pairs.have(shape.low, member) &&
           pairs.have(shape.high, member);
}

// Strata are dealt out to the warps of the team; warps of the same strata, and the threads of a warp, share out the
// words. So the warps read the planes of Vi and Vj at about the same time, and few meet in a cell. The last `left_out`
// categories of Vi, Vj and S[0] are not counted.
template <class Code>
__device__ __forceinline__ void count_planes(const Data<Code>& data, const Shape& shape, const int* members, int level,
                                             const Team& all, unsigned* table, int left_out = 0) {
    const unsigned long long* const columns = data.plane(shape.high, 0);
    const unsigned strata = static_cast<unsigned>(shape.strata) - left_out;
    const int last_row = shape.rows - left_out, width = shape.columns - left_out;
    if (strata == 0) return;
    const unsigned warps = all.size % 32 == 0 ? all.size / 32 : 1, groups = min(warps, strata);
    const int size = all.size / warps * (warps / groups), group = all.rank / size;
    if (group >= static_cast<int>(groups)) return;
    const Team team{all.rank - group * size, size};
    Stratum stratum;
    stratum.level = level;
    stratum.words = data.words;
    for (unsigned s = group; s < strata; s += groups) {
        unsigned left = s;
#pragma unroll
        for (int a = 0; a < PLANE_MEMBERS; ++a) {
            stratum.planes[a] = nullptr;
            if (a >= level) continue;
            const unsigned categories = data.categories[members[a]];
            stratum.planes[a] = data.plane(members[a], left % categories);
            left /= categories;
        }
        unsigned* cells = table + s * shape.block();
        for (int v = 0; v < last_row; v += TILE, cells += TILE * shape.columns) {
            const unsigned long long* const rows = data.plane(shape.low, v);
            const int number = min(TILE, last_row - v);
            if (number == TILE) {
                count_rows_of_tiles<TILE>(stratum, rows, columns, team, cells, width, shape.columns);
            } else if (number == 3) {
                count_rows_of_tiles<3>(stratum, rows, columns, team, cells, width, shape.columns);
            } else if (number == 2) {
                count_rows_of_tiles<2>(stratum, rows, columns, team, cells, width, shape.columns);
            } else {
                count_rows_of_tiles<1>(stratum, rows, columns, team, cells, width, shape.columns);
            }
        }
    }
}

// Calls do_for(x, y) for all x < outer and y < inner, shared out among the team.
template <class Do>
__device__ __forceinline__ void share_out(const Team& team, int outer, int inner, Do&& do_for) {
    if (outer <= 0 || inner <= 0) return;
    for (int x = team.rank / inner, y = team.rank % inner; x < outer;) {
        do_for(x, y);
        for (y += team.size; y >= inner && x < outer; ++x) y -= inner;
    }
}

// The cells of a table of level 1 that count_planes left out: what its pairs have and other categories do not. All
// threads of the block call it, those without a table with `there` false; they meet between cells that need each other.
template <class Meet>
__device__ __forceinline__ void complete(const PairTables& pairs, const Shape& shape, const int* members, bool there,
                                         const Team& team, unsigned* table, Meet&& meet) {
    const int last_row = shape.rows - 1, columns = shape.columns, last_column = columns - 1;
    const int last_stratum = static_cast<int>(shape.strata) - 1, block = static_cast<int>(shape.block());
    if (there) {  // the last category of Vj
        const PairTable of_low(pairs, shape.low, members[0]);
        share_out(team, last_stratum, last_row, [&](int s, int a) {
            unsigned* const row = table + s * block + a * columns;
            unsigned count = of_low(a, s);
            for (int b = 0; b < last_column; ++b) count -= row[b];
            row[last_column] = count;
        });
    }
    meet();
    if (there) {  // of Vi
        const PairTable of_high(pairs, shape.high, members[0]);
        share_out(team, last_stratum, columns, [&](int s, int b) {
            unsigned* const column = table + s * block + b;
            unsigned count = of_high(b, s);
            for (int a = 0; a < last_row; ++a) count -= column[a * columns];
            column[last_row * columns] = count;
        });
    }
    meet();
    if (there) {  // of S[0]
        const PairTable of_both(pairs, shape.low, shape.high);
        share_out(team, shape.rows, columns, [&](int a, int b) {
            unsigned* const cell = table + a * columns + b;
            unsigned count = of_both(a, b);
            for (int s = 0; s < last_stratum; ++s) count -= cell[s * block];
            cell[last_stratum * block] = count;
        });
    }
    meet();
}

// --- the statistic -----------------------------------------------------------------------------------------------

// What decides a test.
struct Rules {
    const double* logs;  // log(k) for k = 0..n: G-square; null: chi-square
    bool adjusted;       // degrees of freedom from the rows and columns that occur
};

// x / y as a division rounds it, for a finite x and a y far from the ends of the range. It is what a division does
// after it has looked where its operands lie; without that several are under way at a time. tests/gpu compares them.
__device__ __forceinline__ double quotient(double x, double y) {
#ifdef GPUPC_HOST
    return x / y;
#else
    double inverse;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(inverse) : "d"(y));
    double error = fma(-y, inverse, 1.0);
    inverse = fma(fma(error, error, error), inverse, inverse);
    error = fma(-y, inverse, 1.0);
    inverse = fma(error, inverse, inverse);
    const double near = x * inverse;
    return fma(fma(-y, near, x), inverse, near);
#endif
}

// A cell's share of the statistic.
__device__ __forceinline__ double chi_square_term(unsigned count, unsigned row, unsigned column, unsigned total) {
    const double expected =
        quotient(static_cast<double>(row) * static_cast<double>(column), static_cast<double>(total));
    const double difference = static_cast<double>(count) - expected;
    return quotient(difference * difference, expected);
}

__device__ __forceinline__ double g_square_term(const double* logs, unsigned count, unsigned row, unsigned column,
                                                unsigned total) {
    const double found = logs[count] + logs[total];
    const double expected = logs[row] + logs[column];
    return static_cast<double>(count) * (found - expected);
}

#ifdef GPUPC_HOST
constexpr int TERMS_AT_ONCE = 1;
#else
constexpr int TERMS_AT_ONCE = 4;  // so that a thread waits for several divisions at a time
#endif

// A stratum's share of the statistic; `counts` is a block of the table, whose last row gets the sums of the columns.
// Terms are added row by row, so that every method adds the same numbers in the same order; those of columns that do
// not occur are zero. `df` grows by the adjusted degrees of freedom.
__device__ __forceinline__ double stratum_statistic(const Rules& rules, int rows, int columns, unsigned* counts,
                                                    unsigned long long& df) {
    unsigned* const sums = counts + static_cast<long long>(rows) * columns;
    unsigned total = 0, columns_met = 0, rows_met = 0;
#ifdef GPUPC_HOST
    for (int b = 0; b < columns; ++b) sums[b] = counts[b];
    for (int a = 1; a < rows; ++a) {
        for (int b = 0; b < columns; ++b) sums[b] += counts[static_cast<long long>(a) * columns + b];
    }
#else
    for (int b = 0; b < columns; ++b) {
        const unsigned* const column = counts + b;
        unsigned sum = 0;
#pragma unroll 4
        for (int a = 0; a < rows; ++a) sum += column[static_cast<long long>(a) * columns];
        sums[b] = sum;
    }
#endif
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
            for (int first = 0; first < columns; first += TERMS_AT_ONCE) {
                double terms[TERMS_AT_ONCE];
#pragma unroll
                for (int k = 0; k < TERMS_AT_ONCE; ++k) {
                    const int b = min(first + k, columns - 1);
                    const bool met = first + k < columns && sums[b] != 0;
                    const double term = chi_square_term(row[b], row_total, met ? sums[b] : 1, total);
                    terms[k] = met ? term : 0.0;
                }
#pragma unroll
                for (int k = 0; k < TERMS_AT_ONCE; ++k) sum += terms[k];
            }
        } else {
            for (int b = 0; b < columns; ++b) {
                if (row[b] == 0) continue;
                sum += g_square_term(rules.logs, row[b], row_total, sums[b], total);
            }
        }
    }
    df += static_cast<unsigned long long>(rows_met - 1) * (columns_met - 1);
    return sum;
}

// The sums of the columns, each in the last row of its stratum.
__device__ __forceinline__ void sum_columns(const Shape& shape, const Team& team, unsigned* table) {
    share_out(team, static_cast<int>(shape.strata), shape.columns, [&](int s, int b) {
        unsigned* const column = table + s * static_cast<int>(shape.block()) + b;
        unsigned sum = 0;
        for (int a = 0; a < shape.rows; ++a) sum += column[a * shape.columns];
        column[shape.rows * shape.columns] = sum;
    });
}

// The shares that stratum_statistic adds up, for all cells of a table whose columns are summed; 0 for those that it
// passes over.
__device__ __forceinline__ void work_out_terms(const Rules& rules, const Shape& shape, const Team& team,
                                               const unsigned* table, double* terms) {
    const int columns = shape.columns;
    share_out(team, static_cast<int>(shape.strata) * shape.rows, columns, [&](int row_number, int b) {
        const int s = row_number / shape.rows;
        const unsigned* const row = table + (row_number + s) * columns;  // a stratum has one row more
        const unsigned* const sums = table + ((s + 1) * (shape.rows + 1) - 1) * columns;
        unsigned total = 0, row_total = 0;
        for (int other = 0; other < columns; ++other) {
            row_total += row[other];
            total += sums[other];
        }
        double term = 0.0;
        if (rules.logs != nullptr) {
            if (row[b] != 0) term = g_square_term(rules.logs, row[b], row_total, sums[b], total);
        } else if (row_total != 0 && sums[b] != 0) {
            term = chi_square_term(row[b], row_total, sums[b], total);
        }
        terms[row_number * columns + b] = term;
    });
}

// What stratum_statistic returns, from the terms; the sum stays where the stratum's first term was.
__device__ __forceinline__ void sum_terms(const Rules& rules, const Shape& shape, const Team& team,
                                          const unsigned* table, double* terms, unsigned long long& df) {
    const int rows = shape.rows, columns = shape.columns, block = static_cast<int>(shape.block());
    for (int s = team.rank; s < static_cast<int>(shape.strata); s += team.size) {
        double* const of_stratum = terms + s * rows * columns;
        double sum = 0.0;
        for (int q = 0; q < rows * columns; ++q) sum += of_stratum[q];
        of_stratum[0] = sum;
        if (!rules.adjusted) continue;
        const unsigned* const counts = table + s * block;
        unsigned rows_met = 0, columns_met = 0;
        for (int a = 0; a < rows; ++a) {
            bool met = false;
            for (int b = 0; b < columns; ++b) met = met || counts[a * columns + b] != 0;
            rows_met += met;
        }
        for (int b = 0; b < columns; ++b) columns_met += counts[rows * columns + b] != 0;
        if (rows_met != 0) df += static_cast<unsigned long long>(rows_met - 1) * (columns_met - 1);
    }
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
