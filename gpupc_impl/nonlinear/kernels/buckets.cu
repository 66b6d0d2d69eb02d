// CMI of V_i and V_j given S for V_i itself and its permutations (GPU-CMIknn, Algorithm 4), by counting in buckets.
//
// Distances in (V_j, S) and in S do not depend on the permutation. `list_neighbours` puts the other samples of each
// sample in the order of either, by buckets. `estimate_by_buckets` has a thread for a sample in a lane (lane 0: V_i
// itself; lane m + 1: permutation m). A joint distance is never below that in (V_j, S), so the thread goes down the
// first list and counts joint distances by buckets until the k-th must be in a bucket that is complete. It then
// collects what is in that bucket, which is little, and picks the distance. Going down the list of S as far as that
// gives the counts.
//
// Lists end where most lanes are done; others need more where V_i is an outlier, or spread wider than the rest. For
// these `estimate_far` has a warp, which goes through all samples that are near enough in S[0]; a thread that did would
// keep the others of its warp waiting for longer than all they have to do.
//
// Buckets are intervals of keys: whole numbers in the order of the distances, whatever their type (lanes.cuh). So ranks
// and floats take the same steps, and a bucket that holds too much is divided until it holds one key at the latest.
//
// From level 1 on samples are numbered in the order of their values of S[0]. No sample is nearer in (V_j, S) or in S
// than in S[0], so the neighbours of a sample lie around it, and samples beside each other share most of them.
#include "nonlinear/kernels/deal.cuh"
#include "nonlinear/kernels/lists.cuh"

constexpr int FINE = 256;  // buckets that `low` and the width of the others are found with
constexpr int APART = 32;  // cells of a thread; its neighbours' lie between
constexpr int PANEL = 32;  // lanes whose values lie side by side

// Whether low <= key <= high, where low <= high; of short keys by one comparison.
template <class Key>
__device__ __forceinline__ bool between(Key key, Key low, Key high) {
    if constexpr (sizeof(Key) == sizeof(unsigned)) {
        return static_cast<unsigned>(key - low) <= static_cast<unsigned>(high - low);
    } else {
        return low <= key && key <= high;
    }
}

// A sample that may be listed, with its distances in (V_j, S) and in S.
template <class T>
struct Candidate {
    KeyOf<T> y, z;
    int sample;
};

// Distances of one sample in (V_j, S) and in S.
template <class T>
struct Distances {
    KeyOf<T> y, z;
};

// Where the values of a test are in the order of the lists, by dimension: the members of S, then V_j.
template <class T>
struct Arranged {
    const T* first;
    int n;
    __device__ __forceinline__ Arranged(const Sets<T>& sets, const Lists<T>& lists, int test)
        : first(lists.arranged + static_cast<long long>(test) * (sets.level + 1) * sets.n), n(sets.n) {}
    __device__ __forceinline__ const T* of(int dimension) const {
        return first + static_cast<long long>(dimension) * n;
    }
};

// The distances of a sample from others, in the spaces that do not depend on V_i.
template <class T, bool EMPTY, class Rule>
struct Around {
    static constexpr int AT_ONCE = 4;  // so that reads do not wait for each other
    using Key = Wide<T>;

    __device__ __forceinline__ Around(const Arranged<T>& values_, int level_, int a_)
        : values(values_), level(level_), a(a_) {}

    // f(b, x(b), y, z) for the samples first, first + apart, ... before `end`: the distance of b is y in (V_j, S) and z
    // in S.
    template <class X, class F>
    __device__ __forceinline__ void each(int first, int end, int apart, X x, F f) const {
        for (; first < end; first += AT_ONCE * apart) {
            int samples[AT_ONCE];
            Key xs[AT_ONCE], ys[AT_ONCE], zs[AT_ONCE];
#pragma unroll
            for (int c = 0; c < AT_ONCE; ++c) {
                samples[c] = min(first + c * apart, end - 1);
                zs[c] = 0;
            }
            if constexpr (!EMPTY) {
                for (int s = 0; s < level; ++s) widen(values.of(s), samples, zs);
            }
#pragma unroll
            for (int c = 0; c < AT_ONCE; ++c) ys[c] = zs[c];
            widen(values.of(level), samples, ys);
#pragma unroll
            for (int c = 0; c < AT_ONCE; ++c) xs[c] = x(samples[c]);
#pragma unroll
            for (int c = 0; c < AT_ONCE; ++c) {
                if (first + c * apart < end) f(samples[c], xs[c], ys[c], zs[c]);
            }
        }
    }

    // f(b, y, z) for the other samples from `first` to before `end`, shared out among the block's threads.
    template <class F>
    __device__ __forceinline__ void each_other(int first, int end, F f) const {
        each(
            first + static_cast<int>(threadIdx.x), end, blockDim.x, [](int) { return Key(0); },
            [&](int b, Key, Key y, Key z) {
                if (b != a) f(b, y, z);
            });
    }

 private:
    const Arranged<T>& values;
    int level, a;

    __device__ __forceinline__ void widen(const T* its, const int* samples, Key* keys) const {
        const T own = its[a];
#pragma unroll
        for (int c = 0; c < AT_ONCE; ++c) {
            keys[c] = larger(keys[c], distance_between<T, Rule>(own, its[samples[c]]));
        }
    }
};

// How far the samples that are nearer to `a` than `bound` reach, in ascending values: the first of them, or on the
// other side the one behind the last.
template <class T, class Rule>
__device__ int reach(const T* values, int n, int a, long long bound, bool upwards) {
    int near = a, far = upwards ? n : -1;
    while (near - far > 1 || far - near > 1) {
        const int middle = (near + far) / 2;
        (distance_between<T, Rule>(values[a], values[middle]) < bound ? near : far) = middle;
    }
    return upwards ? far : near;
}

// The values of each test in the order of the lists. Grid (any, tests), any block.
template <class T>
__global__ void arrange(const __grid_constant__ Sets<T> sets, const __grid_constant__ Tests tests, T* arranged) {
    const int n = sets.n, level = sets.level;
    const int* test = tests.first + 2ll * blockIdx.y;
    const int* set = sets.set(test[0]);
    arranged += static_cast<long long>(blockIdx.y) * (level + 1) * n;
    for (int place = blockIdx.x * blockDim.x + threadIdx.x; place < n; place += gridDim.x * blockDim.x) {
        const int b = sets.sample(test[0], place);
        for (int d = 0; d <= level; ++d) {
            arranged[static_cast<long long>(d) * n + place] = sets.of(d < level ? set[d + 1] : test[1])[b];
        }
    }
}

// The lists of a sample a block. EMPTY: level 0, where there is no list for S. Most samples are behind the end of
// either list; those that are not are kept in shared memory between the pass that counts them and the one that puts
// them in their places, as long as there is room. At first only some samples on either side are looked at, which mostly
// tell how far the lists reach, and whose distances are kept if there is room for all; and then those that are as near
// as that in S[0]. Grid (samples, tests), any block; shared memory: `room` candidates and the distances of `remembered`
// samples.
template <class T, bool EMPTY, class Rule = Continuous>
__global__ void list_neighbours(const __grid_constant__ Sets<T> sets, const __grid_constant__ Tests tests,
                                const __grid_constant__ Lists<T> lists) {
    using Key = Wide<T>;
    using Here = Neighbours<T, EMPTY>;
    constexpr int LISTS = Here::LISTS;
    __shared__ int fine[FINE], counts[LISTS][BINS], kept, shift, last, window[2];
    __shared__ long long low_key;
    __shared__ bool complete;
    GPUPC_DYNAMIC_SHARED(Candidate<T>, candidates);
    if (tests.closed(blockIdx.y)) return;
    const int thread = threadIdx.x, threads = blockDim.x, n = sets.n;
    const int a = lists.first + blockIdx.x;
    const Here here(lists, blockIdx.y, a);
    const Arranged<T> values(sets, lists, blockIdx.y);
    const Around<T, EMPTY, Rule> around(values, sets.level, a);

    for (int bin = thread; bin < FINE; bin += threads) fine[bin] = 0;
    for (int bin = thread; bin < BINS; bin += threads) {
        for (int l = 0; l < LISTS; ++l) counts[l][bin] = 0;
    }
    if (thread == 0) kept = 0;
    __syncthreads();
    const Key fine_low = lists.fine_low;
    const int first = EMPTY ? 0 : max(a - lists.near, 0), end = EMPTY ? n : min(a + lists.near + 1, n);
    auto* const distances = reinterpret_cast<Distances<T>*>(candidates + lists.room);  // of the samples between
    const bool remembers = end - first <= lists.remembered;
    const auto look_at = [&](int from, int to) {
        around.each_other(from, to, [&](int b, Key y, Key z) {
            atomicAdd(&fine[(larger(y, fine_low) - fine_low) >> lists.fine_shift], 1);
            if (remembers && first <= b && b < end) {
                distances[b - first] = {static_cast<KeyOf<T>>(y), static_cast<KeyOf<T>>(z)};
            }
        });
        __syncthreads();
    };
    // The keys that the lists have buckets for, by the samples looked at, and the samples that are nearer in S[0] than
    // where the lists end. Returns the key that as many samples as are wanted are below.
    const auto set_range = [&] {
        const Warp warp;
        const long long with_k = Part::with(tests.k, fine, FINE, warp).number;
        const long long with_all = Part::with(lists.wanted, fine, FINE, warp).number;
        const long long from = with_k == 0 ? 0 : fine_low + (with_k << lists.fine_shift);
        const long long to = fine_low + ((with_all + 1) << lists.fine_shift), span = to - from;
        const int width = span < BINS - 2 ? 0 : 64 - __clzll(span / (BINS - 2));
        const int buckets = min(static_cast<int>((span - 1) >> width) + 1, BINS - 2);
        if (thread == 0) {
            low_key = from;
            shift = width;
            last = 1 + buckets;
        }
        // No key is LARGEST.
        constexpr long long MOST = Number<T>::LARGEST;
        const bool beyond = width >= 58 || (static_cast<long long>(buckets) << width) > MOST - from;
        const long long bound = beyond ? MOST : from + (static_cast<long long>(buckets) << width);
        for (int side = thread; side < 2; side += warp.threads) {
            window[side] = EMPTY ? side * n : reach<T, Rule>(values.of(0), n, a, bound, side == 1);
        }
        return to;
    };
    look_at(first, end);
    if (thread < 32) {
        const long long enough = set_range();
        const T* by = values.of(0);
        const auto is_far = [&](int b) { return distance_between<T, Rule>(by[a], by[b]) >= enough; };
        if (thread == 0) complete = (first == 0 || is_far(first - 1)) && (end == n || is_far(end));
    }
    __syncthreads();
    if (!complete) {  // samples not looked at yet are nearer than that
        look_at(window[0], first);
        look_at(end, window[1]);
        if (thread < 32) set_range();
        __syncthreads();
    }
    const auto low = static_cast<Key>(low_key), least = low > 0 ? low - 1 : Key(0);

    // What an entry is in a list: its key there, and the bucket of that.
    const auto key_in = [&](int list, Key y, Key z) { return larger(list == 0 ? y : z, least); };
    const auto is_listed = [&](int bin) { return bin < last; };
    const auto consider = [&](int b, Key y, Key z) {
        if (!is_listed(bin_of(key_in(LISTS - 1, y, z), low, shift))) return;  // nor in (V_j, S), where it is as far
        for (int l = 0; l < LISTS; ++l) {
            const int bin = bin_of(key_in(l, y, z), low, shift);
            if (is_listed(bin)) atomicAdd(&counts[l][bin], 1);
        }
        const int place = atomicAdd(&kept, 1);
        if (place < lists.room) candidates[place] = {static_cast<KeyOf<T>>(y), static_cast<KeyOf<T>>(z), b};
    };
    const int known = remembers ? max(first, window[0]) : window[0];
    const int known_end = remembers ? max(min(end, window[1]), known) : known;
    for (int b = known + thread; b < known_end; b += threads) {
        if (b != a) consider(b, distances[b - first].y, distances[b - first].z);
    }
#pragma unroll 1
    for (int side = 0; side < 2; ++side) {
        around.each_other(side == 0 ? window[0] : known_end, side == 0 ? known : window[1], consider);
    }
    __syncthreads();
    Entry<T>* entries[LISTS];
    for (int l = 0; l < LISTS; ++l) entries[l] = here.lists[l]->of;
    if (thread < 32) {
        const Warp warp;
        const int width = (BINS + warp.threads - 1) / warp.threads;
        const int from = min(thread * width, BINS), to = min(from + width, BINS);
        for (int l = 0; l < LISTS; ++l) {
            int own = 0;
            for (int bin = from; bin < to; ++bin) own += counts[l][bin];
            int start = warp.sum_before(own);
            for (int bin = from; bin < to; ++bin) {
                const int count = counts[l][bin];
                here.header->starts[l][bin] = counts[l][bin] = start;
                start += count;
            }
            if (from < to && to == BINS) {  // the list ends here
                here.header->starts[l][BINS] = start;
                for (; start % ENTRIES != 0; ++start) entries[l][start] = Entry<T>::of(0, Number<T>::LARGEST);
            }
        }
        if (thread == 0) {
            here.header->low = low;
            here.header->shift = shift;
            here.header->last = last;
        }
    }
    __syncthreads();
    const auto put = [&](int b, Key y, Key z) {
        for (int l = 0; l < LISTS; ++l) {
            const Key key = key_in(l, y, z);
            const int bin = bin_of(key, low, shift);
            if (is_listed(bin)) entries[l][atomicAdd(&counts[l][bin], 1)] = Entry<T>::of(b, key);
        }
    };
    if (kept > lists.room) {
        around.each_other(window[0], window[1], put);
        return;
    }
    for (int place = thread; place < kept; place += threads) {
        const Candidate<T> found = candidates[place];
        put(found.sample, found.y, found.z);
    }
}

// A number of 16 bits, as long as no more is counted: half of the memory leaves the first-level cache room for the
// values. A double is kept in two cells; in four of 16 bits there would be too few places.
template <class T, bool WIDE>
struct CellOf {
    using Type = unsigned short;
};

template <>
struct CellOf<float, true> {
    using Type = unsigned;
};

template <bool WIDE>
struct CellOf<double, WIDE> {
    using Type = unsigned;
};

// What one thread counts in: BINS cells. WIDE: there are more samples than 16 bits count.
template <class T, bool WIDE>
struct Cells {
    using Cell = typename CellOf<T, WIDE>::Type;
    Cell* first;
    // `shared` has room for the block's threads, in whole warps.
    __device__ explicit Cells(unsigned char* shared)
        : first(reinterpret_cast<Cell*>(shared) + threadIdx.x / APART * (APART * BINS) + threadIdx.x % APART) {}
    __device__ __forceinline__ Cell& operator[](unsigned i) const { return first[i * APART]; }
};

// Keys of one thread, in these cells.
template <class T, bool WIDE>
struct Kept {
    using Cell = typename Cells<T, WIDE>::Cell;
    static constexpr int CELLS = sizeof(T) / sizeof(Cell), BITS = 8 * sizeof(Cell);
    Cells<T, WIDE> cells;
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

// Whether values are nearer to `own` than `radius`, a key of at least 1.
template <class T, class Rule>
struct Ball {
    T own;
    Wide<T> radius;
    __device__ __forceinline__ bool has(T value) const {
        if constexpr (!Rule::TIES && Number<T>::whole) {  // one comparison
            return static_cast<unsigned>(value + (radius - 1 - own)) < static_cast<unsigned>(2 * radius - 1);
        } else {
            return distance_between<T, Rule>(own, value) < radius;
        }
    }
};

// The partials of tests of the samples that are listed. A warp takes a sample in a group of lanes, or in the last
// group, which may have few lanes, several samples; and then what it is dealt next. Pieces of work are in the order of
// tests, groups and samples, and the values of PANEL lanes lie together, so that what a multiprocessor reads stays in
// the cache next to it. Shared memory: BINS cells a thread, of whole warps. Grid (any), block (gamma: whole warps, or
// one that is not).
template <class T, bool EMPTY, bool WIDE, class Rule = Continuous>
__global__ void __launch_bounds__(512, 3)
    estimate_by_buckets(const __grid_constant__ Sets<T> sets, const __grid_constant__ Tests tests,
                        const __grid_constant__ Lists<T> lists, const __grid_constant__ Columns<T> columns) {
    using Key = Wide<T>;
    constexpr int CAPACITY = BINS / Kept<T, WIDE>::CELLS;
    constexpr Key FARTHEST = Number<T>::LARGEST - 1;
    constexpr int SELF = Rule::TIES ? 1 : 0;  // what is taken off counts, which have the sample itself
    GPUPC_DYNAMIC_SHARED(unsigned char, shared);
    const Warp warp;
    const int groups = (tests.lanes + columns.width - 1) / columns.width;
    Deal deal(lists.dealt(), tests.count * columns.of_test, lists.shares);
    const int n = sets.n, k = tests.k, stride = columns.stride;
    const Cells<T, WIDE> counts(shared);  // of buckets
    Kept<T, WIDE> kept{counts};           // in their place: what is in one
    const long long* psi = tests.psi;
    const unsigned row = columns.row;
    int of_group = 0, behind = 0;  // the first piece of a group of lanes of a test, and that of the next
    int number = 0, lane = 0, variable = 0, team = 0, teams = 1;
    const char* values = nullptr;
    const auto value = [&](unsigned sample) {  // one multiplication with a 64-bit sum
        return *reinterpret_cast<const T*>(values + static_cast<unsigned long long>(sample) * row);
    };
    unsigned long long sum = 0;
    for (int dealt; (dealt = deal.next(warp)) >= 0;) {
        if (dealt < of_group || dealt >= behind) {
            if (sum != 0) atomicAdd(&tests.sums(number)[lane], sum);
            sum = 0;
            number = dealt / columns.of_test;
            const int of_test = number * columns.of_test;
            const int group = min((dealt - of_test) / columns.of_group, groups - 1);
            const int width = min(columns.width, tests.lanes - group * columns.width);
            of_group = of_test + group * columns.of_group;
            behind = group == groups - 1 ? of_test + columns.of_test : of_group + columns.of_group;
            teams = warp.threads / width;
            team = warp.thread / width;
            lane = group * columns.width + warp.thread % width;
            const int set = tests.first[2ll * number];
            variable = sets.set(set)[0];
            values = reinterpret_cast<const char*>(
                columns.values + (static_cast<long long>(set) * stride + lane / PANEL * PANEL) * n + lane % PANEL);
        }
        const int a = lists.first + (dealt - of_group) * teams + team;
        if (team >= teams || a >= lists.first + lists.samples || tests.closed(number)) continue;
        const Neighbours<T, EMPTY> here(lists, number, a);
        const Header& header = *here.header;
        const auto low = static_cast<Key>(header.low);
        const int shift = header.shift, last = header.last;
        const T own = value(a);
        // The distances of some entries in V_i and in the space of the list.
        const auto measure = [&](const Entries<T>& entries, Key* keys) {
#pragma unroll
            for (int s = 0; s < STEP<T>; ++s) {
                keys[s] = distance_between<T, Rule>(own, value(entries.of[s].sample()));
            }
#pragma unroll
            for (int s = 0; s < STEP<T>; ++s) keys[s] = larger(keys[s], entries.of[s].key());
        };

        // The bucket of the k-th distance. Once the list has come to a bucket, those before are complete.
        for (int bin = 0; bin < BINS; ++bin) counts[bin] = 0;
        const int listed = header.starts[0][BINS];
        int bin = 0, before = 0;
        for (int j = 0;;) {
            const Entries<T> entries = here.lists[0][j];
            ++j;
            int reached = last;  // read before counting, so that it is there behind it
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
        if (bin == last) {
            lists.add_far(number, a, lane);
            continue;
        }
        const int end = header.starts[0][bin + 1];
        int inside = counts[bin];
        // The keys in that bucket. It is not the first, in which there are too few.
        Key from = low + (static_cast<Key>(bin - 1) << shift);
        Key to = from + min((Key(1) << shift) - 1, FARTHEST - from);
#pragma unroll 1
        while (from < to && (inside > CAPACITY || to - from < BINS)) {  // divided further, at best by single keys
            const unsigned long long span = static_cast<unsigned long long>(to - from);
            const int finer = span < BINS ? 0 : 64 - __clzll(static_cast<long long>(span / BINS));
            for (int part_of = 0; part_of < BINS; ++part_of) counts[part_of] = 0;
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
        // Which of them it is.
        Key found = from;
        if (from < to) {
            int length = 0;
            for (int j = 0; j * STEP<T> < end; ++j) {
                const Entries<T> entries = here.lists[0][j];
                Key keys[STEP<T>];
                measure(entries, keys);
#pragma unroll
                for (int s = 0; s < STEP<T>; ++s) {
                    if (between(keys[s], from, to)) kept.set(length++, keys[s]);
                }
            }
            Key least = from, most = to;
            for (int i = 0; least < most; ++i) {
                const Key key = kept.get(i);
                if (key < least || key > most) continue;
                int less = before, up_to = before;
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
            found = least;
        }
        const Key radius = Rule::TIES ? found + 1 : max(found, Key(1));  // zero: those at distance zero count

        // The counts, with the sample itself. What comes before the bucket of the radius in a list is nearer, so only
        // the entries from there on are compared, by whole steps.
        const int rim = bin_of(radius, low, shift);
        const int first_y = header.starts[0][rim] / STEP<T>;
        int near_y = 1 + first_y * STEP<T>;
        for (int j = first_y; j * STEP<T> < header.starts[0][rim + 1]; ++j) {
            const Entries<T> entries = here.lists[0][j];
#pragma unroll
            for (int s = 0; s < STEP<T>; ++s) near_y += entries.of[s].key() < radius;
        }
        if constexpr (Rule::TIES) {
            int joint = 0;
            for (int j = 0; j * STEP<T> < header.starts[0][rim + 1]; ++j) {
                const Entries<T> entries = here.lists[0][j];
                Key keys[STEP<T>];
                measure(entries, keys);
#pragma unroll
                for (int s = 0; s < STEP<T>; ++s) joint += keys[s] < radius;
            }
            sum -= static_cast<unsigned long long>(psi[joint]);
        }
        if constexpr (EMPTY) {
            const T* sorted = columns.sorted + static_cast<long long>(variable) * n;
            sum += static_cast<unsigned long long>(
                psi[count_around<T, Rule>(sorted, n, columns.ranks, own, static_cast<KeyOf<T>>(radius)) - SELF] +
                psi[near_y - SELF] - psi[n - SELF]);
        } else {
            const Ball<T, Rule> ball{own, radius};
            const int first_z = header.starts[1][rim] / STEP<T>;
            int near_x = 1, near_z = 1 + first_z * STEP<T>;
            Entries<T> next = here.lists[1][0];  // entries are on their way while those before are worked on
            for (int j = 1; j <= first_z; ++j) {
                const Entries<T> entries = next;
                next = here.lists[1][min(j, first_z - 1)];
#pragma unroll
                for (int s = 0; s < STEP<T>; ++s) near_x += ball.has(value(entries.of[s].sample()));
            }
            for (int j = first_z; j * STEP<T> < header.starts[1][rim + 1]; ++j) {
                const Entries<T> entries = here.lists[1][j];
                Key keys[STEP<T>];
                measure(entries, keys);
#pragma unroll
                for (int s = 0; s < STEP<T>; ++s) {
                    near_x += keys[s] < radius;
                    near_z += entries.of[s].key() < radius;
                }
            }
            sum += static_cast<unsigned long long>(psi[near_x - SELF] + psi[near_y - SELF] - psi[near_z - SELF]);
        }
    }
    if (sum != 0) atomicAdd(&tests.sums(number)[lane], sum);
}

// What a warp of `estimate_far` works in.
template <class T>
struct Workspace {
    static constexpr int PARTS = 256, KEPT = 32;
    int counts[PARTS];
    Wide<T> keys[KEPT];
    int before, kept;
};

// The partials of samples in lanes for which the lists end too early, a warp for one after the other, which goes
// through the samples that are near enough in S[0]. Grid (any), block (up to 32 FAR_WARPS).
constexpr int FAR_WARPS = 4;

template <class T, bool EMPTY, class Rule = Continuous>
__global__ void __launch_bounds__(32 * FAR_WARPS)
    estimate_far(const __grid_constant__ Sets<T> sets, const __grid_constant__ Tests tests,
                 const __grid_constant__ Lists<T> lists, const __grid_constant__ Columns<T> columns) {
    using Key = Wide<T>;
    using Space = Workspace<T>;
    constexpr int PARTS = Space::PARTS, NEAR = 4;
    constexpr int SELF = Rule::TIES ? 1 : 0;  // as in estimate_by_buckets
    __shared__ Space spaces[FAR_WARPS];
    const Warp warp;
    const int own_number = threadIdx.x / 32, warps = (blockDim.x + 31) / 32;
    Space& space = spaces[own_number];
    const int n = sets.n, k = tests.k;
    const long long* psi = tests.psi;
    const unsigned count = *lists.counters;

    for (unsigned item = blockIdx.x * warps + own_number; item < count; item += gridDim.x * warps) {
        const unsigned found = lists.far[item], of_test = found / lists.lanes;
        const int lane = found % lists.lanes, place = lists.first + of_test % lists.samples,
                  number = of_test / lists.samples;
        const Arranged<T> arranged(sets, lists, number);
        const Around<T, EMPTY, Rule> around(arranged, sets.level, place);
        const int set = tests.first[2ll * number];
        const T* values = columns.rows + (static_cast<long long>(set) * tests.row + lane) * n;
        const T own = values[sets.sample(set, place)];
        const auto distance = [&](int b) -> Key { return distance_between<T, Rule>(own, values[sets.sample(set, b)]); };
        int first = 0, end = n;  // what is as near as is asked for in S[0] lies between
        const auto look_as_far_as = [&](Key key) {
            if constexpr (!EMPTY) {
                first = reach<T, Rule>(arranged.of(0), n, place, key + 1ll, false);
                end = reach<T, Rule>(arranged.of(0), n, place, key + 1ll, true);
            }
        };

        // The k-th joint distance is not below `from`. It is looked for among as many keys as the lists have buckets
        // for, and among twice as many as there were each time that it is not there; then that is divided until few
        // distances, or one number, are left.
        const Header& header = *Neighbours<T, EMPTY>(lists, number, place).header;
        Key ahead = static_cast<Key>(header.last - 1) << header.shift;
        Key from = static_cast<Key>(header.low) + ahead, to = from;
        int inside = n;
        bool there = false;
        const auto look_on = [&] {
            to = ahead < lists.farthest - from ? from + ahead : static_cast<Key>(lists.farthest);
            there = to == lists.farthest;
            look_as_far_as(to);
        };
        look_on();
        // Goes through the samples: counts keys in that range by parts of 2^shift, or keeps them, and how many are
        // below.
        constexpr int KEEP = -1;
        int before = 0;
        const auto pass = [&](int shift) {
            int nearer = 0, between = 0;
            if (warp.thread == 0) space.before = space.kept = 0;
            warp.join();
            around.each(first + warp.thread, end, warp.threads, distance, [&](int, Key x, Key y, Key) {
                const Key key = larger(x, y);
                nearer += key < from;
                if (key < from || key > to) return;
                if (shift == KEEP) {
                    space.keys[atomicAdd(&space.kept, 1)] = key;
                } else {
                    atomicAdd(&space.counts[static_cast<int>((key - from) >> shift)], 1);
                    ++between;
                }
            });
            atomicAdd(&space.before, nearer);
            if (shift != KEEP) atomicAdd(&space.kept, between);
            warp.join();
            before = space.before - 1;  // without the sample itself
        };
        while (!there || (from < to && inside > warp.threads)) {
            const auto span = static_cast<unsigned long long>(to - from);
            const int shift = span < PARTS ? 0 : 64 - __clzll(static_cast<long long>(span / PARTS));
            for (int p = warp.thread; p < PARTS; p += warp.threads) space.counts[p] = 0;
            pass(shift);
            there = there || before + space.kept >= k;
            if (!there) {
                from = to + 1;
                ahead = to;
                look_on();
                warp.join();
                continue;
            }
            const Part part = Part::with(k - before, space.counts, PARTS, warp);
            warp.join();
            inside = part.inside;
            from += static_cast<Key>(part.number) << shift;
            to = from + min((Key(1) << shift) - 1, to - from);
        }
        if (from < to) {  // the few are picked from
            pass(KEEP);
            const int kept = space.kept;
            bool mine = false;
            Key key = from;
            if (warp.thread < kept) {
                key = space.keys[warp.thread];
                int less = before, up_to = before;
                for (int i = 0; i < kept; ++i) {
                    less += space.keys[i] < key;
                    up_to += space.keys[i] <= key;
                }
                mine = less < k && k <= up_to;
            }
            from = warp.of(mine, key);
        }

        const Key radius = Rule::TIES ? from + 1 : larger(from, Key(1));  // zero: those at distance zero count
        warp.join();
        if (warp.thread == 0) {
            for (int c = 0; c < NEAR; ++c) space.counts[c] = 0;
        }
        warp.join();
        look_as_far_as(from);
        int near[NEAR] = {};
        around.each(first + warp.thread, end, warp.threads, distance, [&](int, Key x, Key y, Key z) {
            near[0] += larger(x, z) < radius;
            near[1] += y < radius;
            near[2] += z < radius;
            near[3] += larger(x, y) < radius;
        });
        for (int c = 0; c < NEAR; ++c) atomicAdd(&space.counts[c], near[c]);
        warp.join();
        for (int c = 0; c < NEAR; ++c) near[c] = space.counts[c] - SELF;
        warp.join();
        if (warp.thread == 0) {
            const long long term = psi[near[0]] + psi[near[1]] - psi[near[2]] - (Rule::TIES ? psi[near[3]] : 0);
            atomicAdd(&tests.sums(number)[lane], static_cast<unsigned long long>(term));
        }
    }
}
