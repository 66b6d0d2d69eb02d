// Numbers, the keys that order them, rules, and lanes: permutations that a thread works on side by side.
//
// A value is short (whole numbers that span less than 2^15, ranks among them), float or double. Distances are compared
// by their keys, whole numbers in the order of the distances: of a short the number itself, else its bits.
//
// A GPU's thread has one lane; its neighbours have the next ones. A CPU core has vectors: a thread of the host backend
// has as many lanes as fit into 64 bytes.
#pragma once

#include "backends/simt/portable.cuh"

template <class T>
struct Number;

template <>
struct Number<short> {
    using Key = short;
    static constexpr bool whole = true;
    static constexpr Key LARGEST = 0x7fff;
    static __device__ __forceinline__ Key distance(short a, short b) {
        const int difference = a - b;
        return static_cast<Key>(difference < 0 ? -difference : difference);
    }
};

template <>
struct Number<float> {
    using Key = int;
    static constexpr bool whole = false;
    static constexpr Key LARGEST = 0x7fffffff;
    static __device__ __forceinline__ Key key(float v) { return __float_as_int(v); }
    static __device__ __forceinline__ float value(Key k) { return __int_as_float(k); }
    static __device__ __forceinline__ Key distance(float a, float b) { return key(fabsf(a - b)); }
};

template <>
struct Number<double> {
    using Key = long long;
    static constexpr bool whole = false;
    static constexpr Key LARGEST = 0x7fffffffffffffffll;
    static __device__ __forceinline__ Key key(double v) { return __double_as_longlong(v); }
    static __device__ __forceinline__ double value(Key k) { return __longlong_as_double(k); }
    static __device__ __forceinline__ Key distance(double a, double b) { return key(fabs(a - b)); }
};

template <class T>
using KeyOf = typename Number<T>::Key;

template <class Key>
__device__ __forceinline__ Key larger(Key a, Key b) {
    return a > b ? a : b;
}

// The middle of low < high, strictly between them where there is a key between: of the distances, or of the keys.
template <class T>
__device__ __forceinline__ KeyOf<T> middle(KeyOf<T> low, KeyOf<T> high, bool of_keys) {
    using Key = KeyOf<T>;
    if constexpr (!Number<T>::whole) {
        if (!of_keys) {
            const T sum = Number<T>::value(low < 0 ? 0 : low) * T(0.5) + Number<T>::value(high) * T(0.5);
            Key mean = Number<T>::key(sum);
            mean = mean <= low ? low + 1 : mean;
            return mean >= high ? high - 1 : mean;
        }
    }
    return static_cast<Key>(low + (high - low) / 2);
}

#ifdef GPUPC_HOST

template <class T>
struct Lanes {
    using Key = KeyOf<T>;
    static constexpr int WIDTH = 64 / sizeof(T);
    typedef T Values __attribute__((vector_size(64)));
    typedef Key Keys __attribute__((vector_size(64)));

    template <class V, class Element>
    static __forceinline__ V load_as(const Element* p) {
        V v;
        memcpy(&v, p, sizeof v);
        return v;
    }
    static __forceinline__ Values load(const T* p) { return load_as<Values>(p); }
    static __forceinline__ Keys load_keys(const Key* p) { return load_as<Keys>(p); }
    static __forceinline__ void store(Key* p, Keys v) { memcpy(p, &v, sizeof v); }
    static __forceinline__ Keys all(Key k) { return Keys{} + k; }
    static __forceinline__ Key get(const Keys& v, int lane) { return v[lane]; }

    static __forceinline__ Keys distance(Values a, Values b) {
        const Values difference = a - b;
        if constexpr (Number<T>::whole) {
            return (Keys)(difference < 0 ? -difference : difference);
        } else {
            return (Keys)difference & Number<T>::LARGEST;
        }
    }
    static __forceinline__ Keys larger(Keys a, Keys b) { return a > b ? a : b; }
    // Where keys are above, or below, a bound: one more.
    static __forceinline__ void count_above(Keys& count, Keys key, Keys bound) { count -= (Keys)(key > bound); }
    static __forceinline__ void count_below(Keys& count, Keys key, Keys bound) { count -= (Keys)(bound > key); }
    static __forceinline__ Keys choose(Keys condition, Keys a, Keys b) { return condition ? a : b; }
    static __forceinline__ Keys at_least(Keys a, Key k) { return (Keys)(a >= k); }
    static __forceinline__ Keys below(Keys a, Key k) { return (Keys)(a < k); }
    static __forceinline__ bool any(Keys condition) {
        unsigned long long words[8], together = 0;
        memcpy(words, &condition, sizeof words);
        for (unsigned long long word : words) together |= word;
        return together != 0;
    }
    static __forceinline__ Keys middles(Keys low, Keys high, bool of_keys) {
        if constexpr (!Number<T>::whole) {
            if (!of_keys) {
                const Keys from = low < 0 ? Keys{} : low;
                Keys mean = (Keys)((Values)from * T(0.5) + (Values)high * T(0.5));
                mean = mean <= low ? low + 1 : mean;
                return mean >= high ? high - 1 : mean;
            }
        }
        return low + (high - low) / 2;
    }
};

#else

template <class T>
struct Lanes {
    using Key = KeyOf<T>;
    static constexpr int WIDTH = 1;
    using Values = T;
    using Keys = Key;

    static __device__ __forceinline__ Values load(const T* p) { return *p; }
    static __device__ __forceinline__ Keys load_keys(const Key* p) { return *p; }
    static __device__ __forceinline__ void store(Key* p, Keys v) { *p = v; }
    static __device__ __forceinline__ Keys all(Key k) { return k; }
    static __device__ __forceinline__ Key get(const Keys& v, int) { return v; }

    static __device__ __forceinline__ Keys distance(Values a, Values b) { return Number<T>::distance(a, b); }
    static __device__ __forceinline__ Keys larger(Keys a, Keys b) { return a > b ? a : b; }
    static __device__ __forceinline__ void count_above(Keys& count, Keys key, Keys bound) { count += key > bound; }
    static __device__ __forceinline__ void count_below(Keys& count, Keys key, Keys bound) { count += key < bound; }
    static __device__ __forceinline__ Keys choose(bool condition, Keys a, Keys b) { return condition ? a : b; }
    static __device__ __forceinline__ bool at_least(Keys a, Key k) { return a >= k; }
    static __device__ __forceinline__ bool below(Keys a, Key k) { return a < k; }
    static __device__ __forceinline__ bool any(bool condition) { return condition; }
    static __device__ __forceinline__ Keys middles(Keys low, Keys high, bool of_keys) {
        return middle<T>(low, high, of_keys);
    }
};

#endif

// How numbers are compared, and neighbours counted. Kernels take such rules as their template argument; those of mixed
// data are in mixed/kernels/mixed.cuh.
struct Continuous {
    // Whether counts are of other samples at the radius or nearer (Mesner and Shalizi), k~ of them in the joint space;
    // else of those nearer than the radius, with the sample itself (Runge).
    static constexpr bool TIES = false;
    // Whether equal distances are ordered from the sample on, round the end, and lists that lack neighbours are filled.
    static constexpr bool CYCLIC = false;

    template <class T>
    static __device__ __forceinline__ KeyOf<T> distance(T a, T b) {
        return Number<T>::distance(a, b);
    }
    template <class T>
    static __device__ __forceinline__ typename Lanes<T>::Keys distances(typename Lanes<T>::Values a,
                                                                        typename Lanes<T>::Values own) {
        return Lanes<T>::distance(a, own);
    }
    // Between samples that may take each other's places; LARGEST where they may not.
    template <class T>
    static __device__ __forceinline__ KeyOf<T> separation(T a, T b) {
        return Number<T>::distance(a, b);
    }
};

// The samples of one thread of the block: strided on a GPU, so that neighbouring threads read neighbouring memory;
// contiguous on the host, so that the compiler can vectorise the loop.
struct Span {
    int first, last;
#ifdef GPUPC_HOST
    static constexpr int step = 1;
    __device__ explicit Span(int n) {
        const int width = (n + blockDim.x - 1) / blockDim.x;
        first = min(static_cast<int>(threadIdx.x) * width, n);
        last = min(first + width, n);
    }
    __device__ bool has(int a) const { return first <= a && a < last; }
#else
    int step;
    __device__ explicit Span(int n) : first(threadIdx.x), last(n), step(blockDim.x) {}
    __device__ bool has(int a) const { return a % blockDim.x == threadIdx.x; }
#endif
};
