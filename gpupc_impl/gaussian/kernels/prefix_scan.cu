// pair-scan, levels from 2 on. A set S of row i is a prefix P, all its members but the last, and a last member k. A warp
// takes a prefix: what is left of the covariances given P is worked out once for 32 candidates k and for 32 partners j
// at a time; a test of (i, j | P + k) is then a handful of operations, its lanes the candidates.
//
// This is the elimination of fisher_z.cuh's ConditioningSet in another order: each number comes from the same operations
// in the same order, so every decision has the same bits.
#include "engine/kernels/bit_graph.cuh"
#include "engine/kernels/combinations.cuh"
#include "gaussian/kernels/fisher_z.cuh"

constexpr unsigned long long NO_RANK = ~0ull;

// The rank of an ascending combination of L out of n: the inverse of unrank_combination.
template <int L>
__device__ __forceinline__ unsigned long long rank_combination(const Binomials& binomial, int n, const int* positions) {
    unsigned long long following = 0;
#pragma unroll
    for (int a = 0; a < L; ++a) following += binomial(n - 1 - positions[a], L - a);
    return binomial(n, L) - 1 - following;
}

// P factorised: the Cholesky factor of C[P, P], and row i given P.
template <int K>
struct Prefix {
    int positions[K], members[K];
    double factor[K * K];  // lower triangle, with reciprocal diagonal
    double projection[K];  // of Vi
    double residual;       // variance of Vi given P
    bool singular;

    // What is left of the variance of v given P; its projection goes to `solution`.
    __device__ __forceinline__ double project(const double* C, int p, int v, double* solution) const {
        double left = 1.0;
#pragma unroll
        for (int a = 0; a < K; ++a) {
            double sum = C[static_cast<long long>(members[a]) * p + v];
#pragma unroll
            for (int k = 0; k < a; ++k) sum = fma(-factor[a * K + k], solution[k], sum);
            solution[a] = sum * factor[a * K + a];
            left = fma(-solution[a], solution[a], left);
        }
        return left;
    }

    __device__ __forceinline__ void factorise(const double* C, int p, int i) {
        singular = false;
#pragma unroll
        for (int a = 0; a < K; ++a) {
            double pivot = 1.0;
#pragma unroll
            for (int b = 0; b < a; ++b) {
                double sum = C[static_cast<long long>(members[b]) * p + members[a]];
#pragma unroll
                for (int k = 0; k < b; ++k) sum = fma(-factor[a * K + k], factor[b * K + k], sum);
                factor[a * K + b] = sum * factor[b * K + b];
                pivot = fma(-factor[a * K + b], factor[a * K + b], pivot);
            }
            if (pivot <= RESIDUAL_TOLERANCE) {
                singular = true;
                pivot = 1.0;
            }
            factor[a * K + a] = 1.0 / sqrt(pivot);
        }
        residual = project(C, p, i, projection);
    }
};

// One test of a set with a near-singular M2: see fisher_z.cuh.
template <int L>
__device__ __noinline__ Residuals careful_test(const double* C, int p, const int* members, int i, int j) {
    PseudoInverse<L> pseudo;
    for (int a = 0; a < L; ++a) pseudo.members[a] = members[a];
    pseudo.compute(C, p);
    return pseudo.residuals(C, p, i, j);
}

// The tests of one side. Side 0: sets from adj(i) for the edges to larger variables. Side 1: for those to smaller ones
// that side 0 left in `graph`. `starts` and `neighbours` are the rows of the graph at the level's start; separated edges go
// from `left`, on side 0 from `graph` as well; best[starts[i] + q] is the smallest rank found for row i's neighbour at
// position q. counters: {tests, undefined tests, tests with a near-singular M2}.
// Grid (p, any), block (warps).
template <int L, bool WITH_SMALLEST>
__global__ void __launch_bounds__(128)
    prefix_scan(const double* C, int p, double critical_r_squared, const long long* starts, const int* neighbours,
                const unsigned long long* binomials, int max_degree, unsigned* graph, unsigned* left, int words,
                int side, unsigned long long* best, unsigned long long* smallest_r_squared, unsigned long long* counters) {
    constexpr int K = L - 1;
    const int i = blockIdx.x, n = static_cast<int>(starts[i + 1] - starts[i]);
    if (n < L + 1) return;
    const int* row = neighbours + starts[i];
    unsigned long long* const found = best + starts[i];
    // The partners of this side are the positions [from, to).
    int split = 0;
    for (int high = n; split < high;) {
        const int middle = (split + high) / 2;
        if (row[middle] < i) split = middle + 1;
        else high = middle;
    }
    const int from = side == 0 ? split : 0, to = side == 0 ? n : split;
    if (from == to) return;
    const BitRow edges(graph, words, i);
    const Binomials binomial{binomials, max_degree};
    const unsigned long long prefixes = binomial(n - 1, K);
    const double* c_i = C + static_cast<long long>(i) * p;

    unsigned long long tests = 0, undefined = 0, singular_tests = 0;
    for (unsigned long long t = static_cast<unsigned long long>(blockIdx.y) * warp_count() + warp_index(); t < prefixes;
         t += static_cast<unsigned long long>(gridDim.y) * warp_count()) {
        Prefix<K> P;
        unrank_combination(binomial, n - 1, K, t, P.positions);
        int chosen[L];
#pragma unroll
        for (int a = 0; a < K; ++a) chosen[a] = P.positions[a];
        chosen[K] = chosen[K - 1] + 1;
        const unsigned long long first_rank = rank_combination<L>(binomial, n, chosen);

        // Partners that this prefix may still separate.
        bool factorised = false;
        for (int base = from; base < to; base += LANES) {
            unsigned partners = ballot(min(to - base, LANES), [&](int lane) {
                const int q = base + lane;
                bool wanted = (side == 0 || edges.has(row[q])) && load_relaxed(&found[q]) > first_rank;
#pragma unroll
                for (int a = 0; a < K; ++a) wanted = wanted && q != chosen[a];
                return wanted;
            });
            if (partners == 0) continue;
            if (!factorised) {
#pragma unroll
                for (int a = 0; a < K; ++a) P.members[a] = row[P.positions[a]];
                P.factorise(C, p, i);
                factorised = true;
            }
            // Vj given P, a partner a lane.
            PerLane<double> solution_j[K], left_jj, left_ij;
            each_lane(min(to - base, LANES), [&](int lane) {
                const int j = row[base + lane];
                double solution[K];
                left_jj[lane] = P.project(C, p, j, solution);
                double ij = c_i[j];
#pragma unroll
                for (int a = 0; a < K; ++a) {
                    ij = fma(-P.projection[a], solution[a], ij);
                    solution_j[a][lane] = solution[a];
                }
                left_ij[lane] = ij;
            });
            for (int first = chosen[K]; first < n && partners != 0; first += LANES) {
                const int candidates = min(n - first, LANES);
                // Vk given P, and Vi given P and Vk, a candidate a lane.
                PerLane<double> solution_k[K], scale, projection_i, left_ii;
                PerLane<int> k_of;
                const unsigned singular = ballot(candidates, [&](int lane) {
                    const int k = row[first + lane];
                    double solution[K];
                    double pivot = P.project(C, p, k, solution);
                    const bool near = P.singular || pivot <= RESIDUAL_TOLERANCE;
                    double ik = c_i[k];
#pragma unroll
                    for (int a = 0; a < K; ++a) {
                        ik = fma(-solution[a], P.projection[a], ik);
                        solution_k[a][lane] = solution[a];
                    }
                    const double inverse = 1.0 / sqrt(near ? 1.0 : pivot), along = ik * inverse;
                    k_of[lane] = k;
                    scale[lane] = inverse;
                    projection_i[lane] = along;
                    left_ii[lane] = fma(-along, along, P.residual);
                    return near;
                });
                const unsigned regular = lanes_through(candidates - 1) & ~singular;
                for (unsigned rest = partners; rest != 0; rest &= rest - 1) {
                    const int partner = __ffs(rest) - 1, q = base + partner, j = row[q];
                    unsigned tested = regular;
                    if (first <= q && q < first + candidates) tested &= ~(1u << (q - first));
                    const double* c_j = C + static_cast<long long>(j) * p;
                    double of_j[K];
#pragma unroll
                    for (int a = 0; a < K; ++a) of_j[a] = of_lane(solution_j[a], partner);
                    const double jj = of_lane(left_jj, partner), ij = of_lane(left_ij, partner);
                    const auto residuals = [&](int lane) {
                        double jk = c_j[k_of[lane]];
#pragma unroll
                        for (int a = 0; a < K; ++a) jk = fma(-solution_k[a][lane], of_j[a], jk);
                        const double along = jk * scale[lane];
                        return Residuals{left_ii[lane], fma(-along, along, jj), fma(-projection_i[lane], along, ij)};
                    };
                    unsigned hits = ballot(candidates, [&](int lane) {
                        const Residuals h = residuals(lane);
                        return h.undefined() | h.independent(critical_r_squared);
                    }) & tested;
                    unsigned vain = 0;
                    if (hits != 0) {
                        vain = ballot(candidates, [&](int lane) {
                            return (hits >> lane & 1) && residuals(lane).undefined();
                        });
                        hits &= ~vain;
                    }
                    if (singular != 0) {  // lanes are few: one after the other
                        for (unsigned near = singular; near != 0; near &= near - 1) {
                            const int lane = __ffs(near) - 1;
                            if (first + lane == q || (hits & lanes_through(lane)) != 0) continue;
                            int members[L];
                            for (int a = 0; a < K; ++a) members[a] = P.members[a];
                            members[K] = row[first + lane];
                            const Residuals h = careful_test<L>(C, p, members, i, j);
                            ++singular_tests;
                            tested |= 1u << lane;
                            if (h.undefined()) {
                                vain |= 1u << lane;
                            } else {
                                if (h.independent(critical_r_squared)) hits |= 1u << lane;
                                if (WITH_SMALLEST && warp_leader()) {
                                    atomicMin(&smallest_r_squared[static_cast<long long>(min(i, j)) * p + max(i, j)],
                                              static_cast<unsigned long long>(__double_as_longlong(h.r_squared())));
                                }
                            }
                        }
                    }
                    if (hits != 0) {
                        const int lane = __ffs(hits) - 1;
                        tested &= lanes_through(lane);
                        if (warp_leader()) {
                            atomicMin(&found[q], first_rank + (first - chosen[K] + lane));
                            clear_edge(left, words, i, j);
                            if (side == 0) clear_edge(graph, words, i, j);
                        }
                        partners &= ~(1u << partner);
                    }
                    tests += __popc(tested);
                    undefined += __popc(vain & tested);
                    if (WITH_SMALLEST) {
                        const unsigned counted = tested & ~vain & ~singular;
                        PerLane<double> least;
                        each_lane(LANES, [&](int lane) {
                            least[lane] = counted >> lane & 1 ? residuals(lane).r_squared() : 1e300;
                        });
                        const double value = smallest(least);
                        if (warp_leader() && value < 1e300) {
                            atomicMin(&smallest_r_squared[static_cast<long long>(min(i, j)) * p + max(i, j)],
                                      static_cast<unsigned long long>(__double_as_longlong(value)));
                        }
                    }
                }
            }
        }
    }
    if (warp_leader() && tests != 0) {
        atomicAdd(&counters[0], tests);
        if (undefined != 0) atomicAdd(&counters[1], undefined);
        if (singular_tests != 0) atomicAdd(&counters[2], singular_tests);
    }
}

// Lists the pairs removed in this level, ascending, with their sets: that of the smaller variable's row, if it has one.
// removed: of each row, how many. Grid (any), block (warps).
template <int L>
__global__ void list_removed(const unsigned* before, const unsigned* after, int words, int p, const int* removed,
                             const long long* starts, const int* neighbours, const unsigned long long* binomials,
                             int max_degree, const unsigned long long* best, int* pairs, int* sets) {
    const Binomials binomial{binomials, max_degree};
    const auto rank_of = [&](int owner, int other) {
        long long low = starts[owner], high = starts[owner + 1];
        while (low < high) {
            const long long middle = low + (high - low) / 2;
            if (neighbours[middle] < other) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return best[low];
    };
    const WarpRows rows(p);
    each_removed(before, after, words, rows, sum_of(removed, rows.first), [&](int i, int j, long long slot) {
        pairs[2 * slot] = i;
        pairs[2 * slot + 1] = j;
        unsigned long long rank = rank_of(i, j);
        const int owner = rank == NO_RANK ? j : i;
        if (owner == j) rank = rank_of(j, i);
        int* set = sets + slot * L;
        unrank_combination(binomial, static_cast<int>(starts[owner + 1] - starts[owner]), L, rank, set);
        for (int a = 0; a < L; ++a) set[a] = neighbours[starts[owner] + set[a]];
    });
}
