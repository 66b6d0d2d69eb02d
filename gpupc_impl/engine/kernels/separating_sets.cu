// Merges lists of separating sets on the device.
#include "engine/kernels/separating_sets.cuh"

// There are always exactly LISTS lists, some of which may be empty.
struct SetLists {
    SetList a, b, c, d, e, f;
};

// See merge_lists. Grid (any), block (any).
__global__ void merge_sets(const SetLists parts, int* pairs, long long* offsets, unsigned char* sizes, int* members) {
    const SetList lists[LISTS] = {parts.a, parts.b, parts.c, parts.d, parts.e, parts.f};
    merge_lists(lists, pairs, offsets, sizes, members);
}
