// Level 0 of whole rows, and the compact results of a block of pairs after level 1.
//
// A worker has the whole rows of panels I and J. Level 0 decides all pairs of a panel, so that the graph's rows are
// known without other workers. The scan of level 1 is that of out_of_core/kernels/panels.cu. The result of that scan, a
// member for each pair, is reduced to two bits per pair and the members of separated pairs. Rows of bits are laid out
// as in engine/kernels/bit_graph.cuh. In all three kernels each warp takes a range of rows.
#include "engine/kernels/bit_graph.cuh"

constexpr unsigned NO_MEMBER = ~0u;

// Level 0 of the variables from `first` to first + count - 1, whose correlations with all p variables are `rows`: the
// graph's rows `near`, and degrees. `required` and `forbidden` are rows of the edges that background knowledge decides,
// or both null.
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

// A block of rows I and columns J. first_j is a multiple of 32, so that a row of the block consists of `words` words of
// the graph's row.
struct Block {
    const unsigned *near, *required;  // rows I of the graph, and of its required edges, or null
    const unsigned* members;          // (n_i, n_j) members of separating sets, or null without level 1
    unsigned *edges, *left;           // (n_i, words) bits of the pairs i < j that are edges after level 0 and level 1
    int* removed;                     // (n_i) the number of pairs that level 1 removed
    int row_words, words, n_i, n_j, first_i, first_j;
};

// Fills `edges`, `left` and `removed` from `near` and `members`. Required edges stay.
__global__ void keep_block(const Block b) {
    const WarpRows own(b.n_i);
    for (int r = own.first; r < own.last; ++r) {
        int removed = 0;
        for (int w = 0; w < b.words; ++w) {
            const int home = b.first_j / 32 + w;
            const long long from = static_cast<long long>(r) * b.row_words + home;
            const unsigned edges = b.near[from] & above(b.first_i + r, home);
            unsigned separated = 0;
            if (b.members != nullptr) {
                const unsigned* members = b.members + static_cast<long long>(r) * b.n_j + 32 * w;
                separated =
                    edges & ballot(min(b.n_j - 32 * w, LANES), [&](int lane) { return members[lane] != NO_MEMBER; });
                if (b.required != nullptr) separated &= ~b.required[from];
            }
            removed += __popc(separated);
            if (warp_leader()) {
                const long long to = static_cast<long long>(r) * b.words + w;
                b.edges[to] = edges;
                b.left[to] = edges & ~separated;
            }
        }
        if (warp_leader()) b.removed[r] = removed;
    }
}

// Lists the members of the removed pairs, row by row; those of row r begin at listed[starts[r]].
__global__ void list_members(const Block b, const long long* starts, int* listed) {
    const WarpRows own(b.n_i);
    for (int r = own.first; r < own.last; ++r) {
        long long slot = starts[r];
        for (int w = 0; w < b.words; ++w) {
            const long long cell = static_cast<long long>(r) * b.words + w;
            const unsigned separated = b.edges[cell] & ~b.left[cell];
            if (separated == 0) continue;
            const unsigned* members = b.members + static_cast<long long>(r) * b.n_j + 32 * w;
            each_lane(LANES, [&](int lane) {
                if (!(separated >> lane & 1)) return;
                listed[slot + __popc(separated & ~(~0u << lane))] = static_cast<int>(members[lane]);
            });
            slot += __popc(separated);
        }
    }
}
