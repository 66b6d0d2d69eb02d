// Partial correlations of lagged variables (Runge et al. 2019, Materials and Methods: ParCorr) from the matrix of the
// correlations of all lagged columns. Column lag * variables + v holds variable v, `lag` steps before the time of the
// targets.
//
// A warp takes one test after another. It lists the conditions, and factors the correlations of (conditions, X, Y) by
// Cholesky's algorithm, column by column, with a row in each lane. An entry is computed by one lane with its terms in
// ascending order, so that it has the same bits on every backend.
#include "engine/kernels/warp.cuh"

// Test t is of X, variable sources[t] at lags[t], and Y, variable targets[t] at lag 0. Its conditions are, without
// repetition: the `set_size` columns of its row of `sets`; the first parents of Y; the first parents of X, as many lags
// earlier as X is. `parent_starts` is null if there are no parents, and `most_*` are the numbers that count as first.
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
    int variables, set_size, most_of_target, most_of_source, most_of_lagged_source, capacity;
};

// The conditions that are listed so far.
struct Conditions {
    const LaggedTests& tests;
    int* columns;
    int x, y, size;

    __device__ bool fits(int column) const {
        if (column == x || column == y || tests.constant[column]) return false;
        for (int k = 0; k < size; ++k) {
            if (columns[k] == column) return false;
        }
        return true;
    }

    // Appends those of `number` columns, each moved by `shift`, that fit; the columns differ from each other.
    __device__ void append(const int* candidates, int number, int shift) {
        for (int first = 0; first < number; first += LANES) {
            const int count = min(LANES, number - first);
            const unsigned kept = ballot(count, [&](int lane) { return fits(candidates[first + lane] + shift); });
            each_lane(count, [&](int lane) {
                if (kept >> lane & 1)
                    columns[size + __popc(kept & lanes_through(lane)) - 1] = candidates[first + lane] + shift;
            });
            size += __popc(kept);
            join_lanes();
        }
    }

    __device__ void append_parents(int variable, int most, int shift) {
        const long long start = tests.parent_starts[variable];
        append(tests.parents + start, min(most, static_cast<int>(tests.parent_starts[variable + 1] - start)), shift);
    }
};

// The correlation of X and Y given the conditions, whose columns are followed by those of X and Y.
__device__ double partial_correlation(const LaggedTests& tests, const int* columns, int size, double* factor,
                                      double* variances) {
    const int rows = size + 2;
    const auto column_of = [&](int b) { return factor + static_cast<long long>(b) * (2 * rows - b - 1) / 2; };
    for (int first = 0; first < rows; first += LANES) {
        each_lane(min(LANES, rows - first), [&](int lane) { variances[first + lane] = 1.0; });
    }
    join_lanes();
    for (int b = 0; b < size; ++b) {
        if (variances[b] <= tests.tolerance) return nan("");
        const double scale = 1.0 / sqrt(variances[b]);
        const double* correlations = tests.correlations + columns[b] * tests.columns;
        double* column = column_of(b);
        for (int first = b + 1; first < rows; first += LANES) {
            const int count = min(LANES, rows - first);
            PerLane<double> entry;
            each_lane(count, [&](int lane) { entry[lane] = correlations[columns[first + lane]]; });
            for (int k = 0; k < b; ++k) {
                const double* before = column_of(k);
                const double factor_b = before[b];
                each_lane(count, [&](int lane) { entry[lane] = fma(-before[first + lane], factor_b, entry[lane]); });
            }
            each_lane(count, [&](int lane) {
                const double value = entry[lane] * scale;
                column[first + lane] = value;
                variances[first + lane] = fma(-value, value, variances[first + lane]);
            });
        }
        join_lanes();
    }
    const double variance_x = variances[size], variance_y = variances[size + 1];
    if (variance_x <= tests.tolerance || variance_y <= tests.tolerance) return nan("");
    double covariance = tests.correlations[columns[size] * tests.columns + columns[size + 1]];
    for (int k = 0; k < size; ++k) {
        const double* column = column_of(k);
        covariance = fma(-column[size], column[size + 1], covariance);
    }
    return fmax(-1.0, fmin(1.0, covariance / sqrt(variance_x * variance_y)));
}

// Grid (blocks), block (warps * warp_threads).
__global__ void partial_correlations(const __grid_constant__ LaggedTests tests) {
    GPUPC_DYNAMIC_SHARED(double, shared);
    const long long warp = static_cast<long long>(blockIdx.x) * warp_count() + warp_index();
    double* variances = tests.scratch ? tests.scratch + warp * tests.area : shared + warp_index() * tests.area;
    double* factor = variances + tests.capacity;
    int* columns = reinterpret_cast<int*>(factor + static_cast<long long>(tests.capacity) * (tests.capacity + 1) / 2);
    for (long long t = warp; t < tests.count; t += static_cast<long long>(gridDim.x) * warp_count()) {
        const int source = tests.sources[t], lag = tests.lags[t], target = tests.targets[t];
        const int shift = lag * tests.variables;
        Conditions conditions{tests, columns, source + shift, target, 0};
        const bool varies = !tests.constant[conditions.x] && !tests.constant[conditions.y];
        double value = 0.0;
        if (varies) {
            conditions.append(tests.sets + t * tests.set_size, tests.set_size, 0);
            if (tests.parent_starts) {
                conditions.append_parents(target, tests.most_of_target, 0);
                conditions.append_parents(source, lag ? tests.most_of_lagged_source : tests.most_of_source, shift);
            }
            if (warp_leader()) {
                columns[conditions.size] = conditions.x;
                columns[conditions.size + 1] = conditions.y;
            }
            join_lanes();
            value = partial_correlation(tests, columns, conditions.size, factor, variances);
        }
        if (warp_leader()) {
            tests.values[t] = value;
            tests.sizes[t] = varies ? conditions.size : -1;
        }
        join_lanes();
    }
}
