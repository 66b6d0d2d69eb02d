// CMI of V_i and V_j given S for V_i itself and its permutations (GPU-CMIknn, Algorithm 4), by counting in buckets.
//
// Distances in (V_j, S) and in S do not depend on the permutation. `list_neighbours` puts the other samples of each
// sample in the order of either, by buckets. `estimate_by_buckets` has a thread for a sample in a lane (lane 0: V_i
// itself; lane m + 1: permutation m). A joint distance is never below that in (V_j, S), so the thread goes down the
// first list and counts joint distances by buckets until the k-th must be in a bucket that is complete. It then
// collects what is in that bucket, which is little, and picks the distance. Going down the list of S as far as that
// gives the counts.
//
// Buckets are intervals of keys: whole numbers in the order of the distances, whatever their type (lanes.cuh). So ranks
// and floats take the same steps, and a bucket that holds too much is divided until it holds one key at the latest.
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

// As many as are copied at a time.
template <class T>
struct alignas(16) Piece {
    Entry<T> of[16 / sizeof(Entry<T>)];
};

// The lists of a sample a block. EMPTY: level 0, where there is no list for S. Neighbouring threads put entries where
// they happen to belong; `staged` writes them to memory in order. Grid (samples, tests), any block.
template <class T, bool EMPTY, class Rule = Continuous>
__global__ void list_neighbours(const __grid_constant__ Sets<T> sets, const __grid_constant__ Tests tests,
                                const __grid_constant__ Lists<T> lists) {
    using Key = Wide<T>;
    using Here = Neighbours<T, EMPTY>;
    constexpr int LISTS = Here::LISTS;
    __shared__ int fine[FINE], sums[FINE], counts[LISTS][BINS];
    __shared__ long long ends[2];
    GPUPC_DYNAMIC_SHARED(Piece<T>, stage);
    if (tests.closed(blockIdx.y)) return;
    const int thread = threadIdx.x, threads = blockDim.x, n = sets.n, level = sets.level;
    const int a = lists.first + blockIdx.x;
    const int* test = tests.first + 2ll * blockIdx.y;
    const int* set = sets.set(test[0]);
    const T* other = sets.of(test[1]);
    const Here here(lists, blockIdx.y, a);
    // The distances of a sample, at least `least`: keys[0] in (V_j, S), keys[1] in S.
    const auto measure = [&](int b, Key* keys, Key least) {
        Key in_set = least;
        if constexpr (!EMPTY) {
            for (int s = 1; s <= level; ++s) {
                const T* v = sets.of(set[s]);
                in_set = larger(in_set, distance_between<T, Rule>(v[a], v[b]));
            }
            keys[1] = in_set;
        }
        keys[0] = larger(in_set, distance_between<T, Rule>(other[a], other[b]));
    };

    for (int bin = thread; bin < FINE; bin += threads) fine[bin] = 0;
    for (int bin = thread; bin < BINS; bin += threads) {
        for (int l = 0; l < LISTS; ++l) counts[l][bin] = 0;
    }
    __syncthreads();
    for (int b = thread; b < n; b += threads) {
        Key keys[2];
        measure(b, keys, lists.fine_low);
        if (b != a) atomicAdd(&fine[(keys[0] - lists.fine_low) >> lists.fine_shift], 1);
    }
    __syncthreads();
    const int width = (FINE + threads - 1) / threads;
    const int first = min(thread * width, FINE), last = min(first + width, FINE);
    int sum = 0;
    for (int bin = first; bin < last; ++bin) sum += fine[bin];
    if (first < last) sums[thread] = sum;
    __syncthreads();
    int before = 0;
    for (int t = 0; t * width < first; ++t) before += sums[t];
    for (int bin = first; bin < last; ++bin) {
        const int after = before + fine[bin];
        const long long start = bin == 0 ? 0 : lists.fine_low + (static_cast<long long>(bin) << lists.fine_shift);
        if (before < tests.k && tests.k <= after) ends[0] = start;
        if (before < lists.wanted && lists.wanted <= after) {
            ends[1] = lists.fine_low + ((bin + 1ll) << lists.fine_shift);
        }
        before = after;
    }
    __syncthreads();
    const auto low = static_cast<Key>(ends[0]);
    const long long span = ends[1] - ends[0];
    const int shift = span < BINS - 2 ? 0 : 64 - __clzll(span / (BINS - 2));

    // The first and the last buckets are full, so each thread counts its own part of these.
    int below[LISTS] = {}, above[LISTS] = {};
    for (int b = thread; b < n; b += threads) {
        Key keys[2];
        measure(b, keys, low > 0 ? low - 1 : 0);
        if (b == a) continue;
        for (int l = 0; l < LISTS; ++l) {
            const int bin = bin_of(keys[l], low, shift);
            below[l] += bin == 0;
            above[l] += bin == LAST;
            if (bin != 0 && bin != LAST) atomicAdd(&counts[l][bin], 1);
        }
    }
    for (int l = 0; l < LISTS; ++l) {
        if (below[l] > 0) atomicAdd(&counts[l][0], below[l]);
        if (above[l] > 0) atomicAdd(&counts[l][LAST], above[l]);
    }
    __syncthreads();
    for (int l = thread; l < LISTS; l += threads) {
        int start = 0;
#pragma unroll
        for (int bin = 0; bin < BINS; ++bin) {
            const int count = counts[l][bin];
            here.header->starts[l][bin] = counts[l][bin] = start;
            start += count;
        }
        here.header->starts[l][BINS] = start;
    }
    if (thread == 0) {
        here.header->low = low;
        here.header->shift = shift;
    }
    __syncthreads();
    Entry<T>* found[LISTS];
    for (int l = 0; l < LISTS; ++l) {
        found[l] = lists.staged ? stage->of + l * lists.padded : here.lists[l]->of;
        below[l] = below[l] > 0 ? atomicAdd(&counts[l][0], below[l]) : 0;
        above[l] = above[l] > 0 ? atomicAdd(&counts[l][LAST], above[l]) : 0;
    }
    for (int b = thread; b < n; b += threads) {
        Key keys[2];
        measure(b, keys, low > 0 ? low - 1 : 0);
        if (b == a) continue;
        for (int l = 0; l < LISTS; ++l) {
            const int bin = bin_of(keys[l], low, shift);
            const int place = bin == 0 ? below[l]++ : bin == LAST ? above[l]++ : atomicAdd(&counts[l][bin], 1);
            found[l][place] = Entry<T>::of(b, keys[l]);
        }
    }
    for (int place = n - 1 + thread; place < lists.padded; place += threads) {
        for (int l = 0; l < LISTS; ++l) found[l][place] = Entry<T>::of(0, Number<T>::LARGEST);
    }
    if (!lists.staged) return;
    __syncthreads();
    auto* pieces = reinterpret_cast<Piece<T>*>(here.lists[0]);  // the lists of a sample lie one behind the other
    const int length = LISTS * lists.padded / (16 / static_cast<int>(sizeof(Entry<T>)));
    for (int p = thread; p < length; p += threads) pieces[p] = stage[p];
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

// The partials of tests of the samples that are listed. A block's threads need nothing of one another, so blocks are
// small: what keeps one of them long keeps no others. Those of one group of lanes are started one after the other, and
// the values of PANEL lanes lie together, so that what the blocks of a multiprocessor read stays in the cache next to
// it. Shared memory: BINS cells a thread, of whole warps. Grid (any, tests, groups), block (gamma).
template <class T, bool EMPTY, bool WIDE, class Rule = Continuous>
__global__ void __launch_bounds__(512, 3)
    estimate_by_buckets(const __grid_constant__ Sets<T> sets, const __grid_constant__ Tests tests,
                        const __grid_constant__ Lists<T> lists, const __grid_constant__ Columns<T> columns) {
    using Key = Wide<T>;
    constexpr int CAPACITY = BINS / Kept<T, WIDE>::CELLS;
    constexpr Key FARTHEST = Number<T>::LARGEST - 1;
    constexpr int SELF = Rule::TIES ? 1 : 0;  // what is taken off counts, which have the sample itself
    GPUPC_DYNAMIC_SHARED(unsigned char, shared);
    const int group = blockIdx.z, part = blockIdx.x, parts = gridDim.x;
    const int width = min(columns.width, tests.lanes - group * columns.width);
    const int teams = blockDim.x / width, team = threadIdx.x / width;
    if (team >= teams || tests.closed(blockIdx.y)) return;
    const int n = sets.n, k = tests.k, stride = columns.stride;
    const int lane = group * columns.width + threadIdx.x % width;
    const Cells<T, WIDE> counts(shared);  // of buckets
    Kept<T, WIDE> kept{counts};           // in their place: what is in one
    const int* test = tests.first + 2ll * blockIdx.y;
    const int* set = sets.set(test[0]);
    const long long* psi = tests.psi;
    const auto* values = reinterpret_cast<const char*>(
        columns.values + (static_cast<long long>(test[0]) * stride + lane / PANEL * PANEL) * n + lane % PANEL);
    const unsigned row = columns.row;
    const auto value = [&](unsigned sample) {  // one multiplication with a 64-bit sum
        return *reinterpret_cast<const T*>(values + static_cast<unsigned long long>(sample) * row);
    };
    unsigned long long sum = 0;
    for (int a = lists.first + part * teams + team; a < lists.first + lists.samples; a += parts * teams) {
        const Neighbours<T, EMPTY> here(lists, blockIdx.y, a);
        const Header& header = *here.header;
        const auto low = static_cast<Key>(header.low);
        const int shift = header.shift;
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
        int bin = 0, before = 0;
        for (int j = 0;;) {
            const Entries<T> entries = here.lists[0][j];
            ++j;
            int reached = BINS;  // read before counting, so that it is there behind it
            if (j * STEP<T> < lists.padded) reached = bin_of(here.lists[0][j].of[0].key(), low, shift);
            Key keys[STEP<T>];
            measure(entries, keys);
#pragma unroll
            for (int s = 0; s < STEP<T>; ++s) ++counts[bin_of(keys[s], low, shift)];
            int count = 0;
            while (bin < reached && before + (count = counts[bin]) < k) {
                before += count;
                ++bin;
            }
            if (bin < reached) break;
        }
        const int end = header.starts[0][bin + 1];
        int inside = counts[bin];
        // The keys in that bucket. It is not the first, in which there are too few.
        Key from = low + (static_cast<Key>(bin - 1) << shift), to = FARTHEST;
        if (bin < LAST) to = from + min((Key(1) << shift) - 1, FARTHEST - from);
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
            int number = 0;
            while (before + (inside = counts[number]) < k) {
                before += inside;
                ++number;
            }
            from += static_cast<Key>(number) << finer;
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
            const T* sorted = columns.sorted + static_cast<long long>(set[0]) * n;
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
    atomicAdd(&tests.sums(blockIdx.y)[lane], sum);
}
