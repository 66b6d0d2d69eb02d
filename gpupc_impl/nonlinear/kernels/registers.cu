// CMI of V_i and V_j given S for V_i itself and its permutations (GPU-CMIknn, Algorithm 4), by a warp a sample, for
// whole numbers below 2^11 of at most as many samples, such as their ranks.
//
// A joint distance is never below that in (V_j, S), so the k-th lies among the first samples of the list by those
// (lists.cuh). A warp takes a sample in LANES lanes (lane 0: V_i itself; lane m + 1: permutation m), and each of its
// threads some of these neighbours: one read of shared memory brings what they have in all lanes. Joint distances stay
// in registers, two of them in each. How many are below a limit, one for each lane, takes an instruction for two of
// them, and a product of small matrices for 32 neighbours in all lanes, which adds up (Tally); the limits close in on
// the k-th. Nothing is sorted, and nothing grows with k but the number of neighbours.
#include "nonlinear/kernels/lists.cuh"

constexpr int LANES = 8;     // of a warp
constexpr int WORDS = 4;     // with two lanes each, that a sample's values in these take
constexpr int WARP = 32;     // threads; and buckets of a list
constexpr int CHUNK = 4;     // rows of 32 neighbours that are on their way at a time
constexpr int SUMS = 2;      // of a tally, so that its products do not wait for each other
constexpr int LINE = 128;    // bytes of a cache's line
constexpr int END = 2048;    // all values are below, and no count is above
constexpr int PATIENCE = 8;  // limits from estimates, before the rest are from halving
constexpr unsigned ALL = 0xffffffffu;
static_assert(BINS == WARP && CHUNK % SUMS == 0 && LANES == 2 * WORDS);

#if !defined(GPUPC_HOST) && __CUDA_ARCH__ >= 800
#define GPUPC_TENSOR 1
#else
#define GPUPC_TENSOR 0
#endif

// Two whole numbers in a word, in floating point of 16 bits, which has all of them exactly up to END.
struct Pair {
    unsigned bits;

#ifdef GPUPC_HOST
    template <class F>
    static Pair each(Pair a, Pair b, F f) {
        return of(f(a.get(false), b.get(false)), f(a.get(true), b.get(true)));
    }
    static Pair of(int a, int b) { return Pair{static_cast<unsigned>(b) << 16 | (static_cast<unsigned>(a) & 0xffffu)}; }
    static Pair of(float a, float b) { return of(static_cast<int>(a), static_cast<int>(b)); }
    static Pair of_shorts(unsigned both) { return Pair{both}; }
    int get(bool second) const { return static_cast<short>(second ? bits >> 16 : bits & 0xffffu); }
    static Pair distance(Pair a, Pair b) {
        return each(a, b, [](int x, int y) { return x < y ? y - x : x - y; });
    }
    static Pair larger(Pair a, Pair b) {
        return each(a, b, [](int x, int y) { return max(x, y); });
    }
    static Pair sum(Pair a, Pair b) {
        return each(a, b, [](int x, int y) { return x + y; });
    }
    static Pair below(Pair a, Pair limits) {
        return each(a, limits, [](int x, int limit) { return x < limit; });
    }
#else
    __device__ __forceinline__ static Pair of(float a, float b) {
        Pair p;
        asm("{ .reg .b16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h}; }"
            : "=r"(p.bits)
            : "f"(a), "f"(b));
        return p;
    }
    // Of two shorts. The bits of one, as floating point of 16 bits, are 2^-24 times it; the largest are no number,
    // which is never below a limit.
    __device__ __forceinline__ static Pair of_shorts(unsigned both) {
        Pair p;
        asm("{ .reg .b32 part; mul.rn.f16x2 part, %1, %2; mul.rn.f16x2 %0, part, %2; }"
            : "=r"(p.bits)
            : "r"(both), "r"(0x6c006c00u));  // 2^12, twice
        return p;
    }
    __device__ __forceinline__ float get(bool second) const {
        const auto half = static_cast<unsigned short>(second ? bits >> 16 : bits & 0xffffu);
        float number;
        asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(half));
        return number;
    }
    __device__ __forceinline__ static Pair distance(Pair a, Pair b) {
        Pair p;
        asm("{ .reg .b32 d; sub.rn.f16x2 d, %1, %2; abs.f16x2 %0, d; }" : "=r"(p.bits) : "r"(a.bits), "r"(b.bits));
        return p;
    }
    // Of numbers that are not negative; of one and none, none.
    __device__ __forceinline__ static Pair larger(Pair a, Pair b) {
#if __CUDA_ARCH__ >= 800
        Pair p;
        asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(p.bits) : "r"(a.bits), "r"(b.bits));
        return p;
#else
        return Pair{__vmaxu2(a.bits, b.bits)};
#endif
    }
    __device__ __forceinline__ static Pair sum(Pair a, Pair b) {
        Pair p;
        asm("add.rn.f16x2 %0, %1, %2;" : "=r"(p.bits) : "r"(a.bits), "r"(b.bits));
        return p;
    }
    // 1 where a number is below its limit, else 0: it is so by 1 or more, which is cut off at 1.
    __device__ __forceinline__ static Pair below(Pair a, Pair limits) {
        Pair p;
        asm("sub.rn.sat.f16x2 %0, %1, %2;" : "=r"(p.bits) : "r"(limits.bits), "r"(a.bits));
        return p;
    }
#endif
};

struct alignas(16) Octet {
    Pair of[WORDS];
};

// Halves of a word: the upper one in both, and the number that the lower one is.
__device__ __forceinline__ unsigned upper_twice(unsigned word) {
#ifdef GPUPC_HOST
    return (word >> 16) * 0x10001u;
#else
    return __byte_perm(word, 0, 0x3232);
#endif
}
__device__ __forceinline__ unsigned lower(unsigned word) {
#ifdef GPUPC_HOST
    return word & 0xffffu;
#else
    return __byte_perm(word, 0, 0x4410);
#endif
}

// The lane that a thread of a warp looks after, as 3 others do; and the word that it is in.
struct Duty {
    int thread, word, lane;

    __device__ __forceinline__ Duty()
        : thread(threadIdx.x % WARP), word(thread % WORDS), lane(2 * word + thread / WORDS % 2) {}

    __device__ __forceinline__ bool second() const { return lane % 2 == 1; }
    __device__ __forceinline__ bool first_of_lane() const { return thread < LANES; }

    // All lanes' numbers.
    __device__ __forceinline__ Octet spread(float number) const {
        const float other = __shfl_xor_sync(ALL, number, WORDS);
        const Pair own = second() ? Pair::of(other, number) : Pair::of(number, other);
        Octet found;
        for (int w = 0; w < WORDS; ++w) found.of[w].bits = __shfl_sync(ALL, own.bits, w);
        return found;
    }

    // The least and the largest number of all lanes.
    __device__ __forceinline__ int least(int number) const {
        for (int apart = 1; apart < LANES; apart *= 2) number = min(number, __shfl_xor_sync(ALL, number, apart));
        return number;
    }
    __device__ __forceinline__ int largest(int number) const { return -least(-number); }
};

// A sum of octets of ones and zeros over the threads of a warp, for each lane.
//
// Tensor cores add them up: octets are a matrix of 16 rows and 16 columns, in which row g (or 8 + g) has what 4 threads
// have of lanes 0 to 3 (or 4 to 7); and it is multiplied by one whose ones make the sum over each lane's columns, twice
// side by side, so that every thread is left with a sum over 4 threads for the lanes of its word.
struct Tally {
#if GPUPC_TENSOR
    unsigned sums[SUMS][2] = {};

    // `number`: of the octet, known at compile time.
    __device__ __forceinline__ void add(int number, const Octet& ones) {
        constexpr unsigned LOW = 0x3c00u, HIGH = 0x3c000000u;  // 1 in either half
        const int column = threadIdx.x / WORDS % WORDS;
        const unsigned first = column == 0 ? LOW : column == 1 ? HIGH : 0;
        const unsigned second = column == 2 ? LOW : column == 3 ? HIGH : 0;
        unsigned* const sum = sums[number % SUMS];
        asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
            : "+r"(sum[0]), "+r"(sum[1])
            : "r"(ones.of[0].bits), "r"(ones.of[2].bits), "r"(ones.of[1].bits), "r"(ones.of[3].bits), "r"(first),
              "r"(second));
    }

 private:
    __device__ __forceinline__ Pair of_word(const Duty& duty) const {
        Pair found{0};
        for (const auto& sum : sums) found = Pair::sum(found, Pair{duty.word < WORDS / 2 ? sum[0] : sum[1]});
        return found;
    }
#else
    Octet sums = {};

    __device__ __forceinline__ void add(int, const Octet& ones) {
        for (int w = 0; w < WORDS; ++w) sums.of[w] = Pair::sum(sums.of[w], ones.of[w]);
    }

 private:
    __device__ __forceinline__ Pair of_word(const Duty& duty) const {
        const bool odd = duty.word % 2 == 1, high = duty.word >= WORDS / 2;
        Pair mine[2];
        for (int w = 0; w < 2; ++w) {
            mine[w] = odd ? sums.of[2 * w + 1] : sums.of[2 * w];
            add_from(mine[w], odd ? sums.of[2 * w] : sums.of[2 * w + 1], 1);
        }
        Pair own = high ? mine[1] : mine[0];
        add_from(own, high ? mine[0] : mine[1], 2);
        return own;
    }
#endif

    __device__ __forceinline__ static Octet below(const Octet& numbers, const Octet& limits) {
        Octet found;
        for (int w = 0; w < WORDS; ++w) found.of[w] = Pair::below(numbers.of[w], limits.of[w]);
        return found;
    }
    __device__ __forceinline__ static void add_from(Pair& own, Pair sent, int apart) {
        own = Pair::sum(own, Pair{__shfl_xor_sync(ALL, sent.bits, apart)});
    }

 public:
    // Adds which numbers of an octet, or of several, are below the limits.
    __device__ __forceinline__ void add_below(int number, const Octet& numbers, const Octet& limits) {
        add(number, below(numbers, limits));
    }
    template <int COUNT>
    __device__ __forceinline__ void add_below(const Octet (&numbers)[COUNT], const Octet& limits) {
#pragma unroll
        for (int c = 0; c < COUNT; ++c) add_below(c, numbers[c], limits);
    }

    // The sum for the thread's lane.
    __device__ __forceinline__ float total(const Duty& duty) const {
        Pair own = of_word(duty);
        for (int apart = WORDS; apart < WARP; apart *= 2) add_from(own, own, apart);
        return own.get(duty.second());
    }
};

// Ask for memory that will be read.
__device__ __forceinline__ void bring(const void* memory) {
#ifdef GPUPC_HOST
    __builtin_prefetch(memory);
#else
    asm volatile("prefetch.global.L1 [%0];" ::"l"(memory));
#endif
}

// About x^y, 1 / x and the root of x: where they lead to is counted.
__device__ __forceinline__ float power(float x, float y) {
#ifdef GPUPC_HOST
    return powf(x, y);
#else
    float z;
    asm("{ .reg .f32 l; lg2.approx.f32 l, %1; mul.rn.f32 l, l, %2; ex2.approx.f32 %0, l; }" : "=f"(z) : "f"(x), "f"(y));
    return z;
#endif
}

__device__ __forceinline__ float inverse(float x) {
#ifdef GPUPC_HOST
    return 1 / x;
#else
    float z;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(z) : "f"(x));
    return z;
#endif
}

__device__ __forceinline__ float root(float x) {
#ifdef GPUPC_HOST
    return sqrtf(x);
#else
    float z;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(z) : "f"(x));
    return z;
#endif
}

// Of a lane: a whole number that fewer distances than k are below, and one that k or more are below.
struct Bounds {
    float from, to;
    float before = 0, after = 0;  // how many are; 0 below `from` as long as they are not counted

    __device__ __forceinline__ bool meet() const { return to - from <= 1; }

    // Where to count next: near the k-th distance, as if counts grew like limit^dimensions, or once both ends are
    // counted like the limit; and a standard deviation of the count there (of a bridge between the ends) beyond that,
    // so that what lies between the limit and the nearer end mostly has the k-th.
    __device__ __forceinline__ float between(int k, float one_over_dimensions) const {
        const float per_count = inverse(after - before), share = (static_cast<float>(k) - 0.5f - before) * per_count;
        const bool open = before == 0;
        float guess, unit;  // of the limit, in which one more is below
        if (open) {
            guess = to * power(share, one_over_dimensions);
            unit = guess * one_over_dimensions * inverse(static_cast<float>(k));
        } else {
            guess = from + share * (to - from);
            unit = (to - from) * per_count;
        }
        const float deviation = root(share * (1 - share) * (after - before)) * unit;
        return within(open || share >= 0.5f ? guess - deviation : guess + deviation);
    }

    __device__ __forceinline__ float middle() const { return within((from + to) / 2); }

 private:
    // A whole number between the ends; where there is none, `from`.
    __device__ __forceinline__ float within(float limit) const {
        constexpr float WHOLE = 0x1.8p23f;  // what is added to it is rounded
        return fminf(fmaxf(limit + WHOLE - WHOLE, from + 1), to - 1);
    }
};

// The partials of tests of the samples that are listed, for LANES lanes a block, which lie together in the columns.
// Shared memory: the values of all samples in these, 16 bytes each, and n + 1 terms of 8 bytes. Fewer rows need fewer
// registers, so more warps work side by side. Grid (groups of lanes times any, tests), block (up to 4 whole warps).
template <bool EMPTY, int ROWS>
__global__ void __launch_bounds__(128, ROWS == 8    ? 6
                                       : ROWS == 12 ? 5
                                                    : 4)
    estimate_by_registers(const __grid_constant__ Sets<short> sets, const __grid_constant__ Tests tests,
                          const __grid_constant__ Lists<short> lists, const __grid_constant__ Columns<short> columns) {
    using Neighbour = Entry<short>;
    GPUPC_DYNAMIC_SHARED(Octet, values);
    if (tests.closed(blockIdx.y)) return;
    const int groups = (tests.lanes + LANES - 1) / LANES;
    const int group = blockIdx.x % groups, part = blockIdx.x / groups, parts = gridDim.x / groups;
    const int n = sets.n, k = tests.k, warps = blockDim.x / WARP;
    const int* test = tests.first + 2ll * blockIdx.y;
    const int* set = sets.set(test[0]);
    const short* own_columns = columns.values + (static_cast<long long>(test[0]) * columns.stride + group * LANES) * n;
    for (int i = threadIdx.x; i < n * WORDS; i += blockDim.x) {
        values[i / WORDS].of[i % WORDS] = Pair::of_shorts(reinterpret_cast<const unsigned*>(own_columns)[i]);
    }
    auto* const psi = reinterpret_cast<long long*>(values + n);
    for (int i = threadIdx.x; i <= n; i += blockDim.x) psi[i] = tests.psi[i];
    __syncthreads();
    const Duty duty;
    const int thread = duty.thread;
    const float one_over_dimensions = 1.0f / static_cast<float>(sets.level + 2);
    unsigned long long sum = 0;
    for (int a = lists.first + part * warps + threadIdx.x / WARP; a < lists.first + lists.samples; a += parts * warps) {
        const Neighbours<short, EMPTY> here(lists, blockIdx.y, a);
        const auto low = static_cast<int>(here.header->low);
        const int shift = here.header->shift;
        int ends[here.LISTS];  // a thread has that of the bucket of its number
        for (int l = 0; l < here.LISTS; ++l) ends[l] = here.header->starts[l][thread + 1];
        const int listed_y = __shfl_sync(ALL, ends[0], LAST);
        const Octet own = values[a];
        // One of the 32 neighbours in a row of a list, or CHUNK rows on.
        const auto entry = [&](int list, int length, int row) {
            const int place = row * WARP + thread;
            return place < length ? here.lists[list]->of[place] : Neighbour::of(0, Number<short>::LARGEST);
        };
        const auto entries = [&](int list, int length, int row, Neighbour* found) {
            if ((row + CHUNK) * WARP <= length) {
                const Neighbour* first = here.lists[list]->of + row * WARP + thread;
                for (int r = 0; r < CHUNK; ++r) found[r] = first[r * WARP];
            } else {
                for (int r = 0; r < CHUNK; ++r) found[r] = entry(list, length, row + r);
            }
        };
        // Its distances: where it is listed, in V_i, and the larger one.
        const auto listed = [](const Neighbour& neighbour) { return Pair::of_shorts(upper_twice(neighbour.both)); };
        const auto distances = [&](const Neighbour& neighbour) {
            const Octet its = values[lower(neighbour.both)];
            Octet found;
            for (int w = 0; w < WORDS; ++w) found.of[w] = Pair::distance(its.of[w], own.of[w]);
            return found;
        };
        const auto joint = [&](const Neighbour& neighbour) {
            const Pair at_least = listed(neighbour);
            Octet found = distances(neighbour);
            for (int w = 0; w < WORDS; ++w) found.of[w] = Pair::larger(found.of[w], at_least);
            return found;
        };

        // What the warp needs for its next sample, about as much as for this one, comes nearer meanwhile.
        const int following = a + parts * warps;
        if (following < lists.first + lists.samples) {
            const Neighbours<short, EMPTY> next(lists, blockIdx.y, following);
            const int end = static_cast<int>(sizeof(Header)) - 1;
            if (thread * LINE < end + LINE) bring(reinterpret_cast<const char*>(next.header) + min(thread * LINE, end));
            for (int line = thread; line < ROWS; line += WARP) {  // a line has WARP entries
                for (const auto* list : next.lists) bring(list->of + line * WARP);
            }
        }

        // The distances of the nearest in the list are kept.
        Octet keys[ROWS];
        Neighbour next[CHUNK];  // on their way while those before are worked on
        entries(0, listed_y, 0, next);
#pragma unroll
        for (int c = 0; c < ROWS; c += CHUNK) {
            Neighbour neighbours[CHUNK];
            for (int r = 0; r < CHUNK; ++r) neighbours[r] = next[r];
            if (c + CHUNK < ROWS) entries(0, listed_y, c + CHUNK, next);
            for (int r = 0; r < CHUNK; ++r) keys[c + r] = joint(neighbours[r]);
        }

        // The k-th distance is the largest number that fewer than k are below: `from`, when the bounds meet. What is
        // below `to` is in the first `rows`, mostly those that are kept; others are worked out anew each time.
        int rows = ROWS;
        const auto count_below = [&](float limit) {
            const Octet limits = duty.spread(limit);
            Tally tally;
            tally.add_below(keys, limits);
#pragma unroll 1
            for (int r = ROWS; r < rows; ++r) tally.add_below(0, joint(entry(0, listed_y, r)), limits);
            return tally.total(duty);
        };
        Bounds bounds{static_cast<float>(low), 0};
        for (int last = max(__popc(__ballot_sync(ALL, ends[0] <= ROWS * WARP)) - 1, 0);;) {  // the bucket below `to`
            const int end = __shfl_sync(ALL, ends[0], last);
            rows = max((end + WARP - 1) / WARP, ROWS);
            const bool all = end == listed_y;  // what is left of the buckets may have joint distances yet
            bounds.to = static_cast<float>(min(low + ((all ? here.header->last - 1 : last) << shift), END));
            bounds.after = count_below(bounds.to);
            if (all || __all_sync(ALL, bounds.after >= static_cast<float>(k))) break;
            last = min(__popc(__ballot_sync(ALL, ends[0] <= end + end / 8)), LAST);
        }
        const bool far = bounds.after < static_cast<float>(k);  // the list ends too early
        if (far) bounds.from = bounds.to - 1;
#pragma unroll 1
        for (int step = 0; !__all_sync(ALL, bounds.meet()); ++step) {
            const float limit = step < PATIENCE ? bounds.between(k, one_over_dimensions) : bounds.middle();
            const float count = count_below(limit);
            const bool enough = count >= static_cast<float>(k);
            (enough ? bounds.to : bounds.from) = limit;
            (enough ? bounds.after : bounds.before) = count;
        }
        const int radius = max(static_cast<int>(bounds.from), 1);  // zero: those at distance zero count

        // The counts, with the sample itself. What comes before the bucket of the radius in a list is nearer; so are,
        // in all lanes, the rows before the first of these buckets.
        const Octet limits = duty.spread(static_cast<float>(radius));
        const int rim = bin_of(radius, low, shift), first_rim = duty.least(rim), last_rim = duty.largest(rim);
        const auto nearer_rows = [&](int list) { return __shfl_sync(ALL, ends[list], first_rim - 1) / WARP; };
        const auto rows_to_count = [&](int list) { return (__shfl_sync(ALL, ends[list], last_rim) + WARP - 1) / WARP; };
        const auto count_listed = [&](Tally& tally, const Neighbour* neighbours) {
            for (int c = 0; c < CHUNK; ++c) {
                const Pair key = listed(neighbours[c]);
                tally.add_below(c, Octet{{key, key, key, key}}, limits);
            }
        };
        Tally in_y;
        const int nearer_y = nearer_rows(0), end_y = rows_to_count(0);
        for (int row = nearer_y; row < end_y; row += CHUNK) {
            Neighbour neighbours[CHUNK];
            entries(0, listed_y, row, neighbours);
            count_listed(in_y, neighbours);
        }
        const int near_y = 1 + nearer_y * WARP + static_cast<int>(in_y.total(duty));
        int near_x, near_z = n;
        if constexpr (EMPTY) {
            near_x =
                count_around<short, Continuous>(columns.sorted + static_cast<long long>(set[0]) * n, n, columns.ranks,
                                                own_columns[a * LANES + duty.lane], static_cast<short>(radius));
        } else {
            Tally in_x, in_z;
            const int nearer_z = nearer_rows(1), end_z = rows_to_count(1);
            const int listed_z = __shfl_sync(ALL, ends[1], LAST);
            entries(1, listed_z, 0, next);
            int row = 0;
            for (; row + CHUNK <= nearer_z; row += CHUNK) {
                Octet found[CHUNK];
                for (int c = 0; c < CHUNK; ++c) found[c] = distances(next[c]);
                entries(1, listed_z, row + CHUNK, next);
                in_x.add_below(found, limits);
            }
            const int compared = row;
            for (; row < end_z; row += CHUNK) {
                Octet found[CHUNK];
                for (int c = 0; c < CHUNK; ++c) found[c] = joint(next[c]);
                in_x.add_below(found, limits);
                count_listed(in_z, next);
                entries(1, listed_z, row + CHUNK, next);
            }
            near_x = 1 + static_cast<int>(in_x.total(duty));
            near_z = 1 + compared * WARP + static_cast<int>(in_z.total(duty));
        }
        const int lane = group * LANES + duty.lane;
        if (!duty.first_of_lane() || lane >= tests.lanes) continue;
        if (far) {
            lists.add_far(blockIdx.y, a, lane);
        } else {
            sum += static_cast<unsigned long long>(psi[near_x] + psi[near_y] - psi[near_z]);
        }
    }
    if (sum != 0) atomicAdd(&tests.sums(blockIdx.y)[group * LANES + duty.lane], sum);
}
