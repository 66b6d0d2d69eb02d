// Graphs of p variables as matrices of bits. Row i of a graph begins at word i * words, and variable j is bit j % 32 of
// word j / 32 of the row. `words` is a multiple of 4; the bits from p on are zero.
#pragma once

#include "engine/kernels/warp.cuh"

// The counters of a level. Fused levels also set ENDED, the time in nanoseconds at which the level ended; the first of
// them uses ARRIVED, the counter of their GridBarrier. TURNS and the next counter are the numbers of prefix runs that
// pair-scan has assigned to warps on either side.
enum { TESTS, UNDEFINED, SINGULAR, DEGREE_SUM, MOST_DEGREE, ENDED, ARRIVED, TURNS, COUNTERS = TURNS + 2 };

// Row i of a graph.
struct BitRow {
    const unsigned* bits;

    __device__ __forceinline__ BitRow(const unsigned* graph, int words, int i)
        : bits(graph + static_cast<long long>(i) * words) {}
    __device__ __forceinline__ bool has(int j) const { return bits[j / 32] >> (j % 32) & 1; }
};

// The graphs of a search.
struct BitGraphs {
    unsigned* bits;  // all graphs, one after the other
    int p;
    int words;
    int* degrees;                  // the degree of each variable after a level
    int* removed;                  // for each row, the number of pairs with a larger variable that the level removed
    unsigned long long* counters;  // COUNTERS values for each level

    __device__ __forceinline__ unsigned* graph(int number) const {
        return bits + static_cast<long long>(number) * p * words;
    }
    __device__ __forceinline__ unsigned long long* counters_of(int level) const { return counters + COUNTERS * level; }
};

// Returns the bits of a row's word that stand for variables above i.
__device__ __forceinline__ unsigned above(int i, int word) {
    const int first = word * 32;
    if (first > i) return ~0u;
    return i - first >= 31 ? 0u : ~0u << (i - first + 1);
}

__device__ __forceinline__ void set_edge(unsigned* graph, int words, int i, int j) {
    atomicOr(&graph[static_cast<long long>(i) * words + j / 32], 1u << (j % 32));
    atomicOr(&graph[static_cast<long long>(j) * words + i / 32], 1u << (i % 32));
}

__device__ __forceinline__ void clear_edge(unsigned* graph, int words, int i, int j) {
    atomicAnd(&graph[static_cast<long long>(i) * words + j / 32], ~(1u << (j % 32)));
    atomicAnd(&graph[static_cast<long long>(j) * words + i / 32], ~(1u << (i % 32)));
}

// Sets the range [first, last) of rows that one warp of the grid processes.
struct WarpRows {
    int first, last;

    __device__ explicit WarpRows(int p) {
        const int warps = gridDim.x * warp_count(), width = (p + warps - 1) / warps;
        first = min((static_cast<int>(blockIdx.x) * warp_count() + warp_index()) * width, p);
        last = min(first + width, p);
    }
};

// Returns the sum of values[0] to values[n - 1], in all lanes.
__device__ __forceinline__ long long sum_of(const int* values, int n) {
    PerLane<long long> sums;
    each_lane(LANES, [&](int lane) { sums[lane] = 0; });
#pragma unroll 8
    for (int k = 0; k < n; k += LANES) {
        each_lane(min(n - k, LANES), [&](int lane) { sums[lane] += values[k + lane]; });
    }
    return sum_of_lanes(sums);
}

// Counts what a level left and removed: the degrees, their sum and maximum, and the removed pairs of each row.
__device__ __forceinline__ void count_left(const BitGraphs& graphs, int before, int after, int level) {
    const int words = graphs.words;
    const WarpRows rows(graphs.p);
    unsigned long long sum = 0, most = 0;
    for (int i = rows.first; i < rows.last; ++i) {
        const BitRow was(graphs.graph(before), words, i), is(graphs.graph(after), words, i);
        PerLane<int> left, removed;
        each_lane(LANES, [&](int lane) { left[lane] = removed[lane] = 0; });
        for (int w = 0; w < words; w += LANES) {
            each_lane(min(words - w, LANES), [&](int lane) {
                const unsigned now = is.bits[w + lane];
                left[lane] += __popc(now);
                removed[lane] += __popc(was.bits[w + lane] & ~now & above(i, w + lane));
            });
        }
        const int degree = sums_before(left), pairs = sums_before(removed);
        if (warp_leader()) {
            graphs.degrees[i] = degree;
            graphs.removed[i] = pairs;
        }
        sum += degree;
        most = max(most, static_cast<unsigned long long>(degree));
    }
    if (warp_leader() && sum != 0) {
        atomicAdd(&graphs.counters_of(level)[DEGREE_SUM], sum);
        atomicMax(&graphs.counters_of(level)[MOST_DEGREE], most);
    }
}

// Writes the adjacency matrix, one byte for each entry.
__device__ __forceinline__ void write_entries(const BitGraphs& graphs, int graph, unsigned char* adjacency) {
    const int p = graphs.p;
    const WarpRows rows(p);
    for (int i = rows.first; i < rows.last; ++i) {
        const BitRow row(graphs.graph(graph), graphs.words, i);
        unsigned char* out = adjacency + static_cast<long long>(i) * p;
        for (int first = 0; first < graphs.words; first += LANES) {
            PerLane<unsigned> words;
            each_lane(min(graphs.words - first, LANES), [&](int lane) { words[lane] = row.bits[first + lane]; });
            for (int w = first; w < min(graphs.words, first + LANES) && 32 * w < p; ++w) {
                const unsigned word = of_lane(words, w - first);
                each_lane(min(p - 32 * w, LANES), [&](int lane) { out[32 * w + lane] = word >> lane & 1; });
            }
        }
    }
}

// Calls f(i, j, slot) for every pair i < j that a level removed; `slot` is its number in the ascending order of pairs.
template <class F>
__device__ __forceinline__ void each_removed(const BitGraphs& graphs, int before, int after, F f) {
    const WarpRows rows(graphs.p);
    long long slot = sum_of(graphs.removed, rows.first);
    for (int i = rows.first; i < rows.last; ++i) {
        const BitRow was(graphs.graph(before), graphs.words, i), is(graphs.graph(after), graphs.words, i);
        for (int first = i / 32; first < graphs.words; first += LANES) {
            PerLane<unsigned> removed_bits;
            unsigned any = ballot(LANES, [&](int lane) {
                const int w = first + lane;
                removed_bits[lane] = w < graphs.words ? was.bits[w] & ~is.bits[w] & above(i, w) : 0;
                return removed_bits[lane] != 0;
            });
            for (; any != 0; any &= any - 1) {
                const int word = __ffs(any) - 1;
                const unsigned removed = of_lane(removed_bits, word);
                each_lane(LANES, [&](int lane) {
                    if (!(removed >> lane & 1)) return;
                    f(i, 32 * (first + word) + lane, slot + __popc(removed & ~(~0u << lane)));
                });
                slot += __popc(removed);
            }
        }
    }
}
