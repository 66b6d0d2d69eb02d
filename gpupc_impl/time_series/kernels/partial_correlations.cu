// Partial correlations of lagged variables (Runge et al. 2019, Materials and Methods: ParCorr) from the matrix of the
// correlations of all lagged columns. Column lag * variables + v holds variable v, `lag` steps before the time of the
// targets.
//
// A team, which is a warp or a whole block, takes one test after another. It lists the conditions, and factors the
// correlations of (conditions, X, Y) by Cholesky's algorithm, in panels of columns. A warp computes the entries of a
// panel in 32 rows, a row in each lane, from the panels before. An entry is computed by one lane with its terms in
// ascending order, so that it has the same bits on every backend, whatever the team.
#include "engine/kernels/warp.cuh"

#ifdef GPUPC_HOST
constexpr int PANEL = 8;  // columns
constexpr int VECTOR = 8;
#else
constexpr int PANEL = 16;
#endif

// Test t is of X, variable sources[t] at lags[t], and Y, variable targets[t] at lag 0. Its conditions are, without
// repetition: `set_size` columns; the first parents of Y; the first parents of X, as many lags earlier as X is.
// `parent_starts` is null if there are no parents, and `most_*` are the numbers that count as first.
//
// If `places` is null, the `set_size` columns are row t of `sets`. Otherwise `sets` has a row of candidates for each
// target, X is at own[t] in it, and row targets[t] of `places` says which of the other candidates are conditions.
struct LaggedTests {
    const double* correlations;
    const unsigned char* constant;
    const int *sources, *lags, *targets, *sets, *places, *own;
    const long long* parent_starts;
    const int* parents;
    double* values;   // NaN if a variance given the conditions is at most `tolerance`
    int* sizes;       // the number of conditions that vary; -1 if X or Y does not vary
    double* scratch;  // null if the work areas of a block's teams are in shared memory
    double tolerance;
    long long count, columns, area;  // `area`: doubles of a work area
    int variables, set_size, candidates, most_of_target, most_of_source, most_of_lagged_source, capacity;
    int team_warps;
};

// The warps that work on one test: one, or all of a block.
struct Team {
    int warp, warps;  // the number of this warp, and of all

    __device__ explicit Team(int warps) : warp(warps > 1 ? warp_index() : 0), warps(warps) {}

    __device__ void join() const {
        if (warps > 1) {
            __syncthreads();
        } else {
            join_lanes();
        }
    }
};

// What a team needs for a test: factor[column_of(b) + row] is the entry of a row below row b.
struct WorkArea {
    double *variances, *factor;  // what the columns so far leave of each variance; of a factored column, its scale
    int *columns, *state;        // the number of conditions, or -1; whether a variance is too small

    __device__ WorkArea(double* area, int capacity)
        : variances(area),
          factor(variances + capacity),
          columns(reinterpret_cast<int*>(factor + static_cast<long long>(capacity) * (capacity + 1) / 2 + LANES)),
          state(columns + capacity) {}
};

// Lists conditions; executed by one warp.
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

    __device__ void append_set(long long t, int target) {
        if (!tests.places) {
            append(tests.set_size, [&](int k) { return tests.sets[t * tests.set_size + k]; });
            return;
        }
        const int* candidates = tests.sets + static_cast<long long>(target) * tests.candidates;
        const int* places = tests.places + static_cast<long long>(target) * tests.set_size;
        append(tests.set_size, [&](int k) { return candidates[places[k] + (places[k] >= tests.own[t])]; });
    }

    __device__ void append_parents(int variable, int most, int shift) {
        const long long start = tests.parent_starts[variable];
        const int number = min(most, static_cast<int>(tests.parent_starts[variable + 1] - start));
        append(number, [&](int k) { return tests.parents[start + k] + shift; });
    }
};

// The number of conditions of test t, which `columns` lists, followed by X and Y; -1 if X or Y does not vary.
__device__ int list_conditions(const LaggedTests& tests, long long t, int* columns) {
    const int source = tests.sources[t], lag = tests.lags[t], target = tests.targets[t];
    const int shift = lag * tests.variables;
    Conditions conditions{tests, columns, source + shift, target, 0};
    if (tests.constant[conditions.x] || tests.constant[conditions.y]) return -1;
    conditions.append_set(t, target);
    if (tests.parent_starts) {
        conditions.append_parents(target, tests.most_of_target, 0);
        conditions.append_parents(source, lag ? tests.most_of_lagged_source : tests.most_of_source, shift);
    }
    if (warp_leader()) {
        columns[conditions.size] = conditions.x;
        columns[conditions.size + 1] = conditions.y;
    }
    join_lanes();
    return conditions.size;
}

// Computes a panel of the factor, `width` columns from column `start` on, in up to 32 rows from row `first` on.
struct Panel {
    const LaggedTests& tests;
    const WorkArea& area;
    int rows, start, width, first, count;
    PerLane<double> entries[PANEL];

    __device__ Panel(const LaggedTests& tests, const WorkArea& area, int rows, int start, int width, int first)
        : tests(tests), area(area), rows(rows), start(start), width(width), first(first), count(min(LANES, rows - first)) {}

    __device__ double* column_of(int b) const {
        return area.factor + static_cast<long long>(b) * (2 * rows - b - 1) / 2;
    }

    // Subtracts the products of earlier columns from the correlations.
    __device__ void begin() {
#pragma unroll
        for (int c = 0; c < PANEL; ++c) {
            if (c < width) {
                const double* correlations = tests.correlations + area.columns[start + c] * tests.columns;
                each_lane(count, [&](int lane) { entries[c][lane] = correlations[area.columns[first + lane]]; });
            }
        }
#ifdef GPUPC_HOST
        // The sums of few lanes at a time stay in registers.
        for (int lane = 0; lane < count; lane += VECTOR) {
            double sums[PANEL][VECTOR];
            for (int c = 0; c < PANEL; ++c) memcpy(sums[c], &entries[c][lane], sizeof sums[c]);
            const double* before = area.factor + first + lane;
            for (int k = 0; k < start; before += rows - k - 1, ++k) {
                for (int c = 0; c < PANEL; ++c) {
                    const double factor = before[start + c - first - lane];
#pragma GCC unroll 1
                    for (int i = 0; i < VECTOR; ++i) sums[c][i] = fma(-before[i], factor, sums[c][i]);
                }
            }
            for (int c = 0; c < PANEL; ++c) memcpy(&entries[c][lane], sums[c], sizeof sums[c]);
        }
#else
        for (int k = 0; k < start; ++k) {
            const double* before = column_of(k);
            each_lane(count, [&](int lane) {
                const double own = before[first + lane];
#pragma unroll
                for (int c = 0; c < PANEL; ++c) entries[c][lane] = fma(-own, before[start + c], entries[c][lane]);
            });
        }
#endif
    }

    // Completes the entries column by column. The first rows of a panel have the pivots.
    __device__ void complete() {
        const bool has_pivots = first == start;
        PerLane<double> variance, scales;
        each_lane(count, [&](int lane) { variance[lane] = area.variances[first + lane]; });
#pragma unroll
        for (int c = 0; c < PANEL; ++c) {
            if (c >= width) break;
            double scale = area.variances[start + c];
            if (has_pivots) {
                const double pivot = of_lane(variance, c);
                if (pivot <= tests.tolerance && warp_leader()) area.state[1] = 1;
                scale = 1.0 / sqrt(pivot);
            }
            double* column = column_of(start + c);
            each_lane(count, [&](int lane) {
                const double value = entries[c][lane] * scale;
                entries[c][lane] = value;
                if (first + lane > start + c) {
                    column[first + lane] = value;
                    variance[lane] = fma(-value, value, variance[lane]);
                } else if (first + lane == start + c) {
                    variance[lane] = scale;
                }
            });
            join_lanes();
#pragma unroll
            for (int d = c + 1; d < PANEL; ++d) {
                if (d >= width) break;
                const double factor = column[start + d];
                each_lane(count, [&](int lane) {
                    entries[d][lane] = fma(-entries[c][lane], factor, entries[d][lane]);
                });
            }
        }
        each_lane(count, [&](int lane) { area.variances[first + lane] = variance[lane]; });
        join_lanes();
    }
};

// The correlation of X and Y given the conditions.
__device__ double partial_correlation(const LaggedTests& tests, const Team& team, const WorkArea& area, int size) {
    const int rows = size + 2, step = LANES * team.warps;
    for (int start = 0; start < size; start += PANEL) {
        const int width = min(PANEL, size - start);
        for (int first = start + LANES * team.warp, turn = 0; turn == 0 || first < rows; first += step, ++turn) {
            Panel panel(tests, area, rows, start, width, first);
            if (first < rows) panel.begin();
            if (turn == 0) {
                if (first == start) panel.complete();
                team.join();
                if (area.state[1]) return nan("");
            }
            if (first > start && first < rows) panel.complete();
        }
        team.join();
    }
    const double variance_x = area.variances[size], variance_y = area.variances[size + 1];
    if (variance_x <= tests.tolerance || variance_y <= tests.tolerance) return nan("");
    double covariance = tests.correlations[area.columns[size] * tests.columns + area.columns[size + 1]];
    const double* column = area.factor;
    for (int k = 0; k < size; ++k) {
        covariance = fma(-column[size], column[size + 1], covariance);
        column += rows - k - 1;
    }
    return fmax(-1.0, fmin(1.0, covariance / sqrt(variance_x * variance_y)));
}

// Grid (blocks), block (warps * warp_threads).
__global__ void __launch_bounds__(512) partial_correlations(const __grid_constant__ LaggedTests tests) {
    GPUPC_DYNAMIC_SHARED(double, shared);
    const Team team(tests.team_warps);
    const int teams = warp_count() / team.warps, own = team.warps > 1 ? 0 : warp_index();
    const long long first = static_cast<long long>(blockIdx.x) * teams + own;
    const WorkArea area(tests.scratch ? tests.scratch + first * tests.area : shared + own * tests.area, tests.capacity);
    for (long long t = first; t < tests.count; t += static_cast<long long>(gridDim.x) * teams) {
        if (team.warp == 0) {
            const int size = list_conditions(tests, t, area.columns);
            if (warp_leader()) {
                area.state[0] = size;
                area.state[1] = 0;
            }
        }
        for (int row = LANES * team.warp; row < tests.capacity; row += LANES * team.warps) {
            each_lane(min(LANES, tests.capacity - row), [&](int lane) { area.variances[row + lane] = 1.0; });
        }
        team.join();
        const int size = area.state[0];
        const double value = size < 0 ? 0.0 : partial_correlation(tests, team, area, size);
        if (team.warp == 0 && warp_leader()) {
            tests.values[t] = value;
            tests.sizes[t] = size;
        }
        team.join();
    }
}
