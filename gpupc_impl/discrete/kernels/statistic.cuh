// The statistic of a table: chi-square or G-square, summed over the strata in one order on every backend.
#pragma once

#include "discrete/kernels/data.cuh"

// The number of strata in a chunk. Strata are added in chunks, and then the chunks are added.
constexpr int CHUNK = 64;

// The statistic and the degrees of freedom by which a test is decided.
struct Rules {
    const double* logs;  // log(k) for k = 0..n, for G-square; null for chi-square
    bool adjusted;       // whether degrees of freedom count the rows and columns that occur
};

// Returns x / y, correctly rounded, for a finite x and a y far from the ends of the range of doubles. It is a division
// without branches for special operands, so that several overlap. tests/gpu compares the results.
__device__ __forceinline__ double quotient(double x, double y) {
#ifdef GPUPC_HOST
    return x / y;
#else
    double inverse;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(inverse) : "d"(y));
    double error = fma(-y, inverse, 1.0);
    inverse = fma(fma(error, error, error), inverse, inverse);
    error = fma(-y, inverse, 1.0);
    inverse = fma(error, inverse, inverse);
    const double near = x * inverse;
    return fma(fma(-y, near, x), inverse, near);
#endif
}

// A cell's term of chi-square: (N - E)^2 / E with E = row * column / total.
__device__ __forceinline__ double chi_square_term(unsigned count, unsigned row, unsigned column, unsigned total) {
    const double expected =
        quotient(static_cast<double>(row) * static_cast<double>(column), static_cast<double>(total));
    const double difference = static_cast<double>(count) - expected;
    return quotient(difference * difference, expected);
}

// A cell's term of half of G-square, N log(N / E), from a table of logarithms that is the same for all methods.
__device__ __forceinline__ double g_square_term(const double* logs, unsigned count, unsigned row, unsigned column,
                                                unsigned total) {
    const double observed = logs[count] + logs[total];
    const double expected = logs[row] + logs[column];
    return static_cast<double>(count) * (observed - expected);
}

#ifdef GPUPC_HOST
constexpr int TERMS_AT_ONCE = 1;
#else
constexpr int TERMS_AT_ONCE = 4;  // Several divisions of a thread then overlap.
#endif

// Returns a stratum's terms of the statistic, from its block of the table, whose last row receives the sums of the
// columns. Terms are added row by row, so that every method adds the same numbers in the same order; those of columns
// that do not occur are zero. `df` grows by the adjusted degrees of freedom.
__device__ __forceinline__ double stratum_statistic(const Rules& rules, int rows, int columns, unsigned* counts,
                                                    unsigned long long& df) {
    unsigned* const sums = counts + static_cast<long long>(rows) * columns;
    unsigned total = 0, columns_met = 0, rows_met = 0;
#ifdef GPUPC_HOST
    for (int b = 0; b < columns; ++b) sums[b] = counts[b];
    for (int a = 1; a < rows; ++a) {
        for (int b = 0; b < columns; ++b) sums[b] += counts[static_cast<long long>(a) * columns + b];
    }
#else
    for (int b = 0; b < columns; ++b) {
        const unsigned* const column = counts + b;
        unsigned sum = 0;
#pragma unroll 4
        for (int a = 0; a < rows; ++a) sum += column[static_cast<long long>(a) * columns];
        sums[b] = sum;
    }
#endif
    for (int b = 0; b < columns; ++b) {
        total += sums[b];
        columns_met += sums[b] != 0;
    }
    if (total == 0) return 0.0;
    double sum = 0.0;
    for (int a = 0; a < rows; ++a) {
        const unsigned* const row = counts + static_cast<long long>(a) * columns;
        unsigned row_total = 0;
        for (int b = 0; b < columns; ++b) row_total += row[b];
        if (row_total == 0) continue;
        ++rows_met;
        if (rules.logs == nullptr) {
            for (int first = 0; first < columns; first += TERMS_AT_ONCE) {
                double terms[TERMS_AT_ONCE];
#pragma unroll
                for (int k = 0; k < TERMS_AT_ONCE; ++k) {
                    const int b = min(first + k, columns - 1);
                    const bool met = first + k < columns && sums[b] != 0;
                    const double term = chi_square_term(row[b], row_total, met ? sums[b] : 1, total);
                    terms[k] = met ? term : 0.0;
                }
#pragma unroll
                for (int k = 0; k < TERMS_AT_ONCE; ++k) sum += terms[k];
            }
        } else {
            for (int b = 0; b < columns; ++b) {
                if (row[b] == 0) continue;
                sum += g_square_term(rules.logs, row[b], row_total, sums[b], total);
            }
        }
    }
    df += static_cast<unsigned long long>(rows_met - 1) * (columns_met - 1);
    return sum;
}

// Writes the sums of the columns into the last row of each stratum.
__device__ __forceinline__ void sum_columns(const Shape& shape, const Team& team, unsigned* table) {
    share_out(team, static_cast<int>(shape.strata), shape.columns, [&](int s, int b) {
        unsigned* const column = table + s * static_cast<int>(shape.block()) + b;
        unsigned sum = 0;
        for (int a = 0; a < shape.rows; ++a) sum += column[a * shape.columns];
        column[shape.rows * shape.columns] = sum;
    });
}

// Writes, for each cell of a table with sums of columns, the term that stratum_statistic adds; 0 where it skips one.
__device__ __forceinline__ void compute_terms(const Rules& rules, const Shape& shape, const Team& team,
                                              const unsigned* table, double* terms) {
    const int columns = shape.columns;
    share_out(team, static_cast<int>(shape.strata) * shape.rows, columns, [&](int row_number, int b) {
        const int s = row_number / shape.rows;
        const unsigned* const row = table + (row_number + s) * columns;  // A stratum has an additional row.
        const unsigned* const sums = table + ((s + 1) * (shape.rows + 1) - 1) * columns;
        unsigned total = 0, row_total = 0;
        for (int other = 0; other < columns; ++other) {
            row_total += row[other];
            total += sums[other];
        }
        double term = 0.0;
        if (rules.logs != nullptr) {
            if (row[b] != 0) term = g_square_term(rules.logs, row[b], row_total, sums[b], total);
        } else if (row_total != 0 && sums[b] != 0) {
            term = chi_square_term(row[b], row_total, sums[b], total);
        }
        terms[row_number * columns + b] = term;
    });
}

// Adds up each stratum's terms to what stratum_statistic returns, and writes the sum over the first term.
__device__ __forceinline__ void sum_terms(const Rules& rules, const Shape& shape, const Team& team,
                                          const unsigned* table, double* terms, unsigned long long& df) {
    const int rows = shape.rows, columns = shape.columns, block = static_cast<int>(shape.block());
    for (int s = team.rank; s < static_cast<int>(shape.strata); s += team.size) {
        double* const stratum = terms + s * rows * columns;
        double sum = 0.0;
        for (int q = 0; q < rows * columns; ++q) sum += stratum[q];
        stratum[0] = sum;
        if (!rules.adjusted) continue;
        const unsigned* const counts = table + s * block;
        unsigned rows_met = 0, columns_met = 0;
        for (int a = 0; a < rows; ++a) {
            bool met = false;
            for (int b = 0; b < columns; ++b) met = met || counts[a * columns + b] != 0;
            rows_met += met;
        }
        for (int b = 0; b < columns; ++b) columns_met += counts[rows * columns + b] != 0;
        if (rows_met != 0) df += static_cast<unsigned long long>(rows_met - 1) * (columns_met - 1);
    }
}

// Writes a double over a stratum's first two counts.
__device__ __forceinline__ void store_part(unsigned* place, double value) {
    const unsigned long long bits = __double_as_longlong(value);
    place[0] = static_cast<unsigned>(bits);
    place[1] = static_cast<unsigned>(bits >> 32);
}

__device__ __forceinline__ double load_part(const unsigned* place) {
    return __longlong_as_double(static_cast<long long>(static_cast<unsigned long long>(place[1]) << 32 | place[0]));
}
