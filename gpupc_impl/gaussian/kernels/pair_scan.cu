// pair-scan, levels 0 and 1: the test of (i, j, k) is the same from either end, so one ascending pass over k serves
// both sides. A hit in adj(i) ends the pass; the first hit in adj(j) is kept in case adj(i) has none. That is the
// canonical separating set, without keys or atomics. Decisions are those of fisher_z.cuh to the bit.
#include "gaussian/kernels/pair_scan.cuh"

// Level 0, with what count_rows counts after others. `empty` becomes a graph without edges; `twins` has the pairs,
// edges or not, that have no variance left given one another; has_twins: whether a row has any. Grid (any), block
// (warps).
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
            unsigned near = ballot(count, [&](int lane) {
                const double r = c_i[first + lane];
                return fma(-r, r, 1.0) <= s.residual_tolerance;
            });
            const unsigned others = i / 32 == w ? ~(1u << (i % 32)) : ~0u;
            edges &= others;
            near &= others;
            any_twin |= near;
            degree += __popc(edges);
            if (warp_leader()) {
                const long long cell = static_cast<long long>(i) * words + w;
                bits[cell] = edges;
                s.twins[cell] = near;
                after[cell] = 0;
            }
        }
        if (warp_leader()) {
            s.graphs.degrees[i] = degree;
            s.has_twins[i] = any_twin != 0;
        }
        sum += degree;
        most = max(most, static_cast<unsigned long long>(degree));
    }
    if (warp_leader() && sum != 0) {
        atomicAdd(&s.graphs.counters_of(0)[DEGREE_SUM], sum);
        atomicMax(&s.graphs.counters_of(0)[MOST_DEGREE], most);
    }
}

constexpr double NOTHING_TESTED = 1e300;

#ifdef GPUPC_HOST
constexpr int AT_ONCE = 1;
#else
constexpr int AT_ONCE = 4;  // words of 32 variables, whose loads are in flight together
#endif

struct Words {
    unsigned at[AT_ONCE];

    __device__ __forceinline__ Words() {}
    __device__ __forceinline__ explicit Words(const unsigned* bits) {
#ifdef GPUPC_HOST
        at[0] = *bits;
#else
        const uint4 four = *reinterpret_cast<const uint4*>(bits);
        at[0] = four.x, at[1] = four.y, at[2] = four.z, at[3] = four.w;
#endif
    }
    __device__ __forceinline__ unsigned any() const {
        unsigned together = 0;
#pragma unroll
        for (int q = 0; q < AT_ONCE; ++q) together |= at[q];
        return together;
    }
    __device__ __forceinline__ int count() const {
        int n = 0;
#pragma unroll
        for (int q = 0; q < AT_ONCE; ++q) n += __popc(at[q]);
        return n;
    }
};

// H of the test of Vi and Vj given Vk.
__device__ __forceinline__ Residuals given_one(double r_ij, double r_ik, double r_jk) {
    return {fma(-r_ik, r_ik, 1.0), fma(-r_jk, r_jk, 1.0), fma(-r_ik, r_jk, r_ij)};
}

// Which of the variables from `first` on separate Vi and Vj, where the test is defined; WITH_TOLERANCE: whether the
// problem's is above zero.
template <bool WHOLE, bool WITH_TOLERANCE>
__device__ __forceinline__ Words separating(const double* c_i, const double* c_j, double r_ij,
                                            double critical_r_squared, int first, int p) {
    PerLane<double> r_ik[AT_ONCE], r_jk[AT_ONCE];
#ifdef GPUPC_HOST
    const auto of_i = [&](int q, int lane) { return c_i[first + 32 * q + lane]; };
    const auto of_j = [&](int q, int lane) { return c_j[first + 32 * q + lane]; };
#else
#pragma unroll
    for (int q = 0; q < AT_ONCE; ++q) {
        each_lane(WHOLE ? LANES : max(min(p - first - 32 * q, LANES), 0), [&](int lane) {
            r_ik[q][lane] = c_i[first + 32 * q + lane];
            r_jk[q][lane] = c_j[first + 32 * q + lane];
        });
    }
    const auto of_i = [&](int q, int lane) { return r_ik[q][lane]; };
    const auto of_j = [&](int q, int lane) { return r_jk[q][lane]; };
#endif
    Words found;
#pragma unroll
    for (int q = 0; q < AT_ONCE; ++q) {
        found.at[q] = ballot(WHOLE ? LANES : max(min(p - first - 32 * q, LANES), 0), [&](int lane) {
            return given_one(r_ij, of_i(q, lane), of_j(q, lane))
                .independent(critical_r_squared, WITH_TOLERANCE ? 1.0 : 0.0);
        });
    }
    return found;
}

// Level 1. `left` has no edges before; s.members[i * p + j] is the separating set of a pair i < j that goes. Counted
// are the tests up to the one that decides, the same on every backend. Grid (p, any), block (warps).
template <bool WITH_SMALLEST>
__global__ void __launch_bounds__(128, 8)
    pair_scan_one(const PairScan s, double critical_r_squared, int start, int left) {
    const int i = blockIdx.x, p = s.graphs.p, words = s.graphs.words;
    const unsigned* const before = s.graphs.graph(start);
    unsigned* const after = s.graphs.graph(left);
    const unsigned* of_i = BitRow(before, words, i).bits;
    const double* c_i = s.C + s.cell(i, 0);
    unsigned long long tests = 0, undefined = 0;
    for (int home = i / 32 + blockIdx.y * warp_count() + warp_index(); home < words; home += gridDim.y * warp_count()) {
        for (unsigned partners = of_i[home] & above(i, home); partners != 0; partners &= partners - 1) {
            const int j = 32 * home + __ffs(partners) - 1;
            const unsigned* of_j = BitRow(before, words, j).bits;
            const double* c_j = s.C + s.cell(j, 0);
            const double r_ij = c_i[j];
            const bool with_twins = s.has_twins[i] | s.has_twins[j];
            PerLane<double> least;
            if (WITH_SMALLEST) each_lane(LANES, [&](int lane) { least[lane] = NOTHING_TESTED; });
            int in_i = -1, in_j = -1;
            for (int w = 0; w < words && in_i < 0; w += AT_ONCE) {
                const Words a(of_i + w), b(of_j + w);
                Words tested, vain;
#pragma unroll
                for (int q = 0; q < AT_ONCE; ++q) {
                    tested.at[q] = in_j < 0 ? a.at[q] | b.at[q] : a.at[q];
                    vain.at[q] = 0;
                }
                if (tested.any() == 0) continue;
                Words hits;
                if (s.residual_tolerance == 0.0) {
                    hits = separating<false, false>(c_i, c_j, r_ij, critical_r_squared, 32 * w, p);
                } else if (32 * (w + AT_ONCE) <= p) {
                    hits = separating<true, true>(c_i, c_j, r_ij, critical_r_squared, 32 * w, p);
                } else {
                    hits = separating<false, true>(c_i, c_j, r_ij, critical_r_squared, 32 * w, p);
                }
                if (with_twins) {
                    const Words of_both(BitRow(s.twins, words, i).bits + w),
                        or_those(BitRow(s.twins, words, j).bits + w);
#pragma unroll
                    for (int q = 0; q < AT_ONCE; ++q) vain.at[q] = of_both.at[q] | or_those.at[q];
                }
#pragma unroll
                for (int q = 0; q < AT_ONCE; ++q) hits.at[q] &= tested.at[q];
                if (hits.any() != 0) {  // Vi and Vj themselves are always among them
#pragma unroll
                    for (int q = 0; q < AT_ONCE; ++q) {
                        if (in_j >= 0) tested.at[q] &= a.at[q];
                        if (w + q == i / 32) tested.at[q] &= ~(1u << (i % 32));
                        if (w + q == j / 32) tested.at[q] &= ~(1u << (j % 32));
                        if (in_i >= 0) tested.at[q] = 0;
                        const unsigned found = hits.at[q] & tested.at[q] & ~vain.at[q];
                        if ((found & a.at[q]) != 0) {
                            const int lane = __ffs(found & a.at[q]) - 1;
                            in_i = 32 * (w + q) + lane;
                            tested.at[q] &= lanes_through(lane);
                        } else if (found != 0 && in_j < 0) {
                            in_j = 32 * (w + q) + __ffs(found) - 1;
                        }
                    }
                }
                tests += tested.count();
                if (with_twins) {
#pragma unroll
                    for (int q = 0; q < AT_ONCE; ++q) undefined += __popc(vain.at[q] & tested.at[q]);
                }
                if (WITH_SMALLEST) {
                    for (int q = 0; q < AT_ONCE; ++q) {
                        each_lane(LANES, [&](int lane) {
                            if (!((tested.at[q] & ~vain.at[q]) >> lane & 1)) return;
                            const int k = 32 * (w + q) + lane;
                            const double r_squared = given_one(r_ij, c_i[k], c_j[k]).r_squared(s.residual_tolerance);
                            if (r_squared < least[lane]) least[lane] = r_squared;
                        });
                    }
                }
            }
            const int member = in_i >= 0 ? in_i : in_j;
            const long long cell = s.cell(i, j);
            if (WITH_SMALLEST) {
                const double value = smallest(least);
                if (warp_leader() && value < NOTHING_TESTED) s.smallest_r_squared[cell] = __double_as_longlong(value);
            }
            if (warp_leader()) {
                if (member >= 0) {
                    s.members[cell] = member;
                } else {
                    set_edge(after, words, i, j);
                }
            }
        }
    }
    if (warp_leader() && tests != 0) {
        unsigned long long* const counters = s.graphs.counters_of(1);
        atomicAdd(&counters[TESTS], tests);
        if (undefined != 0) atomicAdd(&counters[UNDEFINED], undefined);
    }
}

// Lists the pairs removed in level 1, ascending, and the member of their set. Grid (any), block (warps).
__global__ void list_removed_one(const PairScan s, int before, int after, int* pairs, int* sets) {
    each_removed(s.graphs, before, after, [&](int i, int j, long long slot) {
        pairs[2 * slot] = i;
        pairs[2 * slot + 1] = j;
        sets[slot] = s.members[s.cell(i, j)];
    });
}
