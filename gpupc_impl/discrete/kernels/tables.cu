// What a search needs beside its tests: planes, and the graph between levels. Kernels whose warps have a range of rows
// each (engine/kernels/bit_graph.cuh).
#include "discrete/kernels/decide.cuh"
#include "engine/kernels/bit_graph.cuh"
#include "engine/kernels/rows.cuh"
#include "engine/kernels/tally.cuh"

// What a level counts in places that a search of this kind has no other use for: rows and ends of edges that have tests
// in the next level, tests that the host decides, and the cells of the next level's largest table. discrete/device.py:
// the same.
enum { BUSY_ROWS = SINGULAR, BUSY_ENDS = ARRIVED, UNDECIDED = TURNS, LARGEST };

// Which samples have which category, 64 samples a warp at a time. Grid (any, p), block (warps).
template <class Code>
__global__ void pack_planes(const __grid_constant__ Data<Code> data, int p, unsigned long long* planes) {
    const int warps = gridDim.x * warp_count();
    for (int x = blockIdx.y; x < p; x += gridDim.y) {
        if (data.first_plane[x] < 0) continue;
        const Code* const own = data.of(x);
        const int categories = data.categories[x];
        unsigned long long* const out = planes + static_cast<long long>(data.first_plane[x]) * data.words;
        for (int w = blockIdx.x * warp_count() + warp_index(); w < data.words; w += warps) {
            PerLane<unsigned> low, high;  // beyond the last sample: no category's
            const int there = data.n - w * 64;
            each_lane(LANES, [&](int lane) {
                low[lane] = lane < there ? own[w * 64 + lane] : ~0u;
                high[lane] = lane + LANES < there ? own[w * 64 + LANES + lane] : ~0u;
            });
            for (int v = 0; v < categories; ++v) {
                const unsigned wanted = v;
                const unsigned long long first = ballot(LANES, [&](int lane) { return low[lane] == wanted; });
                const unsigned long long second = ballot(LANES, [&](int lane) { return high[lane] == wanted; });
                if (warp_leader()) out[static_cast<long long>(v) * data.words + w] = first | second << 32;
            }
        }
    }
}

// Lists the neighbours of every row, ascending, at neighbours[i * stride], and how many there are. Grid (any), block
// (warps).
__global__ void begin_level(const __grid_constant__ BitGraphs graphs, int before, int stride, int* neighbours,
                            int* degrees) {
    const WarpRows rows(graphs.p);
    for (int i = rows.first; i < rows.last; ++i) {
        const BitRow row(graphs.graph(before), graphs.words, i);
        int* const out = neighbours + static_cast<long long>(i) * stride;
        int degree = 0;
        for (int w = 0; w < graphs.words; ++w) {
            const unsigned bits = row.bits[w];
            if (bits == 0) continue;
            each_lane(LANES, [&](int lane) {
                if (bits >> lane & 1) out[degree + __popc(bits & ~(~0u << lane))] = 32 * w + lane;
            });
            degree += __popc(bits);
        }
        if (warp_leader()) degrees[i] = degree;
    }
}

// A bound on the cells of a row's tables: its own categories and the largest counts among its neighbours, `level` and
// one of them. by_categories: the variables, those with most categories first.
__device__ unsigned long long largest_table(const BitRow& row, int p, int i, int level, const int* categories,
                                            const int* by_categories) {
    unsigned long long cells = categories[i];
    int wanted = level + 1;
    for (int k = 0; k < p && wanted > 0; k += LANES) {
        unsigned found = ballot(min(p - k, LANES), [&](int lane) { return row.has(by_categories[k + lane]); });
        for (; found != 0 && wanted > 0; found &= found - 1, --wanted) {
            const int most = categories[by_categories[k + __ffs(found) - 1]];
            cells = cells > (1ull << 62) / most ? 1ull << 62 : cells * most;
        }
    }
    int smallest = categories[i];
    for (int end = p; end > 0; end -= LANES) {
        const int start = max(end - LANES, 0);
        const unsigned found = ballot(end - start, [&](int lane) { return row.has(by_categories[start + lane]); });
        if (found == 0) continue;
        smallest = min(smallest, categories[by_categories[start + 31 - __clz(found)]]);
        break;
    }
    return cells + cells / smallest;  // the sums of the columns
}

// The edges that a level leaves, those without a key; what is left of rows, and what the next level will need. Counts
// in graphs.counters what the level did, of which `counters` has the tests and those that are left to the host, and
// starts them anew. before: a graph, or -1 for all pairs. row_cells: of the next level.
// busy_rows: those that have tests then, in any order. Grid (any), block (warps).
__global__ void finish_level(const __grid_constant__ BitGraphs graphs, const __grid_constant__ BestKeys best,
                             int before, int after, int level, unsigned long long* counters, const int* categories,
                             const int* by_categories, unsigned long long* row_cells, int* busy_rows) {
    const int p = graphs.p, words = graphs.words;
    const WarpRows rows(p);
    unsigned long long* const counted = graphs.counters_of(level);
    unsigned long long sum = 0, busy = 0, most = 0, largest = 0;
    for (int i = rows.first; i < rows.last; ++i) {
        unsigned* const is = graphs.graph(after) + static_cast<long long>(i) * words;
        int degree = 0, gone = 0;
        for (int w = 0; w < words; ++w) {
            const int there = min(max(p - 32 * w, 0), LANES);
            unsigned was = there == 0 ? 0 : lanes_through(there - 1);
            if (before >= 0) {
                was = BitRow(graphs.graph(before), words, i).bits[w];
            } else if (i / 32 == w) {
                was &= ~(1u << (i % 32));
            }
            unsigned now = 0;
            if (was != 0) {
                now = was & ballot(there, [&](int lane) { return best.keys[best.cell(i, 32 * w + lane)] == NO_KEY; });
            }
            if (warp_leader()) is[w] = now;
            degree += __popc(now);
            gone += __popc(was & ~now & above(i, w));
        }
        join_lanes();
        unsigned long long cells = 0;
        if (degree > level + 1) {
            cells = largest_table(BitRow(graphs.graph(after), words, i), p, i, level + 1, categories, by_categories);
            busy += degree;
            if (warp_leader()) busy_rows[atomicAdd(&counted[BUSY_ROWS], 1ull)] = i;
        }
        if (warp_leader()) {
            graphs.degrees[i] = degree;
            graphs.removed[i] = gone;
            row_cells[i] = cells;
        }
        sum += degree;
        most = max(most, static_cast<unsigned long long>(degree));
        largest = max(largest, cells);
    }
    if (!warp_leader()) return;
    if (rows.first == 0) {
        unsigned long long tests = 0;
        for (int stripe = 0; stripe < COUNTER_STRIPES; ++stripe) tests += counters[stripe * COUNTER_STRIDE];
        counted[TESTS] = tests;
        counted[UNDECIDED] = counters[UNDECIDED_COUNTER];
        for (int stripe = 0; stripe < COUNTER_STRIPES; ++stripe) counters[stripe * COUNTER_STRIDE] = 0;
        counters[UNDECIDED_COUNTER] = 0;
    }
    if (sum != 0) {
        atomicAdd(&counted[DEGREE_SUM], sum);
        atomicAdd(&counted[BUSY_ENDS], busy);
        atomicMax(&counted[MOST_DEGREE], most);
        atomicMax(&counted[LARGEST], largest);
    }
}

// The set of a pair that was removed: that of its key. Of a workload it may be one that nobody can test, for which the
// smallest variables stand in (DiscreteProblem.first_sets).
__device__ void removed_set(const Rows& rows, int level, int i, int j, unsigned long long key, int* set) {
    const int owner = key & SECOND_SIDE ? j : i, other = key & SECOND_SIDE ? i : j;
    const int degree = rows.degrees[owner];
    if (degree <= level) {
        for (int a = 0, k = 0; a < level; ++k) {
            if (k != i && k != j) set[a++] = k;
        }
        return;
    }
    const int* const row = rows.of(owner);
    unrank_combination(rows.binomial, degree - 1, level, key & ~SECOND_SIDE, set);
    bool passed = false;  // whether the other end has been stepped over
    for (int a = 0; a < level; ++a) {
        passed |= row[set[a]] >= other;
        set[a] = row[set[a] + passed];
    }
}

// The pairs that a level removed, ascending, with their separating sets. Grid (any), block (warps).
__global__ void list_removed(const __grid_constant__ BitGraphs graphs, const __grid_constant__ BestKeys best,
                             const __grid_constant__ Rows rows, int before, int after, int level, int* pairs,
                             int* sets) {
    each_removed(graphs, before, after, [&](int i, int j, long long slot) {
        pairs[2 * slot] = i;
        pairs[2 * slot + 1] = j;
        removed_set(rows, level, i, j, best.keys[best.cell(i, j)], sets + slot * level);
    });
}

// Keys that the host decided to be separating.
__global__ void settle(const __grid_constant__ BestKeys best, const int* pairs, const unsigned long long* keys,
                       int count) {
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < count) best.separate(pairs[2 * k], pairs[2 * k + 1], keys[k]);
}

// --- the workload of section 4.1 -----------------------------------------------------------------------------------

// How many neighbours with a larger index each variable has; all, where before is -1. Grid (any), block (warps).
__global__ void count_upper(const __grid_constant__ BitGraphs graphs, int before, int* upper) {
    const WarpRows rows(graphs.p);
    for (int i = rows.first; i < rows.last; ++i) {
        int number = graphs.p - 1 - i;
        if (before >= 0) {
            const BitRow row(graphs.graph(before), graphs.words, i);
            number = 0;
            for (int w = i / 32; w < graphs.words; ++w) number += __popc(row.bits[w] & above(i, w));
        }
        if (warp_leader()) upper[i] = number;
    }
}

// Whether a workload's rule keeps edge number k: whether k is floor(m / (1 - d)) for some m (DiscreteProblem.decayed).
__device__ __forceinline__ bool decay_keeps(long long k, double share) {
    const long long near = static_cast<long long>(static_cast<double>(k) * share);
    for (long long m = max(near - 1, 0ll); m <= near + 2; ++m) {
        if (static_cast<long long>(static_cast<double>(m) / share) == k) return true;
    }
    return false;
}

// Gives the edges that a workload's rule removes the key of the first set that would be tried for them. share: of the
// edges, that stays; upper: what count_upper found. Without rows (level 0) the key is 0. Grid (any), block (warps).
__global__ void decay(const __grid_constant__ BitGraphs graphs, const __grid_constant__ BestKeys best, int before,
                      int level, const int* upper, double share, const int* degrees) {
    const int p = graphs.p;
    const WarpRows rows(p);
    long long edge = sum_of(upper, rows.first);
    for (int i = rows.first; i < rows.last; ++i) {
        for (int w = i / 32; w < graphs.words; ++w) {
            const int there = min(max(p - 32 * w, 0), LANES);
            unsigned edges = there == 0 ? 0 : lanes_through(there - 1);
            if (before >= 0) edges = BitRow(graphs.graph(before), graphs.words, i).bits[w];
            edges &= above(i, w);
            if (edges == 0) continue;
            each_lane(LANES, [&](int lane) {
                if (!(edges >> lane & 1)) return;
                if (decay_keeps(edge + __popc(edges & ~(~0u << lane)), share)) return;
                const bool from_second = level > 0 && degrees[i] <= level && degrees[32 * w + lane] > level;
                best.separate(i, 32 * w + lane, from_second ? SECOND_SIDE : 0);
            });
            edge += __popc(edges);
        }
    }
}
