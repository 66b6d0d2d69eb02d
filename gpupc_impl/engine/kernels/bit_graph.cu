// Graphs of bits between levels. Each warp has a range of rows of its own.
#include "engine/kernels/bit_graph.cuh"

// Grid (any), block (warps).
__global__ void count_rows(const BitGraphs graphs, int before, int after, int level) {
    count_left(graphs, before, after, level);
}

// The adjacency matrix, a byte an entry. Grid (any), block (warps).
__global__ void expand(const BitGraphs graphs, int graph, unsigned char* adjacency) {
    write_entries(graphs, graph, adjacency);
}
