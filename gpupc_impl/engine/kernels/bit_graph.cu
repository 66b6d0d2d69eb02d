// Graphs of bits between levels. Each warp has a range of rows of its own.
#include "engine/kernels/bit_graph.cuh"

// Grid (any), block (warps).
__global__ void count_rows(const BitGraphs graphs, int before, int after, int level) {
    count_left(graphs, before, after, level);
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
