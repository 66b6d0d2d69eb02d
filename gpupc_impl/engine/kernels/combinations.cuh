// Combinations by rank (cuPC, section 4.2): subsets of {0, ..., n-1} in lexicographic order.
#pragma once

#include "backends/simt/portable.cuh"

// The upper bound on the conditioning sets of a row that a search numbers (MAX_SETS in core/pc_stable.py).
constexpr unsigned long long MOST_SETS = 1ull << 62;

// table[k * (max_n + 1) + m] = C(m, k) for k = 0, ..., level and m = 0, ..., max_n, saturated at MOST_SETS.
struct Binomials {
    const unsigned long long* table;
    int max_n;

    __device__ unsigned long long operator()(int m, int k) const {
        return table[static_cast<long long>(k) * (max_n + 1) + m];
    }
};

// Returns the largest m in [k - 1, limit) with C(m, k) <= u.
__device__ __forceinline__ int largest_binomial(const Binomials& binomial, int k, int limit, unsigned long long u) {
    if (k == 1) return static_cast<int>(u);
    if (k == 2 && u < (1ull << 50)) {
        // The square root solves C(m, 2) <= u for m, and may be off by one.
        int m = static_cast<int>((1.0 + sqrt(1.0 + 8.0 * static_cast<double>(u))) * 0.5);
        while (static_cast<unsigned long long>(m) * (m - 1) / 2 > u) --m;
        while (static_cast<unsigned long long>(m) * (m + 1) / 2 <= u) ++m;
        return m;
    }
    int low = k - 1, high = limit;  // The invariant of the bisection is C(low, k) <= u; it begins with C(low, k) = 0.
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (binomial(middle, k) <= u) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

// Computes the t-th combination of `level` out of n, ascending (cuPC, Algorithm 6). Instead of its linear scans, it
// counts the combinations that follow, not those that precede, which turns each sum of Equation 2 into one binomial.
__device__ __forceinline__ void unrank_combination(const Binomials& binomial, int n, int level, unsigned long long t,
                                                   int* positions) {
    unsigned long long following = binomial(n, level) - 1 - t;
    int limit = n;
    for (int c = 0; c < level; ++c) {
        const int k = level - c;
        const int m = largest_binomial(binomial, k, limit, following);
        following -= binomial(m, k);
        positions[c] = n - 1 - m;
        limit = m;
    }
}
