// The counters of kernels in which one thread performs a test.
#pragma once

#include "backends/simt/portable.cuh"

// There are COUNTER_STRIPES copies of the counters, 64 bytes apart, so that few threads contend for the same copy. The
// first three counters of a stripe are the numbers of tests, undefined tests and pseudo-inverses.
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
