// Lists of separating sets, merged on the device.
#include "backends/simt/portable.cuh"

// How many of the ascending pairs come before (i, j).
__device__ __forceinline__ long long pairs_before(const int* pairs, long long count, int i, int j) {
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

// Merges a list of pairs with sets of any size with one whose sets all have `size` members, both ascending and without
// a common pair. Set number q of the first is members[offsets[q]] up to members[offsets[q + 1]]; so it is in the
// result. Grid (any), block (any).
__global__ void merge_sets(const int* pairs, const long long* offsets, const int* members, long long count,
                           const int* pairs_level, const int* members_level, long long count_level, int size,
                           int* pairs_out, long long* offsets_out, int* members_out) {
    const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long t = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; t <= count + count_level;
         t += step) {
        if (t == count + count_level) {
            offsets_out[t] = offsets[count] + count_level * size;
            break;
        }
        const bool of_level = t >= count;
        const long long q = of_level ? t - count : t;
        const int* pair = (of_level ? pairs_level : pairs) + 2 * q;
        const int i = pair[0], j = pair[1];
        const long long others =
            of_level ? pairs_before(pairs, count, i, j) : pairs_before(pairs_level, count_level, i, j);
        const long long own = of_level ? q * size : offsets[q];
        const long long place = q + others, begin = own + (of_level ? offsets[others] : others * size);
        const int* from = (of_level ? members_level : members) + own;
        const int n = of_level ? size : static_cast<int>(offsets[q + 1] - own);
        pairs_out[2 * place] = i;
        pairs_out[2 * place + 1] = j;
        offsets_out[place] = begin;
        for (int a = 0; a < n; ++a) members_out[begin + a] = from[a];
    }
}
