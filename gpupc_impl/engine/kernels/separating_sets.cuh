// Lists of separating sets, and a merge of several lists into one.
#pragma once

#include "backends/simt/portable.cuh"

// Pairs (i, j), i < j, in ascending order, and their sets. Set number q has the members from number offsets[q] to
// number offsets[q + 1] - 1; if `offsets` is null, every set has `size` members.
struct SetList {
    const int* pairs;
    const long long* offsets;
    const int* members;
    long long count;
    long long size;

    __device__ __forceinline__ long long begin(long long q) const { return offsets == nullptr ? q * size : offsets[q]; }

    // Returns the number of pairs that are smaller than (i, j).
    __device__ __forceinline__ long long before(int i, int j) const {
        long long low = 0, high = count;
        while (low < high) {
            const long long middle = low + (high - low) / 2;
            const int a = pairs[2 * middle], b = pairs[2 * middle + 1];
            if (a < i || (a == i && b < j)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }
};

constexpr int LISTS = 6;

// Merges lists that have no pair in common, some of which may be empty. The grid's threads share the pairs of each
// list. The position of a pair in the merged list is its position in its own list plus the number of smaller pairs in
// each other list, found by binary search. All threads of the grid must call it.
__device__ __forceinline__ void merge_lists(const SetList (&lists)[LISTS], int* pairs, long long* offsets,
                                            unsigned char* sizes, int* members) {
    long long total = 0, end = 0;
#pragma unroll
    for (int k = 0; k < LISTS; ++k) {
        total += lists[k].count;
        end += lists[k].begin(lists[k].count);
    }
    const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
    const long long first = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (first == 0) offsets[total] = end;
#pragma unroll
    for (int own = 0; own < LISTS; ++own) {
        const SetList& list = lists[own];
        for (long long q = first; q < list.count; q += step) {
            const int i = list.pairs[2 * q], j = list.pairs[2 * q + 1];
            const long long from = list.begin(q);
            const int size = static_cast<int>(list.begin(q + 1) - from);
            long long place = q, to = from;
#pragma unroll
            for (int other = 0; other < LISTS; ++other) {
                if (other == own || lists[other].count == 0) continue;
                const long long before = lists[other].before(i, j);
                place += before;
                to += lists[other].begin(before);
            }
            pairs[2 * place] = i;
            pairs[2 * place + 1] = j;
            offsets[place] = to;
            sizes[place] = static_cast<unsigned char>(size);
            for (int a = 0; a < size; ++a) members[to + a] = list.members[from + a];
        }
    }
}
