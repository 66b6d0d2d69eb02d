// pair-scan, several levels in one cooperative launch, for small problems, where launches take longer than the work.
// The thread blocks of the launch wait for each other between the steps of a level. The steps, tests and lists of a
// level are those of the kernels of one level (prefix_level.cuh, side_scan.cuh), in the same order. If the launch has
// no memory for a level, it ends, and the host continues with launches of single levels.
#include "engine/kernels/grid_barrier.cuh"
#include "engine/kernels/separating_sets.cuh"
#include "gaussian/kernels/prefix_level.cuh"

// The number of graphs that a search keeps: one before a level, one after it, and one between its sides.
constexpr int GRAPHS_AT_ONCE = 3;

// The steps before and after a level's tests: see prepare, count_left and list_sets. These functions are not inlined,
// since all levels share them: inlined for each level, they would take a quarter of the time of compilation.
__device__ __noinline__ void prepare_level(const PairScan& s, int level, int graph, int copy, int other_copy, int run) {
    prepare(s, level, graph, copy, other_copy, run);
}

__device__ __noinline__ void count_level(const PairScan& s, int level, int before, int after) {
    count_left(s.graphs, before, after, level);
}

__device__ __noinline__ void list_level(const PairScan& s, int level, int before, int after, int* pairs, int* sets) {
    list_sets(s, level, before, after, pairs, sets);
}

// The state of the search between two levels, the same in all threads.
struct LevelCursor {
    GridBarrier barrier;
    int graph;                 // the number of the graph with which the next level starts
    unsigned long long edges;  // the number of edges of that graph
    int most_degree;           // the largest degree in that graph
    int *pairs, *sets;         // where the next level writes its removed pairs and their sets
    int ended;                 // the last level that was run

    // Counts what level L left, lists what it removed by list(before, after, pairs, sets), and advances to the next.
    template <int L, class F>
    __device__ __forceinline__ void end_level(const PairScan& s, F list) {
        const int left = (graph + 1) % GRAPHS_AT_ONCE;
        count_level(s, L, graph, left);
        barrier.wait();
        unsigned long long* const counters = s.graphs.counters_of(L);
        const unsigned long long kept = load_relaxed(&counters[DEGREE_SUM]) / 2, removed = edges - kept;
        if (removed != 0) {
            list(graph, left, pairs, sets);
            barrier.wait();  // The next level overwrites the data from which the list is made.
        }
        graph = left;
        edges = kept;
        most_degree = static_cast<int>(load_relaxed(&counters[MOST_DEGREE]));
        pairs += 2 * removed;
        sets += L * removed;
        ended = L;
        if (blockIdx.x == 0 && threadIdx.x == 0) counters[ENDED] = nanoseconds();
    }
};

// Runs level L, unless no row is long enough for its sets or memory does not suffice; returns whether it ran.
template <int L>
__device__ __forceinline__ bool run_level(const PairScan& s, LevelCursor& at, double critical_r_squared,
                                          long long shared_cells) {
    GPUPC_DYNAMIC_SHARED(double, shared);
    const int longest = at.most_degree;
    const long long of_warp = cells_of_warp(Exactly<L>(L), longest);
    // These are the rules of core/pc_stable.py, stop_reason, and limits of binomials, of ranks and of shared memory.
    if (longest - 1 < L || longest > s.widest || Binomials{s.binomials, s.widest}(longest, L) >= MOST_SETS ||
        of_warp > shared_cells) {
        return false;
    }
    const int start = at.graph, left = (start + 1) % GRAPHS_AT_ONCE, middle = (start + 2) % GRAPHS_AT_ONCE;
    // If there are few tests, a level takes as long as its longest run, so runs are short.
    const int run = min(run_of(L), 4);
    prepare_level(s, L, start, left, middle, run);
    at.barrier.wait();
#pragma unroll 1
    for (int side = 0; side < 2; ++side) {
        if ((warp_index() + 1) * of_warp <= shared_cells) {
            double* const cells = shared + warp_index() * of_warp;
            scan_side<false>(s, Exactly<L>(L), critical_r_squared, middle, left, side, run, longest, cells);
        }
        at.barrier.wait();
    }
    at.end_level<L>(
        s, [&](int before, int after, int* pairs, int* sets) { list_level(s, L, before, after, pairs, sets); });
    return true;
}

// Runs levels `first` to `last`, until one does not run; the recursion goes through all levels L up to LAST.
template <int L, int LAST>
__device__ __forceinline__ void run_levels(const PairScan& s, LevelCursor& at, int first, int last,
                                           const double* critical, long long shared_cells) {
    if constexpr (L <= LAST) {
        if (L > last) return;
        if (L < first || run_level<L>(s, at, critical[L - 2], shared_cells)) {
            run_levels<L + 1, LAST>(s, at, first, last, critical, shared_cells);
        }
    }
}

// The result of a search that ends with this launch.
struct ScanResult {
    unsigned char* entries;  // the adjacency matrix; see write_entries
    int* pairs;              // see merge_lists for this field and those below
    long long* offsets;
    unsigned char* sizes;
    int* members;
};

// Writes the result of a launch that ran levels 1 to `ended`, by merging the lists of these levels.
__device__ __forceinline__ void write_result(const PairScan& s, int graph, int ended, const int* pairs, const int* sets,
                                             const ScanResult& result) {
    SetList lists[LISTS] = {};
#pragma unroll
    for (int L = 1; L <= LISTS; ++L) {
        if (L > ended) continue;
        const unsigned long long before = load_relaxed(&s.graphs.counters_of(L - 1)[DEGREE_SUM]);
        const unsigned long long removed = (before - load_relaxed(&s.graphs.counters_of(L)[DEGREE_SUM])) / 2;
        lists[L - 1] = {pairs, nullptr, sets, static_cast<long long>(removed), L};
        pairs += 2 * removed;
        sets += L * removed;
    }
    write_entries(s.graphs, graph, result.entries);
    merge_lists(lists, result.pairs, result.offsets, result.sizes, result.members);
}

// Estimates the number of tests of level 2 from the edges that level 1 left: a sixteenth of the tests if all variables
// had the mean degree and no edge were removed. gaussian/fused_levels.py, tests_before, makes the same estimate.
__device__ __forceinline__ double tests_expected(unsigned long long edges, int p) {
    const double degree = 2.0 * static_cast<double>(edges) / p;
    return static_cast<double>(edges) * degree * degree / 16;
}

// Runs levels `first` to `last`, within FIRST to LAST. `graph` is the number of the graph before level `first`, and
// critical[L - 2] is the critical r^2 of level L. If `first` is 1, pair_scan_one has made the tests of level 1. Each
// level that is run writes its counters, and appends its list (see list_sets) to the lists of the levels before. The
// counter ENDED of the level before `first` receives the time at which this launch begins; if `first` is 1, it has the
// time at which pair_scan_one began. A level whose rows are too long for the shared memory or the table of binomials is
// not run, nor are the levels after it. If `first` is 1, levels from 2 on are run only if level 1 leaves at most
// `most_edges` edges and at most `most_tests` tests of level 2 are expected, and the launch writes `result` after its
// last level. Cooperative launch: grid (any), block (warps), dynamic shared memory: `shared_bytes`.
template <int FIRST, int LAST>
__global__ void __launch_bounds__(128, 4)
    fused_levels(const __grid_constant__ PairScan s, const double* critical, int graph, int first, int last,
                 long long shared_bytes, long long most_edges, double most_tests, int* pairs, int* sets,
                 const ScanResult result) {
    unsigned long long* const before = s.graphs.counters_of(first - 1);
    if (first > 1 && blockIdx.x == 0 && threadIdx.x == 0) before[ENDED] = nanoseconds();
    LevelCursor at{{&s.graphs.counters_of(first)[ARRIVED]},
                   graph,
                   before[DEGREE_SUM] / 2,
                   static_cast<int>(before[MOST_DEGREE]),
                   pairs,
                   sets,
                   first - 1};
    if constexpr (FIRST == 1) {
        if (first == 1) {
            at.end_level<1>(s, [&](int start, int left, int* listed, int* members) {
                list_members(s, start, left, listed, members);
            });
            const bool few = at.edges <= static_cast<unsigned long long>(most_edges) &&
                             tests_expected(at.edges, s.graphs.p) <= most_tests;
            if (!few) last = 1;
        }
    }
    run_levels<(FIRST > 2 ? FIRST : 2), LAST>(s, at, first, last, critical,
                                              shared_bytes / static_cast<long long>(sizeof(double)));
    if constexpr (FIRST == 1) {
        static_assert(LAST <= LISTS);
        if (first == 1) write_result(s, at.graph, at.ended, pairs, sets, result);
    }
}
