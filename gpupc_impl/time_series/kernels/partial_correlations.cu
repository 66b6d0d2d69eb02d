// Partial correlations of lagged variables (Runge et al. 2019, Materials and Methods: ParCorr) from the matrix of the
// correlations of all lagged columns; column lag * variables + v holds variable v, `lag` steps before the time of the
// targets. A test of X and Y factors the correlations of (parents of Y, other conditions, X, Y) by Cholesky's
// algorithm. For each target, `leading_factors` factors its parents, which its tests share, and `leading_rows` computes
// the rows of the factor in the columns of the parents of all columns that a test may need. `partial_correlations`
// continues with the other conditions. Where a target has few tests, it factors all conditions of each.
//
// A parent of Y may be X itself. Its row is then that of the unit vector with 1 in its place. Such a row z is the
// column of X in the inverse of the factor L of the parents, the other conditions and Y (forward substitution, L z =
// e). Since the inverse of their correlations is inverse(L)^T inverse(L), the partial correlation is -z_Y / |z|. Lanes
// of a warp share rows; an entry's terms are in ascending order, so that it has the same bits on every backend.
#include "engine/kernels/warp.cuh"

constexpr int PANEL = 8;  // columns that are computed at a time
// Rows in a lane at a time: on a GPU their sums stay in registers, and each factor that is read serves all of them.
#ifdef GPUPC_HOST
constexpr int ROWS = 1;
#else
constexpr int ROWS = 4;
#endif

// The tests from starts[g] to starts[g + 1] are of Y, variable targets[g], and X, column sources[t]. Their conditions
// are, without repetition: the first parents of Y; the `set_size` columns of row t of `sets`; the first parents of X,
// as many lags earlier as X is; `most_*` are the numbers that count as first. If `others`, X is not counted among the
// parents of Y, and there are no conditions but these.
struct LaggedTests {
    const unsigned char* constant;
    const long long *starts, *parent_starts;
    const int *sources, *targets, *sets, *parents;
    // By target, the parents that vary, if tests share them: how many there are, and how many are factored.
    int *leading, *leading_sizes;
    int* sizes;  // the number of conditions that vary; -1 if X or Y does not vary
    const double* correlations;
    double *factors, *rows;  // by target, see `factor_of` and `row_of`
    double* values;          // NaN if a variance given the conditions is at most `tolerance`
    double *scratch, tolerance;
    long long columns, area;  // `area`: doubles in `scratch` of a warp
    int groups, variables, set_size, most_of_target, most_of_source, most_of_lagged_source, others;
    // Upper bounds on the parents of a target, the rows of a target, and those of a test; `leading_capacity` and
    // `capacity` are multiples of PANEL.
    int leading_capacity, row_capacity, capacity;
};

// A matrix by columns; those of one have the same length, a multiple of PANEL.
struct Columns {
    double* entries;
    long long length;
    __device__ __forceinline__ double* at(int column) const { return entries + column * length; }
};

// The factor of the correlations of the parents. Its diagonal has the inverses of the pivots' square roots.
__device__ Columns factor_of(const LaggedTests& tests, long long group) {
    const long long capacity = tests.leading_capacity;
    return {tests.factors + group * capacity * capacity, capacity};
}

// A row in the columns of the parents: that of a column or, if `others`, of Y and then of X of each test of the target.
__device__ double* row_of(const LaggedTests& tests, long long group, long long row) {
    return tests.rows + (group * tests.row_capacity + row) * tests.leading_capacity;
}

// Lists conditions.
struct Conditions {
    const LaggedTests& tests;
    const int* leading;  // conditions that are not listed again
    int leading_size;
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
                for (int k = 0; k < leading_size; ++k) found |= leading[k] == own;
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

// A panel of a factor: its columns from `before` on, whose rows in the factor start at `place`.
struct Panel {
    Columns factor;
    int before, place, width;
};

// Subtracts, from the entries of rows in a panel, the products of the columns before.
template <int N>
__device__ __forceinline__ void subtract(PerLane<double> (&entries)[N][PANEL], const Columns& rows, int first, int end,
                                         const Panel& panel) {
#ifdef GPUPC_HOST
    constexpr int VECTOR = 8;  // rows whose sums stay in registers
    const int count = min(LANES, end - first);
    for (int lane = 0; lane < count; lane += VECTOR) {
        double sums[PANEL][VECTOR];
        for (int c = 0; c < PANEL; ++c) memcpy(sums[c], &entries[0][c][lane], sizeof sums[c]);
        for (int k = 0; k < panel.before; ++k) {
            const double *own = rows.at(k) + first + lane, *factors = panel.factor.at(k) + panel.place;
            for (int c = 0; c < PANEL; ++c) {
#pragma GCC unroll 1
                for (int i = 0; i < VECTOR; ++i) sums[c][i] = fma(-own[i], factors[c], sums[c][i]);
            }
        }
        for (int c = 0; c < PANEL; ++c) memcpy(&entries[0][c][lane], sums[c], sizeof sums[c]);
    }
#else
    const double* own = rows.entries + first + threadIdx.x % LANES;
    const double2* factors = reinterpret_cast<const double2*>(panel.factor.entries + panel.place);
    const int left = end - first - threadIdx.x % LANES;
#pragma unroll 2
    for (int k = 0; k < panel.before; ++k) {
        double values[N];
#pragma unroll
        for (int r = 0; r < N; ++r) values[r] = r * LANES < left ? -own[r * LANES] : 0.0;
#pragma unroll
        for (int c = 0; c < PANEL; c += 2) {
            const double2 factor = factors[c / 2];
#pragma unroll
            for (int r = 0; r < N; ++r) {
                entries[r][c].value = fma(values[r], factor.x, entries[r][c].value);
                entries[r][c + 1].value = fma(values[r], factor.y, entries[r][c + 1].value);
            }
        }
        own += rows.length;
        factors += panel.factor.length / 2;
    }
#endif
}

// Calls f(r, row, lane) for up to N * 32 rows, of which a lane has N.
template <int N, class Function>
__device__ __forceinline__ void each_row(int number, Function f) {
#pragma unroll
    for (int r = 0; r < N; ++r) {
        each_lane(min(LANES, number - r * LANES), [&](int lane) { f(r, r * LANES + lane, lane); });
    }
}

// Computes the entries of up to N * 32 rows in a panel. `given(c, row)` are the correlations with its columns. If
// `pivots`, the first rows are those of the panel itself; returns at the column of a pivot that is too small.
template <int N, class Given>
__device__ int solve(const Columns& rows, int first, int end, const Panel& panel, bool pivots, double tolerance,
                     Given given) {
    PerLane<double> entries[N][PANEL];
    const int number = end - first;
#pragma unroll
    for (int c = 0; c < PANEL; ++c) {
        if (c < panel.width) {
            each_row<N>(number, [&](int r, int row, int lane) { entries[r][c][lane] = given(c, first + row); });
        }
    }
    subtract(entries, rows, first, end, panel);
#pragma unroll
    for (int c = 0; c < PANEL; ++c) {
        if (c < panel.width) {
            const double* factors = panel.factor.at(panel.before + c) + panel.place;
            const double pivot = pivots ? of_lane(entries[0][c], c) : 1.0;
            if (pivots && !(pivot > tolerance)) return c;
            const double scale = pivots ? 1.0 / sqrt(pivot) : factors[c];
            double* column = rows.at(panel.before + c) + first;
            each_row<N>(number, [&](int r, int row, int lane) {
                entries[r][c][lane] *= scale;
                column[row] = pivots && row == c ? scale : entries[r][c][lane];
            });
#pragma unroll
            for (int d = c + 1; d < PANEL; ++d) {
                if (d < panel.width) {
                    const double factor = pivots ? of_lane(entries[0][c], d) : factors[d];
                    each_row<N>(number, [&](int r, int, int lane) {
                        entries[r][d][lane] = fma(-entries[r][c][lane], factor, entries[r][d][lane]);
                    });
                }
            }
        }
    }
    join_lanes();
    return panel.width;
}

template <class Given>
__device__ int solve_all(const Columns& rows, int first, int end, const Panel& panel, bool pivots, double tolerance,
                         Given given) {
    while (first < end) {
        const bool several = ROWS > 1 && end - first > LANES;
        const int made = several ? solve<ROWS>(rows, first, end, panel, pivots, tolerance, given)
                                 : solve<1>(rows, first, end, panel, pivots, tolerance, given);
        if (made < panel.width) return made;
        first += several ? ROWS * LANES : LANES;
        pivots = false;
    }
    return panel.width;
}

// Factors the columns of the first `size` of the rows, after `before` columns that are there. Returns how many have
// been factored, with all panels whose pivots are large enough.
template <class Given>
__device__ int factor(const Columns& rows, int before, int size, int end, double tolerance, Given given) {
    for (int start = 0; start < size; start += PANEL) {
        const Panel panel{rows, before + start, start, min(PANEL, size - start)};
        const auto of_panel = [&](int c, int row) { return given(start + c, row); };
        const int made = solve_all(rows, start, end, panel, true, tolerance, of_panel);
        if (made < panel.width) return start + made;
    }
    return size;
}

__device__ long long first_warp() { return static_cast<long long>(blockIdx.x) * warp_count() + warp_index(); }
__device__ long long all_warps() { return static_cast<long long>(gridDim.x) * warp_count(); }

// Grid (blocks), block (warps * warp_threads).
__global__ void __launch_bounds__(64) leading_factors(const __grid_constant__ LaggedTests tests) {
    for (long long group = first_warp(); group < tests.groups; group += all_warps()) {
        int* columns = tests.leading + group * tests.leading_capacity;
        Conditions conditions{tests, nullptr, 0, columns, -1, tests.targets[group], 0};
        conditions.append_parents(tests.targets[group], tests.most_of_target + tests.others, 0);
        const int size = conditions.size;
        const int made = factor(factor_of(tests, group), 0, size, size, tests.tolerance, [&](int c, int row) {
            return tests.correlations[columns[c] * tests.columns + columns[row]];
        });
        if (warp_leader()) {
            tests.leading_sizes[2 * group] = size;
            tests.leading_sizes[2 * group + 1] = made;
        }
    }
}

// Grid (blocks), block (warps * warp_threads). A warp takes some rows of a target.
__global__ void __launch_bounds__(64) leading_rows(const __grid_constant__ LaggedTests tests) {
    double* const area = tests.scratch + first_warp() * tests.area;
    int* const columns = reinterpret_cast<int*>(area);  // of each row; that of a parent is ~column
    const Columns rows{area + ROWS * LANES, ROWS * LANES};
    const int tasks = (tests.row_capacity + ROWS * LANES - 1) / (ROWS * LANES);
    for (long long task = first_warp(); task < 1ll * tests.groups * tasks; task += all_warps()) {
        const long long group = task / tasks, first_test = tests.starts[group];
        const int number =
            tests.others ? static_cast<int>(tests.starts[group + 1] - first_test) + 1 : tests.row_capacity;
        const int start = static_cast<int>(task % tasks) * ROWS * LANES, end = min(ROWS * LANES, number - start);
        const int size = tests.leading_sizes[2 * group], made = tests.leading_sizes[2 * group + 1];
        const int* leading = tests.leading + group * tests.leading_capacity;
        for (int first = 0; first < end; first += LANES) {
            each_lane(min(LANES, end - first), [&](int lane) {
                const int row = start + first + lane;
                int column = row;
                if (tests.others) column = row ? tests.sources[first_test + row - 1] : tests.targets[group];
                bool is_parent = false;
                for (int k = 0; k < size; ++k) is_parent |= leading[k] == column;
                columns[first + lane] = is_parent ? ~column : column;
            });
        }
        join_lanes();
        for (int place = 0; place < made; place += PANEL) {
            const Panel panel{factor_of(tests, group), place, place, min(PANEL, made - place)};
            solve_all(rows, 0, end, panel, false, 0.0, [&](int c, int row) {
                const int parent = leading[place + c], column = columns[row];
                if (column < 0) return ~column == parent ? 1.0 : 0.0;
                return tests.correlations[parent * tests.columns + column];
            });
        }
        for (int first = 0; first < end; first += LANES) {
            each_lane(min(LANES, end - first), [&](int lane) {
                double* out = row_of(tests, group, start + first + lane);
                for (int k = 0; k < made; ++k) out[k] = rows.at(k)[first + lane];
            });
        }
        join_lanes();
    }
}

// Makes test t of a target; returns the number of conditions that vary, or -1 if X or Y does not vary.
__device__ int make(const LaggedTests& tests, long long group, long long t, double* area, double& value) {
    const int x = tests.sources[t], y = tests.targets[group], source = x % tests.variables, shift = x - source;
    value = 0.0;
    if (tests.constant[x] || tests.constant[y]) return -1;
    value = nan("");

    const int* leading = tests.leading + group * tests.leading_capacity;
    int before = tests.leading ? tests.leading_sizes[2 * group] : 0, place = -1;  // of X among the parents of Y
    for (int first = 0; first < before; first += LANES) {
        const unsigned found = ballot(min(LANES, before - first), [&](int lane) { return leading[first + lane] == x; });
        if (found) place = first + __ffs(found) - 1;
    }
    const bool is_parent = place >= 0;
    if (tests.others && !is_parent) {  // The parent that would take the place of X is no condition.
        const long long next = tests.parent_starts[y] + tests.most_of_target;
        before -= next < tests.parent_starts[y + 1] && before > 0 && leading[before - 1] == tests.parents[next];
    }
    int* const columns = reinterpret_cast<int*>(area);  // of each row
    Conditions conditions{tests, leading, before, columns, x, y, 0};
    if (!tests.leading) conditions.append_parents(y, tests.most_of_target, 0);
    conditions.append(tests.set_size, [&](int k) { return tests.sets[t * tests.set_size + k]; });
    conditions.append_parents(source, shift ? tests.most_of_lagged_source : tests.most_of_source, shift);
    const int size = conditions.size, end = size + 2, number = before - is_parent + size;
    if (before > 0 && before > tests.leading_sizes[2 * group + 1]) return number;
    if (warp_leader()) {
        columns[size] = x;
        columns[size + 1] = y;
    }
    join_lanes();

    const Columns rows{area + tests.capacity / 2, (end + PANEL - 1) / PANEL * PANEL};
    const auto correlation = [&](int c, int row) {
        return row == size && is_parent ? 0.0 : tests.correlations[columns[c] * tests.columns + columns[row]];
    };
    const double *of_x = rows.entries + size, *of_y = of_x + 1;
    long long stride = rows.length;
    if (size > 0) {
        for (int first = 0; first < end && before > 0; first += LANES) {
            each_lane(min(LANES, end - first), [&](int lane) {
                const double* row = row_of(tests, group, columns[first + lane]);
#pragma unroll 8
                for (int k = 0; k < before; ++k) rows.at(k)[first + lane] = row[k];
            });
        }
        join_lanes();
        if (factor(rows, before, size, end, tests.tolerance, correlation) < size) return number;
    } else if (before > 0) {  // The rows are used where they are.
        of_x = row_of(tests, group, tests.others ? 1 + t - tests.starts[group] : x);
        of_y = row_of(tests, group, tests.others ? 0 : y);
        stride = 1;
    }

    // What the conditions leave of the covariance and of the variances of X and Y.
    double covariance = correlation(size + 1, size), variance_x = is_parent ? 0.0 : 1.0, variance_y = 1.0;
#pragma unroll 8
    for (int k = 0; k < before + size; ++k) {
        const double in_x = of_x[k * stride], in_y = of_y[k * stride];
        covariance = fma(-in_x, in_y, covariance);
        variance_x = fma(-in_x, in_x, variance_x);
        variance_y = fma(-in_y, in_y, variance_y);
    }
    double product = variance_x * variance_y;
    bool is_large = variance_x > tests.tolerance && variance_y > tests.tolerance;
    if (is_parent) {  // `variance_x` is minus the inverse of that of X, and `variance_y` is given X, too.
        product = fma(covariance, covariance, -product);
        is_large = tests.tolerance * -variance_x < 1.0 && product > tests.tolerance * -variance_x;
        covariance = -covariance;
    }
    if (is_large) value = fmax(-1.0, fmin(1.0, covariance / sqrt(product)));
    return number;
}

// Grid (blocks), block (warps * warp_threads).
__global__ void __launch_bounds__(64, 8) partial_correlations(const __grid_constant__ LaggedTests tests) {
    double* const area = tests.scratch + first_warp() * tests.area;
    int group = 0;
    for (long long t = first_warp(); t < tests.starts[tests.groups]; t += all_warps()) {
        while (t >= tests.starts[group + 1]) ++group;
        double value;
        const int size = make(tests, group, t, area, value);
        if (warp_leader()) {
            tests.values[t] = value;
            tests.sizes[t] = size;
        }
        join_lanes();
    }
}
