// Lists of the neighbours of each sample, which `list_neighbours` (lists.cu) makes and the kernels of tests read. The
// joint distance of a neighbour, in (V_i, V_j, S), is at least its distance in (V_j, S), which does not depend on the
// permutation of V_i. Neighbours are therefore listed once for all replicates, by their keys (numbers.cuh) in (V_j, S)
// and once more by those in S, sorted into buckets: intervals of keys of equal width, within which there is no order.
#pragma once

#include "nonlinear/kernels/tests.cuh"

constexpr int BINS = 32;  // the buckets of a list: keys below `low`, up to 30 buckets of 2^shift keys each, keys above
constexpr int LAST = BINS - 1;
constexpr int ENTRIES = 8;  // Lists are padded with the largest key to a multiple of this number.

// A key as it is computed with in registers: int for short.
template <class T>
using Wide = decltype(KeyOf<T>() + 0);

template <class T, class Rule>
__device__ __forceinline__ Wide<T> distance_between(T a, T b) {
    if constexpr (Rule::TIES) {
        return Rule::template distance<T>(a, b);
    } else if constexpr (Number<T>::whole) {
        const int difference = a - b;
        return difference < 0 ? -difference : difference;
    } else {
        return Number<T>::distance(a, b);
    }
}

// A neighbour: a sample and its key.
template <class T>
struct Entry {
    KeyOf<T> key_;
    unsigned sample_;
    __device__ __forceinline__ static Entry of(int sample, Wide<T> key) {
        return Entry{key, static_cast<unsigned>(sample)};
    }
    __device__ __forceinline__ unsigned sample() const { return sample_; }
    __device__ __forceinline__ Wide<T> key() const { return key_; }
};

template <>
struct Entry<short> {  // Both fields take 16 bits: short values have fewer than 2^15 samples.
    unsigned both;
    __device__ __forceinline__ static Entry of(int sample, int key) {
        return Entry{static_cast<unsigned>(key) << 16 | static_cast<unsigned>(sample)};
    }
    __device__ __forceinline__ unsigned sample() const { return both & 0xffffu; }
    __device__ __forceinline__ int key() const { return static_cast<int>(both >> 16); }
};

// Entries that a thread reads at a time.
template <class T>
constexpr int STEP = sizeof(T) == 8 ? 4 : 8;

template <class T>
struct alignas(16) Entries {
    Entry<T> of[STEP<T>];
};

// The buckets of one sample's lists. List 0 is by distances in (V_j, S), list 1 by those in S.
struct Header {
    long long low;  // Fewer than k_CMI keys in (V_j, S) are below; in either list smaller keys are stored as low - 1.
    int shift;      // the logarithm of the width of a bucket
    int last;       // the bucket in which the lists end; it and later buckets are empty
    int starts[2][BINS + 1];  // the first entry of each bucket, by list; then the number of entries
};

template <class Key>
__device__ __forceinline__ int bin_of(Key key, Key low, int shift) {
    return static_cast<int>(min((key - low) >> shift, Key(LAST - 1))) + 1;  // floor: the key low - 1 gives bucket 0
}

// The lists of some samples of some tests. Samples are numbered in the order of S[0] from level 1 on.
template <class T>
struct Lists {
    unsigned char* entries;  // (tests, samples, lists, padded) entries
    unsigned char* headers;  // (tests, samples)
    const T* arranged;       // (tests, level + 1, n) the values of S and V_j in that order
    int first, samples;      // the first sample listed, and the number of listed samples
    int near;                // the number of samples on either side that are examined first; `reach` or more
    int padded;              // n - 1, rounded up to ENTRIES
    int reach;               // Lists by (V_j, S) hold at least this many samples, k_CMI or more.
    KeyOf<T> fine_low;       // the position at which the FINE buckets begin
    int fine_shift;          // the logarithm of their width
    KeyOf<T> widest;         // an upper bound of all keys
    unsigned* far;           // pairs of a sample and a replicate for which the lists end too early, as indices into
                             // (tests, samples, replicates)
    unsigned* counters;      // (1 + shares) the number of these pairs; the pieces taken of each share (deal.cuh)
    int shares;
    int replicates;

    __device__ __forceinline__ unsigned* pieces_taken() const { return counters + 1; }
    __device__ __forceinline__ void add_far(int test, int sample, int replicate) const {
        far[atomicAdd(counters, 1u)] =
            (static_cast<unsigned>(test) * samples + sample - first) * replicates + replicate;
    }
};

// The lists of one sample of a test. EMPTY: S is empty, and there is no list for it.
template <class T, bool EMPTY>
struct Neighbours {
    static constexpr int LISTS = EMPTY ? 1 : 2;
    Entries<T>* lists[LISTS];
    Header* header;

    __device__ Neighbours(const Lists<T>& of, int test, int sample) {
        const long long index = static_cast<long long>(test) * of.samples + sample - of.first;
        auto* entries = reinterpret_cast<Entry<T>*>(of.entries) + index * LISTS * of.padded;
        for (int l = 0; l < LISTS; ++l) lists[l] = reinterpret_cast<Entries<T>*>(entries + l * of.padded);
        header = reinterpret_cast<Header*>(of.headers) + index;
    }
};

// The values of the replicates, and their distribution: a warp or block processes `width` replicates that lie side by
// side, or in the last group the remaining ones.
template <class T>
struct Columns {
    const T* values;  // (sets, stride / panel, n, panel) the replicates in panels
    const T* rows;    // (sets, all replicates, n) the same, of samples in the order of the data
    const T* sorted;  // (p, n) the values of each variable, ascending; used at level 0
    bool ranks;       // whether these are 0, ..., n - 1 or constant
    int stride;
    int width;
    // the number of pieces of work, one for a warp, in a group that is not the last and in a test
    int group_pieces, test_pieces;
    // the bytes of a panel; multiplying by it is cheaper than the 64-bit shift of a constant
    int sample_bytes;
};
