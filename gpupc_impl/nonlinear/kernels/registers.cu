// CMI of V_i and V_j given S for V_i itself and its permutations (GPU-CMIknn, Algorithm 4), by a warp a sample, for
// whole numbers below 2^11 of at most as many samples, such as their ranks.
//
// A joint distance is never below that in (V_j, S), so the k-th lies among the first samples of the list by those
// (lists.cuh). A warp takes a sample in LANES lanes (lane 0: V_i itself; lane m + 1: permutation m), and each of its
// threads some of these neighbours: one read of shared memory brings what they have in all lanes. Joint distances stay
// in registers, two of them in each. To count how many are below a limit, one for each lane, takes an instruction a
// distance, and the limits close in on the k-th. Nothing is sorted, and nothing grows with k but the number of
// neighbours.
#include "nonlinear/kernels/lists.cuh"

constexpr int LANES = 8;   // of a warp
constexpr int WORDS = 4;   // with two lanes each, that a sample's values in these take
constexpr int WARP = 32;   // threads; and buckets of a list
constexpr int ROWS = 16;   // of 32 neighbours, whose distances a warp keeps; more are worked out anew each time
constexpr int CHUNK = 4;   // of these, on their way at a time
constexpr int LINE = 128;  // bytes of a cache's line
constexpr int END = 2048;  // all values are below, and no count is above
constexpr unsigned ALL = 0xffffffffu;
static_assert(BINS == WARP && ROWS % CHUNK == 0 && LANES == 2 * WORDS);

// Two whole numbers in a word, in floating point of 16 bits, which has all of them exactly up to END.
struct Pair {
    unsigned bits;

#ifdef GPUPC_HOST
    template <class F>
    static Pair each(Pair a, Pair b, F f) {
        return of(f(a.get(false), b.get(false)), f(a.get(true), b.get(true)));
    }
    static Pair of(int a, int b) { return Pair{static_cast<unsigned>(b) << 16 | (static_cast<unsigned>(a) & 0xffffu)}; }
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
    __device__ __forceinline__ static Pair of(int a, int b) {
        Pair p;
        asm("{ .reg .b16 l, h; .reg .f32 a, b; cvt.rn.f32.s32 a, %1; cvt.rn.f32.s32 b, %2;"
            " cvt.rn.f16.f32 l, a; cvt.rn.f16.f32 h, b; mov.b32 %0, {l, h}; }"
            : "=r"(p.bits)
            : "r"(a), "r"(b));
        return p;
    }
    __device__ __forceinline__ int get(bool second) const {
        const auto half = static_cast<unsigned short>(second ? bits >> 16 : bits & 0xffffu);
        int number;
        asm("cvt.rni.s32.f16 %0, %1;" : "=r"(number) : "h"(half));
        return number;
    }
    __device__ __forceinline__ static Pair distance(Pair a, Pair b) {
        Pair p;
        asm("{ .reg .b32 d; sub.rn.f16x2 d, %1, %2; abs.f16x2 %0, d; }" : "=r"(p.bits) : "r"(a.bits), "r"(b.bits));
        return p;
    }
    __device__ __forceinline__ static Pair larger(Pair a, Pair b) {
#if __CUDA_ARCH__ >= 800
        Pair p;
        asm("max.f16x2 %0, %1, %2;" : "=r"(p.bits) : "r"(a.bits), "r"(b.bits));
        return p;
#else
        return of(max(a.get(false), b.get(false)), max(a.get(true), b.get(true)));
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

    __device__ __forceinline__ void count_below(const Octet& numbers, const Octet& limits) {
        for (int w = 0; w < WORDS; ++w) of[w] = Pair::sum(of[w], Pair::below(numbers.of[w], limits.of[w]));
    }
};

// The lane that a thread of a warp looks after: 4 threads have the same, `helper` is their number.
struct Duty {
    static constexpr int HELPERS = WARP / LANES;
    int thread, lane, helper;

    __device__ __forceinline__ Duty()
        : thread(threadIdx.x % WARP), lane(thread / 8 * 2 + thread % 2), helper(thread % 8 / 2) {}

    __device__ __forceinline__ bool second() const { return thread % 2 == 1; }

    // The lane's sum over all threads.
    __device__ __forceinline__ int sum(const Octet& numbers) const {
        const bool high = thread & 16, odd = thread & 8;
        Pair mine[2];
        for (int w = 0; w < 2; ++w) {
            mine[w] = high ? numbers.of[w + 2] : numbers.of[w];
            add_from(mine[w], high ? numbers.of[w] : numbers.of[w + 2], 16);
        }
        Pair own = odd ? mine[1] : mine[0];
        add_from(own, odd ? mine[0] : mine[1], 8);
        for (int apart = 4; apart > 0; apart /= 2) add_from(own, own, apart);
        return own.get(second());
    }

    // All lanes' numbers.
    __device__ __forceinline__ Octet spread(int number) const {
        const int other = __shfl_xor_sync(ALL, number, 1);
        const Pair own = second() ? Pair::of(other, number) : Pair::of(number, other);
        Octet found;
        for (int w = 0; w < WORDS; ++w) found.of[w].bits = __shfl_sync(ALL, own.bits, 8 * w);
        return found;
    }

    // The lane's sum over its helpers.
    __device__ __forceinline__ int helped(int number) const {
        number += __shfl_xor_sync(ALL, number, 2);
        return number + __shfl_xor_sync(ALL, number, 4);
    }

    __device__ __forceinline__ int largest(int number) const {
        for (int apart = 1; apart < WARP; apart = apart == 1 ? 8 : 2 * apart) {
            number = max(number, __shfl_xor_sync(ALL, number, apart));
        }
        return number;
    }

 private:
    __device__ __forceinline__ static void add_from(Pair& own, Pair sent, int apart) {
        own = Pair::sum(own, Pair{__shfl_xor_sync(ALL, sent.bits, apart)});
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

// About x^y: where that leads to is counted.
__device__ __forceinline__ float power(float x, float y) {
#ifdef GPUPC_HOST
    return powf(x, y);
#else
    float z;
    asm("{ .reg .f32 l; lg2.approx.f32 l, %1; mul.rn.f32 l, l, %2; ex2.approx.f32 %0, l; }" : "=f"(z) : "f"(x), "f"(y));
    return z;
#endif
}

// The partials of tests of the samples that are listed, for LANES lanes a block, which lie together in the columns.
// Shared memory: the values of all samples in these, 16 bytes each.
// Grid (groups of lanes times any, tests), block (whole warps).
template <bool EMPTY>
__global__ void __launch_bounds__(512, 1)
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
        values[i / WORDS].of[i % WORDS] = Pair::of(own_columns[2 * i], own_columns[2 * i + 1]);
    }
    __syncthreads();
    const Duty duty;
    const int thread = duty.thread;
    const auto dimensions = static_cast<float>(sets.level + 2);
    unsigned long long sum = 0;
    for (int a = lists.first + part * warps + threadIdx.x / WARP; a < lists.first + lists.samples; a += parts * warps) {
        const Neighbours<short, EMPTY> here(lists, blockIdx.y, a);
        const auto low = static_cast<int>(here.header->low);
        const int shift = here.header->shift;
        int ends[here.LISTS];  // a thread has that of the bucket of its number
        for (int l = 0; l < here.LISTS; ++l) ends[l] = here.header->starts[l][thread + 1];
        const Octet own = values[a];
        const auto entry = [&](int list, int place) {
            return place < lists.padded ? here.lists[list]->of[place] : Neighbour::of(0, Number<short>::LARGEST);
        };
        // The distances of a neighbour: in V_i, or where it is listed if that is more.
        const auto measure = [&](const Neighbour& neighbour) {
            const Octet its = values[neighbour.sample()];
            const Pair listed = Pair::of(neighbour.key(), neighbour.key());
            Octet found;
            for (int w = 0; w < WORDS; ++w) {
                found.of[w] = Pair::larger(Pair::distance(its.of[w], own.of[w]), listed);
            }
            return found;
        };

        // What the warp needs for its next sample, about as much as for this one, comes nearer meanwhile.
        const int following = a + parts * warps;
        if (following < lists.first + lists.samples) {
            const Neighbours<short, EMPTY> next(lists, blockIdx.y, following);
            const int end = static_cast<int>(sizeof(Header)) - 1;
            if (thread * LINE < end + LINE) bring(reinterpret_cast<const char*>(next.header) + min(thread * LINE, end));
            for (int line = thread; line * WARP < lists.wanted; line += WARP) {  // a line has WARP entries
                for (const auto* list : next.lists) bring(list->of + line * WARP);
            }
        }

        // The k-th distance is the largest number that fewer than k are below. `from` is a number that fewer are below;
        // below `to` there are k or more, all of them in the first `rows`.
        Octet keys[ROWS];
        int rows = 0;
        const auto below = [&](int limit) {
            const Octet limits = duty.spread(limit);
            Octet counts = {};
#pragma unroll
            for (int c = 0; c < ROWS; c += CHUNK) {
                if (c >= rows) break;
                for (int r = c; r < c + CHUNK; ++r) counts.count_below(keys[r], limits);
            }
#pragma unroll 1
            for (int r = ROWS; r < rows; ++r) counts.count_below(measure(entry(0, r * WARP + thread)), limits);
            return duty.sum(counts);
        };
        int from = low, to, before = -1, after;  // how many are below; -1: not counted
        for (int wanted = lists.wanted * 3 / 4;;) {
            const unsigned enough = __ballot_sync(ALL, ends[0] >= min(wanted, n - 1));
            const int last = __ffs(static_cast<int>(enough)) - 1;
            const int listed = __shfl_sync(ALL, ends[0], last), measured = (rows + CHUNK - 1) / CHUNK * CHUNK;
            rows = (listed + WARP - 1) / WARP;
#pragma unroll
            for (int c = 0; c < ROWS; c += CHUNK) {
                if (c >= rows) break;
                if (c < measured) continue;
                Neighbour neighbours[CHUNK];
                for (int r = 0; r < CHUNK; ++r) neighbours[r] = entry(0, (c + r) * WARP + thread);
                for (int r = 0; r < CHUNK; ++r) keys[c + r] = measure(neighbours[r]);
            }
            const bool complete = listed == n - 1;
            to = complete ? END : min(low + (last << shift), END);
            after = below(to);
            if (complete || __all_sync(ALL, after >= k)) break;
            wanted = listed + listed / 8 + 1;
        }
#pragma unroll 1
        for (int step = 1;; ++step) {
            const bool found = to == from + 1;
            if (__all_sync(ALL, found)) break;
            int limit = to;
            if (!found) {  // about (limit / to)^dimensions as many are below; now and then the middle
                const bool outer = before <= 0 || after - k <= k - before;
                const float share = (static_cast<float>(k) - 0.5f) / static_cast<float>(outer ? after : before);
                limit = static_cast<int>(rintf(static_cast<float>(outer ? to : from) * power(share, 1 / dimensions)));
                if (step % 4 == 0) limit = (from + to) / 2;
                limit = min(max(limit, from + 1), to - 1);
            }
            const int count = below(limit);
            if (found) continue;
            (count >= k ? to : from) = limit;
            (count >= k ? after : before) = count;
        }
        const int radius = max(from, 1);  // zero: those at distance zero count

        // The counts, with the sample itself. What comes before the bucket of the radius in a list is nearer.
        const int rim = bin_of(radius, low, shift);
        const auto near = [&](int list) {
            const int start = __shfl_sync(ALL, ends[list], rim - 1), end = __shfl_sync(ALL, ends[list], rim);
            int count = 0;
#pragma unroll 2
            for (int place = start + duty.helper; place < end; place += Duty::HELPERS) {
                count += here.lists[list]->of[place].key() < radius;
            }
            return 1 + start + duty.helped(count);
        };
        const int near_y = near(0);
        int near_x, near_z = n;
        if constexpr (EMPTY) {
            near_x =
                count_around<short, Continuous>(columns.sorted + static_cast<long long>(set[0]) * n, n, columns.ranks,
                                                own_columns[a * LANES + duty.lane], static_cast<short>(radius));
        } else {
            const Octet limits = duty.spread(radius);
            Octet counts = {};
            const int end = __shfl_sync(ALL, ends[1], duty.largest(rim));
            for (int first = thread; first < end + thread; first += CHUNK * WARP) {
                Neighbour neighbours[CHUNK];
                for (int c = 0; c < CHUNK; ++c) neighbours[c] = entry(1, first + c * WARP);
                for (int c = 0; c < CHUNK; ++c) counts.count_below(measure(neighbours[c]), limits);
            }
            near_x = 1 + duty.sum(counts);
            near_z = near(1);
        }
        if (duty.helper == 0) {
            sum += static_cast<unsigned long long>(tests.psi[near_x] + tests.psi[near_y] - tests.psi[near_z]);
        }
    }
    const int lane = group * LANES + duty.lane;
    if (duty.helper == 0 && lane < tests.lanes) atomicAdd(&tests.sums(blockIdx.y)[lane], sum);
}
