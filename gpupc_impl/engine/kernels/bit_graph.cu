// Kernels that count and write graphs between levels. Each warp processes a range of rows of its own.
#include "engine/kernels/bit_graph.cuh"

// See count_left. Grid (any), block (warps).
__global__ void count_rows(const BitGraphs graphs, int before, int after, int level) {
    count_left(graphs, before, after, level);
}

// See write_entries. Grid (any), block (warps).
__global__ void expand(const BitGraphs graphs, int graph, unsigned char* adjacency) {
    write_entries(graphs, graph, adjacency);
}
