// A warp, written once for both backends. On a GPU its 32 lanes are threads; on the host one thread executes all of
// them, in loops that the compiler vectorises. A kernel written with these functions is launched with
// `Backend.warp_threads` threads for each warp of a block.
#pragma once

#include "backends/simt/portable.cuh"

constexpr int LANES = 32;

#ifdef GPUPC_HOST

template <class T>
struct PerLane {
    T values[LANES];
    T& operator[](int lane) { return values[lane]; }
};

inline int warp_index() { return static_cast<int>(threadIdx.x); }
inline int warp_count() { return static_cast<int>(blockDim.x); }
inline bool warp_leader() { return true; }
inline void join_lanes() {}  // Makes what a lane wrote before visible to all lanes.

// Executes f(lane) in lanes 0 to count - 1.
template <class F>
__forceinline__ void each_lane(int count, F f) {
    if (count == LANES) {  // This is the usual case, which compilers vectorise best.
        for (int lane = 0; lane < LANES; ++lane) f(lane);
    } else {
        for (int lane = 0; lane < count; ++lane) f(lane);
    }
}

// Returns a mask with a bit for each lane below `count`, which is set if f(lane) holds.
template <class F>
__forceinline__ unsigned ballot(int count, F f) {
    unsigned char holds[LANES];
    if (count == LANES) {
        for (int lane = 0; lane < LANES; ++lane) holds[lane] = f(lane);
    } else {
        for (int lane = 0; lane < LANES; ++lane) holds[lane] = lane < count && f(lane);
    }
    unsigned mask = 0;
    for (int byte = 0; byte < LANES / 8; ++byte) {
        unsigned long long eight;  // The bytes are 0 or 1; the multiplication gathers their bits in its highest byte.
        memcpy(&eight, holds + 8 * byte, 8);
        mask |= static_cast<unsigned>((eight * 0x0102040810204080ull) >> 56) << (8 * byte);
    }
    return mask;
}

// Broadcasts the value of one lane to all lanes.
template <class T>
__forceinline__ T of_lane(PerLane<T>& values, int lane) {
    return values[lane];
}

// Replaces each lane's value by the sum of the values of the preceding lanes; returns the sum over all lanes.
__forceinline__ int sums_before(PerLane<int>& values) {
    int sum = 0;
    for (int lane = 0; lane < LANES; ++lane) {
        const int own = values[lane];
        values[lane] = sum;
        sum += own;
    }
    return sum;
}

__forceinline__ long long sum_of_lanes(PerLane<long long>& values) {
    long long sum = 0;
    for (int lane = 0; lane < LANES; ++lane) sum += values[lane];
    return sum;
}

__forceinline__ double smallest(PerLane<double>& values) {
    double least = values[0];
    for (int lane = 1; lane < LANES; ++lane) least = values[lane] < least ? values[lane] : least;
    return least;
}

#else

template <class T>
struct PerLane {
    T value;
    __device__ __forceinline__ T& operator[](int) { return value; }
};

__device__ __forceinline__ int warp_index() { return threadIdx.x / LANES; }
__device__ __forceinline__ int warp_count() { return blockDim.x / LANES; }
__device__ __forceinline__ bool warp_leader() { return threadIdx.x % LANES == 0; }
__device__ __forceinline__ void join_lanes() { __syncwarp(); }

template <class F>
__device__ __forceinline__ void each_lane(int count, F f) {
    const int lane = threadIdx.x % LANES;
    if (lane < count) f(lane);
}

template <class F>
__device__ __forceinline__ unsigned ballot(int count, F f) {
    const int lane = threadIdx.x % LANES;
    return __ballot_sync(~0u, lane < count && f(lane));
}

template <class T>
__device__ __forceinline__ T of_lane(PerLane<T>& values, int lane) {
    return __shfl_sync(~0u, values.value, lane);
}

__device__ __forceinline__ int sums_before(PerLane<int>& values) {
    const int lane = threadIdx.x % LANES, own = values.value;
    int sum = own;
#pragma unroll
    for (int distance = 1; distance < LANES; distance *= 2) {
        const int left = __shfl_up_sync(~0u, sum, distance);
        if (lane >= distance) sum += left;
    }
    values.value = sum - own;
    return __shfl_sync(~0u, sum, LANES - 1);
}

__device__ __forceinline__ long long sum_of_lanes(PerLane<long long>& values) {
    long long sum = values.value;
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    return sum;
}

__device__ __forceinline__ double smallest(PerLane<double>& values) {
    double least = values.value;
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2) {
        const double other = __shfl_xor_sync(~0u, least, distance);
        least = other < least ? other : least;
    }
    return least;
}

#endif

// Returns the mask of the lanes from 0 to this one.
__device__ __forceinline__ unsigned lanes_through(int lane) { return ~0u >> (LANES - 1 - lane); }
