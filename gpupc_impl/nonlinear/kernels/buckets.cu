// CMI of V_i and V_j given S for all replicates (GPU-CMIknn, Algorithm 4), by counting in buckets. The k-th joint
// distance of a sample is found without sorting and without bisection. A thread traverses the list by distances in
// (V_j, S) (lists.cuh) and counts joint distances by the buckets of the list. A joint distance is at least the distance
// in (V_j, S), so when the traversal has reached a bucket of the list, the counts of the buckets before it are
// complete; it ends as soon as they contain k distances. A second traversal collects the few keys of the bucket that
// contains the k-th, and selects it. The counts in (V_i, S), (V_j, S) and S follow from the positions of the buckets,
// except for the keys of one bucket, which are compared.
//
// The list ends where most replicates have found their k-th distance. Replicates in which V_i is an outlier or has a
// wide spread need a longer list, and are left to `estimate_far`, because they would keep the other threads of their
// warp waiting. Keys are integers for all types of values (numbers.cuh), so ranks and floats take the same steps. A
// bucket with too many keys is divided until its keys can be kept, at the latest when it has a single key value.
#include "nonlinear/kernels/deal.cuh"
#include "nonlinear/kernels/lists.cuh"

constexpr int CELL_STRIDE = 32;  // the distance between two counters of a thread; other threads have those between
constexpr int PANEL = 32;        // the replicates that lie side by side in the columns

// Returns whether low <= key <= high, where low <= high, by one comparison of 32 bits.
template <class Key>
__device__ __forceinline__ bool between(Key key, Key low, Key high) {
    if constexpr (sizeof(Key) == sizeof(unsigned)) {
        return static_cast<unsigned>(key - low) <= static_cast<unsigned>(high - low);
    } else {
        return low <= key && key <= high;
    }
}

// The type of a counter. 16 bits leave the first-level cache more room for values. A key of a double takes two counters
// of 32 bits; it would take four of 16, and too few keys could be kept.
template <class T>
struct CellOf {
    using Type = unsigned short;
};

template <>
struct CellOf<double> {
    using Type = unsigned;
};

// The BINS counters of the calling thread in shared memory.
template <class T>
struct Cells {
    using Cell = typename CellOf<T>::Type;
    Cell* first;
    // `shared` has room for the counters of all threads of the block, in whole warps.
    __device__ explicit Cells(unsigned char* shared)
        : first(reinterpret_cast<Cell*>(shared) + threadIdx.x / CELL_STRIDE * (CELL_STRIDE * BINS) +
                threadIdx.x % CELL_STRIDE) {}
    __device__ __forceinline__ Cell& operator[](unsigned i) const { return first[i * CELL_STRIDE]; }
};

// The keys of the calling thread, stored in place of its counters.
template <class T>
struct Kept {
    using Cell = typename CellOf<T>::Type;
    static constexpr int CELLS = sizeof(T) / sizeof(Cell), BITS = 8 * sizeof(Cell), CAPACITY = BINS / CELLS;
    Cells<T> cells;
    __device__ __forceinline__ void set(int i, Wide<T> key) {
#pragma unroll
        for (int c = 0; c < CELLS; ++c) cells[i * CELLS + c] = static_cast<Cell>(key >> (c * BITS));
    }
    __device__ __forceinline__ Wide<T> get(int i) const {
        Wide<T> key = cells[i * CELLS];
#pragma unroll
        for (int c = 1; c < CELLS; ++c) key |= static_cast<Wide<T>>(cells[i * CELLS + c]) << (c * BITS);
        return key;
    }
};

// The range of values nearer to `own` than `radius`, a key of at least 1.
template <class T, class Rule>
struct Ball {
    T own;
    Wide<T> radius;
    __device__ __forceinline__ bool has(T value) const {
        if constexpr (!Rule::TIES && Number<T>::whole) {  // This takes one comparison.
            return static_cast<unsigned>(value + (radius - 1 - own)) < static_cast<unsigned>(2 * radius - 1);
        } else {
            return distance_between<T, Rule>(own, value) < radius;
        }
    }
};

// The values of one replicate, `sample_bytes` apart.
template <class T>
struct Replicate {
    const char* values;
    unsigned sample_bytes;
    __device__ __forceinline__ T operator[](unsigned sample) const {  // This is one multiplication with a 64-bit sum.
        return *reinterpret_cast<const T*>(values + static_cast<unsigned long long>(sample) * sample_bytes);
    }
};

// One sample in one replicate, for which a thread traverses the lists.
template <class T, bool EMPTY, class Rule>
struct Walk {
    using Key = Wide<T>;

    // Keys from, ..., to, with the number of joint keys below and among them.
    struct Interval {
        Key from, to;
        int before, inside;
    };

    const Neighbours<T, EMPTY>& here;
    const Replicate<T>& replicate;
    const Cells<T>& counts;
    int k;
    T own;
    Key low;
    int shift, last;

    __device__ __forceinline__ Walk(const Neighbours<T, EMPTY>& here_, const Replicate<T>& replicate_,
                                    const Cells<T>& counts_, int k_, int a)
        : here(here_),
          replicate(replicate_),
          counts(counts_),
          k(k_),
          own(replicate_[a]),
          low(static_cast<Key>(here_.header->low)),
          shift(here_.header->shift),
          last(here_.header->last) {}

    // The larger of the distance in V_i and the key in the list, of some entries.
    __device__ __forceinline__ void measure(const Entries<T>& entries, Key* keys) const {
#pragma unroll
        for (int s = 0; s < STEP<T>; ++s) {
            keys[s] = distance_between<T, Rule>(own, replicate[entries.of[s].sample()]);
        }
#pragma unroll
        for (int s = 0; s < STEP<T>; ++s) keys[s] = larger(keys[s], entries.of[s].key());
    }

    __device__ __forceinline__ void clear() const {
        for (int bin = 0; bin < BINS; ++bin) counts[bin] = 0;
    }

    // The bucket of the k-th joint distance, `last` if none has it; and how many distances are in the buckets before.
    __device__ __forceinline__ int bucket_of_kth(int& before) const {
        clear();
        const int listed = here.header->starts[0][BINS];
        int bin = 0;
        before = 0;
        for (int j = 0;;) {
            const Entries<T> entries = here.lists[0][j];
            ++j;
            int reached = last;  // The entries are read before counting, so that the latency is hidden.
            if (j * STEP<T> < listed) reached = bin_of(here.lists[0][j].of[0].key(), low, shift);
            Key keys[STEP<T>];
            measure(entries, keys);
#pragma unroll
            for (int s = 0; s < STEP<T>; ++s) ++counts[bin_of(keys[s], low, shift)];
            int count = 0;
            while (bin < reached && before + (count = counts[bin]) < k) {
                before += count;
                ++bin;
            }
            if (bin < reached || reached == last) break;
        }
        return bin;
    }

    // Divides a bucket until its keys can be kept, or a single key is left. `end`: the bucket's end in the list.
    __device__ __forceinline__ Interval narrowed(int bin, int before, int end) const {
        constexpr Key FARTHEST = Number<T>::LARGEST - 1;
        int inside = counts[bin];
        Key from = low + (static_cast<Key>(bin - 1) << shift);  // Bucket 0 has fewer than k keys.
        Key to = from + min((Key(1) << shift) - 1, FARTHEST - from);
#pragma unroll 1
        // The bucket is divided into single keys if possible.
        while (from < to && (inside > Kept<T>::CAPACITY || to - from < BINS)) {
            const unsigned long long span = static_cast<unsigned long long>(to - from);
            const int finer = span < BINS ? 0 : 64 - __clzll(static_cast<long long>(span / BINS));
            clear();
            for (int j = 0; j * STEP<T> < end; ++j) {
                const Entries<T> entries = here.lists[0][j];
                Key keys[STEP<T>];
                measure(entries, keys);
#pragma unroll
                for (int s = 0; s < STEP<T>; ++s) {
                    if (between(keys[s], from, to)) ++counts[static_cast<int>((keys[s] - from) >> finer)];
                }
            }
            int in = 0;
            while (before + (inside = counts[in]) < k) {
                before += inside;
                ++in;
            }
            from += static_cast<Key>(in) << finer;
            to = from + min((Key(1) << finer) - 1, to - from);
        }
        return Interval{from, to, before, inside};
    }

    // The k-th joint distance, of those in an interval: keeps them, and bisects with them as pivots.
    __device__ __forceinline__ Key kth_in(const Interval& interval, int end) const {
        Kept<T> kept{counts};
        int length = 0;
        for (int j = 0; j * STEP<T> < end; ++j) {
            const Entries<T> entries = here.lists[0][j];
            Key keys[STEP<T>];
            measure(entries, keys);
#pragma unroll
            for (int s = 0; s < STEP<T>; ++s) {
                if (between(keys[s], interval.from, interval.to)) kept.set(length++, keys[s]);
            }
        }
        Key least = interval.from, most = interval.to;
        for (int i = 0; least < most; ++i) {
            const Key key = kept.get(i);
            if (key < least || key > most) continue;
            int less = interval.before, up_to = interval.before;
            for (int j = 0; j < length; ++j) {
                less += kept.get(j) < key;
                up_to += kept.get(j) <= key;
            }
            if (less >= k) {
                most = key - 1;
            } else if (up_to < k) {
                least = key + 1;
            } else {
                least = most = key;
            }
        }
        return least;
    }

    // The samples nearer than the radius in (V_j, S), with the sample itself. rim: the bucket of the radius.
    __device__ __forceinline__ int count_y(Key radius, int rim) const {
        const Header& header = *here.header;
        const int first = header.starts[0][rim] / STEP<T>;  // Entries before this one are nearer.
        int near = 1 + first * STEP<T>;
        for (int j = first; j * STEP<T> < header.starts[0][rim + 1]; ++j) {
            const Entries<T> entries = here.lists[0][j];
#pragma unroll
            for (int s = 0; s < STEP<T>; ++s) near += entries.of[s].key() < radius;
        }
        return near;
    }

    // Counts the samples nearer than the radius in the joint space, without the sample itself.
    __device__ __forceinline__ int count_joint(Key radius, int rim) const {
        int joint = 0;
        for (int j = 0; j * STEP<T> < here.header->starts[0][rim + 1]; ++j) {
            const Entries<T> entries = here.lists[0][j];
            Key keys[STEP<T>];
            measure(entries, keys);
#pragma unroll
            for (int s = 0; s < STEP<T>; ++s) joint += keys[s] < radius;
        }
        return joint;
    }

    // Counts the samples nearer than the radius in (V_i, S) and in S, with the sample itself.
    __device__ __forceinline__ void count_x_and_z(Key radius, int rim, int& near_x, int& near_z) const {
        const Header& header = *here.header;
        const Ball<T, Rule> ball{own, radius};
        const int first = header.starts[1][rim] / STEP<T>;  // Entries before this one are nearer in S.
        near_x = 1;
        near_z = 1 + first * STEP<T>;
        Entries<T> next = here.lists[1][0];  // These entries are prefetched while those before are compared.
        for (int j = 1; j <= first; ++j) {
            const Entries<T> entries = next;
            next = here.lists[1][min(j, first - 1)];
#pragma unroll
            for (int s = 0; s < STEP<T>; ++s) near_x += ball.has(replicate[entries.of[s].sample()]);
        }
        for (int j = first; j * STEP<T> < header.starts[1][rim + 1]; ++j) {
            const Entries<T> entries = here.lists[1][j];
            Key keys[STEP<T>];
            measure(entries, keys);
#pragma unroll
            for (int s = 0; s < STEP<T>; ++s) {
                near_x += keys[s] < radius;
                near_z += entries.of[s].key() < radius;
            }
        }
    }
};

// Adds to the partials of tests the terms of the samples listed. A thread has a sample in a replicate. A warp takes one
// sample in a group of `width` replicates, whose values lie side by side, or in the last group, which may have few
// replicates, several samples. Such pieces of work, ordered by test, group and sample, are assigned to warps
// (deal.cuh), so that the panel that a multiprocessor reads stays in its first-level cache. Relies on shared memory of
// BINS counters for each thread, in whole warps. Grid (any), block (gamma: whole warps, or less than one).
template <class T, bool EMPTY, class Rule = Continuous>
__global__ void __launch_bounds__(512, 3)
    estimate_by_buckets(const __grid_constant__ Sets<T> sets, const __grid_constant__ Tests tests,
                        const __grid_constant__ Lists<T> lists, const __grid_constant__ Columns<T> columns) {
    using Key = Wide<T>;
    constexpr int SELF = Rule::TIES ? 1 : 0;  // Under TIES, counts exclude the sample itself.
    GPUPC_DYNAMIC_SHARED(unsigned char, shared);
    const Warp warp;
    const int groups = (tests.replicates + columns.width - 1) / columns.width;
    Deal deal(lists.pieces_taken(), tests.count * columns.test_pieces, lists.shares);
    const int n = sets.n, stride = columns.stride;
    const Cells<T> counts(shared);
    const long long* psi = tests.psi;
    int group_begin = 0, group_end = 0;  // the pieces of the current group of replicates of a test
    int test = 0, own_replicate = 0, variable = 0, team = 0, teams = 1;
    Replicate<T> replicate{nullptr, static_cast<unsigned>(columns.sample_bytes)};
    unsigned long long sum = 0;
    for (int piece; (piece = deal.next(warp)) >= 0;) {
        if (piece < group_begin || piece >= group_end) {
            if (sum != 0) atomicAdd(&tests.sums(test)[own_replicate], sum);
            sum = 0;
            test = piece / columns.test_pieces;
            const int test_begin = test * columns.test_pieces;
            const int group = min((piece - test_begin) / columns.group_pieces, groups - 1);
            const int width = min(columns.width, tests.replicates - group * columns.width);
            group_begin = test_begin + group * columns.group_pieces;
            group_end = group == groups - 1 ? test_begin + columns.test_pieces : group_begin + columns.group_pieces;
            teams = warp.threads / width;  // Each thread has a sample.
            team = warp.thread / width;
            own_replicate = group * columns.width + warp.thread % width;
            const int set = tests.pairs[2ll * test];
            variable = sets.set(set)[0];
            replicate.values = reinterpret_cast<const char*>(
                columns.values + (static_cast<long long>(set) * stride + own_replicate / PANEL * PANEL) * n +
                own_replicate % PANEL);
        }
        const int a = lists.first + (piece - group_begin) * teams + team;
        if (team >= teams || a >= lists.first + lists.samples) continue;
        const Neighbours<T, EMPTY> here(lists, test, a);
        const Walk<T, EMPTY, Rule> walk(here, replicate, counts, tests.k, a);
        int before;
        const int bin = walk.bucket_of_kth(before);
        if (bin == walk.last) {
            lists.add_far(test, a, own_replicate);
            continue;
        }
        const int end = here.header->starts[0][bin + 1];
        const auto interval = walk.narrowed(bin, before, end);
        const Key kth = interval.from < interval.to ? walk.kth_in(interval, end) : interval.from;
        const Key radius = Rule::TIES ? kth + 1 : max(kth, Key(1));  // If the radius is 0, samples at distance 0 count.
        const int rim = bin_of(radius, walk.low, walk.shift);
        const int near_y = walk.count_y(radius, rim);
        if constexpr (Rule::TIES) sum -= static_cast<unsigned long long>(psi[walk.count_joint(radius, rim)]);
        int near_x, near_z = n;
        if constexpr (EMPTY) {
            const T* sorted = columns.sorted + static_cast<long long>(variable) * n;
            near_x = count_around<T, Rule>(sorted, n, columns.ranks, walk.own, static_cast<KeyOf<T>>(radius));
        } else {
            walk.count_x_and_z(radius, rim, near_x, near_z);
        }
        sum += static_cast<unsigned long long>(psi[near_x - SELF] + psi[near_y - SELF] - psi[near_z - SELF]);
    }
    if (sum != 0) atomicAdd(&tests.sums(test)[own_replicate], sum);
}
