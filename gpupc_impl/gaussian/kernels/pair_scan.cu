// pair-scan, levels 0 and 1. Every warp works on rows or on pairs of its own.
#include "gaussian/kernels/pair_block.cuh"
#include "gaussian/kernels/pair_scan.cuh"

// The variable at this share of all p variables; a share is a multiple of 2^-32.
__device__ __forceinline__ int variable_at(unsigned share, int p) {
    return static_cast<int>(static_cast<unsigned long long>(share) * p >> 32);
}

// Level 0: tests all pairs, counts the remaining edges as count_rows does after other levels, and sets graph `empty` to
// the required edges alone. The kernel also sets has_twin[i] if Vi has no variance left given some other variable,
// whether that is a neighbour or not. Grid (any), block (warps).
__global__ void pair_scan_zero(const PairScan s, double critical_r_squared, int graph, int empty) {
    const int p = s.graphs.p, words = s.graphs.words;
    unsigned *const bits = s.graphs.graph(graph), *const after = s.graphs.graph(empty);
    const WarpRows rows(p);
    unsigned long long sum = 0, most = 0;
    for (int i = rows.first; i < rows.last; ++i) {
        const double* c_i = s.C + s.cell(i, 0);
        int degree = 0;
        unsigned any_twin = 0;
        for (int w = 0; w < words; ++w) {
            const int first = 32 * w, count = max(min(p - first, LANES), 0);
            unsigned edges = ballot(count, [&](int lane) {
                const double r = c_i[first + lane];
                return r * r > critical_r_squared;
            });
            const unsigned others = i / 32 == w ? ~(1u << (i % 32)) : ~0u;
            edges &= others;
            const unsigned required = s.untested(i, w);
            if (s.forbidden != nullptr) edges = (edges & ~BitRow(s.forbidden, words, i).bits[w]) | required;
            any_twin |= others & twins_among(c_i + first, count, s.residual_tolerance);
            degree += __popc(edges);
            if (warp_leader()) {
                const long long cell = static_cast<long long>(i) * words + w;
                bits[cell] = edges;
                after[cell] = required;
            }
        }
        if (warp_leader()) {
            s.graphs.degrees[i] = degree;
            s.has_twin[i] = any_twin != 0;
        }
        sum += degree;
        most = max(most, static_cast<unsigned long long>(degree));
    }
    if (warp_leader() && sum != 0) {
        atomicAdd(&s.graphs.counters_of(0)[DEGREE_SUM], sum);
        atomicMax(&s.graphs.counters_of(0)[MOST_DEGREE], most);
    }
}

// Level 1 pair by pair (level_one.cuh). Graph `left`, which has only the required edges before the launch, receives the
// edges that remain, and s.members[i * p + j] the separating set of a removed pair i < j. Level 0 has ended when this
// kernel begins. Grid (p, any), block (warps): the blocks of a row take words of its partners in turn.
template <bool WITH_SMALLEST>
__global__ void __launch_bounds__(128, 8)
    pair_scan_one(const PairScan s, double critical_r_squared, int start, int left) {
    const int i = blockIdx.x, p = s.graphs.p, words = s.graphs.words;
    if (i == 0 && blockIdx.y == 0 && threadIdx.x == 0) s.graphs.counters_of(0)[ENDED] = nanoseconds();
    const unsigned* const before = s.graphs.graph(start);
    unsigned* const after = s.graphs.graph(left);
    const auto end = [&](int v) {
        return PairEnd{s.C + s.cell(v, 0), BitRow(before, words, v).bits, s.has_twin[v] != 0};
    };
    const PairEnd of_i = end(i);
    PairScanner<WITH_SMALLEST> scanner{p, words, critical_r_squared, s.residual_tolerance};
    for (int home = i / 32 + blockIdx.y * warp_count() + warp_index(); home < words; home += gridDim.y * warp_count()) {
        for (unsigned partners = of_i.near[home] & above(i, home) & ~s.untested(i, home); partners != 0;
             partners &= partners - 1) {
            const int j = 32 * home + __ffs(partners) - 1;
            const int member = scanner.scan(i, j, of_i, end(j));
            if (warp_leader()) {
                const long long cell = s.cell(i, j);
                if (WITH_SMALLEST && scanner.least < NOTHING_TESTED) {
                    s.smallest_r_squared[cell] = __double_as_longlong(scanner.least);
                }
                if (member >= 0) {
                    s.members[cell] = member;
                } else {
                    set_edge(after, words, i, j);
                }
            }
        }
    }
    const unsigned long long tests = scanner.tests(), undefined = scanner.undefined();
    if (warp_leader() && tests != 0) {
        unsigned long long* const counters = s.graphs.counters_of(1);
        atomicAdd(&counters[TESTS], tests);
        if (undefined != 0) atomicAdd(&counters[UNDEFINED], undefined);
    }
}

// Scans a sample of pairs, spread evenly over all pairs. The kernel adds the number of sampled edges to counts[0], and
// the number of their tests to counts[1]. Grid (any), block (warps).
__global__ void probe_pairs(const PairScan s, double critical_r_squared, int graph, int pairs,
                            unsigned long long* counts) {
    const int p = s.graphs.p, words = s.graphs.words;
    const unsigned* const bits = s.graphs.graph(graph);
    const auto end = [&](int v) {
        return PairEnd{s.C + s.cell(v, 0), BitRow(bits, words, v).bits, s.has_twin[v] != 0};
    };
    PairScanner<false> scanner{p, words, critical_r_squared, s.residual_tolerance};
    unsigned long long edges = 0;
    for (int number = blockIdx.x * warp_count() + warp_index(); number < pairs; number += gridDim.x * warp_count()) {
        // The fractional parts of multiples of 1 / g and 1 / g^2, where g^3 = g + 1, are a low-discrepancy sequence.
        const int u = variable_at((number + 1) * 3242174889u, p), v = variable_at((number + 1) * 2447445415u, p);
        const int i = min(u, v), j = max(u, v);
        if (i == j || !BitRow(bits, words, i).has(j)) continue;
        ++edges;
        scanner.scan(i, j, end(i), end(j));
    }
    const unsigned long long tests = scanner.tests();
    if (warp_leader() && edges != 0) {
        atomicAdd(&counts[0], edges);
        atomicAdd(&counts[1], tests);
    }
}

// Runs after level_one_tile, which writes keys to s.members and counts in `counted`. The kernel adds the edges that
// nothing separated to graph `left`, which has none of them, and sums the counters. Grid (any), block (warps).
__global__ void keep_unseparated(const PairScan s, int start, int left, const unsigned long long* counted) {
    const int p = s.graphs.p, words = s.graphs.words;
    unsigned *const before = s.graphs.graph(start), *const after = s.graphs.graph(left);
    if (blockIdx.x == 0 && warp_index() == 0) {
        for (int counter = TESTS; counter <= UNDEFINED; ++counter) {
            PerLane<long long> sums;
            each_lane(LANES, [&](int lane) {
                sums[lane] = 0;
                for (int stripe = lane; stripe < COUNTER_STRIPES; stripe += LANES) {
                    sums[lane] += static_cast<long long>(counted[stripe * COUNTER_STRIDE + counter]);
                }
            });
            const long long sum = sum_of_lanes(sums);
            if (warp_leader()) s.graphs.counters_of(1)[counter] = sum;
        }
    }
    const WarpRows rows(p);
    for (int i = rows.first; i < rows.last; ++i) {
        for (int w = 0; w < words; ++w) {
            const long long word = static_cast<long long>(i) * words + w;
            const unsigned edges = before[word];
            if (edges == 0) continue;
            const unsigned kept = ballot(LANES, [&](int lane) {
                const int j = 32 * w + lane;
                return (edges >> lane & 1) && s.members[s.cell(min(i, j), max(i, j))] == static_cast<int>(NO_MEMBER);
            });
            if (warp_leader()) after[word] |= kept;
        }
    }
}

// See list_members; it follows scans or tiles. Grid (any), block (warps).
__global__ void list_removed_one(const PairScan s, int before, int after, int* pairs, int* sets) {
    list_members(s, before, after, pairs, sets);
}
