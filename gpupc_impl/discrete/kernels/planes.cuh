// Counts a table by planes: a cell is the number of bits that are set in the planes of all its categories.
#pragma once

#include "discrete/kernels/data.cuh"

constexpr int TILE = 4;  // A stratum is counted in tiles of up to TILE x TILE cells, whose counts stay in registers.

// The planes of the categories of S that define a stratum.
struct Stratum {
    const unsigned long long* planes[PLANE_MEMBERS];  // `level` of them
    int level, words;

    __device__ __forceinline__ static Bits load(const unsigned long long* place) {
        return *reinterpret_cast<const Bits*>(place);
    }
    // Returns which of these samples are in the stratum.
    __device__ __forceinline__ Bits operator()(Bits samples, int w) const {
#pragma unroll
        for (int a = 0; a < PLANE_MEMBERS; ++a) {
            if (a >= level) break;
            samples &= load(planes[a] + w);
        }
        return samples;
    }
};

// Returns the sum of the counts of all lanes of a warp; only a GPU has warps.
__device__ __forceinline__ unsigned sum_of_lanes(unsigned count) {
#ifdef GPUPC_HOST
    return count;
#elif __CUDA_ARCH__ >= 800
    return __reduce_add_sync(~0u, count);
#else
    for (int distance = 16; distance > 0; distance /= 2) count += __shfl_xor_sync(~0u, count, distance);
    return count;
#endif
}

// Counts the samples of a stratum with each of ROWS consecutive categories of Vi and COLUMNS of Vj.
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
    // All counts of a tile are added up by whole warps first, and then one lane of each adds them to the cells.
    unsigned sums[ROWS][COLUMNS];
    const bool whole_warps = HAS_WARPS && team.size % 32 == 0;
    const bool alone = team.size == 1 || (whole_warps && team.size == 32);
#pragma unroll
    for (int a = 0; a < ROWS; ++a) {
#pragma unroll
        for (int b = 0; b < COLUMNS; ++b) sums[a][b] = sum_parts(counts[a][b]);
    }
    if (whole_warps) {
#pragma unroll
        for (int a = 0; a < ROWS; ++a) {
#pragma unroll
            for (int b = 0; b < COLUMNS; ++b) sums[a][b] = sum_of_lanes(sums[a][b]);
        }
        if (team.rank % 32 != 0) return;
    }
#pragma unroll
    for (int a = 0; a < ROWS; ++a) {
#pragma unroll
        for (int b = 0; b < COLUMNS; ++b) {
            unsigned* const cell = &cells[a * width + b];
            if (sums[a][b] == 0) continue;
            if (alone) {
                *cell += sums[a][b];
            } else {
                atomicAdd(cell, sums[a][b]);
            }
        }
    }
}

// Counts ROWS consecutive categories of Vi with the first `left` categories of Vj; the table has `width` columns.
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

// Returns whether all variables of a test have planes.
__device__ __forceinline__ bool all_have_planes(const Variables& variables, const Shape& shape, const int* members,
                                                int level) {
    bool all = variables.first_plane[shape.low] >= 0 && variables.first_plane[shape.high] >= 0;
#pragma unroll 1
    for (int a = 0; a < level; ++a) all = all && variables.first_plane[members[a]] >= 0;
    return all;
}

// Returns whether a table is small enough to be counted by planes and all its variables have planes.
__device__ __forceinline__ bool has_planes(const Variables& variables, const Shape& shape, const int* members,
                                           int level) {
    if (variables.planes == nullptr || level > PLANE_MEMBERS) return false;
    if (shape.strata * shape.rows * shape.columns > variables.plane_cells) return false;
    return all_have_planes(variables, shape, members, level);
}

// Counts a table, or all of it except the last `omitted` categories of Vi, Vj and S[0]. The warps of the team are
// divided among the strata; warps with the same strata, and the threads of a warp, are divided among the words. They
// therefore read the planes of Vi and Vj at about the same time, and few add to one cell.
__device__ __forceinline__ void count_planes(const Variables& variables, const Shape& shape, const int* members,
                                             int level, const Team& all, unsigned* table, int omitted = 0) {
    const unsigned long long* const columns = variables.plane(shape.high, 0);
    const unsigned strata = static_cast<unsigned>(shape.strata) - omitted;
    const int last_row = shape.rows - omitted, width = shape.columns - omitted;
    if (strata == 0) return;
    const unsigned warps = all.size % 32 == 0 ? all.size / 32 : 1, groups = min(warps, strata);
    const int size = all.size / warps * (warps / groups), group = all.rank / size;
    if (group >= static_cast<int>(groups)) return;
    const Team team{all.rank - group * size, size};
    Stratum stratum;
    stratum.level = level;
    stratum.words = variables.words;
    for (unsigned s = group; s < strata; s += groups) {
        unsigned left = s;
#pragma unroll
        for (int a = 0; a < PLANE_MEMBERS; ++a) {
            stratum.planes[a] = nullptr;
            if (a >= level) continue;
            const unsigned categories = variables.categories[members[a]];
            stratum.planes[a] = variables.plane(members[a], left % categories);
            left /= categories;
        }
        unsigned* cells = table + s * shape.block();
        for (int v = 0; v < last_row; v += TILE, cells += TILE * shape.columns) {
            const unsigned long long* const rows = variables.plane(shape.low, v);
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
