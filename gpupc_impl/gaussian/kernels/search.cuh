// What the kernels of one level share: the graph, the keys of separating sets, and the counters.
#pragma once

#include "backends/simt/portable.cuh"
#include "engine/kernels/combinations.cuh"
#include "gaussian/kernels/fisher_z.cuh"

// An edge's best key tells which separating set was found for it: the side (0: S from adj(i), 1: from adj(j), i < j) in
// bit 62, the rank of S in its row below. The smallest key is the set that a serial PC-stable finds first, so atomicMin
// makes the answer independent of the order in which threads arrive.
constexpr unsigned long long NO_KEY = ~0ull;
constexpr unsigned long long SECOND_SIDE = 1ull << 62;

// Counters: tests, undefined tests, pseudo-inverses; stripes of 64 bytes, against contention.
constexpr int COUNTER_STRIPES = 64, COUNTER_STRIDE = 8;

struct Search {
    const double* C;  // (p, p) correlations
    int p;
    double critical_r_squared;
    unsigned long long* best;           // (p, p) best keys, both triangles kept alike
    unsigned long long* min_r_squared;  // (p, p) bits of the smallest r^2 met, or null
    bool first_come;                    // the papers' rule: leave an edge alone once any set separated it

    __device__ __forceinline__ long long cell(int i, int j) const { return static_cast<long long>(i) * p + j; }

    __device__ __forceinline__ unsigned long long key(int i, int j, unsigned long long rank) const {
        return i < j ? rank : SECOND_SIDE | rank;
    }

    // Early termination (section 4.1): whether a test with this key can no longer change the answer, given the best
    // key found so far, or one that was the best a moment ago.
    __device__ __forceinline__ bool settled(unsigned long long found, unsigned long long key) const {
        return first_come ? found != NO_KEY : found < key;
    }

    __device__ __forceinline__ unsigned long long found(int i, int j) const { return load_relaxed(&best[cell(i, j)]); }

    __device__ __forceinline__ bool settled(int i, int j, unsigned long long key) const {
        return settled(found(i, j), key);
    }

    __device__ __forceinline__ void decide(const Residuals& h, int i, int j, unsigned long long key) const {
        if (min_r_squared != nullptr) {
            const unsigned long long bits = __double_as_longlong(h.r_squared());  // ordered as the numbers are
            atomicMin(&min_r_squared[i < j ? cell(i, j) : cell(j, i)], bits);
        }
        if (h.independent(critical_r_squared)) {
            atomicMin(&best[cell(i, j)], key);
            atomicMin(&best[cell(j, i)], key);
        }
    }
};

// What one thread did.
struct Tally {
    unsigned long long tests = 0, undefined = 0, pseudo_inverses = 0;

    // The test of Vi and Vj given the set that the key names.
    __device__ __forceinline__ void test(const Search& search, const Residuals& h, int i, int j,
                                         unsigned long long key) {
        ++tests;
        if (h.undefined()) {
            ++undefined;
        } else {
            search.decide(h, i, j, key);
        }
    }

    __device__ void add_to(unsigned long long* counters) const {
        const unsigned int stripe = (blockIdx.x + threadIdx.x / 32) % COUNTER_STRIPES;
        unsigned long long* const own = &counters[stripe * COUNTER_STRIDE];
        if (tests != 0) atomicAdd(&own[0], tests);
        if (undefined != 0) atomicAdd(&own[1], undefined);
        if (pseudo_inverses != 0) atomicAdd(&own[2], pseudo_inverses);
    }
};

// Row i of A'_G: the n neighbours of Vi in ascending order.
struct Row {
    int i, n;
    const int* neighbours;
};

// Copies a row into the block's shared memory (all threads of the block must call it). A row too long for shared memory
// is launched without any and read where it is.
__device__ __forceinline__ Row load_row(int i, int n, const int* rows, int stride, bool use_shared, int* shared) {
    const int* stored = rows + static_cast<long long>(i) * stride;
    if (!use_shared) return {i, n, stored};
    const int threads = blockDim.x * blockDim.y;
    for (int q = threadIdx.y * blockDim.x + threadIdx.x; q < n; q += threads) shared[q] = stored[q];
    __syncthreads();
    return {i, n, shared};
}
