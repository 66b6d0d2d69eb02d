// The steps before and after the tests of a level from 2 on, which kernels of one level and of several levels share.
#pragma once

#include "gaussian/kernels/side_scan.cuh"

// Prepares a level: rows of neighbours, best ranks, numbers of runs of `run` prefixes, and two copies of the graph.
// run_starts[i] is the number of runs of the rows before i, without the first HEADS runs of each row.
__device__ __forceinline__ void prepare(const PairScan& s, int level, int graph, int copy, int other_copy, int run) {
    const BitGraphs& g = s.graphs;
    const Binomials binomial{s.binomials, s.widest};
    const auto runs_beyond = [&](int n) {
        const unsigned long long runs = runs_of(level, binomial, n, run);
        return static_cast<long long>(runs > HEADS ? runs - HEADS : 0);
    };
    const WarpRows rows(g.p);
    PerLane<long long> sums, sums_of_runs;
    each_lane(LANES, [&](int lane) { sums[lane] = sums_of_runs[lane] = 0; });
#pragma unroll 8
    for (int k = 0; k < rows.first; k += LANES) {
        each_lane(min(rows.first - k, LANES), [&](int lane) {
            const int degree = g.degrees[k + lane];
            sums[lane] += degree;
            sums_of_runs[lane] += runs_beyond(degree);
        });
    }
    long long next = sum_of_lanes(sums), next_run = sum_of_lanes(sums_of_runs);
    for (int i = rows.first; i < rows.last; ++i) {
        const BitRow row(g.graph(graph), g.words, i);
        if (warp_leader()) {
            s.starts[i] = next;
            s.run_starts[i] = next_run;
        }
        next_run += runs_beyond(g.degrees[i]);
        for (int w = 0; w < g.words; w += LANES) {
            PerLane<int> place;
            each_lane(LANES, [&](int lane) { place[lane] = w + lane < g.words ? __popc(row.bits[w + lane]) : 0; });
            const int neighbours = sums_before(place);
            each_lane(min(g.words - w, LANES), [&](int lane) {
                const long long cell = static_cast<long long>(i) * g.words + w + lane;
                unsigned word = row.bits[w + lane];
                g.graph(copy)[cell] = g.graph(other_copy)[cell] = word;
                const unsigned untested = s.untested(i, w + lane);
                for (long long q = next + place[lane]; word != 0; word &= word - 1, ++q) {
                    const int bit = __ffs(word) - 1;
                    s.neighbours[q] = 32 * (w + lane) + bit;
                    s.best[q] = untested >> bit & 1 ? SETTLED_RANK : NO_RANK;
                }
            });
            next += neighbours;
        }
    }
    if (rows.last == g.p && rows.first < g.p && warp_leader()) {
        s.starts[g.p] = next;
        s.run_starts[g.p] = next_run;
    }
}

// Lists the pairs that a level removed, ascending, with their sets: the first separating set from the row of the
// smaller variable, or if there is none, from the row of the other variable.
__device__ __forceinline__ void list_sets(const PairScan& s, int level, int before, int after, int* pairs, int* sets) {
    const Binomials binomial{s.binomials, s.widest};
    const auto rank_of = [&](int owner, int other) {
        long long low = s.starts[owner], high = s.starts[owner + 1];
        while (low < high) {
            const long long middle = low + (high - low) / 2;
            if (s.neighbours[middle] < other) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return s.best[low];
    };
    each_removed(s.graphs, before, after, [&](int i, int j, long long slot) {
        pairs[2 * slot] = i;
        pairs[2 * slot + 1] = j;
        unsigned long long rank = rank_of(i, j);
        const int owner = rank == NO_RANK ? j : i;
        if (owner == j) rank = rank_of(j, i);
        int* set = sets + slot * level;
        const int n = static_cast<int>(s.starts[owner + 1] - s.starts[owner]);
        unrank_combination(binomial, n, level, rank, set);
        for (int a = 0; a < level; ++a) set[a] = s.neighbours[s.starts[owner] + set[a]];
    });
}
