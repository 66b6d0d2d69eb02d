// The tests of one side of a level from 2 on, as pair-scan makes them. A set S of row i is a prefix P, all its members
// but the last, and a last member k. A warp eliminates P once for all variables of the row (prefix.cuh). A test of (i,
// j | P + k) is then a handful of operations, and a warp makes 32 of them at a time: lanes are candidates k and
// partners j. The unit of work is a run, some prefixes that follow each other in lexicographic order, which one warp
// takes one after the other; warps take runs from a shared counter.
#pragma once

#include "engine/kernels/combinations.cuh"
#include "gaussian/kernels/pair_scan.cuh"
#include "gaussian/kernels/prefix.cuh"

constexpr unsigned long long NO_RANK = ~0ull, SETTLED_RANK = 0;  // No set of an edge has a smaller rank than 0.
// The number of runs of each row that are assigned before those of all other rows: their sets separate most edges.
constexpr int HEADS = 2;

// Returns the number of prefixes in a run of a level.
__device__ __forceinline__ int run_of(int level) { return level == 2 ? 2 : level == 3 ? 8 : 16; }

// The number of runs in a row of n variables: 0 if it is too short for a set of `level` members and a partner.
__device__ __forceinline__ unsigned long long runs_of(int level, const Binomials& binomial, int n, int run) {
    return n < level + 1 ? 0 : (binomial(n - 1, level - 1) + run - 1) / run;
}

// Takes the next number from a counter that all warps share, and returns it in all lanes.
__device__ __forceinline__ unsigned long long next_turn(unsigned long long* turns) {
    PerLane<unsigned long long> turn;
    each_lane(1, [&](int lane) { turn[lane] = atomicAdd(turns, 1ull); });
    return of_lane(turn, 0);
}

// Returns the rank of an ascending combination of L out of n; this function is the inverse of unrank_combination.
template <class Size>
__device__ __forceinline__ unsigned long long rank_combination(const Binomials& binomial, int n, Size L,
                                                               const int* positions) {
    unsigned long long following = 0;
#pragma unroll
    for (int a = 0; a < L; ++a) following += binomial(n - 1 - positions[a], L - a);
    return binomial(n, L) - 1 - following;
}

// The test of a set whose M2 is near singular, see fisher_z.cuh.
template <int MOST>
__device__ __noinline__ Residuals near_singular_test(const double* C, int p, int size, const int* members, int i,
                                                     int j) {
    PseudoInverse<MOST> pseudo;
    pseudo.size = size;
#pragma unroll 1
    for (int a = 0; a < size; ++a) pseudo.members[a] = members[a];
    pseudo.compute(C, p, i);
    return pseudo.residuals(C, p, j);
}

// The first number in [low, high) from which on f holds, else `high`. The lanes evaluate f for 32 numbers at a time.
template <class F>
__device__ __forceinline__ int first_that(int low, int high, F f) {
    while (low < high) {
        const int step = (high - low + LANES - 1) / LANES;
        const unsigned holds = ballot(LANES, [&](int lane) { return f(min(low + (lane + 1) * step, high) - 1); });
        if (holds == 0) return high;
        low += (__ffs(holds) - 1) * step;
        high = min(low + step, high) - 1;
    }
    return low;
}

// The row of run u, without the first HEADS runs of each row: the last row with run_starts[row] <= u.
__device__ __forceinline__ int row_of_run(const unsigned long long* run_starts, int p, unsigned long long u) {
    return first_that(1, p, [&](int row) { return run_starts[row] > u; }) - 1;
}

// The number of float64 that a warp needs for rows of up to `longest`: the prefix's cells, then the list of partners.
template <class Size>
__device__ __forceinline__ long long cells_of_warp(Size level, int longest) {
    using Members = typename Size::OneLess;
    return Prefix<Members>::cells_needed(Members(level - 1), longest) + (longest + 1) / 2;
}

// The tests that a warp has made: all, those that were undefined, and those whose set has a near-singular M2.
struct ScanCounts {
    unsigned long long tests = 0, undefined = 0, near_singular = 0;
};

// A warp that processes a run of row i. Side 0 takes sets from adj(i) for the edges to larger variables j; side 1 takes
// them for the edges to smaller ones that side 0 left in `start`.
template <class Size, bool WITH_SMALLEST>
struct RunScan {
    using Members = typename Size::OneLess;

    // The candidates of the lanes for the last member, and the residuals of Vi given the prefix and each candidate.
    struct Candidates {
        int count;
        int shift;  // 2^shift lanes, one for each candidate, share a partner.
        PerLane<int> position, variable;
        PerLane<double> projected[Members::MOST];  // the projections of the candidate on the members of the prefix
        PerLane<double> scale, projection_i, residual_i;
        unsigned near_singular;  // the lanes whose set has a near-singular M2
    };

    const PairScan& search;
    ScanCounts& counts;
    const double critical_r_squared;
    const Size L;                        // the number of members of a set
    const Members K;                     // the number of members of its prefix
    unsigned *const start, *const left;  // the graph that is tested, and the graph that loses separated edges
    const int side, i;
    int* const partners;             // the positions in the row of the variables to be tested, `partner_count` of them
    const int n;                     // the number of neighbours in the row
    const int* const row;            // the neighbours
    unsigned long long* const best;  // for each neighbour the smallest rank of a separating set
    Prefix<Members> prefix;
    int partner_count;
    unsigned long long first_rank;  // the rank of the first set with the present prefix

    // `cells` are the warp's memory for rows of up to `longest`.
    __device__ __forceinline__ RunScan(const PairScan& search, ScanCounts& counts, Size level,
                                       double critical_r_squared, unsigned* start, unsigned* left, int side, int i,
                                       double* cells, int longest)
        : search(search),
          counts(counts),
          critical_r_squared(critical_r_squared),
          L(level),
          K(level - 1),
          start(start),
          left(left),
          side(side),
          i(i),
          partners(reinterpret_cast<int*>(cells + Prefix<Members>::cells_needed(K, longest))),
          n(static_cast<int>(search.starts[i + 1] - search.starts[i])),
          row(search.neighbours + search.starts[i]),
          best(search.best + search.starts[i]),
          prefix(K, cells, n) {}

    // Makes the tests of the run of this number in the row, `run` prefixes.
    __device__ __forceinline__ void scan(unsigned long long number, int run, const Binomials& binomial) {
        if (number >= runs_of(L, binomial, n, run)) return;
        const int split = first_that(0, n, [&](int q) { return row[q] > i; });
        const int from = side == 0 ? split : 0, to = side == 0 ? n : split;  // the partners of this side
        if (from == to) return;
        unrank_combination(binomial, n - 1, K, number * run, prefix.positions);
        int chosen[Size::MOST];
#pragma unroll
        for (int a = 0; a < K; ++a) chosen[a] = prefix.positions[a];
        chosen[K] = chosen[K - 1] + 1;
        first_rank = rank_combination(binomial, n, L, chosen);
        int changed = 0;
        partner_count = -1;  // The prefix is not listed yet.
        for (int step = 0; step < run && changed >= 0; ++step) {
            if (partner_count < 0) {
                list_partners(from, to);
                if (partner_count == 0) break;
                if (step == 0) prefix.begin(search.C + search.cell(i, 0), row);
            }
            prefix.add(search.C, search.graphs.p, row, changed, search.pivot_tolerance);
            const bool may_have_separated = scan_prefix();
            join_lanes();  // No lane reads the prefix's cells any more.
            changed = prefix.advance();
            if (may_have_separated) partner_count = -1;
        }
    }

    // Lists the partners among the positions [from, to) that a set with the present prefix may still separate.
    __device__ __forceinline__ void list_partners(int from, int to) {
        const BitRow edges(start, search.graphs.words, i);
        join_lanes();
        partner_count = 0;
        for (int base = from; base < to; base += LANES) {
            const unsigned wanted = ballot(min(to - base, LANES), [&](int lane) {
                const int q = base + lane;
                return (side == 0 || edges.has(row[q])) && load_relaxed(&best[q]) > first_rank;
            });
            each_lane(LANES, [&](int lane) {
                if (wanted >> lane & 1) partners[partner_count + __popc(wanted & ~(~0u << lane))] = base + lane;
            });
            partner_count += __popc(wanted);
        }
        join_lanes();
    }

    // All sets with the present prefix; returns whether one of them may have separated a partner.
    __device__ __forceinline__ bool scan_prefix() {
        const int first = prefix.positions[K - 1] + 1;
#ifdef GPUPC_HOST
        constexpr int shift = 5;
#else
        const int shift = n - first >= 17 ? 5 : n - first >= 9 ? 4 : n - first >= 5 ? 3 : n - first >= 3 ? 2 : 1;
#endif
        bool may_have_separated = false;
        for (int base = first; base < n; base += 1 << shift) {
            Candidates candidates;
            load(candidates, base, shift);
            for (int x = 0; x < partner_count; x += LANES >> shift) {
                may_have_separated |= test(candidates, x, first_rank - first);
            }
        }
        first_rank += n - first;
        return may_have_separated;
    }

    // Eliminates the candidates from `base` on, one a lane.
    __device__ __forceinline__ void load(Candidates& candidates, int base, int shift) {
        candidates.shift = shift;
        candidates.count = min(n - base, 1 << shift);
        candidates.near_singular = ballot(LANES, [&](int lane) {
            const int at = base + min(lane & ((1 << shift) - 1), candidates.count - 1);
            const double pivot = prefix.variance(K, at);
            const bool is_near = prefix.singular < K || pivot <= search.pivot_tolerance;
            const double inverse = 1.0 / sqrt(is_near ? 1.0 : pivot), along = prefix.covariance(K, at) * inverse;
#pragma unroll
            for (int a = 0; a < K; ++a) candidates.projected[a][lane] = prefix.projected(a, at);
            candidates.position[lane] = at;
            candidates.variable[lane] = row[at];
            candidates.scale[lane] = inverse;
            candidates.projection_i[lane] = along;
            candidates.residual_i[lane] = fma(-along, along, prefix.residual[K]);
            return is_near;
        });
    }

    // H of the test of Vi and the partner at position q given the prefix and the lane's candidate.
    __device__ __forceinline__ Residuals residuals(Candidates& candidates, int lane, int q) {
        double jk = search.C[static_cast<long long>(row[q]) * search.graphs.p + candidates.variable[lane]];
#pragma unroll
        for (int a = 0; a < K; ++a) jk = fma(-candidates.projected[a][lane], prefix.projected(a, q), jk);
        const double along = jk * candidates.scale[lane];
        return {candidates.residual_i[lane], fma(-along, along, prefix.variance(K, q)),
                fma(-candidates.projection_i[lane], along, prefix.covariance(K, q))};
    }

    // Tests the candidates with the partners from number x on, as many as there are lanes for. The set whose candidate
    // is at position k has rank rank_of_zero + k. Returns whether a partner may have been separated.
    __device__ __forceinline__ bool test(Candidates& candidates, int x, unsigned long long rank_of_zero) {
        PerLane<int> partner;
        const int shift = candidates.shift, lanes = min((partner_count - x) << shift, LANES);
        each_lane(lanes, [&](int lane) { partner[lane] = partners[x + (lane >> shift)]; });
        const unsigned tested = ballot(lanes, [&](int lane) {
            return ((lane & ((1 << shift) - 1)) < candidates.count) & (partner[lane] != candidates.position[lane]) &
                   !prefix.has(partner[lane]);
        });
        unsigned notable = ballot(lanes, [&](int lane) {
            const Residuals h = residuals(candidates, lane, partner[lane]);
            return h.undefined(search.residual_tolerance) |
                   h.independent(critical_r_squared, search.residual_tolerance);
        });
        counts.tests += __popc(tested);
        const unsigned careful = candidates.near_singular & tested, plain = tested & ~candidates.near_singular;
        notable &= plain;
        if (notable != 0) {
            const unsigned without_variance = ballot(lanes, [&](int lane) {
                return (notable >> lane & 1) &&
                       residuals(candidates, lane, partner[lane]).undefined(search.residual_tolerance);
            });
            counts.undefined += __popc(without_variance);
            notable &= ~without_variance;
            each_lane(lanes, [&](int lane) {
                if (notable >> lane & 1) separate(partner[lane], rank_of_zero + candidates.position[lane]);
            });
        }
        if (careful != 0) {
            each_lane(lanes, [&](int lane) {
                if (careful >> lane & 1) {
                    test_carefully(candidates.variable[lane], partner[lane], rank_of_zero + candidates.position[lane]);
                }
            });
            counts.near_singular += __popc(careful);
        }
        if (WITH_SMALLEST) {
            each_lane(lanes, [&](int lane) {
                if (!(plain >> lane & 1)) return;
                const Residuals h = residuals(candidates, lane, partner[lane]);
                if (!h.undefined(search.residual_tolerance)) record(partner[lane], h);
            });
        }
        return notable != 0 || careful != 0;
    }

    // Makes one lane's test of a set with a near-singular M2, whose last member is Vk.
    __device__ __forceinline__ void test_carefully(int k, int q, unsigned long long rank) {
        const int j = row[q];
        int members[Size::MOST];
        for (int a = 0; a < K; ++a) members[a] = row[prefix.positions[a]];
        members[K] = k;
        const Residuals h = near_singular_test<Size::MOST>(search.C, search.graphs.p, L, members, i, j);
        if (h.undefined(search.residual_tolerance)) {
            atomicAdd(&search.graphs.counters_of(L)[UNDEFINED], 1ull);
            return;
        }
        if (WITH_SMALLEST) record(q, h);
        if (h.independent(critical_r_squared, search.residual_tolerance)) separate(q, rank);
    }

    // Records that the set of this rank separates Vi and the partner at position q.
    __device__ __forceinline__ void separate(int q, unsigned long long rank) {
        const int j = row[q];
        atomicMin(&best[q], rank);
        clear_edge(left, search.graphs.words, i, j);
        if (side == 0) clear_edge(start, search.graphs.words, i, j);
    }

    // Keeps the smallest r^2 of the pair; bits are ordered as the numbers are.
    __device__ __forceinline__ void record(int q, const Residuals& h) {
        const int j = row[q];
        atomicMin(&search.smallest_r_squared[search.cell(min(i, j), max(i, j))],
                  static_cast<unsigned long long>(__double_as_longlong(h.r_squared(search.residual_tolerance))));
    }
};

// Makes one side's tests in runs of `run` prefixes. Separated edges leave graph `left`, on side 0 from `start` as well;
// search.best gets each row's smallest rank by neighbour. `cells` are the warp's memory for rows of up to `longest`.
template <bool WITH_SMALLEST, class Size>
__device__ __forceinline__ void scan_side(const PairScan& search, Size level, double critical_r_squared, int start,
                                          int left, int side, int run, int longest, double* cells) {
    const int p = search.graphs.p;
    const Binomials binomial{search.binomials, search.widest};
    unsigned long long* const counters = search.graphs.counters_of(level);
    ScanCounts counts;
    const unsigned long long heads = static_cast<unsigned long long>(HEADS) * p;
    const unsigned long long turns = heads + search.run_starts[p];
    for (unsigned long long turn; (turn = next_turn(&counters[TURNS + side])) < turns;) {
        int i;
        unsigned long long number;  // the number of the run in its row
        if (turn < heads) {
            i = static_cast<int>(turn % p);
            number = turn / p;
        } else {
            i = row_of_run(search.run_starts, p, turn - heads);
            number = HEADS + (turn - heads - search.run_starts[i]);
        }
        RunScan<Size, WITH_SMALLEST> scan(search, counts, level, critical_r_squared, search.graphs.graph(start),
                                          search.graphs.graph(left), side, i, cells, longest);
        scan.scan(number, run, binomial);
    }
    if (warp_leader() && counts.tests != 0) {
        atomicAdd(&counters[TESTS], counts.tests);
        if (counts.undefined != 0) atomicAdd(&counters[UNDEFINED], counts.undefined);
        if (counts.near_singular != 0) atomicAdd(&counters[SINGULAR], counts.near_singular);
    }
}
