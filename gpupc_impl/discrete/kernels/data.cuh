// The samples of a discrete problem, the shape of a test's table, and the words in which planes are read.
#pragma once

#include "backends/simt/portable.cuh"

// The number of samples whose codes a thread adds up at a time, and the number of bits of planes that it reads at once.
// On a core both numbers must be large enough to fill the vector registers. PLANE_MEMBERS is the size of the largest
// set for whose planes counting has registers.
constexpr int HOST_ROWS_AT_ONCE = 256;

#ifdef GPUPC_HOST

#ifdef __AVX512VPOPCNTDQ__
#include <immintrin.h>
#endif

// Functions of many sizes are inlined only on a GPU, as g++ takes five times as long if one function inlines all.
#define GPUPC_OF_SIZES __device__ __attribute__((noinline))
constexpr bool HAS_WARPS = false;  // whether 32 consecutive threads run together

constexpr int ROWS_AT_ONCE = HOST_ROWS_AT_ONCE;
constexpr int PLANE_MEMBERS = 8;
typedef unsigned long long Bits __attribute__((vector_size(64), may_alias));
typedef Bits Counts;

// The number of bits set in each 64-bit part.
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
constexpr bool HAS_WARPS = true;

constexpr int ROWS_AT_ONCE = 4;
constexpr int PLANE_MEMBERS = 4;  // A table with more members has too many cells to be counted by planes.
typedef unsigned long long Bits;
typedef unsigned Counts;

__device__ __forceinline__ Counts count_bits(Bits bits) { return __popcll(bits); }
__device__ __forceinline__ unsigned sum_parts(Counts count) { return count; }

#endif

constexpr int WORDS_AT_ONCE = sizeof(Bits) / 8;

constexpr int MAX_THREADS = 512;  // the threads of a block
constexpr int MAX_SAMPLES = 0x7fffffff - 0x3ffff;
static_assert(MAX_SAMPLES + MAX_THREADS * HOST_ROWS_AT_ONCE > 0, "the step beyond the last sample has a 32-bit number");

// The categories of p variables. Category v of variable x has a plane, whose bit k is set if sample k has that
// category. Variables with too many categories have no planes.
struct Variables {
    const int* categories;             // (p)
    const unsigned long long* planes;  // (planes, words); null if there are none
    const int* first_plane;            // (p), -1 for a variable without planes
    int words;                         // the 64-bit words of a plane, a multiple of WORDS_AT_ONCE
    unsigned plane_cells;              // the largest number of cells of a table that is counted by planes

    __device__ __forceinline__ const unsigned long long* plane(int number) const {
        return planes + static_cast<long long>(number) * words;
    }
    __device__ __forceinline__ const unsigned long long* plane(int x, int v) const { return plane(first_plane[x] + v); }
};

// The samples of p variables.
template <class Code>
struct Data {
    // (p, stride): zeros after the last sample; stride is a multiple of the codes that are read at once
    const Code* codes;
    long long stride;
    int n;
    Variables variables;

    __device__ __forceinline__ const Code* of(int x) const { return codes + x * stride; }
};

// A test's contingency table: for each stratum a block of `rows` x `columns` counts and one more row, for the sums of
// the columns. In the numbers of strata S[0] varies fastest (gpuPC, Algorithm 3, lines 13-18).
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
#pragma unroll 1
        for (int a = 0; a < level; ++a) strata *= categories[members[a]];
    }
};

// The threads that process one table; this thread is number `rank` of `size`.
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

// Calls do_for(x, y) for all x < outer and y < inner; one thread of the team makes each call.
template <class Do>
__device__ __forceinline__ void share_out(const Team& team, int outer, int inner, Do&& do_for) {
    if (outer <= 0 || inner <= 0) return;
    for (int x = team.rank / inner, y = team.rank % inner; x < outer;) {
        do_for(x, y);
        for (y += team.size; y >= inner && x < outer; ++x) y -= inner;
    }
}
