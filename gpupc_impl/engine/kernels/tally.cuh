// What the threads of a kernel count.
#pragma once

#include "backends/simt/portable.cuh"

// Counters: tests, undefined tests, pseudo-inverses; stripes of 64 bytes, against contention.
constexpr int COUNTER_STRIPES = 64, COUNTER_STRIDE = 8;

// What one thread did.
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
