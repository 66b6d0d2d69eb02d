// Graphs of p variables as matrices of bits: row i of one begins at word i * words, variable j is bit j % 32 of its
// word j / 32. `words` is a multiple of 4; the bits from p on are zero.
#pragma once

#include "engine/kernels/warp.cuh"

// What a level counts; engine/bit_graph.py: the same. TURNS: runs of prefixes handed out so far, of either side, where
// a search hands out any. ENDED: when the level did, by the device's clock, and ARRIVED: GridBarrier's, of a launch of
// several levels, at the first of them.
enum { TESTS, UNDEFINED, SINGULAR, DEGREE_SUM, MOST_DEGREE, ENDED, ARRIVED, TURNS, COUNTERS = TURNS + 2 };

struct BitRow {
    const unsigned* bits;

    __device__ __forceinline__ BitRow(const unsigned* graph, int words, int i)
        : bits(graph + static_cast<long long>(i) * words) {}
    __device__ __forceinline__ bool has(int j) const { return bits[j / 32] >> (j % 32) & 1; }
};

// The graphs of a search; engine/bit_graph.py, GRAPHS, declares the same.
struct BitGraphs {
    unsigned* bits;  // of all graphs, one after the other
    int p;
    int words;
    int* degrees;                  // after a level
    int* removed;                  // of each row, the pairs with a larger variable that went in it
    unsigned long long* counters;  // COUNTERS of each level

    __device__ __forceinline__ unsigned* graph(int number) const {
        return bits + static_cast<long long>(number) * p * words;
    }
    __device__ __forceinline__ unsigned long long* counters_of(int level) const { return counters + COUNTERS * level; }
};

// Of a word, the bits of variables above i.
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

// The rows that a warp of the grid has to itself.
struct WarpRows {
    int first, last;

    __device__ explicit WarpRows(int p) {
        const int warps = gridDim.x * warp_count(), width = (p + warps - 1) / warps;
        first = min((static_cast<int>(blockIdx.x) * warp_count() + warp_index()) * width, p);
        last = min(first + width, p);
    }
};

// values[0] + ... + values[n - 1]
__device__ __forceinline__ long long sum_of(const int* values, int n) {
    PerLane<long long> sums;
    each_lane(LANES, [&](int lane) { sums[lane] = 0; });
#pragma unroll 8
    for (int k = 0; k < n; k += LANES) {
        each_lane(min(n - k, LANES), [&](int lane) { sums[lane] += values[k + lane]; });
    }
    return sum_of_lanes(sums);
}

// What follows a level: degrees, their sum and maximum, and the pairs that went.
__device__ __forceinline__ void count_left(const BitGraphs& graphs, int before, int after, int level) {
    const int words = graphs.words;
    const WarpRows rows(graphs.p);
    unsigned long long sum = 0, most = 0;
    for (int i = rows.first; i < rows.last; ++i) {
        const BitRow was(graphs.graph(before), words, i), is(graphs.graph(after), words, i);
        PerLane<int> left, gone;
        each_lane(LANES, [&](int lane) { left[lane] = gone[lane] = 0; });
        for (int w = 0; w < words; w += LANES) {
            each_lane(min(words - w, LANES), [&](int lane) {
                const unsigned now = is.bits[w + lane];
                left[lane] += __popc(now);
                gone[lane] += __popc(was.bits[w + lane] & ~now & above(i, w + lane));
            });
        }
        const int degree = sums_before(left), pairs = sums_before(gone);
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

// The adjacency matrix, a byte an entry.
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

// Calls f(i, j, slot) for every pair i < j of the warp's rows that a level removed; slots ascend with the pairs.
template <class F>
__device__ __forceinline__ void each_removed(const BitGraphs& graphs, int before, int after, F f) {
    const WarpRows rows(graphs.p);
    long long slot = sum_of(graphs.removed, rows.first);
    for (int i = rows.first; i < rows.last; ++i) {
        const BitRow was(graphs.graph(before), graphs.words, i), is(graphs.graph(after), graphs.words, i);
        for (int first = i / 32; first < graphs.words; first += LANES) {
            PerLane<unsigned> went;
            unsigned any = ballot(LANES, [&](int lane) {
                const int w = first + lane;
                went[lane] = w < graphs.words ? was.bits[w] & ~is.bits[w] & above(i, w) : 0;
                return went[lane] != 0;
            });
            for (; any != 0; any &= any - 1) {
                const int word = __ffs(any) - 1;
                const unsigned removed = of_lane(went, word);
                each_lane(LANES, [&](int lane) {
                    if (!(removed >> lane & 1)) return;
                    f(i, 32 * (first + word) + lane, slot + __popc(removed & ~(~0u << lane)));
                });
                slot += __popc(removed);
            }
        }
    }
}
