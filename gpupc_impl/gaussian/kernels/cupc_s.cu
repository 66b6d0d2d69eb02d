// cuPC-S (cuPC, section 3.4, Algorithm 5): a thread takes a set S, which the tests of all edges of the row share.
#include "gaussian/kernels/search.cuh"

// The stretches of a row in which a thread may still find an edge that is not settled. A row has at most 64 stretches,
// whose length is a power of two. An edge that is settled for a thread stays settled, since the keys of the thread's
// sets ascend. Most rows lose nearly all edges to their first sets, so a thread skips most stretches after a few sets.
struct OpenEdges {
    unsigned long long stretches;  // a bit for each stretch: whether it is open
    int n, shift;

    explicit __device__ OpenEdges(int n) : n(n), shift(0) {
        while (n > (64 << shift)) ++shift;
        stretches = ~0ull >> (64 - (((n - 1) >> shift) + 1));
    }

    // Returns the first position from `place` on that lies in an open stretch, or n.
    __device__ int from(int place) const {
        if (place >= n) return n;
        const int stretch = place >> shift;
        const unsigned long long rest = stretches >> stretch;
        if (rest & 1) return place;
        return rest == 0 ? n : (stretch + __ffsll(static_cast<long long>(rest)) - 1) << shift;
    }

    __device__ bool same_stretch(int place, int other) const { return (place >> shift) == (other >> shift); }
    __device__ void close_stretch_of(int place) { stretches &= ~(1ull << (place >> shift)); }
};

// Grid (p, delta), block (theta).
template <class Size>
__global__ void __launch_bounds__(MOST_THREADS, BLOCKS_AT_ONCE<Size>)
    cupc_s(const __grid_constant__ Rows rows, const __grid_constant__ Search search, bool use_shared) {
    GPUPC_DYNAMIC_SHARED(int, shared);
    const Size L(search.level);
    const int i = blockIdx.x, n = rows.degrees[i];
    if (n < L + 1) return;  // section 4.1, I
    const unsigned long long sets = rows.binomial(n, L);
    const unsigned long long first = static_cast<unsigned long long>(blockIdx.y) * blockDim.x;
    if (first >= sets) return;  // section 4.1, III
    const Row row = load_row(i, n, rows.of(i), use_shared, shared);
    const double* C = search.C;
    const int p = rows.p;
    const double* c_i = C + search.best.cell(i, 0);

    Tally tally;
    OpenEdges edges(n);
    for (unsigned long long t = first + threadIdx.x; t < sets && edges.stretches != 0;
         t += static_cast<unsigned long long>(gridDim.y) * blockDim.x) {
        int positions[Size::MOST];
        unrank_combination(rows.binomial, n, L, t, positions);
        ConditioningSet<Size> S(L);
#pragma unroll
        for (int a = 0; a < L; ++a) S.members[a] = row.neighbours[positions[a]];
        S.factorise(C, p, i, search.pivot_tolerance);
        tally.pseudo_inverses += S.singular;
        // The key of the next edge is prefetched: its load overlaps the test of the present edge.
        int following = edges.from(0);
        unsigned long long next = search.best.found(i, row.neighbours[following]);
        bool open = false;  // whether the stretch has an edge that is not settled
        for (int position = following; position < n; position = following) {
            const int j = row.neighbours[position];
            const unsigned long long found = next, key = set_key(i, j, t);
            following = edges.from(position + 1);
            if (following < n) next = search.best.found(i, row.neighbours[following]);
            const bool settled = search.best.settled(found, key);
            open |= !settled;
            if (following == n || !edges.same_stretch(position, following)) {
                if (!open) edges.close_stretch_of(position);
                open = false;
            }
            bool member = false;
#pragma unroll
            for (int a = 0; a < L; ++a) member |= position == positions[a];
            if (member || settled) continue;
            search.test(tally, S.residuals(C, p, i, j, c_i[j]), i, j, key);
        }
    }
    tally.add_to(search.counters);
}
