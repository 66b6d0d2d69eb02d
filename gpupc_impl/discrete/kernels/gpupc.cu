// gpuPC (sections 3.3 and 3.4): delta threads make a table together. A test counts the samples of every cell, adds up
// the terms of each stratum, and then the strata in chunks. With a thread per test, as in cuPC, each would need a
// table; a team needs only one, which fits into shared memory if it is small. Each step of a test is divided among the
// threads of its team, and ends with a barrier of the block: the counting by samples or words of planes, the statistic
// by strata or, of small tables, by cells. Additions keep one order whatever the number of threads.
#include "discrete/kernels/batches.cuh"
#include "discrete/kernels/level.cuh"
#include "discrete/kernels/pair_tables.cuh"
#include "discrete/kernels/planes.cuh"
#include "discrete/kernels/samples.cuh"
#include "discrete/kernels/sorted.cuh"

// The location of a launch's tables: shared memory, scratch space, or sorted samples in scratch space. Each of the
// three has its own kernel, so that the compiler knows the address space.
enum Where { SHARED, SCRATCH, SORTED };

// The tables that a launch makes, which are those of a range of sizes.
struct Places {
    unsigned long long above, up_to;   // the sizes in cells; tables of other sizes are made in other launches
    unsigned* scratch;                 // device memory; null for tables in shared memory
    unsigned long long scratch_cells;  // the cells of each table, also in shared memory
    int bits;                          // the number of bits of the largest cell number that is sorted
    int splits;                        // the number of blocks that share the sets of an edge, from level 1 on

    __device__ __forceinline__ bool take(const Shape& shape) const {
        const unsigned long long cells = shape.cells();
        return cells > above && cells <= up_to;
    }
};

// The ways in which a launch may make its tests. With FEW_WAYS, tables are only counted by samples, and terms are only
// added up stratum by stratum. It compiles faster, so a search begins with it. Counts and sums are the same.
enum Ways { ALL_WAYS, FEW_WAYS };

// Optional data that reduce the work of a test with a table in shared memory; zeros if there are none.
struct Shortcuts {
    const PairTables* pairs;
    bool any_completed;  // whether a table of this block is completed from the tables of its pairs
    double* terms;       // (most_terms) the team's terms of the statistic, which its threads compute in parallel
    int most_terms;
};

// Makes the test that `unit` describes (gpuPC, Algorithm 3, lines 8-35), if it describes one. All threads of the
// block must call this function. The caller needs a barrier between writing the unit and the call, and another between
// the call and the next change of the unit or the table. `bits` as in Places.
template <Where WHERE, Ways WAYS, class Code>
__device__ __forceinline__ void make_test(const DiscreteSearch& search, const Data<Code>& data,
                                          const Shortcuts& shortcuts, Unit& unit, const int* members, int level,
                                          const Team& team, unsigned* table, int bits) {
    if constexpr (WHERE == SORTED) {
        make_sorted_test(search, data, unit, members, level, team, table, bits);
        return;
    }
    const bool testing = unit.testing != 0;
    const Shape shape = unit.shape;
    const unsigned long long cells = shape.cells(), block = shape.block(), strata = shape.strata;
    constexpr bool MAY_SHORTEN = WHERE == SHARED && WAYS == ALL_WAYS;
    const bool any_completed = MAY_SHORTEN && shortcuts.any_completed;
    const bool completed = testing && any_completed && unit.completed != 0;
    double* const terms = shortcuts.terms;
    // Terms are parallel only in one chunk: with more strata every thread has a stratum anyway.
    const bool by_terms = MAY_SHORTEN && strata <= CHUNK &&
                          strata * shape.rows * shape.columns <= static_cast<unsigned>(shortcuts.most_terms);
    if (testing) {
        for (unsigned long long c = team.rank; c < cells; c += team.size) table[c] = 0;
    }
    sync_block();
    if (testing) {
        // The first condition is one of the compiler's, and two of the branches count in the same way.
        if constexpr (WAYS == FEW_WAYS) {  // NOLINT(bugprone-branch-clone)
            count_packed(data, shape, members, level, team, table);
        } else if (completed || has_planes(data.variables, shape, members, level)) {
            count_planes(data.variables, shape, members, level, team, table, completed);
        } else if (WHERE == SHARED && team.size > 1) {
            count_packed(data, shape, members, level, team, table);
        } else if constexpr (WHERE == SHARED) {
            count_rows<unsigned>(data, shape, members, level, team, table);
        } else {
            count_samples(data, shape, members, level, team, table);
        }
    }
    sync_block();
    if (any_completed) complete(*shortcuts.pairs, shape, members, completed, team, table, [] { sync_block(); });
    if (MAY_SHORTEN && shortcuts.most_terms != 0) {
        if (testing && by_terms) sum_columns(shape, team, table);
        sync_block();
    }
    unsigned long long df = 0;
    if (testing && by_terms) {
        compute_terms(search.rules, shape, team, table, terms);
    } else if (testing) {
        for (unsigned long long s = team.rank; s < strata; s += team.size) {
            unsigned* const counts = table + s * block;
            store_part(counts, stratum_statistic(search.rules, shape.rows, shape.columns, counts, df));
        }
        if (df != 0) atomicAdd(&unit.df, df);
    }
    sync_block();
    if (testing && by_terms) {
        sum_terms(search.rules, shape, team, table, terms, df);
        if (df != 0) atomicAdd(&unit.df, df);
    } else if (testing) {
        for (unsigned long long first = team.rank * CHUNK; first < strata; first += team.size * CHUNK) {
            double sum = 0.0;
            for (unsigned long long s = first; s < min(first + CHUNK, strata); ++s) sum += load_part(table + s * block);
            store_part(table + first * block, sum);
        }
    }
    sync_block();
    if (testing && team.rank == 0) {
        double sum = 0.0;
        if (by_terms) {
            const int stratum_terms = shape.rows * shape.columns;
            for (int s = 0; s < static_cast<int>(strata); ++s) sum += terms[s * stratum_terms];
        } else {
            for (unsigned long long first = 0; first < strata; first += CHUNK) sum += load_part(table + first * block);
        }
        search.decide(shape, sum, unit.df, unit.key);
    }
}

// Level 0 (gpuPC, Algorithm 2), but for the pairs that products.cu tests: those whose variables have planes and whose
// tables have up to `product_cells` cells. A block makes the test of pair (i, j) for each j = blockIdx.x + k gridDim.x
// and i likewise. Grid (up to p, up to p), block (delta).
template <class Code, Where WHERE>
__global__ void __launch_bounds__(MAX_THREADS, 1)
    gpupc_level_zero(const __grid_constant__ Data<Code> data, const __grid_constant__ DiscreteSearch search,
                     const __grid_constant__ Places places, unsigned product_cells) {
    GPUPC_DYNAMIC_SHARED(Unit, unit);
    const Team team{static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x)};
    const unsigned long long slot = static_cast<unsigned long long>(blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned* table = reinterpret_cast<unsigned*>(unit + 1);
    if constexpr (WHERE != SHARED) table = places.scratch + slot * places.scratch_cells;
    const int p = search.best.p;
    for (int i = blockIdx.y; i < p; i += gridDim.y) {
        for (int j = blockIdx.x; j < p; j += gridDim.x) {
            if (j <= i) continue;
            Shape shape;
            shape.set(data.variables.categories, i, j, nullptr, 0);
            const bool small =
                static_cast<unsigned>(shape.rows) * static_cast<unsigned>(shape.columns) <= product_cells;
            if (!places.take(shape) || (small && all_have_planes(data.variables, shape, nullptr, 0))) continue;
            if (team.rank == 0) *unit = Unit{shape, 0, 0, 1, 0};
            sync_block();
            make_test<WHERE, ALL_WAYS>(search, data, Shortcuts{}, *unit, nullptr, 0, team, table, places.bits);
            sync_block();
        }
    }
}

// Levels from 1 on (gpuPC, Algorithm 3). A block works on beta edges of one of the `busy` rows that have tests, with
// gamma tests of each at a time and delta threads a table; its threads choose the next tests together. Blocks start in
// the order of their numbers, so those with the first sets of all edges come first, and later ones find edges settled.
// Grid (ceil(busy / z), ceil(n' / beta) * splits), block (delta, gamma, beta).
template <class Code, Where WHERE, Ways WAYS>
__global__ void __launch_bounds__(MAX_THREADS, 1)
    gpupc_level(const __grid_constant__ Data<Code> data, const __grid_constant__ DiscreteSearch search,
                const __grid_constant__ Level level, const __grid_constant__ Places places,
                const __grid_constant__ PairTables pairs, const __grid_constant__ Batches batches,
                const unsigned long long* row_cells, const int* busy_rows, int busy, bool use_shared, int most_terms) {
    GPUPC_DYNAMIC_SHARED(Unit, units);
    const Rows& rows = level.rows;
    const int size = level.level;
    const int gamma = blockDim.y, beta = blockDim.z, here = gamma * beta, number = threadIdx.z * gamma + threadIdx.y;
    const Team team{static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x)};
    Unit& unit = units[number];
    double* const all_terms = reinterpret_cast<double*>(units + here);
    Shortcuts shortcuts{&pairs, false, all_terms + number * most_terms, most_terms};
    static_assert(WAYS == ALL_WAYS || WHERE == SHARED, "tables are counted in pairs of 16 bits");
    const bool from_pairs = WHERE == SHARED && WAYS == ALL_WAYS && size == 1 && pairs.counts != nullptr;
    int* const all_members = reinterpret_cast<int*>(all_terms + here * most_terms);
    int* const members = all_members + number * size;
    int* const shared_row = all_members + here * size;
    unsigned* const shared_tables = reinterpret_cast<unsigned*>(shared_row + (use_shared ? rows.stride : 0));
    const unsigned long long block_slot = static_cast<unsigned long long>(blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned* table = shared_tables + number * places.scratch_cells;
    if constexpr (WHERE != SHARED) table = places.scratch + (block_slot * here + number) * places.scratch_cells;
    const int columns = gridDim.y / places.splits, split = blockIdx.y / columns;
    const long long own = static_cast<long long>(blockIdx.y % columns) * beta;
    const long long step = static_cast<long long>(columns) * beta;
    Tally tally;
    for (int row = blockIdx.x; row < busy; row += gridDim.x) {
        const int i = busy_rows[row], degree = rows.degrees[i];
        if (degree <= size || own >= degree) continue;
        if (row_cells[i] <= places.above) continue;
        const int* neighbours = rows.of(i);
        if (use_shared) {
            const int thread = number * team.size + team.rank;
            for (int q = thread; q < degree; q += here * team.size) shared_row[q] = neighbours[q];
            neighbours = shared_row;
            sync_block();
        }
        for (long long first = own; first < degree; first += step) {
            const long long position = first + threadIdx.z;
            unsigned long long t = static_cast<unsigned long long>(split) * gamma + threadIdx.y, sets = 0;
            int j = 0;
            if (team.rank == 0 && position < degree) {
                j = neighbours[position];
                sets = level.sets_to_try(i, j);
            }
            for (;;) {
                if (team.rank == 0) {  // The threads of the block choose the next tests.
                    unit.testing = 0;
                    for (; t < sets && unit.testing == 0; t += static_cast<unsigned long long>(places.splits) * gamma) {
                        const unsigned long long key = set_key(i, j, t);
                        if (search.settled(i, j, key)) {
                            t = sets;  // Later keys are larger still.
                            break;
                        }
                        level.set_members(neighbours, degree, position, t, members);
                        Shape shape;
                        shape.set(data.variables.categories, i, j, members, size);
                        if (!places.take(shape) || batches.take(data.variables, shape, members, size)) continue;
                        const bool completed = from_pairs && completes(pairs, shape, members[0]);
                        unit = Unit{shape, key, 0, 1, completed};
                        ++tally.tests;
                    }
                }
                const int more = team.rank == 0 && unit.testing != 0;
                if (!(single_thread() ? more : __syncthreads_or(more))) break;
                shortcuts.any_completed = false;
#pragma unroll 1
                for (int u = 0; from_pairs && u < here; ++u) {
                    shortcuts.any_completed =
                        shortcuts.any_completed || (units[u].testing != 0 && units[u].completed != 0);
                }
                make_test<WHERE, WAYS>(search, data, shortcuts, unit, members, size, team, table, places.bits);
                sync_block();
            }
        }
        sync_block();
    }
    tally.add_to(level.counters);
}
