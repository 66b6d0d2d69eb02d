// Counts a table sample by sample.
#pragma once

#include "discrete/kernels/data.cuh"

// Reads ROWS_AT_ONCE codes. Codes after the last sample are padding, which the caller does not count.
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

// Adds 1 to the cell of each sample (gpuPC, Algorithm 3, lines 12-18), ROWS_AT_ONCE samples at a time. Index is an
// unsigned type that is large enough for the numbers of the table's cells.
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
            stride *= data.variables.categories[members[a]];
        }
        const int present = min(ROWS_AT_ONCE, data.n - first);
#pragma unroll
        for (int k = 0; k < ROWS_AT_ONCE; ++k) {
            if (k < present) add_to(&table[cell[k]], 1, team);
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

// --- in shared memory ----------------------------------------------------------------------------------------------
// The codes of consecutive samples that a thread loads in one instruction.
struct __align__(16) Codes {
    unsigned words[4];
};

// The number of variables whose codes are loaded before the first code is used, so that the loads overlap.
constexpr int VARIABLES_AT_ONCE = 4;

// Adds `stride` times each 8-bit code to its sample's cell number; `cells` words hold two of 16 bits, in any order.
__device__ __forceinline__ void add_codes(const Codes& codes, unsigned stride, unsigned (&cells)[8]) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        cells[2 * k] += (codes.words[k] & 0x00ff00ffu) * stride;
        cells[2 * k + 1] += (codes.words[k] >> 8 & 0x00ff00ffu) * stride;
    }
}

// Adds `stride` times each 16-bit code to the number of its sample's cell.
__device__ __forceinline__ void add_codes(const Codes& codes, unsigned stride, unsigned (&cells)[4]) {
#pragma unroll
    for (int k = 0; k < 4; ++k) cells[k] += codes.words[k] * stride;
}

// Up to VARIABLES_AT_ONCE of a test's variables Vj, Vi, S[0], S[1], ..., from number `from` on, with the factor by
// which a code of each adds to the number of a cell. `stride` is the factor of the first, then of the next group's.
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
            // A stratum has an additional row for the sums of the columns.
            factors[k] = data.variables.categories[x] + (v == 1);
        }
#pragma unroll
        for (int k = 0; k < VARIABLES_AT_ONCE; ++k) {
            strides[k] = stride;
            stride *= factors[k];
        }
    }

    template <int WORDS>
    __device__ __forceinline__ void add_to(unsigned (&cells)[WORDS], int sample) const {
        Codes loaded[VARIABLES_AT_ONCE] = {};
#pragma unroll
        for (int k = 0; k < VARIABLES_AT_ONCE; ++k) {
            if (k < number) loaded[k] = *reinterpret_cast<const Codes*>(codes[k] + sample);
        }
#pragma unroll
        for (int k = 0; k < VARIABLES_AT_ONCE; ++k) {
            if (k < number) add_codes(loaded[k], strides[k], cells);
        }
    }
};

// Counts like count_rows, for a table of up to 2^16 cells in shared memory: one register holds two cell numbers. The
// function is inlined so that the compiler knows that addresses are in shared memory: one instruction then adds up the
// lanes of a warp that hit the same cell, whereas additions to a generic address are serialized.
template <class Code>
__device__ __forceinline__ void count_packed(const Data<Code>& data, const Shape& shape, const int* members, int level,
                                             const Team& team, unsigned* table) {
    constexpr int SAMPLES = sizeof(Codes) / sizeof(Code);
    unsigned after_pair = 1;
    const Group<Code> pair(data, shape, members, level, 0, after_pair);
    for (int first = team.rank * SAMPLES; first < data.n; first += team.size * SAMPLES) {
        unsigned cells[SAMPLES / 2] = {}, stride = after_pair;
        pair.add_to(cells, first);
        for (int v = VARIABLES_AT_ONCE; v < level + 2; v += VARIABLES_AT_ONCE) {
            Group<Code>(data, shape, members, level, v, stride).add_to(cells, first);
        }
#pragma unroll
        for (int k = 0; k < SAMPLES / 2; ++k) {
            atomicAdd(&table[cells[k] & 0xffffu], 1u);
            atomicAdd(&table[cells[k] >> 16], 1u);
        }
        // The padding after the last sample was counted in cell 0, from which it is subtracted.
        if (data.n - first < SAMPLES) atomicAdd(table, static_cast<unsigned>(data.n - first - SAMPLES));
    }
}
