// Common names for what differs between CUDA and the host backend. Every kernel file includes this header.
//
//   GPUPC_HOST                      1 on the host backend, undefined under CUDA
//   GPUPC_DYNAMIC_SHARED(T, name)   declares T* name: the block's dynamic shared memory, aligned to 16 bytes
//   load_relaxed(p)                 a read that may race with relaxed writes and atomics of other threads
//   store_relaxed(p, value)         a write that may race with relaxed reads and atomics of other threads
//   nanoseconds()                   a clock with an arbitrary origin
#pragma once

#ifdef GPUPC_HOST

#include <time.h>

#include "backends/simt/simt.hpp"

#define GPUPC_DYNAMIC_SHARED(T, name) T* const name = static_cast<T*>(simt_state.dynamic_shared)

template <class T>
inline T load_relaxed(const T* p) {
    T value;
    __atomic_load(p, &value, __ATOMIC_RELAXED);
    return value;
}

template <class T>
inline void store_relaxed(T* p, T value) {
    __atomic_store(p, &value, __ATOMIC_RELAXED);
}

inline unsigned long long nanoseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1000000000ull * now.tv_sec + now.tv_nsec;
}

#else

#define GPUPC_DYNAMIC_SHARED(T, name)                                     \
    extern __shared__ __align__(16) unsigned char gpupc_dynamic_shared[]; \
    T* const name = reinterpret_cast<T*>(gpupc_dynamic_shared)

// `wide` is the type of the register that holds a T; a byte needs a 32-bit register.
#define GPUPC_RELAXED(T, wide, ptx, constraint)                                                                     \
    __device__ __forceinline__ T load_relaxed(const T* p) {                                                         \
        wide value;                                                                                                 \
        asm volatile("ld.relaxed.gpu." ptx " %0, [%1];" : "=" constraint(value) : "l"(p) : "memory");               \
        return static_cast<T>(value);                                                                               \
    }                                                                                                               \
    __device__ __forceinline__ void store_relaxed(T* p, T value) {                                                  \
        asm volatile("st.relaxed.gpu." ptx " [%0], %1;" ::"l"(p), constraint(static_cast<wide>(value)) : "memory"); \
    }

GPUPC_RELAXED(unsigned char, unsigned, "u8", "r")
GPUPC_RELAXED(int, int, "s32", "r")
GPUPC_RELAXED(unsigned, unsigned, "u32", "r")
GPUPC_RELAXED(long long, long long, "s64", "l")
GPUPC_RELAXED(unsigned long long, unsigned long long, "u64", "l")
GPUPC_RELAXED(float, float, "f32", "f")
GPUPC_RELAXED(double, double, "f64", "d")

#undef GPUPC_RELAXED

__device__ __forceinline__ unsigned long long nanoseconds() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

#endif
