// pair-scan, levels 0 and 1: the test of (i, j, k) is the same from either end, so one ascending pass over k serves both
// sides. A hit in adj(i) ends the pass; the first hit in adj(j) is kept in case adj(i) has none. That is the canonical
// separating set, without keys or atomics. Decisions are those of fisher_z.cuh to the bit.
#include "engine/kernels/bit_graph.cuh"
#include "gaussian/kernels/fisher_z.cuh"

// Level 0, with what count_rows counts after others; `next` becomes a graph without edges. Grid (any), block (warps).
__global__ void pair_scan_zero(const double* C, int p, double critical_r_squared, unsigned* bits, unsigned* next,
                               int words, int* degrees, unsigned long long* totals) {
    const WarpRows rows(p);
    unsigned long long sum = 0, most = 0;
    for (int i = rows.first; i < rows.last; ++i) {
        const double* c_i = C + static_cast<long long>(i) * p;
        int degree = 0;
        for (int w = 0; w < words; ++w) {
            const int first = 32 * w;
            unsigned word = ballot(max(min(p - first, LANES), 0), [&](int lane) {
                const double r = c_i[first + lane];
                return r * r > critical_r_squared;
            });
            if (i / 32 == w) word &= ~(1u << (i % 32));
            degree += __popc(word);
            if (warp_leader()) {
                bits[static_cast<long long>(i) * words + w] = word;
                next[static_cast<long long>(i) * words + w] = 0;
            }
        }
        if (warp_leader()) degrees[i] = degree;
        sum += degree;
        most = max(most, static_cast<unsigned long long>(degree));
    }
    if (warp_leader() && sum != 0) {
        atomicAdd(&totals[0], sum);
        atomicMax(&totals[1], most);
    }
}

constexpr double NOTHING_TESTED = 1e300;

#ifdef GPUPC_HOST
constexpr int WORDS_AT_ONCE = 1;
#else
constexpr int WORDS_AT_ONCE = 4;  // loads in flight
#endif

// Level 1. `after` is all zeros before; `members[i * p + j]` is the separating set of a pair i < j that goes. counters:
// {tests, undefined tests}. Counted are the tests up to the one that decides, the same on every backend.
// Grid (p, any), block (warps).
template <bool WITH_SMALLEST>
__global__ void __launch_bounds__(256)
    pair_scan_one(const double* C, int p, double critical_r_squared, const unsigned* before, unsigned* after, int words,
                  int* members, unsigned long long* smallest_r_squared, unsigned long long* counters) {
    const int i = blockIdx.x;
    const BitRow of_i(before, words, i);
    const double* c_i = C + static_cast<long long>(i) * p;
    unsigned long long tests = 0, undefined = 0;
    for (int j = i + 1 + blockIdx.y * warp_count() + warp_index(); j < p; j += gridDim.y * warp_count()) {
        if (!of_i.has(j)) continue;
        const BitRow of_j(before, words, j);
        const double* c_j = C + static_cast<long long>(j) * p;
        const double r_ij = c_i[j];
        PerLane<double> least;
        if (WITH_SMALLEST) each_lane(LANES, [&](int lane) { least[lane] = NOTHING_TESTED; });
        const auto residuals = [&](double r_ik, double r_jk) {
            return Residuals{fma(-r_ik, r_ik, 1.0), fma(-r_jk, r_jk, 1.0), fma(-r_ik, r_jk, r_ij)};
        };
        int in_i = -1, in_j = -1;
        for (int w = 0; w < words && in_i < 0; w += WORDS_AT_ONCE) {
            unsigned a[WORDS_AT_ONCE], b[WORDS_AT_ONCE], any = 0;
#pragma unroll
            for (int q = 0; q < WORDS_AT_ONCE; ++q) {
                a[q] = of_i.bits[w + q];
                b[q] = of_j.bits[w + q];
                if ((w + q) == j / 32) a[q] &= ~(1u << (j % 32));
                if ((w + q) == i / 32) b[q] &= ~(1u << (i % 32));
                any |= in_j < 0 ? a[q] | b[q] : a[q];
            }
            if (any == 0) continue;
            PerLane<double> r_ik[WORDS_AT_ONCE], r_jk[WORDS_AT_ONCE];
            unsigned notable[WORDS_AT_ONCE];
#ifndef GPUPC_HOST
#pragma unroll
            for (int q = 0; q < WORDS_AT_ONCE; ++q) {
                each_lane(max(min(p - 32 * (w + q), LANES), 0), [&](int lane) {
                    r_ik[q][lane] = c_i[32 * (w + q) + lane];
                    r_jk[q][lane] = c_j[32 * (w + q) + lane];
                });
            }
            const auto r_i = [&](int q, int lane) { return r_ik[q][lane]; };
            const auto r_j = [&](int q, int lane) { return r_jk[q][lane]; };
#else
            const auto r_i = [&](int q, int lane) { return c_i[32 * (w + q) + lane]; };
            const auto r_j = [&](int q, int lane) { return c_j[32 * (w + q) + lane]; };
#endif
#pragma unroll
            for (int q = 0; q < WORDS_AT_ONCE; ++q) {
                notable[q] = ballot(max(min(p - 32 * (w + q), LANES), 0), [&](int lane) {
                    const Residuals h = residuals(r_i(q, lane), r_j(q, lane));
                    return h.undefined() | h.independent(critical_r_squared);
                });
            }
#pragma unroll
            for (int q = 0; q < WORDS_AT_ONCE; ++q) {
                if (in_i >= 0) break;
                unsigned tested = in_j < 0 ? a[q] | b[q] : a[q];
                unsigned hits = notable[q] & tested;
                unsigned vain = 0;
                for (; hits != 0 && in_i < 0; hits &= hits - 1) {
                    const int lane = __ffs(hits) - 1, k = 32 * (w + q) + lane;
                    if (residuals(c_i[k], c_j[k]).undefined()) {
                        vain |= 1u << lane;
                    } else if (a[q] >> lane & 1) {
                        in_i = k;
                        tested &= lanes_through(lane);
                    } else if (in_j < 0) {
                        in_j = k;
                    }
                }
                undefined += __popc(vain);
                tests += __popc(tested);
                if (WITH_SMALLEST) {
                    each_lane(LANES, [&](int lane) {
                        if (!(tested >> lane & 1)) return;
                        const Residuals h = residuals(r_i(q, lane), r_j(q, lane));
                        if (!h.undefined() && h.r_squared() < least[lane]) least[lane] = h.r_squared();
                    });
                }
            }
        }
        if (WITH_SMALLEST) {
            const double value = smallest(least);
            if (warp_leader() && value < NOTHING_TESTED) {
                smallest_r_squared[static_cast<long long>(i) * p + j] = __double_as_longlong(value);
            }
        }
        if (warp_leader()) {
            const int member = in_i >= 0 ? in_i : in_j;
            if (member >= 0) {
                members[static_cast<long long>(i) * p + j] = member;
            } else {
                set_edge(after, words, i, j);
            }
        }
    }
    if (warp_leader() && tests != 0) {
        atomicAdd(&counters[0], tests);
        if (undefined != 0) atomicAdd(&counters[1], undefined);
    }
}

// Lists the pairs removed in level 1, ascending, and the member of their set. removed: of each row, how many.
// Grid (any), block (warps).
__global__ void list_removed_one(const unsigned* before, const unsigned* after, int words, int p, const int* removed,
                                 const int* members, int* pairs, int* sets) {
    const WarpRows rows(p);
    each_removed(before, after, words, rows, sum_of(removed, rows.first), [&](int i, int j, long long slot) {
        pairs[2 * slot] = i;
        pairs[2 * slot + 1] = j;
        sets[slot] = members[static_cast<long long>(i) * p + j];
    });
}
