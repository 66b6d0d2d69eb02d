// The counters of kernels that test an edge in one thread.
#pragma once

#include "backends/simt/portable.cuh"

// There are COUNTER_STRIPES copies of the counters, one for each 64 bytes, so that few threads contend for one of them.
// The first three of a stripe are tests, undefined tests and pseudo-inverses.
constexpr int COUNTER_STRIPES = 64, COUNTER_STRIDE = 8;

// The counts of one thread.
struct Tally {
    unsigned long long tests = 0, undefined = 0, pseudo_inverses = 0;

    __device__ void add_to(unsigned long long* counters) const {
        const unsigned int stripe = (blockIdx.x + threadIdx.x / 32) % COUNTER_STRIPES;
        unsigned long long* const own = &counters[stripe * COUNTER_STRIDE];
        if (tests != 0) atomicAdd(&own[0], tests);
        if (undefined != 0) atomicAdd(&own[1], undefined);
        if (pseudo_inverses != 0) atomicAdd(&own[2], pseudo_inverses);
    }
};
