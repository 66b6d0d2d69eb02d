// Blocks of pairs at level 1, with rows of bits and 32-bit keys. A block of pairs is rows I x columns J of the graph,
// where I and J are ranges of variables. At level 1 a set is one variable s, and the ranks of a row's sets are in the
// order of s. A key therefore consists of the side in bit 31 and s below it: keys need no ranks, and keys from
// different separation-set blocks can be compared.
#pragma once

#include "engine/kernels/keys.cuh"
#include "engine/kernels/tally.cuh"
#include "gaussian/kernels/level_one.cuh"

constexpr unsigned NO_MEMBER = ~0u;
constexpr unsigned SECOND_SIDE_MEMBER = 1u << 31;

__device__ __forceinline__ bool has_bit(const unsigned* bits, long long at) { return bits[at / 32] >> (at % 32) & 1u; }

// A block I x J of pairs, and the separation-set block: the `width` variables from s0 on that may be in a set.
struct PairBlock {
    const double *rows_i, *rows_j;      // correlations of I and of J with the set block: row r at rows[r * pitch]
    const unsigned *bits_i, *bits_j;    // bits of their adjacency to the set block, `words` words for each row
    const double* c;                    // correlations of the pairs: c[i * c_pitch + j]
    const unsigned* edges;              // adjacency of the pairs: bit edges_first + j of row i of `edge_words` words
    unsigned* keys;                     // (n_i, n_j) best keys
    unsigned long long* min_r_squared;  // (n_i, n_j) bits of the smallest r^2 of each pair, or null
    unsigned long long* counters;       // see Tally
    long long pitch, c_pitch, edges_first;
    int words, edge_words, width, n_i, n_j, i0, j0, s0;
    double critical_r_squared, residual_tolerance;
    bool first_come;

    __device__ __forceinline__ long long cell(int i, int j) const { return static_cast<long long>(i) * n_j + j; }
    // Whether a pair is to be tested: it is an edge, and i < j.
    __device__ __forceinline__ bool active(int i, int j) const {
        return i < n_i && j < n_j && i0 + i < j0 + j &&
               has_bit(edges + static_cast<long long>(i) * edge_words, edges_first + j);
    }

    // Whether a set with this key cannot change the answer any more, given the best key.
    __device__ __forceinline__ bool settled(unsigned best, unsigned key) const {
        return ::settled(first_come, best, key);
    }
};
