// The graph between levels: its rows, what a level leaves, and the pairs that it removed. In every kernel a warp has a
// range of consecutive rows (engine/kernels/bit_graph.cuh): grid (any), block (warps).
#include "engine/kernels/bit_graph.cuh"
#include "engine/kernels/keys.cuh"
#include "engine/kernels/rows.cuh"
#include "engine/kernels/tally.cuh"

// Indexes of counters with a special meaning here: the rows and ends of edges that have tests in the next level, and
// the cells of the next level's largest table.
enum { BUSY_ROWS = SINGULAR, BUSY_ENDS = ARRIVED, LARGEST = TURNS };

// Lists the neighbours of every row i, ascending, from neighbours[i * stride] on, and writes their number.
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

// An upper bound on the cells of row i's tables, with the sums of their columns. The bound is the product c of |Vi| and
// the level + 1 largest numbers of categories among its neighbours, plus c divided by the smallest number of categories
// of Vi and its neighbours. `by_categories`: the variables by descending number of categories.
__device__ unsigned long long largest_table(const BitRow& row, int p, int i, int level, const int* categories,
                                            const int* by_categories) {
    unsigned long long cells = categories[i];
    int wanted = level + 1;
    for (int k = 0; k < p && wanted > 0; k += LANES) {
        unsigned neighbours = ballot(min(p - k, LANES), [&](int lane) { return row.has(by_categories[k + lane]); });
        for (; neighbours != 0 && wanted > 0; neighbours &= neighbours - 1, --wanted) {
            const int most = categories[by_categories[k + __ffs(neighbours) - 1]];
            cells = cells > (1ull << 62) / most ? 1ull << 62 : cells * most;
        }
    }
    int smallest = categories[i];
    for (int end = p; end > 0; end -= LANES) {
        const int start = max(end - LANES, 0);
        const unsigned neighbours = ballot(end - start, [&](int lane) { return row.has(by_categories[start + lane]); });
        if (neighbours == 0) continue;
        smallest = min(smallest, categories[by_categories[start + 31 - __clz(neighbours)]]);
        break;
    }
    return cells + cells / smallest;
}

// Makes the graph `after` of the edges of graph `before` (-1: all pairs) that have no key, and what the next level
// needs: row_cells, upper bounds on the cells of each row's tables, and busy_rows, the rows that have tests, in any
// order. Writes the level's sums to its row of graphs.counters. `counters` has its tests' numbers, and is reset.
__global__ void finish_level(const __grid_constant__ BitGraphs graphs, const __grid_constant__ BestKeys best,
                             int before, int after, int level, unsigned long long* counters, const int* categories,
                             const int* by_categories, unsigned long long* row_cells, int* busy_rows) {
    const int p = graphs.p, words = graphs.words;
    const WarpRows rows(p);
    unsigned long long* const counted = graphs.counters_of(level);
    unsigned long long sum = 0, busy = 0, most = 0, largest = 0;
    for (int i = rows.first; i < rows.last; ++i) {
        unsigned* const bits_left = graphs.graph(after) + static_cast<long long>(i) * words;
        int degree = 0, removed = 0;
        for (int w = 0; w < words; ++w) {
            const int there = min(max(p - 32 * w, 0), LANES);
            unsigned edges = there == 0 ? 0 : lanes_through(there - 1);
            if (before >= 0) {
                edges = BitRow(graphs.graph(before), words, i).bits[w];
            } else if (i / 32 == w) {
                edges &= ~(1u << (i % 32));
            }
            unsigned left = 0;
            if (edges != 0) {
                left =
                    edges & ballot(there, [&](int lane) { return best.keys[best.cell(i, 32 * w + lane)] == NO_KEY; });
            }
            if (warp_leader()) bits_left[w] = left;
            degree += __popc(left);
            removed += __popc(edges & ~left & above(i, w));
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
            graphs.removed[i] = removed;
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
        for (int stripe = 0; stripe < COUNTER_STRIPES; ++stripe) counters[stripe * COUNTER_STRIDE] = 0;
    }
    if (sum != 0) {
        atomicAdd(&counted[DEGREE_SUM], sum);
        atomicAdd(&counted[BUSY_ENDS], busy);
        atomicMax(&counted[MOST_DEGREE], most);
        atomicMax(&counted[LARGEST], largest);
    }
}

// Writes the separating set of a removed pair, which its key identifies. In a workload neither end may have enough
// neighbours for a set; then the set consists of the variables with the smallest indexes.
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
    bool passed = false;  // whether the position of the edge's other end was passed in the row
    for (int a = 0; a < level; ++a) {
        passed |= row[set[a]] >= other;
        set[a] = row[set[a] + passed];
    }
}

// Lists the pairs that a level removed, ascending, with their separating sets.
__global__ void list_removed(const __grid_constant__ BitGraphs graphs, const __grid_constant__ BestKeys best,
                             const __grid_constant__ Rows rows, int before, int after, int level, int* pairs,
                             int* sets) {
    each_removed(graphs, before, after, [&](int i, int j, long long slot) {
        pairs[2 * slot] = i;
        pairs[2 * slot + 1] = j;
        removed_set(rows, level, i, j, best.keys[best.cell(i, j)], sets + slot * level);
    });
}

// --- the workload of gpuPC, section 4.1 ----------------------------------------------------------------------------
// Counts the neighbours with a larger index of each variable in graph `before` (-1: all pairs).
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

// Returns whether a workload's rule keeps edge number k: whether k = floor(m / share) for an integer m, where share = 1
// - decay is the fraction of edges that stay (DiscreteProblem.decayed).
__device__ __forceinline__ bool decay_keeps(long long k, double share) {
    const long long near = static_cast<long long>(static_cast<double>(k) * share);
    for (long long m = max(near - 1, 0ll); m <= near + 2; ++m) {
        if (static_cast<long long>(static_cast<double>(m) / share) == k) return true;
    }
    return false;
}

// Gives each edge that a workload's rule removes the key of the first set that would be tested for it; at level 0,
// without `degrees`, the key 0. `share`: the fraction of edges that stay; `upper`: the result of count_upper.
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
