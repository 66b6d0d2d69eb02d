// The vocabulary of CUDA for a C++ compiler. Included before a .cu file, it turns the file into a host program. The
// threads of a block are fibers of one OS thread (worker.hpp), so a thread yields only where it waits: at
// __syncthreads, __syncwarp, a shuffle or a vote. Undefined behaviour in CUDA is undefined here too, except that a wait
// that can never end is reported. Functions that CUDA lacks (such as a 64-bit atomicSub) are missing on purpose.
#pragma once

// In C++17 libstdc++'s math.h declares special functions, which takes as long to read as a small kernel to compile.
#if __has_include(<bits/c++config.h>)
#include <bits/c++config.h>
#undef _GLIBCXX_USE_STD_SPEC_FUNCS
#endif

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/simt/state.hpp"

#define GPUPC_HOST 1

// --- Function and variable specifiers ----------------------------------------------------------------------------
// Kernels become inline functions: a translation unit exports one kernel, and the compiler drops the unused others.
#define __global__ inline
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __constant__ static
// All fibers of a block stay on one OS thread, which runs one block at a time, so thread-local storage is the block's
// shared memory. Each instance of a template has its own, as in CUDA. No kernel may rely on what other blocks left.
#define __shared__ static thread_local

// --- Indexes ---------------------------------------------------------------------------------------------------------
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};

#define threadIdx (static_cast<const uint3&>(simt_state.thread))
#define blockIdx (static_cast<const uint3&>(simt_state.block))
#define blockDim (static_cast<const uint3&>(simt_state.block_dim))
#define gridDim (static_cast<const uint3&>(simt_state.grid_dim))

constexpr int warpSize = 32;

// --- Waiting for the block -------------------------------------------------------------------------------------------
inline void __syncthreads() { simt_sync_block(false); }
inline int __syncthreads_count(int predicate) { return static_cast<int>(simt_sync_block(predicate != 0)); }
inline int __syncthreads_or(int predicate) { return simt_sync_block(predicate != 0) != 0; }
inline int __syncthreads_and(int predicate) { return simt_sync_block(predicate == 0) == 0; }

inline void __threadfence_block() { simt_fence(); }
inline void __threadfence() { simt_fence(); }
inline void __threadfence_system() { simt_fence(); }

// --- Waiting for lanes of the warp ---------------------------------------------------------------------------------
inline void __syncwarp(unsigned mask = 0xffffffffu) { simt_sync_warp(simt::kSyncwarp, mask, 0, 0); }

inline unsigned __ballot_sync(unsigned mask, int predicate) {
    return static_cast<unsigned>(simt_sync_warp(simt::kBallot, mask, predicate != 0, 0));
}
inline int __any_sync(unsigned mask, int predicate) { return simt_sync_warp(simt::kAny, mask, predicate != 0, 0) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return simt_sync_warp(simt::kAll, mask, predicate == 0, 0) == 0; }

/// CUDA does not specify which other lanes are in the mask; here the mask contains only the calling lane.
inline unsigned __activemask() { return 1u << (simt_state.linear % 32); }

namespace simt {

template <class T>
inline T shuffle(Wait kind, unsigned mask, T value, unsigned source) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 32 or 64 bits");
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = simt_sync_warp(kind, mask, bits, source);
    memcpy(&value, &bits, sizeof value);
    return value;
}

inline unsigned lane() { return simt_state.linear % 32; }

}  // namespace simt

// Source lanes are computed as in PTX: only the low five bits of a lane index or of a distance count.
template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = warpSize) {
    const unsigned inside = width - 1;
    return simt::shuffle(simt::kShfl, mask, value, (simt::lane() & ~inside) | (source & inside));
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
    const unsigned lane = simt::lane(), inside = width - 1;
    delta &= 31;
    return simt::shuffle(simt::kShflUp, mask, value, (lane & inside) < delta ? lane : lane - delta);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
    const unsigned lane = simt::lane(), inside = width - 1;
    delta &= 31;
    return simt::shuffle(simt::kShflDown, mask, value, (lane & inside) + delta > inside ? lane : lane + delta);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize) {
    const unsigned lane = simt::lane(), inside = width - 1, source = lane ^ (lane_mask & 31);
    return simt::shuffle(simt::kShflXor, mask, value, source > (lane | inside) ? lane : source);
}

// --- Atomics: relaxed as in CUDA; each returns the old value -------------------------------------------------------
namespace simt {

/// Atomically replaces *p by update(*p); returns the old value.
template <class T, class Update>
inline T atomic_update(T* p, Update update) {
    T old, updated;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    do {
        updated = update(old);
        if (memcmp(&updated, &old, sizeof old) == 0) return old;
    } while (!__atomic_compare_exchange(p, &old, &updated, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}

}  // namespace simt

#define SIMT_ATOMIC(T, name, builtin) \
    inline T name(T* p, T value) { return builtin(p, value, __ATOMIC_RELAXED); }
#define SIMT_ATOMIC_PICK(T, name, op)                                                         \
    inline T name(T* p, T value) {                                                            \
        return simt::atomic_update(p, [value](T old) { return value op old ? value : old; }); \
    }
#define SIMT_ATOMIC_CAS(T)                                                                           \
    inline T atomicCAS(T* p, T expected, T value) {                                                  \
        __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
        return expected;                                                                             \
    }
#define SIMT_ATOMIC_INTEGER(T)                      \
    SIMT_ATOMIC(T, atomicAdd, __atomic_fetch_add)   \
    SIMT_ATOMIC(T, atomicAnd, __atomic_fetch_and)   \
    SIMT_ATOMIC(T, atomicOr, __atomic_fetch_or)     \
    SIMT_ATOMIC(T, atomicXor, __atomic_fetch_xor)   \
    SIMT_ATOMIC(T, atomicExch, __atomic_exchange_n) \
    SIMT_ATOMIC_PICK(T, atomicMin, <)               \
    SIMT_ATOMIC_PICK(T, atomicMax, >)               \
    SIMT_ATOMIC_CAS(T)

SIMT_ATOMIC_INTEGER(int)
SIMT_ATOMIC_INTEGER(unsigned)
SIMT_ATOMIC_INTEGER(unsigned long long)
SIMT_ATOMIC(int, atomicSub, __atomic_fetch_sub)
SIMT_ATOMIC(unsigned, atomicSub, __atomic_fetch_sub)
SIMT_ATOMIC_PICK(long long, atomicMin, <)  // CUDA has only these two atomics for signed 64-bit integers.
SIMT_ATOMIC_PICK(long long, atomicMax, >)

#undef SIMT_ATOMIC
#undef SIMT_ATOMIC_PICK
#undef SIMT_ATOMIC_CAS
#undef SIMT_ATOMIC_INTEGER

inline float atomicAdd(float* p, float value) {
    return simt::atomic_update(p, [value](float old) { return old + value; });
}
inline double atomicAdd(double* p, double value) {
    return simt::atomic_update(p, [value](double old) { return old + value; });
}
inline float atomicExch(float* p, float value) {
    __atomic_exchange(p, &value, &value, __ATOMIC_RELAXED);
    return value;
}

// --- Integers and bits ---------------------------------------------------------------------------------------------
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline int __clz(int v) { return v == 0 ? 32 : __builtin_clz(static_cast<unsigned>(v)); }
inline int __clzll(long long v) { return v == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(v)); }
inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>((static_cast<unsigned long long>(a) * b) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}

template <class T>
inline T __ldg(const T* p) {
    return *p;
}

namespace simt {

template <class To, class From>
inline To bit_cast(From from) {
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

}  // namespace simt

inline long long __double_as_longlong(double v) { return simt::bit_cast<long long>(v); }
inline double __longlong_as_double(long long v) { return simt::bit_cast<double>(v); }
inline int __float_as_int(float v) { return simt::bit_cast<int>(v); }
inline float __int_as_float(int v) { return simt::bit_cast<float>(v); }
inline unsigned __float_as_uint(float v) { return simt::bit_cast<unsigned>(v); }
inline float __uint_as_float(unsigned v) { return simt::bit_cast<float>(v); }

// --- Arithmetic. sqrt, fma, fabs and others come from math.h and are correctly rounded by both backends. ----------
#define SIMT_MIN_MAX(A, B, R)                                                                                        \
    inline R min(A a, B b) { return static_cast<R>(a) < static_cast<R>(b) ? static_cast<R>(a) : static_cast<R>(b); } \
    inline R max(A a, B b) { return static_cast<R>(a) > static_cast<R>(b) ? static_cast<R>(a) : static_cast<R>(b); }
#define SIMT_MIN_MAX_INTEGER(S, U) \
    SIMT_MIN_MAX(S, S, S) SIMT_MIN_MAX(U, U, U) SIMT_MIN_MAX(S, U, U) SIMT_MIN_MAX(U, S, U)

SIMT_MIN_MAX_INTEGER(int, unsigned)
SIMT_MIN_MAX_INTEGER(long, unsigned long)
SIMT_MIN_MAX_INTEGER(long long, unsigned long long)

#undef SIMT_MIN_MAX
#undef SIMT_MIN_MAX_INTEGER

namespace simt {

/// The minimum as PTX defines it: if one operand is NaN, the result is the other one; -0 is less than +0.
template <class T>
inline T lesser(T a, T b) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return __builtin_signbit(a) ? a : b;
    return a < b ? a : b;
}

/// The maximum as PTX defines it, with the rules of `lesser`.
template <class T>
inline T greater(T a, T b) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return __builtin_signbit(a) ? b : a;
    return a > b ? a : b;
}

}  // namespace simt

inline float min(float a, float b) { return simt::lesser(a, b); }
inline float max(float a, float b) { return simt::greater(a, b); }
inline double min(double a, double b) { return simt::lesser(a, b); }
inline double max(double a, double b) { return simt::greater(a, b); }
inline double min(float a, double b) { return simt::lesser<double>(a, b); }
inline double max(float a, double b) { return simt::greater<double>(a, b); }
inline double min(double a, float b) { return simt::lesser<double>(a, b); }
inline double max(double a, float b) { return simt::greater<double>(a, b); }

// Each of these operations rounds once and is never contracted, as in CUDA.
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
