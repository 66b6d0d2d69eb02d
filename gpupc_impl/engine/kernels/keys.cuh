// Keys of separating sets, and the rule of one answer. An edge's best key identifies its separating set. Bit 62 is the
// side (0: S is from adj(i), 1: from adj(j), i < j), and the bits below it are the rank of S in its row. The smallest
// key is that of the set which a serial PC-stable finds first, so storing keys with atomicMin makes the answer
// independent of the order in which threads arrive.
#pragma once

#include "backends/simt/portable.cuh"

constexpr unsigned long long NO_KEY = ~0ull;
constexpr unsigned long long SECOND_SIDE = 1ull << 62;

// Returns the key of the set with this rank among the sets from Vi's row, for the edge between Vi and Vj.
__device__ __forceinline__ unsigned long long set_key(int i, int j, unsigned long long rank) {
    return i < j ? rank : SECOND_SIDE | rank;
}

// The key of a required edge. No key is smaller, so no test of the edge could change the answer, and none is made.
constexpr unsigned long long REQUIRED_KEY = 0;

// Early termination (cuPC, section 4.1; Algorithm 4, line 7; Algorithm 5, line 12): returns whether a test with this
// key can no longer change the answer, given a best key that was read earlier and may have decreased since. Under the
// canonical rule this is so if the best key is not larger; under the papers' rule (first come) it is so if any set has
// separated the edge. A key of all ones means that no set has, for keys of any width.
template <class Key>
__device__ __forceinline__ bool settled(bool first_come, Key found, Key key) {
    return first_come ? found != static_cast<Key>(~Key{0}) : found <= key;
}

// The best keys of all edges of a graph.
struct BestKeys {
    unsigned long long* keys;  // (p, p), symmetric
    int p;
    bool first_come;  // whether the papers' rule holds instead of the canonical one; see settled
    __device__ __forceinline__ long long cell(int i, int j) const { return static_cast<long long>(i) * p + j; }
    __device__ __forceinline__ unsigned long long found(int i, int j) const { return load_relaxed(&keys[cell(i, j)]); }
    __device__ __forceinline__ bool settled(unsigned long long found, unsigned long long key) const {
        return ::settled(first_come, found, key);
    }

    __device__ __forceinline__ bool settled(int i, int j, unsigned long long key) const {
        return settled(found(i, j), key);
    }

    // Stores the key of a set that separates Vi and Vj.
    __device__ __forceinline__ void separate(int i, int j, unsigned long long key) const {
        atomicMin(&keys[cell(i, j)], key);
        atomicMin(&keys[cell(j, i)], key);
    }
};
