// CMI of V_i and V_j given S for all replicates (GPU-CMIknn, Algorithm 4), with the distances of a sample in the
// registers of a warp. The values must be integers below END, such as ranks, of at most END samples. A joint distance
// is at least that in (V_j, S), so the k-th is among the first entries of the list by those (lists.cuh). A warp
// computes the joint distances of these once and keeps them, two to a register (half2.cuh). Then it counts how many are
// below a limit, with one instruction for two of them and a matrix product for 32 neighbours in all replicates, and
// moves the limits of the replicates towards their k-th distances (bounds.cuh) until these are enclosed. Nothing is
// sorted, and k matters only for the number of neighbours.
#include "nonlinear/kernels/bounds.cuh"
#include "nonlinear/kernels/half2.cuh"
#include "nonlinear/kernels/lists.cuh"

constexpr int CHUNK = 4;         // the rows of 32 neighbours that are read at a time
constexpr int LINE_BYTES = 128;  // the bytes of a cache line
constexpr int PATIENCE = 8;      // the number of limits that interpolation chooses before bisection replaces it
static_assert(BINS == WARP && CHUNK % SUMS == 0);

// Prefetches a line into the first-level cache.
__device__ __forceinline__ void prefetch(const void* memory) {
#ifdef GPUPC_HOST
    __builtin_prefetch(memory);
#else
    asm volatile("prefetch.global.L1 [%0];" ::"l"(memory));
#endif
}

// The lists of one sample as a warp reads them: thread t has neighbours t, 32 + t, ..., a row of 32 at a time.
template <bool EMPTY>
struct WarpLists {
    using Neighbour = Entry<short>;
    using Here = Neighbours<short, EMPTY>;

    const Here here;
    const Octet* values;  // the values of all samples, in the replicates of the block
    Octet own;
    int thread, low, shift;
    int ends[Here::LISTS];  // the position where the bucket with the thread's number ends in each list

    __device__ __forceinline__ WarpLists(const Lists<short>& lists, const Octet* values_, int thread_, int a)
        : here(lists, blockIdx.y, a),
          values(values_),
          own(values_[a]),
          thread(thread_),
          low(static_cast<int>(here.header->low)),
          shift(here.header->shift) {
        for (int l = 0; l < Here::LISTS; ++l) ends[l] = here.header->starts[l][thread + 1];
    }

    // Returns the index after the last entry of a bucket in a list.
    __device__ __forceinline__ int end_of(int list, int bin) const { return __shfl_sync(ALL, ends[list], bin); }
    // The thread's neighbour in a row of a list with `length` entries; a NaN after the end.
    __device__ __forceinline__ Neighbour entry(int list, int length, int row) const {
        const int place = row * WARP + thread;
        return place < length ? here.lists[list]->of[place] : Neighbour::of(0, Number<short>::LARGEST);
    }

    // Reads the neighbours of CHUNK rows.
    __device__ __forceinline__ void entries(int list, int length, int row, Neighbour* chunk) const {
        if ((row + CHUNK) * WARP <= length) {
            const Neighbour* first = here.lists[list]->of + row * WARP + thread;
            for (int r = 0; r < CHUNK; ++r) chunk[r] = first[r * WARP];
        } else {
            for (int r = 0; r < CHUNK; ++r) chunk[r] = entry(list, length, row + r);
        }
    }

    // Returns a neighbour's distance in the space of its list, twice.
    __device__ __forceinline__ static Pair listed(const Neighbour& neighbour) {
        return Pair::of_shorts(upper_twice(neighbour.both));
    }

    // Returns the neighbour's distances in V_i.
    __device__ __forceinline__ Octet distances(const Neighbour& neighbour) const {
        const Octet other = values[lower(neighbour.both)];
        Octet result;
        for (int w = 0; w < WORDS; ++w) result.of[w] = Pair::distance(other.of[w], own.of[w]);
        return result;
    }

    // Returns the larger of both distances.
    __device__ __forceinline__ Octet joint(const Neighbour& neighbour) const {
        const Pair at_least = listed(neighbour);
        Octet result = distances(neighbour);
        for (int w = 0; w < WORDS; ++w) result.of[w] = Pair::larger(result.of[w], at_least);
        return result;
    }

    // Counts the listed distances of a chunk that are below the limits.
    __device__ __forceinline__ static void count_listed(Tally& tally, const Neighbour* chunk, const Octet& limits) {
        for (int c = 0; c < CHUNK; ++c) {
            const Pair key = listed(chunk[c]);
            tally.add_below(c, Octet{{key, key, key, key}}, limits);
        }
    }
};

// Prefetches the header and the first `rows` rows of the lists of a sample.
template <bool EMPTY>
__device__ __forceinline__ void prefetch_lists(const Lists<short>& lists, int a, int thread, int rows) {
    const Neighbours<short, EMPTY> next(lists, blockIdx.y, a);
    const int end = static_cast<int>(sizeof(Header)) - 1;
    if (thread * LINE_BYTES < end + LINE_BYTES) {
        prefetch(reinterpret_cast<const char*>(next.header) + min(thread * LINE_BYTES, end));
    }
    for (int line = thread; line < rows; line += WARP) {  // A line has WARP entries.
        for (const auto* list : next.lists) prefetch(list->of + line * WARP);
    }
}

// Computes the joint distances of the first ROWS rows of the list by (V_j, S).
template <bool EMPTY, int ROWS>
__device__ __forceinline__ void keep_distances(const WarpLists<EMPTY>& here, int length, Octet (&keys)[ROWS]) {
    using Neighbour = Entry<short>;
    Neighbour next[CHUNK];  // These are read while those before are processed.
    here.entries(0, length, 0, next);
#pragma unroll
    for (int c = 0; c < ROWS; c += CHUNK) {
        Neighbour chunk[CHUNK];
        for (int r = 0; r < CHUNK; ++r) chunk[r] = next[r];
        if (c + CHUNK < ROWS) here.entries(0, length, c + CHUNK, next);
        for (int r = 0; r < CHUNK; ++r) keys[c + r] = here.joint(chunk[r]);
    }
}

// Finds the k-th joint distance of the thread's replicate, which is `from` of the bounds in the end. Sets `far` if the
// list ends before it. Joint distances below `to` are in the first `rows` rows, which are mostly those whose distances
// are kept in `keys`; those of other rows are computed at each count.
template <bool EMPTY, int ROWS>
__device__ __forceinline__ float kth_distance(const WarpLists<EMPTY>& here, const Octet (&keys)[ROWS], const Duty& duty,
                                              int length, int k, float one_over_dimensions, bool& far) {
    int rows = ROWS;
    const auto count_below = [&](float limit) {
        const Octet limits = duty.spread(limit);
        Tally tally;
        tally.add_below(keys, limits);
#pragma unroll 1
        for (int r = ROWS; r < rows; ++r) tally.add_below(0, here.joint(here.entry(0, length, r)), limits);
        return tally.total(duty);
    };
    Bounds bounds{static_cast<float>(here.low), 0};
    // `to` is the end of the last bucket that is kept whole, and grows until k are below in all replicates.
    for (int last = max(__popc(__ballot_sync(ALL, here.ends[0] <= ROWS * WARP)) - 1, 0);;) {
        const int end = here.end_of(0, last);
        rows = max((end + WARP - 1) / WARP, ROWS);
        const bool all = end == length;  // Later buckets may contain no samples, but joint distances.
        bounds.to = static_cast<float>(min(here.low + ((all ? here.here.header->last - 1 : last) << here.shift), END));
        bounds.after = count_below(bounds.to);
        if (all || __all_sync(ALL, bounds.after >= static_cast<float>(k))) break;
        last = min(__popc(__ballot_sync(ALL, here.ends[0] <= end + end / 8)), LAST);
    }
    far = bounds.after < static_cast<float>(k);
    if (far) bounds.from = bounds.to - 1;
#pragma unroll 1
    for (int step = 0; !__all_sync(ALL, bounds.meet()); ++step) {
        const float limit = step < PATIENCE ? bounds.between(k, one_over_dimensions) : bounds.middle();
        const float count = count_below(limit);
        const bool enough = count >= static_cast<float>(k);
        (enough ? bounds.to : bounds.from) = limit;
        (enough ? bounds.after : bounds.before) = count;
    }
    return bounds.from;
}

// Which rows are counted: before bucket `first_rim` all are within all replicates' radii, after `last_rim` none.
template <bool EMPTY>
struct Rim {
    const WarpLists<EMPTY>& here;
    int first_rim, last_rim;
    __device__ __forceinline__ Rim(const WarpLists<EMPTY>& here_, const Duty& duty, int radius) : here(here_) {
        const int rim = bin_of(radius, here.low, here.shift);
        first_rim = duty.least(rim);
        last_rim = duty.largest(rim);
    }
    __device__ __forceinline__ int nearer_rows(int list) const { return here.end_of(list, first_rim - 1) / WARP; }
    __device__ __forceinline__ int end_row(int list) const { return (here.end_of(list, last_rim) + WARP - 1) / WARP; }
};

// Counts the samples nearer than the radius in (V_j, S), with the sample itself, for the thread's replicate.
template <bool EMPTY>
__device__ __forceinline__ int count_y(const WarpLists<EMPTY>& here, const Rim<EMPTY>& rim, const Octet& limits,
                                       const Duty& duty, int length) {
    Tally tally;
    const int nearer = rim.nearer_rows(0), end = rim.end_row(0);
    for (int row = nearer; row < end; row += CHUNK) {
        Entry<short> chunk[CHUNK];
        here.entries(0, length, row, chunk);
        here.count_listed(tally, chunk, limits);
    }
    return 1 + nearer * WARP + static_cast<int>(tally.total(duty));
}

// Counts the same in (V_i, S) and in S; rows that are nearer in S need no distance in S.
__device__ __forceinline__ void count_x_and_z(const WarpLists<false>& here, const Rim<false>& rim, const Octet& limits,
                                              const Duty& duty, int& near_x, int& near_z) {
    Tally in_x, in_z;
    const int nearer = rim.nearer_rows(1), end = rim.end_row(1);
    const int length = here.end_of(1, LAST);
    Entry<short> next[CHUNK];
    here.entries(1, length, 0, next);
    int row = 0;
    for (; row + CHUNK <= nearer; row += CHUNK) {
        Octet keys[CHUNK];
        for (int c = 0; c < CHUNK; ++c) keys[c] = here.distances(next[c]);
        here.entries(1, length, row + CHUNK, next);
        in_x.add_below(keys, limits);
    }
    const int compared = row;
    for (; row < end; row += CHUNK) {
        Octet keys[CHUNK];
        for (int c = 0; c < CHUNK; ++c) keys[c] = here.joint(next[c]);
        in_x.add_below(keys, limits);
        here.count_listed(in_z, next, limits);
        here.entries(1, length, row + CHUNK, next);
    }
    near_x = 1 + static_cast<int>(in_x.total(duty));
    near_z = 1 + compared * WARP + static_cast<int>(in_z.total(duty));
}

// Adds to the partials of tests the terms of the samples listed, in REPLICATES replicates that are a panel of the
// columns. A block has a group of replicates of a test, with all samples' values in its shared memory, and every
// `parts`-th of the samples; a warp has a sample at a time, and a thread every 32nd neighbour. Fewer ROWS, the rows of
// 32 neighbours whose distances are kept, need fewer registers, so more warps are resident. Relies on shared memory of
// 16 bytes for each sample and n + 1 terms of 8 bytes. Grid (groups times parts, tests), block (up to 4 whole warps).
template <class T, bool EMPTY, int ROWS>
__global__ void __launch_bounds__(128, ROWS == 8    ? 6
                                       : ROWS == 12 ? 5
                                                    : 4)
    estimate_by_registers(const __grid_constant__ Sets<T> sets, const __grid_constant__ Tests tests,
                          const __grid_constant__ Lists<T> lists, const __grid_constant__ Columns<T> columns) {
    static_assert(Number<T>::whole);
    GPUPC_DYNAMIC_SHARED(Octet, values);
    const int groups = (tests.replicates + REPLICATES - 1) / REPLICATES;
    const int group = blockIdx.x % groups, part = blockIdx.x / groups, parts = gridDim.x / groups;
    const int n = sets.n, k = tests.k, warps = blockDim.x / WARP;
    const int* pair = tests.pairs + 2ll * blockIdx.y;
    const int* set = sets.set(pair[0]);
    const short* panel = columns.values + (static_cast<long long>(pair[0]) * columns.stride + group * REPLICATES) * n;
    for (int i = threadIdx.x; i < n * WORDS; i += blockDim.x) {
        values[i / WORDS].of[i % WORDS] = Pair::of_shorts(reinterpret_cast<const unsigned*>(panel)[i]);
    }
    auto* const psi = reinterpret_cast<long long*>(values + n);
    for (int i = threadIdx.x; i <= n; i += blockDim.x) psi[i] = tests.psi[i];
    __syncthreads();
    const Duty duty;
    const float one_over_dimensions = 1.0f / static_cast<float>(sets.level + 2);
    unsigned long long sum = 0;
    for (int a = lists.first + part * warps + threadIdx.x / WARP; a < lists.first + lists.samples; a += parts * warps) {
        const WarpLists<EMPTY> here(lists, values, duty.thread, a);
        const int length = here.end_of(0, LAST);
        const int following = a + parts * warps;  // the warp's next sample, which takes about as long as this one
        if (following < lists.first + lists.samples) prefetch_lists<EMPTY>(lists, following, duty.thread, ROWS);

        Octet keys[ROWS];
        keep_distances(here, length, keys);
        bool far;
        const float kth = kth_distance(here, keys, duty, length, k, one_over_dimensions, far);
        const int radius = max(static_cast<int>(kth), 1);  // If the radius is 0, samples at distance 0 count.
        const Octet limits = duty.spread(static_cast<float>(radius));
        const Rim<EMPTY> rim(here, duty, radius);
        const int near_y = count_y(here, rim, limits, duty, length);
        int near_x, near_z = n;
        if constexpr (EMPTY) {
            near_x =
                count_around<short, Continuous>(columns.sorted + static_cast<long long>(set[0]) * n, n, columns.ranks,
                                                panel[a * REPLICATES + duty.replicate], static_cast<short>(radius));
        } else {
            count_x_and_z(here, rim, limits, duty, near_x, near_z);
        }
        const int replicate = group * REPLICATES + duty.replicate;
        if (!duty.first_of_replicate() || replicate >= tests.replicates) continue;
        if (far) {
            lists.add_far(blockIdx.y, a, replicate);
        } else {
            sum += static_cast<unsigned long long>(psi[near_x] + psi[near_y] - psi[near_z]);
        }
    }
    if (sum != 0) atomicAdd(&tests.sums(blockIdx.y)[group * REPLICATES + duty.replicate], sum);
}
