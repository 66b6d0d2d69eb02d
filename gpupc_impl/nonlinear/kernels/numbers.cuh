// Values, the integer keys that order their distances, vectors of them, and the rule for distances of numbers. A value
// is short (whole numbers that span less than 2^15, ranks among them), float or double. A distance is kept as its key,
// an integer with the same order: of a short the distance itself, otherwise the bits of the floating-point number,
// which are ordered like it because it is not negative.
//
// A thread of a GPU works on one number at a time. On the host a thread is a core, whose vector unit works on
// VECTOR_BYTES at a time: `Vector` has that many elements there and one on a GPU.
#pragma once

#include "backends/simt/portable.cuh"

constexpr int VECTOR_BYTES = 64;

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

// A key strictly between low and high, if there is one. It is the key of the mean of the two distances, which comes
// near the k-th distance sooner, or the mean of the keys, which halves those between. low < high; low may be -1.
template <class T>
__device__ __forceinline__ KeyOf<T> middle(KeyOf<T> low, KeyOf<T> high, bool halve_keys) {
    using Key = KeyOf<T>;
    if constexpr (!Number<T>::whole) {
        if (!halve_keys) {
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
struct Vector {
    using Key = KeyOf<T>;
    static constexpr int ELEMENTS = VECTOR_BYTES / sizeof(T);
    typedef T Values __attribute__((vector_size(VECTOR_BYTES)));
    typedef Key Keys __attribute__((vector_size(VECTOR_BYTES)));

    template <class V, class Source>
    static __forceinline__ V load_as(const Source* p) {
        V v;
        memcpy(&v, p, sizeof v);
        return v;
    }
    static __forceinline__ Values load(const T* p) { return load_as<Values>(p); }
    static __forceinline__ Keys load_keys(const Key* p) { return load_as<Keys>(p); }
    static __forceinline__ void store(Key* p, Keys v) { memcpy(p, &v, sizeof v); }
    static __forceinline__ Keys all(Key k) { return Keys{} + k; }
    static __forceinline__ Key get(const Keys& v, int element) { return v[element]; }

    static __forceinline__ Keys distance(Values a, Values b) {
        const Values difference = a - b;
        if constexpr (Number<T>::whole) {
            return (Keys)(difference < 0 ? -difference : difference);
        } else {
            return (Keys)difference & Number<T>::LARGEST;
        }
    }
    static __forceinline__ Keys larger(Keys a, Keys b) { return a > b ? a : b; }
    // Increment the counters of those elements whose key is above the bound, or below it.
    static __forceinline__ void count_above(Keys& count, Keys key, Keys bound) { count -= (Keys)(key > bound); }
    static __forceinline__ void count_below(Keys& count, Keys key, Keys bound) { count -= (Keys)(bound > key); }
    static __forceinline__ Keys choose(Keys condition, Keys a, Keys b) { return condition ? a : b; }
    static __forceinline__ Keys at_least(Keys a, Key k) { return (Keys)(a >= k); }
    static __forceinline__ Keys below(Keys a, Key k) { return (Keys)(a < k); }
    static __forceinline__ bool any(Keys condition) {
        unsigned long long words[VECTOR_BYTES / 8], bits = 0;
        memcpy(words, &condition, sizeof words);
        for (unsigned long long word : words) bits |= word;
        return bits != 0;
    }
    static __forceinline__ Keys middles(Keys low, Keys high, bool halve_keys) {
        if constexpr (!Number<T>::whole) {
            if (!halve_keys) {
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
struct Vector {
    using Key = KeyOf<T>;
    static constexpr int ELEMENTS = 1;
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
    static __device__ __forceinline__ Keys middles(Keys low, Keys high, bool halve_keys) {
        return middle<T>(low, high, halve_keys);
    }
};

#endif

// The rule by which values are compared and neighbours counted, which is a template argument of kernels. This rule is
// for continuous numbers; that of mixed data is in mixed/kernels/mixed.cuh.
struct Continuous {
    // true: count the other samples at distances up to the radius, also in the joint space, where their number is k~
    // (Mesner and Shalizi). false: count the samples nearer than the radius, including the sample itself (Runge).
    static constexpr bool TIES = false;
    // true: among samples at the same distance, prefer those that follow the sample itself in cyclic order of their
    // numbers; fill lists that lack neighbours. false: prefer the smallest numbers.
    static constexpr bool CYCLIC = false;

    template <class T>
    static __device__ __forceinline__ KeyOf<T> distance(T a, T b) {
        return Number<T>::distance(a, b);
    }
    template <class T>
    static __device__ __forceinline__ typename Vector<T>::Keys distances(typename Vector<T>::Values a,
                                                                         typename Vector<T>::Values own) {
        return Vector<T>::distance(a, own);
    }
    // The distance of samples that may exchange their values in a permutation; LARGEST if they may not.
    template <class T>
    static __device__ __forceinline__ KeyOf<T> separation(T a, T b) {
        return Number<T>::distance(a, b);
    }
};
