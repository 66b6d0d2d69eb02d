// Pairs of small integers in one register, as 16-bit floating-point numbers, and sums of them over a warp. A 16-bit
// floating-point number represents all integers up to END exactly, and one instruction works on two of them. The host
// computes the same with pairs of 16-bit integers.
#pragma once

#include "backends/simt/portable.cuh"

constexpr int REPLICATES = 8;  // the replicates that a warp works on
constexpr int WORDS = 4;       // the registers for one number of each replicate
constexpr int WARP = 32;
constexpr int SUMS = 2;  // the accumulators of a tally, so that consecutive matrix products do not depend on each other
constexpr int END = 2048;
constexpr unsigned ALL = 0xffffffffu;
static_assert(REPLICATES == 2 * WORDS);

#if !defined(GPUPC_HOST) && __CUDA_ARCH__ >= 800
#define GPUPC_TENSOR 1
#else
#define GPUPC_TENSOR 0
#endif

struct Pair {
    unsigned bits;

#ifdef GPUPC_HOST
    template <class F>
    static Pair each(Pair a, Pair b, F f) {
        return of(f(a.get(false), b.get(false)), f(a.get(true), b.get(true)));
    }
    static Pair of(int a, int b) { return Pair{static_cast<unsigned>(b) << 16 | (static_cast<unsigned>(a) & 0xffffu)}; }
    static Pair of(float a, float b) { return of(static_cast<int>(a), static_cast<int>(b)); }
    static Pair of_shorts(unsigned both) { return Pair{both}; }
    int get(bool second) const { return static_cast<short>(second ? bits >> 16 : bits & 0xffffu); }
    static Pair distance(Pair a, Pair b) {
        return each(a, b, [](int x, int y) { return x < y ? y - x : x - y; });
    }
    static Pair larger(Pair a, Pair b) {
        return each(a, b, [](int x, int y) { return max(x, y); });
    }
    static Pair sum(Pair a, Pair b) {
        return each(a, b, [](int x, int y) { return x + y; });
    }
    static Pair below(Pair a, Pair limits) {
        return each(a, limits, [](int x, int limit) { return x < limit; });
    }
#else
    __device__ __forceinline__ static Pair of(float a, float b) {
        Pair p;
        asm("{ .reg .b16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h}; }"
            : "=r"(p.bits)
            : "f"(a), "f"(b));
        return p;
    }
    // Converts two shorts. A short's bits up to END, read as a 16-bit floating-point number, are 2^-24 times the short,
    // so two multiplications by 2^12 convert it. The bits of the largest short are a NaN, which is below no limit.
    __device__ __forceinline__ static Pair of_shorts(unsigned both) {
        Pair p;
        asm("{ .reg .b32 part; mul.rn.f16x2 part, %1, %2; mul.rn.f16x2 %0, part, %2; }"
            : "=r"(p.bits)
            : "r"(both), "r"(0x6c006c00u));  // 2^12, twice
        return p;
    }
    __device__ __forceinline__ float get(bool second) const {
        const auto half = static_cast<unsigned short>(second ? bits >> 16 : bits & 0xffffu);
        float number;
        asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(half));
        return number;
    }
    __device__ __forceinline__ static Pair distance(Pair a, Pair b) {
        Pair p;
        asm("{ .reg .b32 d; sub.rn.f16x2 d, %1, %2; abs.f16x2 %0, d; }" : "=r"(p.bits) : "r"(a.bits), "r"(b.bits));
        return p;
    }
    // The larger of two numbers that are not negative; NaN propagates.
    __device__ __forceinline__ static Pair larger(Pair a, Pair b) {
#if __CUDA_ARCH__ >= 800
        Pair p;
        asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(p.bits) : "r"(a.bits), "r"(b.bits));
        return p;
#else
        return Pair{__vmaxu2(a.bits, b.bits)};
#endif
    }
    __device__ __forceinline__ static Pair sum(Pair a, Pair b) {
        Pair p;
        asm("add.rn.f16x2 %0, %1, %2;" : "=r"(p.bits) : "r"(a.bits), "r"(b.bits));
        return p;
    }
    // Returns 1 if an integer is below its limit, else 0: the difference, saturated to [0, 1].
    __device__ __forceinline__ static Pair below(Pair a, Pair limits) {
        Pair p;
        asm("sub.rn.sat.f16x2 %0, %1, %2;" : "=r"(p.bits) : "r"(limits.bits), "r"(a.bits));
        return p;
    }
#endif
};

// One number for each replicate.
struct alignas(16) Octet {
    Pair of[WORDS];
};

// Returns a word whose two halves are the upper half of the given word.
__device__ __forceinline__ unsigned upper_twice(unsigned word) {
#ifdef GPUPC_HOST
    return (word >> 16) * 0x10001u;
#else
    return __byte_perm(word, 0, 0x3232);
#endif
}

__device__ __forceinline__ unsigned lower(unsigned word) {
#ifdef GPUPC_HOST
    return word & 0xffffu;
#else
    return __byte_perm(word, 0, 0x4410);
#endif
}

// The replicate that a thread decides together with three other threads of its warp, and the word that contains it.
struct Duty {
    int thread, word, replicate;
    __device__ __forceinline__ Duty()
        : thread(threadIdx.x % WARP), word(thread % WORDS), replicate(2 * word + thread / WORDS % 2) {}
    __device__ __forceinline__ bool second() const { return replicate % 2 == 1; }
    __device__ __forceinline__ bool first_of_replicate() const { return thread < REPLICATES; }

    // Returns the numbers of all replicates; each thread passes the number of its own replicate.
    __device__ __forceinline__ Octet spread(float number) const {
        const float other = __shfl_xor_sync(ALL, number, WORDS);
        const Pair own = second() ? Pair::of(other, number) : Pair::of(number, other);
        Octet all;
        for (int w = 0; w < WORDS; ++w) all.of[w].bits = __shfl_sync(ALL, own.bits, w);
        return all;
    }

    // Minimum and maximum over the replicates.
    __device__ __forceinline__ int least(int number) const {
        for (int distance = 1; distance < REPLICATES; distance *= 2) {
            number = min(number, __shfl_xor_sync(ALL, number, distance));
        }
        return number;
    }
    __device__ __forceinline__ int largest(int number) const { return -least(-number); }
};

// Sums of zeros and ones over the threads of a warp, one for each replicate. Tensor cores add them up. The octets of a
// warp are a matrix of 16 rows and 16 columns, in which row g (or 8 + g) has the numbers of 4 threads for replicates 0
// to 3 (or 4 to 7). This matrix is multiplied by a matrix whose ones add up the columns of each replicate; these ones
// occur twice side by side, so that every thread gets sums over 4 threads for the replicates of its word. Before
// compute capability 8.0, and on the host, additions and shuffles do the same.
struct Tally {
#if GPUPC_TENSOR
    unsigned sums[SUMS][2] = {};

    // index: of the octet among several, a constant at compile time.
    __device__ __forceinline__ void add(int index, const Octet& ones) {
        constexpr unsigned LOW = 0x3c00u, HIGH = 0x3c000000u;  // 1 in both halves
        const int column = threadIdx.x / WORDS % WORDS;
        const unsigned first = column == 0 ? LOW : column == 1 ? HIGH : 0;
        const unsigned second = column == 2 ? LOW : column == 3 ? HIGH : 0;
        unsigned* const sum = sums[index % SUMS];
        asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
            : "+r"(sum[0]), "+r"(sum[1])
            : "r"(ones.of[0].bits), "r"(ones.of[2].bits), "r"(ones.of[1].bits), "r"(ones.of[3].bits), "r"(first),
              "r"(second));
    }

 private:
    // The thread's sums for its word.
    __device__ __forceinline__ Pair of_word(const Duty& duty) const {
        Pair word{0};
        for (const auto& sum : sums) word = Pair::sum(word, Pair{duty.word < WORDS / 2 ? sum[0] : sum[1]});
        return word;
    }
#else
    Octet sums = {};

    __device__ __forceinline__ void add(int, const Octet& ones) {
        for (int w = 0; w < WORDS; ++w) sums.of[w] = Pair::sum(sums.of[w], ones.of[w]);
    }

 private:
    __device__ __forceinline__ Pair of_word(const Duty& duty) const {
        const bool odd = duty.word % 2 == 1, high = duty.word >= WORDS / 2;
        Pair mine[2];
        for (int w = 0; w < 2; ++w) {
            mine[w] = odd ? sums.of[2 * w + 1] : sums.of[2 * w];
            add_from(mine[w], odd ? sums.of[2 * w] : sums.of[2 * w + 1], 1);
        }
        Pair own = high ? mine[1] : mine[0];
        add_from(own, high ? mine[0] : mine[1], 2);
        return own;
    }
#endif

    __device__ __forceinline__ static Octet below(const Octet& numbers, const Octet& limits) {
        Octet ones;
        for (int w = 0; w < WORDS; ++w) ones.of[w] = Pair::below(numbers.of[w], limits.of[w]);
        return ones;
    }
    // Adds the value of the thread at a distance.
    __device__ __forceinline__ static void add_from(Pair& own, Pair sent, int distance) {
        own = Pair::sum(own, Pair{__shfl_xor_sync(ALL, sent.bits, distance)});
    }

 public:
    // Counts the numbers of one or several octets that are below the limits.
    __device__ __forceinline__ void add_below(int index, const Octet& numbers, const Octet& limits) {
        add(index, below(numbers, limits));
    }
    template <int COUNT>
    __device__ __forceinline__ void add_below(const Octet (&numbers)[COUNT], const Octet& limits) {
#pragma unroll
        for (int c = 0; c < COUNT; ++c) add_below(c, numbers[c], limits);
    }

    // The sum over the warp for the thread's replicate.
    __device__ __forceinline__ float total(const Duty& duty) const {
        Pair own = of_word(duty);
        for (int distance = WORDS; distance < WARP; distance *= 2) add_from(own, own, distance);
        return own.get(duty.second());
    }
};
