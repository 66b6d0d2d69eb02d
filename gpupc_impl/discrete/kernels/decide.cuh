// The decision of a test, by critical values for each number of degrees of freedom, and p-values for reports.
#pragma once

#include "discrete/kernels/statistic.cuh"
#include "engine/kernels/keys.cuh"

constexpr int EXPANSION_TERMS = 9;

// Critical values, with the bits of DiscreteProblem.critical_values.
struct Critical {
    const double* values;  // (listed + 1) critical values of 0, 1, 2, ..., `listed` degrees of freedom
    int listed;
    const double* expansion;  // (EXPANSION_TERMS) see discrete/problem.py, critical_tables

    __device__ __forceinline__ double of(unsigned long long df) const {
        if (df <= static_cast<unsigned long long>(listed)) return values[df];
        const double root = sqrt(static_cast<double>(df)), x = sqrt(static_cast<double>(listed)) / root;
        double sum = expansion[EXPANSION_TERMS - 1];
        for (int k = EXPANSION_TERMS - 2; k >= 0; --k) sum = sum * x + expansion[k];
        return static_cast<double>(df) + root * sum;
    }
};

// Logarithm and exponential are made of basic operations, so that p-values have the same bits on every backend.
constexpr double LN2_HIGH = 6.93147180369123816490e-01, LN2_LOW = 1.90821492927058770002e-10;

// log(x) of a positive normal number.
__device__ inline double natural_log(double x) {
    long long bits = __double_as_longlong(x);
    double exponent = static_cast<double>((bits >> 52) - 1023);
    bits = (bits & 0x000fffffffffffffll) | 0x3ff0000000000000ll;
    double mantissa = __longlong_as_double(bits);
    if (mantissa > 1.4142135623730951) {
        mantissa *= 0.5;
        exponent += 1.0;
    }
    const double f = (mantissa - 1.0) / (mantissa + 1.0), square = f * f;  // 2 atanh(f) with |f| < 0.172.
    double sum = 0.0;
    for (int k = 25; k >= 3; k -= 2) sum = fma(sum, square, 1.0 / k);
    return fma(exponent, LN2_HIGH, fma(exponent, LN2_LOW, 2.0 * f * fma(sum, square, 1.0)));
}

// exp(x), with 0 instead of subnormal numbers and a finite number instead of infinity.
__device__ inline double exponential(double x) {
    if (x < -708.0) return 0.0;
    if (x > 709.0) x = 709.0;
    const int exponent = static_cast<int>(x * 1.4426950408889634 + (x < 0.0 ? -0.5 : 0.5));
    const double whole = -static_cast<double>(exponent);
    const double r = fma(whole, LN2_LOW, fma(whole, LN2_HIGH, x));
    double sum = 1.0;
    for (int k = 15; k >= 1; --k) sum = fma(sum, r / k, 1.0);
    return sum * __longlong_as_double(static_cast<long long>(exponent + 1023) << 52);
}

// x^a exp(-x) / Gamma(a), by Stirling's series.
__device__ inline double gamma_density(double a, double x) {
    double power = 0.0;
    for (; a < 16.0; a += 1.0) power += natural_log(a / x);
    const double r = 1.0 / (a * a);
    const double series =
        (1.0 / 12 - r * (1.0 / 360 - r * (1.0 / 1260 - r * (1.0 / 1680 - r * (1.0 / 1188 - r * (691.0 / 360360)))))) /
        a;
    power += a * natural_log(x / a) + (a - x) + 0.5 * natural_log(a) - 0.91893853320467274178 - series;
    return exponential(power);
}

// P(chi-square with df degrees of freedom > statistic), for reports: the regularized upper incomplete gamma function
// Q(df / 2, statistic / 2), by the series of its complement or by its continued fraction (Lentz's algorithm).
__device__ inline double tail(double statistic, unsigned long long df) {
    if (df == 0 || !(statistic > 1e-290)) return 1.0;
    const double a = 0.5 * static_cast<double>(df), x = 0.5 * statistic;
    const double scale = gamma_density(a, x);
    if (x < a + 1.0) {
        double term = 1.0 / a, sum = term;
        for (double k = a + 1.0; term > sum * 1e-17; k += 1.0) {
            term *= x / k;
            sum += term;
        }
        const double p = 1.0 - scale * sum;
        return p > 0.0 ? p : 0.0;
    }
    double b = x + 1.0 - a, c = 1e300, d = 1.0 / b, h = d;
    for (double k = 1.0; k < 1e7; k += 1.0) {
        const double factor = -k * (k - a);
        b += 2.0;
        d = 1.0 / (factor * d + b);
        c = b + factor / c;
        h *= d * c;
        if (fabs(d * c - 1.0) < 1e-16) break;
    }
    return scale * h;
}

// What the tests of a search share: the rule of decision, and the storage of the outcomes.
struct DiscreteSearch {
    BestKeys best;
    unsigned long long* largest_p;  // (p, p) bits of the largest p-value of each pair, in the upper triangle; or null
    bool workload;                  // whether outcomes are ignored
    Rules rules;
    Critical critical;

    // Returns whether an earlier set already separates the edge (gpuPC, section 3.4).
    __device__ __forceinline__ bool settled(int i, int j, unsigned long long key) const {
        return !workload && best.settled(i, j, key);
    }

    // Decides the test of the set of `key` by the sum of its statistic's terms; `df` is for the adjusted rule.
    __device__ __forceinline__ void decide(const Shape& shape, double sum, unsigned long long df,
                                           unsigned long long key) const {
        const int i = shape.low, j = shape.high;
        const double statistic = rules.logs == nullptr ? sum : 2.0 * sum;
        if (!rules.adjusted) {
            df = static_cast<unsigned long long>(shape.rows - 1) * (shape.columns - 1) * shape.strata;
        }
        if (largest_p != nullptr) {
            atomicMax(&largest_p[best.cell(i, j)],
                      static_cast<unsigned long long>(__double_as_longlong(tail(statistic, df))));
        }
        if (!workload && statistic <= critical.of(df)) best.separate(i, j, key);
    }
};
