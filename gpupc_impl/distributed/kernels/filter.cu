// Levels 0 and 1 of very many variables from products of standardised samples (products.py), which are off by little.
// A product decides a test if the bound on its error allows one outcome alone. The other tests are decided from the
// sums of a warp in double precision, and if those are too close as well, by the canonical chains of fused
// multiply-adds (fixed_order.cu), so that answers are those of fixed_order.cu and level_one.cuh.
//
// docs/design/wide.md describes the two passes of level 1 through blocks of candidates k. Edges are kept by rows: row j
// has its partners i < j, ascending. A block has a panel, the products of all variables with the candidates, and lists
// of the candidates that are a variable's neighbours: list 0 has all, and list l those with |r| >= strength(l).
#include "engine/kernels/tally.cuh"
#include "gaussian/kernels/level_one.cuh"

constexpr int WARPS = 8;               // the most warps of a thread block
constexpr int COLUMNS_A_WARP = 4096;   // columns of level 0 that a warp takes
constexpr int MOST_CANDIDATES = 4096;  // the largest number of candidates in a block
constexpr unsigned SEPARATED = 1u << 31;
constexpr unsigned NO_MEMBER = ~0u;
constexpr int OPEN = 3;   // the index of the counter of edges that stay open
constexpr int LISTS = 8;  // lists of a variable's neighbours
constexpr int WORTH = 4;  // lists by strength are used if those of all neighbours are this many times as long
constexpr int LOADS = 8;  // loads of a lane that are on their way at the same time

// The least |r| in a list; list 0 has all neighbours.
__device__ __forceinline__ float strength(int list) {
    constexpr float least[LISTS] = {0.0f, 0.1f, 0.14f, 0.2f, 0.25f, 0.3f, 0.35f, 0.4f};
    return least[list];
}

// The samples and thresholds that decide tests.
struct Filter {
    const double* samples;  // (p, m) standardised, a row for each variable
    int m;
    float low, high;  // at level 0, |product| <= low is no edge, and |product| >= high is an edge
    double error;     // bound on the difference of a sum by a warp and the canonical correlation
    double critical_zero, critical_one, residual_tolerance;  // of the canonical tests
    float critical, slack, defined;                          // see `excess` and `separates`
    float needed_scale, needed_offset;                       // see `list_for`

    __device__ __forceinline__ const double* row(int v) const { return samples + static_cast<long long>(v) * m; }

    // The canonical correlation of two different variables.
    __device__ __noinline__ double correlation(int i, int j) const {
        const double *const x = row(i), *const y = row(j);
        double sum = 0.0;
#pragma unroll 8
        for (int s = 0; s < m; ++s) sum = fma(x[s], y[s], sum);
        return sum > 1.0 ? 1.0 : sum < -1.0 ? -1.0 : sum;
    }

    // The same sums in another order by a warp, much faster: of i and j, and if k >= 0 of i and k, and of j and k.
    __device__ __noinline__ void sums_of_warp(int i, int j, int k, double (&sums)[3]) const {
        const double *const x = row(i), *const y = row(j), *const z = row(max(k, 0));
        PerLane<double> parts[3];
        each_lane(LANES, [&](int lane) {
            double xy = 0.0, xz = 0.0, yz = 0.0;
#pragma unroll 4
            for (int s = lane; s < m; s += LANES) {
                xy = fma(x[s], y[s], xy);
                if (k < 0) continue;
                xz = fma(x[s], z[s], xz);
                yz = fma(y[s], z[s], yz);
            }
            parts[0][lane] = xy;
            parts[1][lane] = xz;
            parts[2][lane] = yz;
        });
        for (int which = 0; which < 3; ++which) {
            sums[which] = 0.0;
#pragma unroll 8
            for (int lane = 0; lane < LANES; ++lane) sums[which] += of_lane(parts[which], lane);
        }
    }

    // Whether two different variables have an edge after level 0; called by a warp.
    __device__ __noinline__ bool edge(int i, int j) const {
        double sums[3];
        sums_of_warp(i, j, -1, sums);
        double r = sums[0];
        if (fabs(r * r - critical_zero) <= 4.0 * error) r = correlation(i, j);
        return r * r > critical_zero;
    }

    // Returns a mask of those of `count` variables from `first` on that have an edge with v after level 0; the lanes
    // have their products with v.
    __device__ __forceinline__ unsigned edges(PerLane<float>& products, int count, int first, int v) const {
        unsigned found = ballot(count, [&](int lane) { return fabsf(products[lane]) > low && first + lane != v; });
        if (found == 0) return 0;
        unsigned unsure = found & ballot(count, [&](int lane) { return fabsf(products[lane]) < high; });
        for (; unsure != 0; unsure &= unsure - 1) {
            if (!edge(first + __ffs(static_cast<int>(unsure)) - 1, v)) found &= ~(unsure & (0u - unsure));
        }
        return found;
    }

    // Returns the number of the list for an edge, and sets `least` to the least |r| in it: every k that separates i and
    // j is in this list of one end or the other, since |r_ik r_jk| is at least `bound`.
    __device__ __forceinline__ int list_for(float r_ij, float& least) const {
        const float bound = fmaf(fabsf(r_ij), needed_scale, -needed_offset);
        int list = 0;
        least = 0.0f;
#pragma unroll
        for (int l = 1; l < LISTS; ++l) {
            if (!(bound >= strength(l) * strength(l))) continue;
            list = l;
            least = strength(l);
        }
        return list;
    }

    // The excess of the squared residual covariance over its critical value, from products; above `slack`, the bound on
    // its error, the set does not separate.
    __device__ __forceinline__ float excess(float r_ij, float r_ik, float r_jk) const {
        const float h = fmaf(-r_ik, r_jk, r_ij);
        return fmaf(h, h, -(critical * (fmaf(-r_ik, r_ik, 1.0f) * fmaf(-r_jk, r_jk, 1.0f))));
    }

    // Whether the test is defined and separates, whatever the errors within the bounds.
    __device__ __forceinline__ bool separates(float r_ij, float r_ik, float r_jk) const {
        return excess(r_ij, r_ik, r_jk) <= -slack && fmaf(-r_ik, r_ik, 1.0f) > defined &&
               fmaf(-r_jk, r_jk, 1.0f) > defined;
    }
};

// Products of `count` variables from `first` on with `columns` variables: row r begins at products[r * columns].
struct Products {
    const float* products;
    int first, count, columns;
};

// The edges of a group of rows.
struct EdgeRows {
    long long* starts;   // row j has the edges from starts[j] to starts[j + 1] - 1
    unsigned* partners;  // i of each edge, with the bit SEPARATED once level 1 has separated it
    unsigned* values;    // the bits of the product of i and j, or the member of the separating set
};

// The warp's row and columns at level 0.
struct WarpColumns {
    int row, j, first, last, number;
    const float* products;  // of the row with the columns

    __device__ explicit WarpColumns(const Products& tile) {
        const int parts = (tile.columns + COLUMNS_A_WARP - 1) / COLUMNS_A_WARP;
        number = static_cast<int>(blockIdx.x) * warp_count() + warp_index();
        row = number / parts;
        j = tile.first + row;
        first = number % parts * COLUMNS_A_WARP;
        last = row < tile.count ? min(first + COLUMNS_A_WARP, j) : 0;
        products = tile.products + static_cast<long long>(row) * tile.columns;
    }

    __device__ __forceinline__ unsigned* words(unsigned* of_all) const {
        return of_all + static_cast<long long>(number) * (COLUMNS_A_WARP / LANES);
    }
};

// Calls f(k, number of products from number k on, products in lanes) for every 32 of `count` products.
template <class F>
__device__ __forceinline__ void each_word(const float* products, int count, F f) {
    for (int k = 0; k < count; k += LOADS * LANES) {
        PerLane<float> loaded[LOADS];
#pragma unroll
        for (int q = 0; q < LOADS; ++q) {
            each_lane(min(count - k - LANES * q, LANES),
                      [&](int lane) { loaded[q][lane] = products[k + LANES * q + lane]; });
        }
#pragma unroll
        for (int q = 0; q < LOADS; ++q) {
            if (k + LANES * q < count) f(k + LANES * q, min(count - k - LANES * q, LANES), loaded[q]);
        }
    }
}

// Finds edges: counts[w] is the number of edges i < j that warp w finds among its columns i of the row of j, and
// `words` has a bit for each column. The columns of the products are the variables from 0 on.
__global__ void count_edges(const __grid_constant__ Filter filter, const __grid_constant__ Products tile,
                            unsigned* words, long long* counts) {
    const WarpColumns own(tile);
    if (own.row >= tile.count) return;
    unsigned* const to = own.words(words);
    int edges = 0;
    each_word(own.products + own.first, own.last - own.first, [&](int k, int count, PerLane<float>& products) {
        const unsigned found = filter.edges(products, count, own.first + k, own.j);
        if (warp_leader()) to[k / LANES] = found;
        edges += __popc(found);
    });
    if (warp_leader()) counts[own.number] = edges;
}

// Writes the edges that warps have found behind the first `before` of the group; ends[w] is the sum up to counts[w].
__global__ void list_edges(const __grid_constant__ Products tile, unsigned* words, const long long* ends,
                           long long before, const __grid_constant__ EdgeRows rows, int* degrees) {
    const WarpColumns own(tile);
    if (own.row >= tile.count) return;
    const unsigned* const found = own.words(words);
    long long at = before + (own.number == 0 ? 0 : ends[own.number - 1]);
    const long long first = at;
    for (int i = own.first; i < own.last; i += LANES) {
        const unsigned edges = found[(i - own.first) / LANES];
        if (edges == 0) continue;
        each_lane(LANES, [&](int lane) {
            if (!(edges >> lane & 1)) return;
            const long long slot = at + __popc(edges & ~(~0u << lane));
            rows.partners[slot] = static_cast<unsigned>(i + lane);
            rows.values[slot] = __float_as_uint(own.products[i + lane]);
            atomicAdd(&degrees[i + lane], 1);
        });
        at += __popc(edges);
    }
    if (warp_leader()) {
        if (at != first) atomicAdd(&degrees[own.j], static_cast<int>(at - first));
        if (own.first + COLUMNS_A_WARP >= tile.columns) rows.starts[own.j + 1] = at;
    }
}

// The products of variables with a block of `count` candidates from `first` on, and the lists of neighbours.
struct Candidates {
    const float* panel;       // (p, pitch) products with the candidates
    unsigned short* numbers;  // the neighbours in the lists, as k - first
    float* correlations;      // the product with each neighbour in the lists
    long long* starts;        // (p) the index at which each variable's lists begin, one after the other
    int* ends;                // (p, LISTS) the end of each list, relative to `starts`
    unsigned long long* end;  // the end of all lists
    long long capacity;       // the room for entries; lists that do not fit are counted and not written
    int first, count, pitch;

    __device__ __forceinline__ const float* row(int v) const { return panel + static_cast<long long>(v) * pitch; }
};

// Calls f(k, product) for each candidate k with a bit in some words.
template <class F>
__device__ __forceinline__ void each_near(const unsigned* words, int first, int last, const float* products, F f) {
    for (int w = first; w < last; ++w) {
        for (unsigned left = words[w]; left != 0; left &= left - 1) {
            const int k = w * LANES + __ffs(static_cast<int>(left)) - 1;
            f(k, products[k]);
        }
    }
}

// Makes the lists of the variables below `variables`. A warp takes a range of them, a lane some words of 32 candidates.
__global__ void list_neighbours(const __grid_constant__ Filter filter, const __grid_constant__ Candidates to,
                                int variables) {
    __shared__ unsigned words[WARPS][MOST_CANDIDATES / LANES];  // a bit for each candidate that is a neighbour
    unsigned* const near = words[warp_index()];
    const int count = (to.count + LANES - 1) / LANES, of_lane_words = (count + LANES - 1) / LANES;
    const WarpRows own(variables);
    for (int v = own.first; v < own.last; ++v) {
        const float* const products = to.row(v);
        each_word(products, to.count, [&](int k, int width, PerLane<float>& r) {
            const unsigned neighbours = filter.edges(r, width, to.first + k, v);
            if (warp_leader()) near[k / LANES] = neighbours;
        });
        join_lanes();
        const auto first = [&](int lane) { return min(lane * of_lane_words, count); };
        PerLane<int> places[LISTS];
        each_lane(LANES, [&](int lane) {
#pragma unroll
            for (int list = 0; list < LISTS; ++list) places[list][lane] = 0;
            each_near(near, first(lane), first(lane + 1), products, [&](int, float r) {
#pragma unroll
                for (int list = 0; list < LISTS; ++list) places[list][lane] += fabsf(r) >= strength(list);
            });
        });
        int total = 0;
#pragma unroll
        for (int list = 0; list < LISTS; ++list) {
            const int before = total;
            total += sums_before(places[list]);
            each_lane(LANES, [&](int lane) { places[list][lane] += before; });
            if (warp_leader()) to.ends[static_cast<long long>(v) * LISTS + list] = total;
        }
        PerLane<long long> reserved;
        each_lane(1, [&](int lane) {
            reserved[lane] = static_cast<long long>(atomicAdd(to.end, static_cast<unsigned long long>(total)));
            to.starts[v] = reserved[lane];
        });
        const long long start = of_lane(reserved, 0);
        if (start + total <= to.capacity) {
            each_lane(LANES, [&](int lane) {
                each_near(near, first(lane), first(lane + 1), products, [&](int k, float r) {
#pragma unroll
                    for (int list = 0; list < LISTS; ++list) {
                        if (!(fabsf(r) >= strength(list))) continue;
                        const long long at = start + places[list][lane]++;
                        to.numbers[at] = static_cast<unsigned short>(k);
                        to.correlations[at] = r;
                    }
                });
            });
        }
        join_lanes();
    }
}

enum Verdict { DEPENDENT, INDEPENDENT, UNDECIDABLE };

// The test of Vi and Vj given Vk by a warp: by its sums, or by canonical correlations if the sums are too close. If all
// correlations are off by at most `error`, the excess is off by at most 17 times as much: its residual covariance is at
// most two, and the rounding of its other operations is below `error`.
__device__ __noinline__ Verdict exact_test(const Filter& filter, int i, int j, int k) {
    double sums[3];
    filter.sums_of_warp(i, j, k, sums);
    const double h = sums[0] - sums[1] * sums[2], of_i = 1.0 - sums[1] * sums[1], of_j = 1.0 - sums[2] * sums[2];
    const double least = filter.residual_tolerance + 4.0 * filter.error;
    if (of_i > least && of_j > least && fabs(h * h - filter.critical_one * of_i * of_j) > 20.0 * filter.error) {
        return h * h <= filter.critical_one * of_i * of_j ? INDEPENDENT : DEPENDENT;
    }
    PerLane<double> r;
    each_lane(3, [&](int lane) { r[lane] = filter.correlation(lane < 2 ? i : j, lane == 0 ? j : k); });
    const Residuals exact = given_one(of_lane(r, 0), of_lane(r, 1), of_lane(r, 2));
    if (exact.undefined(filter.residual_tolerance)) return UNDECIDABLE;
    return exact.independent(filter.critical_one, filter.residual_tolerance) ? INDEPENDENT : DEPENDENT;
}

// A list of a variable's neighbours among the candidates.
struct Neighbours {
    long long start;
    int count;

    __device__ __forceinline__ Neighbours(const Candidates& candidates, int v, int list) {
        const int* ends = candidates.ends + static_cast<long long>(v) * LISTS;
        const int before = list == 0 ? 0 : ends[list - 1];
        start = candidates.starts[v] + before;
        count = ends[list] - before;
    }
};

// One end of the edges that the lanes take: the variable, its list, and its products with the candidates.
struct Ends {
    PerLane<int> v, count;
    PerLane<long long> start;
    PerLane<const float*> row;
};

// Edges (i, j) of row j, of which each lane takes one, and their tests with the candidates of a block.
struct BlockScanner {
    const Filter& filter;
    const Candidates& candidates;
    Ends i, j;
    PerLane<long long> edge;     // its number among all edges
    PerLane<float> r, strength;  // the product of the ends; the least |r| in the lists, 0 for all neighbours
    unsigned long long undefined = 0, rechecked = 0;
    PerLane<int> tests;

    __device__ __forceinline__ BlockScanner(const Filter& filter, const Candidates& candidates)
        : filter(filter), candidates(candidates) {
        each_lane(LANES, [&](int lane) { tests[lane] = 0; });
    }

    // Takes `count` edges of row v, whose numbers are relative to `begin`; returns a mask of those with candidates.
    __device__ __forceinline__ unsigned take(const EdgeRows& rows, int v, const float* row_v, long long begin,
                                             const unsigned* numbers, int count) {
        return ballot(count, [&](int lane) {
            edge[lane] = begin + numbers[lane];
            i.v[lane] = static_cast<int>(rows.partners[edge[lane]]);
            r[lane] = __uint_as_float(rows.values[edge[lane]]);
            const int own = i.v[lane], list = filter.list_for(r[lane], strength[lane]);
            Neighbours of_i(candidates, own, list), of_j(candidates, v, list);
            if (list > 0) {
                const Neighbours all_i(candidates, own, 0), all_j(candidates, v, 0);
                if (WORTH * (of_i.count + of_j.count) >= all_i.count + all_j.count) {
                    strength[lane] = 0.0f;
                    of_i = all_i;
                    of_j = all_j;
                }
            }
            i.row[lane] = candidates.row(own);
            i.start[lane] = of_i.start;
            i.count[lane] = of_i.count;
            j.v[lane] = v;
            j.row[lane] = row_v;
            j.start[lane] = of_j.start;
            j.count[lane] = of_j.count;
            return (of_i.count | of_j.count) != 0;
        });
    }

    // Finds the first candidate among the neighbours of `owner` that separates the ends of each edge in the mask:
    // found[lane] is its position in the block, or -1. Returns a mask of the edges that are separated.
    __device__ __forceinline__ unsigned find(Ends& owner, Ends& other, unsigned edges, PerLane<int>& found) {
        PerLane<int> limit;
        each_lane(LANES, [&](int lane) {
            found[lane] = -1;
            limit[lane] = candidates.count;
        });
        scan<true>(owner, other, edges, limit, found);
        each_lane(LANES, [&](int lane) { limit[lane] = found[lane] < 0 ? candidates.count : found[lane]; });
        const unsigned strong =
            edges & ballot(LANES, [&](int lane) { return (edges >> lane & 1) && strength[lane] > 0.0f; });
        scan<false>(other, owner, strong, limit, found);
        return edges & ballot(LANES, [&](int lane) { return found[lane] >= 0; });
    }

    // Finds the first candidate below `limit` in the list of `from` that separates the two ends. OWN: sets are drawn
    // from the neighbours of `from`. Otherwise they are drawn from those of the other end; then only candidates are
    // tested whose correlations with the other end are below `strength`, since the others are in the other end's list.
    template <bool OWN>
    __device__ __forceinline__ void scan(Ends& from, Ends& other, unsigned edges, PerLane<int>& limit,
                                         PerLane<int>& found) {
        PerLane<int> at, position;
        PerLane<float> r_from, r_other;
        each_lane(LANES, [&](int lane) { at[lane] = 0; });
        while (edges != 0) {
            edges &= ballot(LANES, [&](int lane) {
                if (!(edges >> lane & 1)) return false;
                const unsigned short* numbers = candidates.numbers + from.start[lane];
                const float *correlations = candidates.correlations + from.start[lane], *row = other.row[lane];
                const int count = from.count[lane], own = other.v[lane] - candidates.first, most = limit[lane];
                const float r_ij = r[lane], least = strength[lane];
                for (int a = at[lane]; a < count; a += AT_ONCE) {
                    int k[AT_ONCE];
                    float x[AT_ONCE], y[AT_ONCE];
#pragma unroll
                    for (int q = 0; q < AT_ONCE; ++q) {
                        k[q] = numbers[min(a + q, count - 1)];
                        x[q] = correlations[min(a + q, count - 1)];
                    }
#pragma unroll
                    for (int q = 0; q < AT_ONCE; ++q) y[q] = row[k[q]];
#pragma unroll
                    for (int q = 0; q < AT_ONCE; ++q) {
                        if (a + q >= count || k[q] >= most) return false;
                        if (k[q] == own || (!OWN && !(fabsf(y[q]) < least && fabsf(y[q]) > filter.low))) continue;
                        ++tests[lane];
                        if (!(filter.excess(r_ij, x[q], y[q]) <= filter.slack)) continue;
                        at[lane] = a + q + 1;
                        position[lane] = k[q];
                        r_from[lane] = x[q];
                        r_other[lane] = y[q];
                        return true;
                    }
                }
                return false;
            });
            const unsigned sure = edges & ballot(LANES, [&](int lane) {
                                      return (edges >> lane & 1) &&
                                             filter.separates(r[lane], r_from[lane], r_other[lane]) &&
                                             (OWN || fabsf(r_other[lane]) >= filter.high);
                                  });
            unsigned separated = sure;
            edges &= ~sure;
            for (unsigned left = edges; left != 0; left &= left - 1) {
                const int lane = __ffs(static_cast<int>(left)) - 1, k = candidates.first + of_lane(position, lane);
                const int v = of_lane(other.v, lane);
                if (!OWN && !filter.edge(v, k)) {
                    each_lane(LANES, [&](int own) { tests[own] -= own == lane; });
                    continue;
                }
                const Verdict verdict = exact_test(filter, of_lane(from.v, lane), v, k);
                ++rechecked;
                undefined += verdict == UNDECIDABLE;
                if (verdict == INDEPENDENT) separated |= 1u << lane;
            }
            edges &= ~separated;
            each_lane(LANES, [&](int lane) {
                if (separated >> lane & 1) found[lane] = position[lane];
            });
        }
    }

    // Adds the numbers of all, undefined and canonical tests and of open edges to a stripe of the counters (tally.cuh).
    __device__ __forceinline__ void add_to(unsigned long long* counters, unsigned long long open) {
        PerLane<long long> made;
        each_lane(LANES, [&](int lane) { made[lane] = tests[lane]; });
        const long long sum = sum_of_lanes(made);
        if (!warp_leader()) return;
        Tally{static_cast<unsigned long long>(sum), undefined, rechecked}.add_to(counters);
        if (open != 0) {
            atomicAdd(&counters[(blockIdx.x + threadIdx.x / 32) % COUNTER_STRIPES * COUNTER_STRIDE + OPEN], open);
        }
    }
};

// Returns row j's products with the candidates, on a GPU in shared memory; all threads of the block must call it.
__device__ __forceinline__ const float* staged_row(const Candidates& candidates, int j) {
    const float* row = candidates.row(j);
#ifndef GPUPC_HOST
    __shared__ float shared[MOST_CANDIDATES];
    for (int k = static_cast<int>(threadIdx.x); k < candidates.count; k += static_cast<int>(blockDim.x)) {
        shared[k] = row[k];
    }
    __syncthreads();
    row = shared;
#endif
    return row;
}

// Tests the open edges of the rows from `first` to `last` - 1 given the candidates of a block. A set from adj(j) of a
// row j separates an edge if FROM_ROW holds, and otherwise one from adj(i). SECOND: the first separating set from
// adj(j) of other edges is kept in `second_members` as well, unless there is one. `share` warps take a row: all of a
// thread block, which stage the row, or one. A warp collects 32 open edges before it tests them.
template <bool FROM_ROW, bool SECOND>
__global__ void __launch_bounds__(256, 4)
    scan(const __grid_constant__ Filter filter, const __grid_constant__ EdgeRows rows, unsigned* second_members,
         const __grid_constant__ Candidates candidates, int first, int last, int share, unsigned long long* counters) {
    __shared__ unsigned queues[WARPS][2 * LANES];
    unsigned* const queue = queues[warp_index()];
    const int j = first + (static_cast<int>(blockIdx.x) * warp_count() + warp_index()) / share;
    if (j >= last) return;
    const long long begin = rows.starts[j], edges = rows.starts[j + 1] - begin;
    if (edges == 0) return;
    const float* const row_j = share > 1 ? staged_row(candidates, j) : candidates.row(j);
    const long long own = (edges + LANES * share - 1) / (LANES * share) * LANES;
    const long long end = begin + min(own * (warp_index() % share + 1), edges);
    BlockScanner scanner(filter, candidates);
    unsigned long long open = 0;
    int queued = 0;
    for (long long e = begin + own * (warp_index() % share); e < end || queued > 0; e += LANES) {
        if (e < end) {
            const int width = static_cast<int>(min(end - e, static_cast<long long>(LANES)));
            const unsigned found = ballot(width, [&](int lane) { return !(rows.partners[e + lane] & SEPARATED); });
            each_lane(width, [&](int lane) {
                if (!(found >> lane & 1)) return;
                queue[queued + __popc(found & ~(~0u << lane))] = static_cast<unsigned>(e + lane - begin);
            });
            join_lanes();
            queued += __popc(found);
            if (queued < LANES && e + LANES < end) continue;
        }
        const int count = min(queued, LANES);
        PerLane<int> member;
        unsigned tested = scanner.take(rows, j, row_j, begin, queue, count);
        const unsigned separated = FROM_ROW ? scanner.find(scanner.j, scanner.i, tested, member)
                                            : scanner.find(scanner.i, scanner.j, tested, member);
        each_lane(LANES, [&](int lane) {
            if (!(separated >> lane & 1)) return;
            rows.partners[scanner.edge[lane]] |= SEPARATED;
            rows.values[scanner.edge[lane]] = static_cast<unsigned>(candidates.first + member[lane]);
        });
        if (SECOND) {
            tested &= ~separated & ballot(LANES, [&](int lane) {
                return (tested >> lane & 1) && second_members[scanner.edge[lane]] == NO_MEMBER;
            });
            const unsigned second = scanner.find(scanner.j, scanner.i, tested, member);
            each_lane(LANES, [&](int lane) {
                if (!(second >> lane & 1)) return;
                second_members[scanner.edge[lane]] = static_cast<unsigned>(candidates.first + member[lane]);
            });
        }
        open += count - __popc(separated);
        queued -= count;
        each_lane(queued, [&](int lane) { queue[lane] = queue[count + lane]; });
        join_lanes();
    }
    scanner.add_to(counters, open);
}

// Writes a bit for each of some edges that is separated. A warp takes a range of words.
__global__ void give_separated(const unsigned* partners, long long edges, unsigned* words) {
    const WarpRows own(static_cast<int>((edges + LANES - 1) / LANES));
    for (int w = own.first; w < own.last; ++w) {
        const long long first = static_cast<long long>(w) * LANES;
        const unsigned separated = ballot(static_cast<int>(min(edges - first, static_cast<long long>(LANES))),
                                          [&](int lane) { return (partners[first + lane] & SEPARATED) != 0; });
        if (warp_leader()) words[w] = separated;
    }
}

// Separates the edges that another worker has separated, with NO_MEMBER in place of its member. The least value of all
// workers is then the first member that separates the edge.
__global__ void take_separated(unsigned* partners, unsigned* values, long long edges, const unsigned* words) {
    const WarpRows own(static_cast<int>((edges + LANES - 1) / LANES));
    for (int w = own.first; w < own.last; ++w) {
        const long long first = static_cast<long long>(w) * LANES;
        each_lane(static_cast<int>(min(edges - first, static_cast<long long>(LANES))), [&](int lane) {
            const unsigned partner = partners[first + lane];
            if (!(words[w] >> lane & 1) || (partner & SEPARATED)) return;
            partners[first + lane] = partner | SEPARATED;
            values[first + lane] = NO_MEMBER;
        });
    }
}
