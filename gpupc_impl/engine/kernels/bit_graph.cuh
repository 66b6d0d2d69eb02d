// A graph of p variables as a matrix of bits: row i begins at bits[i * words], variable j is bit j % 32 of its word j / 32.
// `words` is a multiple of 4; the bits from p on are zero.
#pragma once

#include "engine/kernels/warp.cuh"

struct BitRow {
    const unsigned* bits;

    __device__ __forceinline__ BitRow(const unsigned* graph, int words, int i)
        : bits(graph + static_cast<long long>(i) * words) {}
    __device__ __forceinline__ bool has(int j) const { return bits[j / 32] >> (j % 32) & 1; }
};

// Of a word, the bits of variables above i.
__device__ __forceinline__ unsigned above(int i, int word) {
    const int first = word * 32;
    if (first > i) return ~0u;
    return i - first >= 31 ? 0u : ~0u << (i - first + 1);
}

__device__ __forceinline__ void set_edge(unsigned* graph, int words, int i, int j) {
    atomicOr(&graph[static_cast<long long>(i) * words + j / 32], 1u << (j % 32));
    atomicOr(&graph[static_cast<long long>(j) * words + i / 32], 1u << (i % 32));
}

__device__ __forceinline__ void clear_edge(unsigned* graph, int words, int i, int j) {
    atomicAnd(&graph[static_cast<long long>(i) * words + j / 32], ~(1u << (j % 32)));
    atomicAnd(&graph[static_cast<long long>(j) * words + i / 32], ~(1u << (i % 32)));
}
