// Lists of the neighbours of each sample, which `list_neighbours` (buckets.cu) makes and kernels that estimate read.
//
// Keys are whole numbers in the order of the distances, whatever their type (lanes.cuh); buckets are intervals of keys.
#pragma once

#include "nonlinear/kernels/tests.cuh"

constexpr int BINS = 32;  // buckets of a list: below `low`, up to 30 of 2^shift keys each, all above
constexpr int LAST = BINS - 1;
constexpr int ENTRIES = 8;  // lists are padded to a multiple of this, with the largest key

// Keys as they are worked on in registers.
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

// A sample and its key.
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
struct Entry<short> {  // there are less than 2^15 samples where values are short
    unsigned both;
    __device__ __forceinline__ static Entry of(int sample, int key) {
        return Entry{static_cast<unsigned>(key) << 16 | static_cast<unsigned>(sample)};
    }
    __device__ __forceinline__ unsigned sample() const { return both & 0xffffu; }
    __device__ __forceinline__ int key() const { return static_cast<int>(both >> 16); }
};

// As many as are read at a time.
template <class T>
constexpr int STEP = sizeof(T) == 8 ? 4 : 8;

template <class T>
struct alignas(16) Entries {
    Entry<T> of[STEP<T>];
};

// What one sample's lists are like. List 0: by distances in (V_j, S); list 1: in S. Within a bucket there is no order.
struct Header {
    long long low;  // fewer than k_CMI distances in (V_j, S) are below; those that are stand as low - 1 in both lists
    int shift;
    int last;                 // the bucket where the lists end; it and those behind it have no entries
    int starts[2][BINS + 1];  // of the buckets in the lists; the last number is that of all that is listed
};

template <class Key>
__device__ __forceinline__ int bin_of(Key key, Key low, int shift) {
    return static_cast<int>(min((key - low) >> shift, Key(LAST - 1))) + 1;  // rounded down: -1 for low - 1
}

// The lists of some samples of some tests.
template <class T>
struct Lists {
    unsigned char* entries;  // (tests, samples, lists, padded) entries
    unsigned char* headers;  // (tests, samples)
    const T* arranged;       // (tests, level + 1, n) the values of S and V_j, in the order of the sets
    int first, samples;      // of the sample that is the first in that order, and how many there are
    int near;                // samples on either side of one, `wanted` or more, that are looked at first
    int padded;              // n - 1, rounded up
    int wanted;              // so many samples, k or more, lists by (V_j, S) reach to at the least
    KeyOf<T> fine_low;       // the FINE buckets
    int fine_shift;
    KeyOf<T> farthest;   // no distance is larger
    int room;            // samples that there is room for in shared memory while lists are made ...
    int remembered;      // ... and distances of the first that are looked at
    unsigned* far;       // a sample in a lane for which the lists end too early, numbered in (tests, samples, lanes)
    unsigned* counters;  // (1 + shares) how many there are; and what is dealt of each share of the work (deal.cuh)
    int shares;
    int lanes;

    __device__ __forceinline__ unsigned* dealt() const { return counters + 1; }

    __device__ __forceinline__ void add_far(int test, int sample, int lane) const {
        far[atomicAdd(counters, 1u)] = (static_cast<unsigned>(test) * samples + sample - first) * lanes + lane;
    }
};

template <class T, bool EMPTY>
struct Neighbours {
    static constexpr int LISTS = EMPTY ? 1 : 2;
    Entries<T>* lists[LISTS];
    Header* header;

    __device__ Neighbours(const Lists<T>& of, int test, int sample) {
        const long long number = static_cast<long long>(test) * of.samples + sample - of.first;
        auto* entries = reinterpret_cast<Entry<T>*>(of.entries) + number * LISTS * of.padded;
        for (int l = 0; l < LISTS; ++l) lists[l] = reinterpret_cast<Entries<T>*>(entries + l * of.padded);
        header = reinterpret_cast<Header*>(of.headers) + number;
    }
};

// What lies in the lanes, and how they are dealt out. A block or warp works for `width` lanes that lie side by side, or
// in the last group for what is left of them.
template <class T>
struct Columns {
    const T* values;  // (sets, stride / panel, n, panel) values of all lanes, `panel` of which lie together
    const T* rows;    // (sets, lanes of all launches, n) the same values, of samples as they are numbered
    const T* sorted;  // (p, n) values of each variable ascending, at level 0 ...
    bool ranks;       // ... and whether these are 0, ..., n - 1 or constant
    int stride;
    int width;
    int of_group, of_test;  // pieces of work that a test is to warps, in a group that is not the last and in all
    int row;  // bytes of a sample's values in a panel; known at compile time it would be a shift of 64 bits
};
