// Lists of separating sets, merged on the device.
#include "engine/kernels/separating_sets.cuh"

struct SetLists {
    SetList a, b, c, d, e, f;
};

// See merge_lists. Grid (any), block (any).
__global__ void merge_sets(const SetLists given, int* pairs, long long* offsets, unsigned char* sizes, int* members) {
    const SetList lists[LISTS] = {given.a, given.b, given.c, given.d, given.e, given.f};
    merge_lists(lists, pairs, offsets, sizes, members);
}
