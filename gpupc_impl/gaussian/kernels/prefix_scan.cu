// pair-scan, levels from 2 on. A set S of row i is a prefix P, all its members but the last, and a last member k. A
// warp works out once what is left of the variances and covariances of the row's variables given P; a test of (i, j | P
// + k) is then a handful of operations, whose lanes are candidates k and partners j. From one prefix to the next mostly
// the last member changes, and only what depends on it is worked out again.
//
// This is the elimination of fisher_z.cuh's ConditioningSet in another order: each number comes from the same
// operations in the same order, so every decision has the same bits.
#include "engine/kernels/combinations.cuh"
#include "engine/kernels/grid_barrier.cuh"
#include "engine/kernels/separating_sets.cuh"
#include "gaussian/kernels/pair_scan.cuh"

constexpr unsigned long long NO_RANK = ~0ull, SETTLED_RANK = 0;  // no set of an edge has a smaller rank
constexpr int HEADS = 2;

// gpupc_impl/gaussian/pair_scan.py has the same.
constexpr int GRAPHS_AT_ONCE = 3;

// Prefixes of a run, which a warp takes one after the other; `asked`: for all levels, or 0.
template <int L>
__device__ __forceinline__ int run_of(int asked) {
    return asked != 0 ? asked : L == 2 ? 2 : L == 3 ? 8 : 16;
}

// Runs of prefixes in a row of n, none where it is too short for sets of L beside a partner.
template <int L>
__device__ __forceinline__ unsigned long long runs_of(const Binomials& binomial, int n, int run) {
    return n < L + 1 ? 0 : (binomial(n - 1, L - 1) + run - 1) / run;
}

// The next turn, for all lanes.
__device__ __forceinline__ unsigned long long next_turn(unsigned long long* turns) {
    PerLane<unsigned long long> turn;
    each_lane(1, [&](int lane) { turn[lane] = atomicAdd(turns, 1ull); });
    return of_lane(turn, 0);
}

// The rank of an ascending combination of L out of n: the inverse of unrank_combination.
template <int L>
__device__ __forceinline__ unsigned long long rank_combination(const Binomials& binomial, int n, const int* positions) {
    unsigned long long following = 0;
#pragma unroll
    for (int a = 0; a < L; ++a) following += binomial(n - 1 - positions[a], L - a);
    return binomial(n, L) - 1 - following;
}

// What a warp knows of a prefix P and of every variable of the row given the first members of P: a stack, whose top
// alone changes from most prefixes to the next.
template <int K>
struct Prefix {
    int positions[K];
    double projection[K];    // of Vi, given the members before
    double residual[K + 1];  // variance of Vi given the first members
    int singular;            // the first member without variance given those before it; K: none
    double* cells;           // for the row's variables: see below
    int n;

    __device__ __forceinline__ static long long cells_needed(int n) { return static_cast<long long>(3 * K + 2) * n; }
    // Position v's projection on member a given those before it; its variance and its covariance with Vi given the
    // first `depth` members.
    __device__ __forceinline__ double& projected(int a, int v) { return cells[a * n + v]; }
    __device__ __forceinline__ double& variance(int depth, int v) { return cells[(K + depth) * n + v]; }
    __device__ __forceinline__ double& covariance(int depth, int v) { return cells[(2 * K + 1 + depth) * n + v]; }

    // Nothing given yet.
    __device__ __forceinline__ void begin(const double* c_i, const int* row) {
        residual[0] = 1.0;
        singular = K;
        for (int v = 0; v < n; v += LANES) {
            each_lane(min(n - v, LANES), [&](int lane) {
                variance(0, v + lane) = 1.0;
                covariance(0, v + lane) = c_i[row[v + lane]];
            });
        }
        join_lanes();
    }

    // Takes in the members from number `first` on.
    __device__ __forceinline__ void add(const double* C, int p, const int* row, int first, double pivot_tolerance) {
        if (singular >= first) singular = K;
#pragma unroll
        for (int a = 0; a < K; ++a) {
            if (a < first) continue;
            const int member = positions[a];
            const double pivot = variance(a, member);
            const bool near = a > 0 && pivot <= pivot_tolerance;
            if (near && singular == K) singular = a;
            const double inverse = 1.0 / sqrt(near ? 1.0 : pivot);
            const double of_i = covariance(a, member) * inverse;
            projection[a] = of_i;
            residual[a + 1] = fma(-of_i, of_i, residual[a]);
            double of_member[K];
#pragma unroll
            for (int b = 0; b < a; ++b) of_member[b] = projected(b, member);
            const double* c_member = C + static_cast<long long>(row[member]) * p;
            for (int v = 0; v < n; v += LANES) {
                each_lane(min(n - v, LANES), [&](int lane) {
                    const int at = v + lane;
                    double left = c_member[row[at]];
#pragma unroll
                    for (int b = 0; b < a; ++b) left = fma(-of_member[b], projected(b, at), left);
                    const double along = left * inverse;
                    projected(a, at) = along;
                    variance(a + 1, at) = fma(-along, along, variance(a, at));
                    covariance(a + 1, at) = fma(-of_i, along, covariance(a, at));
                });
            }
            join_lanes();
        }
    }

    // The next combination of n - 1; returns the first member that changed, or -1 after the last.
    __device__ __forceinline__ int advance() {
        int changed = -1, next = 0;
#pragma unroll
        for (int a = K - 1; a >= 0; --a) {
            if (changed < 0 && positions[a] != n - 1 - K + a) changed = a;
        }
#pragma unroll
        for (int a = 0; a < K; ++a) {
            if (changed < 0 || a < changed) continue;
            next = a == changed ? positions[a] + 1 : next + 1;
            positions[a] = next;
        }
        return changed;
    }

    __device__ __forceinline__ bool has(int q) const {
        bool member = false;
#pragma unroll
        for (int a = 0; a < K; ++a) member |= q == positions[a];
        return member;
    }
};

// One test of a set with a near-singular M2: see fisher_z.cuh.
template <int L>
__device__ __noinline__ Residuals careful_test(const double* C, int p, const int* members, int i, int j) {
    PseudoInverse<L> pseudo;
    for (int a = 0; a < L; ++a) pseudo.members[a] = members[a];
    pseudo.compute(C, p, i);
    return pseudo.residuals(C, p, j);
}

// What a level of sets of L needs: rows of neighbours, best ranks, runs of prefixes, and two copies of the graph. Every
// row's first HEADS runs are handed out before all others, since they separate most edges; run_starts counts the
// others.
template <int L>
__device__ __forceinline__ void prepare(const PairScan& s, int graph, int copy, int other_copy, int asked_run) {
    const int run = run_of<L>(asked_run);
    const BitGraphs& g = s.graphs;
    const Binomials binomial{s.binomials, s.widest};
    const auto runs_beyond = [&](int n) {
        const unsigned long long runs = runs_of<L>(binomial, n, run);
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
            const int found = sums_before(place);
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
            next += found;
        }
    }
    if (rows.last == g.p && rows.first < g.p && warp_leader()) {
        s.starts[g.p] = next;
        s.run_starts[g.p] = next_run;
    }
}

// Grid (any), block (warps).
template <int L>
__global__ void begin_level(const PairScan s, int graph, int copy, int other_copy, int asked_run) {
    prepare<L>(s, graph, copy, other_copy, asked_run);
}

// The first of [low, high) from which on f holds; high where it holds for none. Lanes look at as many places at a time.
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

// The row whose runs beyond HEADS hold number u: the last with run_starts[row] <= u.
__device__ __forceinline__ int row_of_run(const unsigned long long* run_starts, int p, unsigned long long u) {
    return first_that(1, p, [&](int row) { return run_starts[row] > u; }) - 1;
}

// A warp's cells for rows of up to `longest`, and its partners after them.
template <int L>
__device__ __forceinline__ long long cells_of_warp(int longest) {
    return Prefix<L - 1>::cells_needed(longest) + (longest + 1) / 2;
}

// The tests of one side. Side 0: sets from adj(i) for the edges to larger variables. Side 1: for those to smaller ones
// that side 0 left in `start`. Separated edges go from `left_graph`, on side 0 from `start` as well; s.best[s.starts[i]
// + q] is the smallest rank found for row i's neighbour at position q. Warps take turns of a run of prefixes, until
// there are no more. `cells` are the warp's, for rows of up to `longest`.
template <int L, bool WITH_SMALLEST>
__device__ __forceinline__ void scan_side(const PairScan& s, double critical_r_squared, int start, int left_graph,
                                          int side, int asked_run, int longest, double* cells) {
    constexpr int K = L - 1;
    const int run = run_of<L>(asked_run);
    const double* const C = s.C;
    const int p = s.graphs.p, words = s.graphs.words;
    unsigned *const graph = s.graphs.graph(start), *const left = s.graphs.graph(left_graph);
    const Binomials binomial{s.binomials, s.widest};
    unsigned long long tests = 0, undefined = 0, singular_tests = 0;
    int* const partners = reinterpret_cast<int*>(cells + Prefix<K>::cells_needed(longest));
    const unsigned long long heads = static_cast<unsigned long long>(HEADS) * p;
    const unsigned long long turns = heads + s.run_starts[p];
    for (unsigned long long turn; (turn = next_turn(&s.graphs.counters_of(L)[TURNS + side])) < turns;) {
        int i;
        unsigned long long number;  // of the run in its row
        if (turn < heads) {
            i = static_cast<int>(turn % p);
            number = turn / p;
        } else {
            i = row_of_run(s.run_starts, p, turn - heads);
            number = HEADS + (turn - heads - s.run_starts[i]);
        }
        const int n = static_cast<int>(s.starts[i + 1] - s.starts[i]);
        if (number >= runs_of<L>(binomial, n, run)) continue;
        const int* row = s.neighbours + s.starts[i];
        unsigned long long* const found = s.best + s.starts[i];
        // The partners of this side are among the positions [from, to).
        const int split = first_that(0, n, [&](int q) { return row[q] > i; });
        const int from = side == 0 ? split : 0, to = side == 0 ? n : split;
        if (from == to) continue;
        const BitRow edges(graph, words, i);
        const double* c_i = C + s.cell(i, 0);
        const auto cell_of = [&](int j) { return s.cell(min(i, j), max(i, j)); };
        Prefix<K> P;
        P.cells = cells;
        P.n = n;
        unrank_combination(binomial, n - 1, K, number * run, P.positions);
        int chosen[L];
#pragma unroll
        for (int a = 0; a < K; ++a) chosen[a] = P.positions[a];
        chosen[K] = chosen[K - 1] + 1;
        unsigned long long first_rank = rank_combination<L>(binomial, n, chosen);
        int changed = 0, partner_count = -1;  // unknown
        for (int step_of_run = 0; step_of_run < run && changed >= 0; ++step_of_run) {
            if (partner_count < 0) {  // those that this prefix may still separate
                join_lanes();
                partner_count = 0;
                for (int base = from; base < to; base += LANES) {
                    const unsigned wanted = ballot(min(to - base, LANES), [&](int lane) {
                        const int q = base + lane;
                        return (side == 0 || edges.has(row[q])) && load_relaxed(&found[q]) > first_rank;
                    });
                    each_lane(LANES, [&](int lane) {
                        if (wanted >> lane & 1) partners[partner_count + __popc(wanted & ~(~0u << lane))] = base + lane;
                    });
                    partner_count += __popc(wanted);
                }
                join_lanes();
                if (partner_count == 0) break;
                if (step_of_run == 0) P.begin(c_i, row);
            }
            P.add(C, p, row, changed, s.pivot_tolerance);
            const int first = P.positions[K - 1] + 1;
#ifdef GPUPC_HOST
            constexpr int shift = 5;
#else
            const int shift = n - first >= 17 ? 5 : n - first >= 9 ? 4 : n - first >= 5 ? 3 : n - first >= 3 ? 2 : 1;
#endif
            const int width = 1 << shift;  // lanes that share a partner, a candidate each
            bool hit_any = false;
            for (int base = first; base < n; base += width) {
                // Vi given P and the candidate Vk.
                PerLane<double> of_k[K], scale, projection_i, left_ii;
                PerLane<int> k_of, at_k;
                const int candidates = min(n - base, width);
                const unsigned near = ballot(LANES, [&](int lane) {
                    const int at = base + min(lane & (width - 1), candidates - 1);
                    const double pivot = P.variance(K, at);
                    const bool is_near = P.singular < K || pivot <= s.pivot_tolerance;
                    const double inverse = 1.0 / sqrt(is_near ? 1.0 : pivot), along = P.covariance(K, at) * inverse;
#pragma unroll
                    for (int a = 0; a < K; ++a) of_k[a][lane] = P.projected(a, at);
                    at_k[lane] = at;
                    k_of[lane] = row[at];
                    scale[lane] = inverse;
                    projection_i[lane] = along;
                    left_ii[lane] = fma(-along, along, P.residual[K]);
                    return is_near;
                });
                for (int x = 0; x < partner_count; x += LANES >> shift) {
                    PerLane<int> at_q;
                    const int lanes = min((partner_count - x) << shift, LANES);
                    const auto residuals = [&](int lane) {
                        const int q = at_q[lane];
                        double jk = C[static_cast<long long>(row[q]) * p + k_of[lane]];
#pragma unroll
                        for (int a = 0; a < K; ++a) jk = fma(-of_k[a][lane], P.projected(a, q), jk);
                        const double along = jk * scale[lane];
                        return Residuals{left_ii[lane], fma(-along, along, P.variance(K, q)),
                                         fma(-projection_i[lane], along, P.covariance(K, q))};
                    };
                    each_lane(lanes, [&](int lane) { at_q[lane] = partners[x + (lane >> shift)]; });
                    const unsigned tested = ballot(lanes, [&](int lane) {
                        return ((lane & (width - 1)) < candidates) & (at_q[lane] != at_k[lane]) & !P.has(at_q[lane]);
                    });
                    unsigned notable = ballot(lanes, [&](int lane) {
                        const Residuals h = residuals(lane);
                        return h.undefined(s.residual_tolerance) |
                               h.independent(critical_r_squared, s.residual_tolerance);
                    });
                    tests += __popc(tested);
                    const unsigned careful = near & tested;
                    notable &= tested & ~near;
                    if (notable != 0) {
                        const unsigned vain = ballot(lanes, [&](int lane) {
                            return (notable >> lane & 1) && residuals(lane).undefined(s.residual_tolerance);
                        });
                        undefined += __popc(vain);
                        notable &= ~vain;
                        each_lane(lanes, [&](int lane) {
                            if (!(notable >> lane & 1)) return;
                            const int q = at_q[lane], j = row[q];
                            atomicMin(&found[q], first_rank + (at_k[lane] - first));
                            clear_edge(left, words, i, j);
                            if (side == 0) clear_edge(graph, words, i, j);
                        });
                        hit_any |= notable != 0;
                    }
                    if (careful != 0) {
                        each_lane(lanes, [&](int lane) {
                            if (!(careful >> lane & 1)) return;
                            const int q = at_q[lane], j = row[q];
                            int members[L];
                            for (int a = 0; a < K; ++a) members[a] = row[P.positions[a]];
                            members[K] = k_of[lane];
                            const Residuals h = careful_test<L>(C, p, members, i, j);
                            if (h.undefined(s.residual_tolerance)) {
                                atomicAdd(&s.graphs.counters_of(L)[UNDEFINED], 1ull);
                                return;
                            }
                            if (WITH_SMALLEST) {
                                atomicMin(&s.smallest_r_squared[cell_of(j)],
                                          static_cast<unsigned long long>(
                                              __double_as_longlong(h.r_squared(s.residual_tolerance))));
                            }
                            if (!h.independent(critical_r_squared, s.residual_tolerance)) return;
                            atomicMin(&found[q], first_rank + (at_k[lane] - first));
                            clear_edge(left, words, i, j);
                            if (side == 0) clear_edge(graph, words, i, j);
                        });
                        singular_tests += __popc(careful);
                        hit_any = true;  // perhaps
                    }
                    if (WITH_SMALLEST) {
                        each_lane(lanes, [&](int lane) {
                            if (!((tested & ~near) >> lane & 1)) return;
                            const Residuals h = residuals(lane);
                            if (h.undefined(s.residual_tolerance)) return;
                            atomicMin(&s.smallest_r_squared[cell_of(row[at_q[lane]])],
                                      static_cast<unsigned long long>(
                                          __double_as_longlong(h.r_squared(s.residual_tolerance))));
                        });
                    }
                }
            }
            first_rank += n - first;
            join_lanes();  // no lane reads the prefix's cells any more
            changed = P.advance();
            if (hit_any) partner_count = -1;
        }
    }
    if (warp_leader() && tests != 0) {
        unsigned long long* const counters = s.graphs.counters_of(L);
        atomicAdd(&counters[TESTS], tests);
        if (undefined != 0) atomicAdd(&counters[UNDEFINED], undefined);
        if (singular_tests != 0) atomicAdd(&counters[SINGULAR], singular_tests);
    }
}

// Grid (any), block (warps), dynamic shared memory: the cells of each warp, unless they are in s.scratch.
template <int L, bool WITH_SMALLEST, bool IN_SHARED>
__global__ void __launch_bounds__(128, 5) prefix_scan(const PairScan s, double critical_r_squared, int start,
                                                      int left_graph, int side, int asked_run, int longest) {
    GPUPC_DYNAMIC_SHARED(double, shared);
    const long long of_warp = cells_of_warp<L>(longest);
    double* const cells =
        (IN_SHARED ? shared : s.scratch + blockIdx.x * warp_count() * of_warp) + warp_index() * of_warp;
    scan_side<L, WITH_SMALLEST>(s, critical_r_squared, start, left_graph, side, asked_run, longest, cells);
}

// Lists the pairs removed in this level, ascending, with their sets: that of the smaller variable's row, if it has one.
template <int L>
__device__ __forceinline__ void list_sets(const PairScan& s, int before, int after, int* pairs, int* sets) {
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
        int* set = sets + slot * L;
        const int n = static_cast<int>(s.starts[owner + 1] - s.starts[owner]);
        unrank_combination(binomial, n, L, rank, set);
        for (int a = 0; a < L; ++a) set[a] = s.neighbours[s.starts[owner] + set[a]];
    });
}

// Grid (any), block (warps).
template <int L>
__global__ void list_removed(const PairScan s, int before, int after, int* pairs, int* sets) {
    list_sets<L>(s, before, after, pairs, sets);
}

// Where later_levels is.
struct Progress {
    GridBarrier barrier;
    int graph;                 // at the start of the next level
    unsigned long long edges;  // of that graph
    int most_degree;           // of that graph
    int *pairs, *sets;         // the next level's list begins here
    int ended;                 // the last level that was run

    // Counts what level L left in the next graph, lists what it removed by list(before, after, pairs, sets), and goes
    // on to the next level.
    template <int L, class F>
    __device__ __forceinline__ void end_level(const PairScan& s, F list) {
        const int left = (graph + 1) % GRAPHS_AT_ONCE;
        count_left(s.graphs, graph, left, L);
        barrier.wait();
        unsigned long long* const counters = s.graphs.counters_of(L);
        const unsigned long long kept = load_relaxed(&counters[DEGREE_SUM]) / 2, gone = edges - kept;
        if (gone != 0) {
            list(graph, left, pairs, sets);
            barrier.wait();  // the next level writes over what lists are made of
        }
        graph = left;
        edges = kept;
        most_degree = static_cast<int>(load_relaxed(&counters[MOST_DEGREE]));
        pairs += 2 * gone;
        sets += L * gone;
        ended = L;
        if (blockIdx.x == 0 && threadIdx.x == 0) counters[ENDED] = nanoseconds();
    }
};

// Level L in later_levels; returns whether it was run.
template <int L>
__device__ __forceinline__ bool run_level(const PairScan& s, Progress& at, double critical_r_squared, int asked_run,
                                          long long shared_cells) {
    GPUPC_DYNAMIC_SHARED(double, shared);
    const int longest = at.most_degree;
    const long long of_warp = cells_of_warp<L>(longest);
    // The rule of core/pc_stable.py, stop_reason; the table ends at as many sets as a search may number.
    if (longest - 1 < L || longest > s.widest || Binomials{s.binomials, s.widest}(longest, L) >= MOST_SETS ||
        of_warp > shared_cells) {
        return false;
    }
    const int start = at.graph, left = (start + 1) % GRAPHS_AT_ONCE, middle = (start + 2) % GRAPHS_AT_ONCE;
    // Where tests are few, a level takes as long as the longest run.
    const int run = asked_run != 0 ? asked_run : min(run_of<L>(0), 4);
    prepare<L>(s, start, left, middle, run);
    at.barrier.wait();
#pragma unroll 1
    for (int side = 0; side < 2; ++side) {
        if ((warp_index() + 1) * of_warp <= shared_cells) {
            double* const cells = shared + warp_index() * of_warp;
            scan_side<L, false>(s, critical_r_squared, middle, left, side, run, longest, cells);
        }
        at.barrier.wait();
    }
    at.end_level<L>(s,
                    [&](int before, int after, int* pairs, int* sets) { list_sets<L>(s, before, after, pairs, sets); });
    return true;
}

// Levels L to `last`.
template <int L, int LAST>
__device__ __forceinline__ void run_levels(const PairScan& s, Progress& at, int first, int last, const double* critical,
                                           int asked_run, long long shared_cells) {
    if constexpr (L <= LAST) {
        if (L > last) return;
        if (L < first || run_level<L>(s, at, critical[L - 2], asked_run, shared_cells)) {
            run_levels<L + 1, LAST>(s, at, first, last, critical, asked_run, shared_cells);
        }
    }
}

// What a search hands over if no level follows; of a launch that begins with level 1. gaussian/pair_scan.py, RESULT,
// declares the same.
struct ScanResult {
    unsigned char* entries;  // see write_entries
    int* pairs;              // see merge_lists
    long long* offsets;
    unsigned char* sizes;
    int* members;
};

// The result of a launch that began with level 1 and ran levels up to `ended`, from its lists.
__device__ __forceinline__ void write_result(const PairScan& s, int graph, int ended, const int* pairs, const int* sets,
                                             const ScanResult& result) {
    SetList lists[LISTS] = {};
#pragma unroll
    for (int L = 1; L <= LISTS; ++L) {
        if (L > ended) continue;
        const unsigned long long before = load_relaxed(&s.graphs.counters_of(L - 1)[DEGREE_SUM]);
        const unsigned long long gone = (before - load_relaxed(&s.graphs.counters_of(L)[DEGREE_SUM])) / 2;
        lists[L - 1] = {pairs, nullptr, sets, static_cast<long long>(gone), L};
        pairs += 2 * gone;
        sets += L * gone;
    }
    write_entries(s.graphs, graph, result.entries);
    merge_lists(lists, result.pairs, result.offsets, result.sizes, result.members);
}

// A sixteenth of the tests that level 2 would make if all variables had as many neighbours as on average and none went;
// gaussian/pair_scan.py, _tests_before, has the same.
__device__ __forceinline__ double tests_expected(unsigned long long edges, int p) {
    const double degree = 2.0 * static_cast<double>(edges) / p;
    return static_cast<double>(edges) * degree * degree / 16;
}

// Levels `first` to `last`, which lie from FIRST to LAST, in one launch, for small problems, where launches would take
// longer than the work. `graph`: at the start of the first; critical[L - 2]: the critical r^2 of level L. Of level 1
// the tests have been made (pair_scan_one). Each level that was run has its counters, ENDED among them (that of the
// level before `first`: when all this began, or when level 1 did), and its list, as list_removed makes it, behind those
// of the levels before. A level whose rows are too long for the shared memory or the table of binomials is left to
// other launches, and so are those that follow; so are all from 2 on where level 1, in this launch, left more edges
// than there are rows for, or `most_tests` are expected. Where level 1 is among them, so is the result, of the levels
// up to the last that was run. Grid (any, together), block (warps), dynamic shared memory: `shared_bytes`.
template <int FIRST, int LAST>
__global__ void __launch_bounds__(128, 4)
    later_levels(const PairScan s, const double* critical, int graph, int first, int last, int asked_run,
                 long long shared_bytes, long long most_edges, double most_tests, int* pairs, int* sets,
                 const ScanResult result) {
    unsigned long long* const before = s.graphs.counters_of(first - 1);
    if (first > 1 && blockIdx.x == 0 && threadIdx.x == 0) before[ENDED] = nanoseconds();
    Progress at{{&s.graphs.counters_of(first)[ARRIVED]},
                graph,
                before[DEGREE_SUM] / 2,
                static_cast<int>(before[MOST_DEGREE]),
                pairs,
                sets,
                first - 1};
    if constexpr (FIRST == 1) {
        if (first == 1) {
            at.end_level<1>(s, [&](int start, int left, int* listed, int* members) {
                list_members(s, start, left, listed, members);
            });
            const bool few = at.edges <= static_cast<unsigned long long>(most_edges) &&
                             tests_expected(at.edges, s.graphs.p) <= most_tests;
            if (!few) last = 1;
        }
    }
    run_levels<(FIRST > 2 ? FIRST : 2), LAST>(s, at, first, last, critical, asked_run,
                                              shared_bytes / static_cast<long long>(sizeof(double)));
    if constexpr (FIRST == 1) {
        static_assert(LAST <= LISTS);
        if (first == 1) write_result(s, at.graph, at.ended, pairs, sets, result);
    }
}
