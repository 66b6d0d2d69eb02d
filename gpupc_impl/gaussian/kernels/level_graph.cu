// The graphs of a small search at the start of each level, which are kept until its end.
#include "engine/kernels/graph.cu"
#include "engine/kernels/tally.cuh"

// The rows of the present graph, and the rows that were kept at the start of each level from 1 on. The row of Vi that
// was kept for level l begins at (*this)(l, i) and has degree(l, i) neighbours.
struct Levels {
    unsigned char* adjacency;        // (p, p)
    const unsigned long long* best;  // (p, p) keys
    int *neighbours, *degrees;       // (p, stride) and (p): the present rows
    int *kept, *kept_degrees;        // (levels, p, stride) and (levels, p)
    unsigned char* removed_at;       // (p, p): the level that removed an edge
    int *removed, *members;          // (p): the numbers of removed edges with j > i, and of their sets' members
    unsigned long long* counters;    // (COUNTER_STRIPES, COUNTER_STRIDE): the sums over all levels
    Binomials binomial;
    int p, stride;
    bool ranks_whole_row;

    __device__ int* operator()(int level, int i) const {
        return kept + (static_cast<long long>(level - 1) * p + i) * stride;
    }
    __device__ int& degree(int level, int i) const { return kept_degrees[static_cast<long long>(level - 1) * p + i]; }
    // Returns the address of the sum of the degrees after a level, which the largest degree follows. Consecutive levels
    // use different stripes of the counters; both numbers lie after the tallies of the stripe.
    __device__ unsigned long long* totals(int level) const { return counters + (level & 1) * COUNTER_STRIDE + 3; }
};

// Compacts the graph of level 1 into rows of neighbours, and sets all counters to zero. Grid (p), block ROW_THREADS.
__global__ void begin_level_one(const __grid_constant__ Levels levels) {
    const int i = blockIdx.x;
    if (i == 0) {
        for (int k = threadIdx.x; k < COUNTER_STRIPES * COUNTER_STRIDE; k += blockDim.x) levels.counters[k] = 0;
    }
    const unsigned char* flags = levels.adjacency + static_cast<long long>(i) * levels.p;
    const Segment segment(levels.p);
    const int own = segment.count(flags), degree = block_sum(own);
    int* out = levels.neighbours + static_cast<long long>(i) * levels.stride + counted_before(own);
    for (int j = segment.first; j < segment.last; ++j) {
        if (flags[j]) *out++ = j;
    }
    if (threadIdx.x == 0) {
        levels.degrees[i] = degree;
        levels.removed[i] = levels.members[i] = 0;
    }
}

// Keeps the rows of a level, removes the edges that the level separated from the present rows, and writes the sum and
// the maximum of the remaining degrees to totals(level). Grid (p), block ROW_THREADS.
__global__ void end_level(const __grid_constant__ Levels levels, int level) {
    const int i = blockIdx.x;
    int *row = levels.neighbours + static_cast<long long>(i) * levels.stride, *kept = levels(level, i);
    const long long cells = static_cast<long long>(i) * levels.p;
    const int n = levels.degrees[i];
    const Segment segment(n);
    int left = 0, removed = 0;
    for (int q = segment.first; q < segment.last; ++q) {
        kept[q] = row[q];
        const bool stays = levels.best[cells + row[q]] == NO_KEY;
        left += stays;
        removed += !stays && row[q] > i;
    }
    const int degree = block_sum(left), removed_in_row = block_sum(removed);
    int* out = row + counted_before(left);  // block_sum is a barrier, so all threads have read the row.
    for (int q = segment.first; q < segment.last; ++q) {
        const long long cell = cells + kept[q];
        if (levels.best[cell] == NO_KEY) {
            *out++ = kept[q];
        } else {
            levels.adjacency[cell] = 0;
            levels.removed_at[cell] = static_cast<unsigned char>(level);
        }
    }
    if (threadIdx.x == 0) {
        levels.degree(level, i) = n;
        levels.degrees[i] = degree;
        levels.removed[i] += removed_in_row;
        levels.members[i] += removed_in_row * level;
        atomicAdd(&levels.totals(level)[0], static_cast<unsigned long long>(degree));
        atomicMax(&levels.totals(level)[1], static_cast<unsigned long long>(degree));
        if (i == 0) levels.totals(level + 1)[0] = levels.totals(level + 1)[1] = 0;
    }
}

// Lists the edges removed from level 1 on, ascending, with their sets' sizes and members. Grid (p), block ROW_THREADS.
__global__ void list_levels(const __grid_constant__ Levels levels, int* pairs, unsigned char* sizes, int* members) {
    const int i = blockIdx.x;
    if (levels.removed[i] == 0) return;
    int pairs_before = 0, members_before = 0;
    for (int row = threadIdx.x; row < i; row += blockDim.x) {
        pairs_before += levels.removed[row];
        members_before += levels.members[row];
    }
    const long long cells = static_cast<long long>(i) * levels.p;
    const int* neighbours = levels(1, i);
    const auto was_removed = [&](int q) { return neighbours[q] > i && !levels.adjacency[cells + neighbours[q]]; };
    const Segment segment(levels.degree(1, i));
    int own_pairs = 0, own_members = 0;
    for (int q = segment.first; q < segment.last; ++q) {
        if (!was_removed(q)) continue;
        ++own_pairs;
        own_members += levels.removed_at[cells + neighbours[q]];
    }
    int slot = counted_before(own_pairs);
    slot += block_sum(pairs_before);  // This sum is a barrier between the scans, which use the same shared memory.
    int* set = members + counted_before(own_members);
    set += block_sum(members_before);
    for (int q = segment.first; q < segment.last; ++q) {
        if (!was_removed(q)) continue;
        const int j = neighbours[q], level = levels.removed_at[cells + j];
        const unsigned long long key = levels.best[cells + j];
        pairs[2 * slot] = i;
        pairs[2 * slot + 1] = j;
        sizes[slot++] = static_cast<unsigned char>(level);
        const int owner = key & SECOND_SIDE ? j : i, other = key & SECOND_SIDE ? i : j;
        const int* row = levels(level, owner);
        const int n = levels.degree(level, owner) - (levels.ranks_whole_row ? 0 : 1);
        unrank_combination(levels.binomial, n, level, key & ~SECOND_SIDE, set);
        bool passed = false;  // whether a member so far has reached the position of the edge's other end
        for (int a = 0; a < level; ++a) {
            passed |= !levels.ranks_whole_row && row[set[a]] >= other;
            set[a] = row[set[a] + passed];
        }
        set += level;
    }
}
