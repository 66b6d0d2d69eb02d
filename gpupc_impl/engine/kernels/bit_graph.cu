// Graphs of bits between levels. Each warp has a range of rows of its own.
#include "engine/kernels/bit_graph.cuh"

// What follows a level: degrees, their sum and maximum, and the pairs that went. Grid (any), block (warps).
__global__ void count_rows(const BitGraphs graphs, int before, int after, int level) {
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

// The adjacency matrix, a byte an entry. Grid (any), block (warps).
__global__ void expand(const BitGraphs graphs, int graph, unsigned char* adjacency) {
    const int p = graphs.p;
    const WarpRows rows(p);
    for (int i = rows.first; i < rows.last; ++i) {
        const BitRow row(graphs.graph(graph), graphs.words, i);
        unsigned char* out = adjacency + static_cast<long long>(i) * p;
        for (int j = 0; j < p; j += LANES) {
            const unsigned word = row.bits[j / 32];
            each_lane(min(p - j, LANES), [&](int lane) { out[j + lane] = word >> lane & 1; });
        }
    }
}
