// Partial correlations of lagged variables (Runge et al. 2019, Materials and Methods: ParCorr) from the matrix of the
// correlations of all lagged columns. Column lag * variables + v holds variable v, `lag` steps before the time of the
// targets.
//
// A warp takes one test after another. It lists the conditions, and factors the correlations of (conditions, X, Y) by
// Cholesky's algorithm, in panels of columns. It computes the entries of a panel in 32 rows at a time, a row in each
// lane. An entry is computed with its terms in ascending order, so that it has the same bits on every backend.
#include "engine/kernels/warp.cuh"

constexpr int PANEL = 8;  // columns

// Test t is of X, variable sources[t] at lags[t], and Y, variable targets[t] at lag 0. Its conditions are, without
// repetition: the first parents of Y; the `set_size` columns of row t of `sets`; the first parents of X, as many lags
// earlier as X is; `most_*` are the numbers that count as first.
struct LaggedTests {
    const double* correlations;
    const unsigned char* constant;
    const int *sources, *lags, *targets, *sets;
    const long long* parent_starts;
    const int* parents;
    double* values;   // NaN if a variance given the conditions is at most `tolerance`
    int* sizes;       // the number of conditions that vary; -1 if X or Y does not vary
    double* scratch;  // null if the work areas of a block's warps are in shared memory
    double tolerance;
    long long count, columns, area;  // `area`: doubles of a work area
    int variables, set_size, most_of_target, most_of_source, most_of_lagged_source;
    int capacity;  // rows of a work area, a multiple of PANEL
};

// The memory of a warp. Entry (row, b) of the factor is at column(b, rows)[row], for the rows from the first column of
// the panel of b on; those up to the diagonal are never used.
struct WorkArea {
    double *factor, *variances;  // what the columns so far leave of each variance; of a factored column, its scale
    int* columns;                // the conditions, X and Y

    __device__ WorkArea(const LaggedTests& tests, double* area)
        : factor(area),
          variances(factor + static_cast<long long>(tests.capacity) * (tests.capacity + PANEL) / 2),
          columns(reinterpret_cast<int*>(variances + tests.capacity)) {}

    __device__ double* column(int b, int rows) const {
        const int within = b % PANEL, start = b - within;
        const int length = (rows + PANEL - 1) / PANEL * PANEL;  // so that a vector does not reach into the next column
        return factor + start * length - start * (start - PANEL) / 2 + within * (length - start) - start;
    }
};

// Lists conditions.
struct Conditions {
    const LaggedTests& tests;
    int* columns;
    int x, y, size;

    // Appends those of `number` columns, which differ from each other, that are not listed and vary.
    template <class Column>
    __device__ void append(int number, Column column) {
        const int listed = size;
        for (int first = 0; first < number; first += LANES) {
            const int count = min(LANES, number - first);
            const unsigned kept = ballot(count, [&](int lane) {
                const int own = column(first + lane);
                bool found = own == x || own == y || tests.constant[own];
                for (int k = 0; k < listed; ++k) found |= columns[k] == own;
                return !found;
            });
            each_lane(count, [&](int lane) {
                if (kept >> lane & 1) columns[size + __popc(kept & lanes_through(lane)) - 1] = column(first + lane);
            });
            size += __popc(kept);
            join_lanes();
        }
    }

    __device__ void append_parents(int variable, int most, int shift) {
        const long long start = tests.parent_starts[variable];
        const int number = min(most, static_cast<int>(tests.parent_starts[variable + 1] - start));
        append(number, [&](int k) { return tests.parents[start + k] + shift; });
    }
};

// Lists the conditions of test t, followed by X and Y; returns their number, or -1 if X or Y does not vary.
__device__ int list_conditions(const LaggedTests& tests, long long t, const WorkArea& area) {
    const int source = tests.sources[t], lag = tests.lags[t], target = tests.targets[t];
    const int shift = lag * tests.variables;
    Conditions conditions{tests, area.columns, source + shift, target, 0};
    if (tests.constant[conditions.x] || tests.constant[target]) return -1;
    conditions.append_parents(target, tests.most_of_target, 0);
    conditions.append(tests.set_size, [&](int k) { return tests.sets[t * tests.set_size + k]; });
    conditions.append_parents(source, lag ? tests.most_of_lagged_source : tests.most_of_source, shift);
    if (warp_leader()) {
        area.columns[conditions.size] = conditions.x;
        area.columns[conditions.size + 1] = target;
    }
    join_lanes();
    return conditions.size;
}

// Subtracts, from the entries of up to 32 rows in a panel, the products of the columns of a panel before. Column k of
// those has its entries in the rows at own + k * length, and in the panel's columns at factors + k * length.
__device__ __forceinline__ void subtract(PerLane<double> (&entries)[PANEL], int count, const double* own,
                                         const double* factors, int length) {
#ifdef GPUPC_HOST
    constexpr int VECTOR = 8;  // rows whose sums stay in registers
    for (int lane = 0; lane < count; lane += VECTOR) {
        double sums[PANEL][VECTOR];
        for (int c = 0; c < PANEL; ++c) memcpy(sums[c], &entries[c][lane], sizeof sums[c]);
        for (int k = 0; k < PANEL; ++k) {
            for (int c = 0; c < PANEL; ++c) {
                const double factor = factors[k * length + c];
#pragma GCC unroll 1
                for (int i = 0; i < VECTOR; ++i) sums[c][i] = fma(-own[k * length + lane + i], factor, sums[c][i]);
            }
        }
        for (int c = 0; c < PANEL; ++c) memcpy(&entries[c][lane], sums[c], sizeof sums[c]);
    }
#else
#pragma unroll 4
    for (int k = 0; k < PANEL; ++k) {
        each_lane(count, [&](int lane) {
            const double value = own[k * length + lane];
#pragma unroll
            for (int c = 0; c < PANEL; ++c) entries[c][lane] = fma(-value, factors[k * length + c], entries[c][lane]);
        });
    }
#endif
}

// Factors the first `columns` columns of the correlations of the listed rows; returns whether every variance is large
// enough. Rows are taken up to 32 at a time; the first of a panel have its pivots.
__device__ bool factor(const LaggedTests& tests, const WorkArea& area, int rows, int columns) {
    for (int start = 0; start < columns; start += PANEL) {
        const int width = min(PANEL, columns - start);
        for (int first = start; first < rows; first += LANES) {
            const int count = min(LANES, rows - first);
            PerLane<double> entries[PANEL], variance;
#pragma unroll
            for (int c = 0; c < PANEL; ++c) {
                if (c < width) {
                    const double* correlations = tests.correlations + area.columns[start + c] * tests.columns;
                    each_lane(count, [&](int lane) { entries[c][lane] = correlations[area.columns[first + lane]]; });
                }
            }
            for (int before = 0; before < start; before += PANEL) {
                const double* column = area.column(before, rows);
                const int length = static_cast<int>(area.column(before + 1, rows) - column);
                subtract(entries, count, column + first, column + start, length);
            }
            each_lane(count, [&](int lane) { variance[lane] = start ? area.variances[first + lane] : 1.0; });
#pragma unroll
            for (int c = 0; c < PANEL; ++c) {
                if (c < width) {
                    double scale = area.variances[start + c];
                    if (first == start) {
                        const double pivot = of_lane(variance, c);
                        if (!(pivot > tests.tolerance)) return false;
                        scale = 1.0 / sqrt(pivot);
                    }
                    double* column = area.column(start + c, rows);
                    each_lane(count, [&](int lane) {
                        const double value = entries[c][lane] * scale, left = fma(-value, value, variance[lane]);
                        entries[c][lane] = column[first + lane] = value;
                        const int below = first + lane - start - c;
                        variance[lane] = below > 0 ? left : below == 0 ? scale : variance[lane];
                    });
                    join_lanes();
#pragma unroll
                    for (int d = c + 1; d < PANEL; ++d) {
                        if (d < width) {
                            const double factor = column[start + d];
                            each_lane(count, [&](int lane) {
                                entries[d][lane] = fma(-entries[c][lane], factor, entries[d][lane]);
                            });
                        }
                    }
                }
            }
            each_lane(count, [&](int lane) { area.variances[first + lane] = variance[lane]; });
            join_lanes();
        }
    }
    return true;
}

// Grid (blocks), block (warps * warp_threads).
__global__ void __launch_bounds__(512) partial_correlations(const __grid_constant__ LaggedTests tests) {
    GPUPC_DYNAMIC_SHARED(double, shared);
    const long long warp = static_cast<long long>(blockIdx.x) * warp_count() + warp_index();
    const long long warps = static_cast<long long>(gridDim.x) * warp_count();
    const WorkArea area(tests, tests.scratch ? tests.scratch + warp * tests.area : shared + warp_index() * tests.area);
    for (long long t = warp; t < tests.count; t += warps) {
        const int size = list_conditions(tests, t, area), rows = size + 2;
        double value = size < 0 ? 0.0 : nan("");
        if (size >= 0 && factor(tests, area, rows, rows - 1)) {
            // The column of X is the last; its entry is the covariance with Y, divided by the standard deviation of X.
            const double entry = area.column(rows - 2, rows)[rows - 1];
            const double variance = fma(entry, entry, area.variances[rows - 1]);
            if (variance > tests.tolerance) value = fmax(-1.0, fmin(1.0, entry / sqrt(variance)));
        }
        if (warp_leader()) {
            tests.values[t] = value;
            tests.sizes[t] = size;
        }
        join_lanes();
    }
}
