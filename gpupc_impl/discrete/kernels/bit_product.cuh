// Products of matrices of bits by a GPU's tensor cores: the product of two bits is their AND, and a sum counts them.
#pragma once

#include "engine/kernels/warp.cuh"

constexpr int ROWS = 16, COLUMNS = 8;  // the words of a tensor core tile

#ifndef GPUPC_HOST

// Adds the product of a tile. Lane t of group g (lane 4 g + t of the warp) holds bits of rows g and g + 8 and of column
// g, and receives, for each of these two rows, the sums of columns 2 t and 2 t + 1. The order of the samples does not
// matter, as long as the lanes t of all groups hold bits of the same samples.
__device__ __forceinline__ void add_product(unsigned (&sums)[4], unsigned long long row, unsigned long long row_below,
                                            unsigned long long column) {
    const unsigned rows[] = {static_cast<unsigned>(row), static_cast<unsigned>(row_below),
                             static_cast<unsigned>(row >> 32), static_cast<unsigned>(row_below >> 32)};
    const unsigned columns[] = {static_cast<unsigned>(column), static_cast<unsigned>(column >> 32)};
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "r"(columns[0]), "r"(columns[1]));
#else
    const int lane = threadIdx.x % LANES, group = lane / 4 * 4, own = lane % 4;
    for (int t = 0; t < 4; ++t) {
        for (int half = 0; half < 2; ++half) {
            const unsigned above = __shfl_sync(~0u, rows[2 * half], group + t);
            const unsigned below = __shfl_sync(~0u, rows[2 * half + 1], group + t);
            for (int b = 0; b < 2; ++b) {
                const unsigned bits = __shfl_sync(~0u, columns[half], 4 * (2 * own + b) + t);
                sums[b] += __popc(above & bits);
                sums[2 + b] += __popc(below & bits);
            }
        }
    }
#endif
}

#endif
