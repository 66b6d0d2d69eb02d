// Blocks of pairs I x J of method `distributed`: level 0 of whole rows, and what is kept of a block after level 1,
// whose scan is that of out_of_core/kernels/panels.cu. Rows of bits are as in engine/kernels/bit_graph.cuh.
#include "engine/kernels/bit_graph.cuh"

constexpr unsigned NO_MEMBER = ~0u;

// Level 0 of the variables `first` to `first` + count - 1, whose correlations with all p are `rows`: the graph's rows.
// Background knowledge, both or none: rows of the edges that stay and of those that are none. Grid (any), block
// (warps).
__global__ void decide_rows(const double* rows, int count, int first, int p, int words, double critical_r_squared,
                            const unsigned* required, const unsigned* forbidden, unsigned* near, int* degrees) {
    const WarpRows own(count);
    for (int r = own.first; r < own.last; ++r) {
        const double* c = rows + static_cast<long long>(r) * p;
        const int i = first + r;
        int degree = 0;
        for (int w = 0; w < words; ++w) {
            const int begin = 32 * w;
            const long long cell = static_cast<long long>(r) * words + w;
            unsigned edges = ballot(max(min(p - begin, LANES), 0), [&](int lane) {
                const double value = c[begin + lane];
                return value * value > critical_r_squared;
            });
            if (i / 32 == w) edges &= ~(1u << (i % 32));
            if (required != nullptr) edges = (edges & ~forbidden[cell]) | required[cell];
            degree += __popc(edges);
            if (warp_leader()) near[cell] = edges;
        }
        if (warp_leader()) degrees[r] = degree;
    }
}

// Rows I of a block with the columns of J, which begin at a word of the graph; a row of the block has `words` words.
struct Block {
    const unsigned *near, *required;  // rows I of the graph, and of its required edges, or null
    const unsigned* members;          // (n_i, n_j) members of separating sets, or null without level 1
    unsigned *edges, *left;           // (n_i, words) pairs i < j that are edges after level 0, and after level 1
    int* removed;                     // (n_i) pairs that level 1 removed
    int row_words, words, n_i, n_j, first_i, first_j;
};

// Grid (any), block (warps).
__global__ void keep_block(const Block b) {
    const WarpRows own(b.n_i);
    for (int r = own.first; r < own.last; ++r) {
        int removed = 0;
        for (int w = 0; w < b.words; ++w) {
            const int home = b.first_j / 32 + w;
            const long long from = static_cast<long long>(r) * b.row_words + home;
            const unsigned edges = b.near[from] & above(b.first_i + r, home);
            unsigned gone = 0;
            if (b.members != nullptr) {
                const unsigned* members = b.members + static_cast<long long>(r) * b.n_j + 32 * w;
                gone = edges & ballot(min(b.n_j - 32 * w, LANES), [&](int lane) { return members[lane] != NO_MEMBER; });
                if (b.required != nullptr) gone &= ~b.required[from];
            }
            removed += __popc(gone);
            if (warp_leader()) {
                const long long to = static_cast<long long>(r) * b.words + w;
                b.edges[to] = edges;
                b.left[to] = edges & ~gone;
            }
        }
        if (warp_leader()) b.removed[r] = removed;
    }
}

// The members of the removed pairs, row by row; those of row r begin at found[starts[r]]. Grid (any), block (warps).
__global__ void list_members(const Block b, const long long* starts, int* found) {
    const WarpRows own(b.n_i);
    for (int r = own.first; r < own.last; ++r) {
        long long slot = starts[r];
        for (int w = 0; w < b.words; ++w) {
            const long long cell = static_cast<long long>(r) * b.words + w;
            const unsigned gone = b.edges[cell] & ~b.left[cell];
            if (gone == 0) continue;
            const unsigned* members = b.members + static_cast<long long>(r) * b.n_j + 32 * w;
            each_lane(LANES, [&](int lane) {
                if (gone >> lane & 1) found[slot + __popc(gone & ~(~0u << lane))] = static_cast<int>(members[lane]);
            });
            slot += __popc(gone);
        }
    }
}
