// CMI of V_i and V_j given S for V_i itself and its permutations (GPU-CMIknn, Algorithm 4), by counting.
//
// A block works on one sample at a time, for all lanes (lane 0: V_i itself; lane m + 1: permutation m). The distances
// from the sample in (V_j, S) and in S are the same in all lanes, and computed once. The distance in (V_i, V_j, S) is
// never below that in (V_j, S), so the nearest neighbours are looked for among the samples that are near in (V_j, S).
// The radius is found by bisection: how many distances are at most so large? That takes as long for every k_CMI.
#include "nonlinear/kernels/tests.cuh"

constexpr int LINEAR_STEPS = 12;  // of a bisection, until it halves the keys instead of the distances

// A sum over the threads of the block, at the price of one barrier: three totals take turns.
struct BlockSum {
    int* totals;
    int turn = 0;

    __device__ int operator()(int own) {
        if (own != 0) atomicAdd(&totals[turn], own);
        __syncthreads();
        const int sum = totals[turn];
        turn = turn == 2 ? 0 : turn + 1;
        if (threadIdx.x == 0) totals[turn == 2 ? 0 : turn + 1] = 0;
        return sum;
    }
};

// How many of a thread's keys are at most a bound.
template <class T>
__device__ int count_up_to(const KeyOf<T>* keys, const Span& span, KeyOf<T> bound) {
    int count = 0;
    for (int b = span.first; b < span.last; b += span.step) count += keys[b] <= bound;
    return count;
}

// A bound that `wanted` or somewhat more of the n - 1 keys do not exceed; all threads of the block get the same.
template <class T>
__device__ KeyOf<T> bound_for(const KeyOf<T>* keys, int n, const Span& span, int wanted, KeyOf<T> guess,
                              KeyOf<T> widest, BlockSum& block_sum) {
    if (wanted >= n - 1) return widest;
    KeyOf<T> low = -1, high = widest;
    for (int step = 0; high - low > 1; ++step) {
        const bool guessed = step == 0 && guess > low && guess < high;
        const KeyOf<T> bound = guessed ? guess : middle<T>(low, high, step > LINEAR_STEPS);
        const int count = block_sum(count_up_to<T>(keys, span, bound));
        if (count < wanted) {
            low = bound;
        } else if (count > wanted + wanted / 4 + 4) {
            high = bound;
        } else {
            return bound;
        }
    }
    return high;
}

// Lists the samples whose key is at most a bound, in any order, with their keys; returns how many there are. `cursor`
// is zero; the caller waits for the block before the list is read.
template <class T>
__device__ void list_up_to(const KeyOf<T>* keys, const Span& span, KeyOf<T> bound, int* cursor, int* list,
                           KeyOf<T>* list_keys) {
#ifdef GPUPC_HOST
    if (blockDim.x == 1) {  // without branches that nobody can predict; the arrays have room for one more
        int place = 0;
        for (int b = span.first; b < span.last; ++b) {
            list[place] = b;
            list_keys[place] = keys[b];
            place += keys[b] <= bound;
        }
        *cursor = place;
        return;
    }
#endif
    const int own = count_up_to<T>(keys, span, bound);
    int place = own == 0 ? 0 : atomicAdd(cursor, own);
    for (int b = span.first; b < span.last; b += span.step) {
        if (keys[b] <= bound) {
            list[place] = b;
            list_keys[place++] = keys[b];
        }
    }
}

// The distances of one sample to those of a list, in (V_i, V_j, S), for the lanes of a thread: computed again each
// time, or kept in a buffer.
template <class T, class Rule>
struct Distances {
    using L = Lanes<T>;
    const T* columns;  // of the thread's lanes
    int stride;
    typename L::Values own;
    const int* list;
    const KeyOf<T>* list_keys;
    KeyOf<T>* buffer;

    template <bool BUFFERED>
    __device__ __forceinline__ typename L::Keys at(int j) const {
        if constexpr (BUFFERED) return L::load_keys(buffer + static_cast<long long>(j) * L::WIDTH);
        return L::larger(Rule::template distances<T>(L::load(columns + static_cast<long long>(list[j]) * stride), own),
                         L::all(list_keys[j]));
    }
};

// The k-th smallest of `length` distances in each lane; at least k are at most `bound`.
template <class T, class Rule, bool BUFFERED>
__device__ __forceinline__ typename Lanes<T>::Keys kth_smallest(const Distances<T, Rule>& distances, int length, int k,
                                                                KeyOf<T> bound) {
    using L = Lanes<T>;
    using Keys = typename L::Keys;
    const auto wanted = static_cast<KeyOf<T>>(k);
    Keys low = L::all(-1), high = L::all(bound);
    if constexpr (Number<T>::whole) {
        for (int width = bound + 1; width > 1; width = (width + 1) / 2) {
            const Keys middle = L::middles(low, high, true);
            Keys above = L::all(0);
            for (int j = 0; j < length; ++j) L::count_above(above, distances.template at<BUFFERED>(j), middle);
            const Keys count = L::all(static_cast<KeyOf<T>>(length)) - above;
            const auto enough = L::at_least(count, wanted);
            high = L::choose(enough, middle, high);
            low = L::choose(enough, low, middle);
        }
        return high;
    } else {
        for (int step = 0; L::any(L::at_least(high - low, 2)); ++step) {
            const Keys middle = L::middles(low, high, step >= LINEAR_STEPS);
            Keys above = L::all(0);
            for (int j = 0; j < length; ++j) L::count_above(above, distances.template at<BUFFERED>(j), middle);
            const Keys count = L::all(static_cast<KeyOf<T>>(length)) - above;
            const auto enough = L::at_least(count, wanted);
            high = L::choose(enough, middle, high);
            // Exactly k are at most `middle`: the largest of these is the one.
            low = L::choose(enough, L::choose(L::at_least(count, wanted + 1), low, middle - 1), middle);
        }
        Keys largest = L::all(0);
        for (int j = 0; j < length; ++j) {
            const Keys distance = distances.template at<BUFFERED>(j);
            largest = L::larger(largest, L::choose(L::at_least(high - distance, 0), distance, largest));
        }
        return largest;
    }
}

// How tests are estimated by counting.
template <class T>
struct Counting {
    const T* columns;  // (sets, n, stride) values of all lanes side by side; stride is a multiple of 32
    const T* sorted;   // (p, n) values of each variable ascending, at level 0 ...
    bool ranks;        // ... and whether these are 0, ..., n - 1 or constant
    int stride;
    int wanted;               // how many samples to try first
    KeyOf<T> widest;          // no distance is larger
    int capacity;             // distances that each thread's buffer holds, or 0
    unsigned char* scratch;   // takes the place of shared memory where there is not enough of it, or null
    long long scratch_bytes;  // of each block
};

// The partials of tests. Samples are dealt out to the blocks of a test. EMPTY: level 0. Grid (any, tests), block
// (gamma).
template <class T, bool EMPTY, class Rule = Continuous>
__global__ void __launch_bounds__(512, 2)
    estimate(const __grid_constant__ Sets<T> sets, const __grid_constant__ Tests tests,
             const __grid_constant__ Counting<T> counting) {
    using L = Lanes<T>;
    using Key = KeyOf<T>;
    using Keys = typename L::Keys;
    constexpr int SELF = Rule::TIES ? 1 : 0;  // what is taken off counts, which have the sample itself
    GPUPC_DYNAMIC_SHARED(unsigned char, shared);
    __shared__ int totals[3], cursors[2];
    __shared__ long long largest_radius;
    if (tests.closed(blockIdx.y)) return;
    const int thread = threadIdx.x, threads = blockDim.x;
    const int n = sets.n, level = sets.level, lanes = tests.lanes, k = tests.k;
    const int stride = counting.stride, wanted = counting.wanted, capacity = counting.capacity;
    const long long* psi = tests.psi;
    // As `workspace_bytes` in device.py has it.
    unsigned char* room = shared;
    if (counting.scratch != nullptr) {
        const long long block = static_cast<long long>(blockIdx.y) * gridDim.x + blockIdx.x;
        room = counting.scratch + block * counting.scratch_bytes;
    }
    Key* buffer = reinterpret_cast<Key*>(room) + static_cast<long long>(thread) * capacity * L::WIDTH;
    room += static_cast<long long>(threads) * capacity * L::WIDTH * sizeof(Key);
    auto* sums = reinterpret_cast<unsigned long long*>(room);    // (stride)
    Key* radii = reinterpret_cast<Key*>(sums + stride);          // (stride), of samples near in (V_i, V_j, S)
    int* near_in_both = reinterpret_cast<int*>(radii + stride);  // (stride), samples near in (V_j, S)
    int* list = near_in_both + stride;                           // (n + 1)
    list += (n + 1) % 2;                                         // so that keys of 64 bits are where they must be
    Key* list_keys = reinterpret_cast<Key*>(list + n + 1);       // (n + 1)
    Key* both = list_keys + n + 1;                               // (n) distances in (V_j, S)
    Key* in_set = both + n;                                      // (n) distances in S, unless EMPTY

    const int* test = tests.first + 2ll * blockIdx.y;
    const int* set = sets.set(test[0]);
    const T* other = sets.of(test[1]);
    const T* columns = counting.columns + static_cast<long long>(test[0]) * n * stride;
    const Span span(n);
    BlockSum block_sum{totals};
    if (thread < 3) totals[thread] = 0;
    if (threads < 3 && thread == 0) totals[1] = totals[2] = 0;
    for (int lane = thread * L::WIDTH; lane < lanes; lane += threads * L::WIDTH) {
        for (int l = lane; l < lane + L::WIDTH; ++l) sums[l] = 0;
    }
    Key bound = 0;
    int usual = wanted;
    for (int a = blockIdx.x; a < n; a += gridDim.x) {
        if (thread == 0) {
            cursors[0] = cursors[1] = 0;
            largest_radius = 1;
        }
        const T own = other[a];
        if constexpr (EMPTY) {
            for (int b = span.first; b < span.last; b += span.step) both[b] = Rule::template distance<T>(own, other[b]);
        } else {
            const T* v = sets.of(set[1]);
            const T first = v[a];
            for (int b = span.first; b < span.last; b += span.step) in_set[b] = Rule::template distance<T>(first, v[b]);
            for (int s = 2; s <= level; ++s) {
                v = sets.of(set[s]);
                const T next = v[a];
                for (int b = span.first; b < span.last; b += span.step) {
                    in_set[b] = larger(in_set[b], Rule::template distance<T>(next, v[b]));
                }
            }
            for (int b = span.first; b < span.last; b += span.step) {
                both[b] = larger(in_set[b], Rule::template distance<T>(own, other[b]));
            }
            if (span.has(a)) in_set[a] = Number<T>::LARGEST;
        }
        if (span.has(a)) both[a] = Number<T>::LARGEST;
        for (int lane = thread * L::WIDTH; lane < lanes; lane += threads * L::WIDTH) {
            L::store(radii + lane, L::all(-1));  // not known yet
        }
        __syncthreads();

        // The radii, and the counts in (V_j, S).
        Keys largest = L::all(1);
        int attempt = usual;
        for (;;) {
            bound = bound_for<T>(both, n, span, attempt, bound, counting.widest, block_sum);
            list_up_to<T>(both, span, bound, &cursors[0], list, list_keys);
            __syncthreads();
            const int length = cursors[0];
            const bool buffered = length <= capacity;
            int open = 0;
            for (int lane = thread * L::WIDTH; lane < lanes; lane += threads * L::WIDTH) {
                if (radii[lane] >= 0) continue;
                const Distances<T, Rule> distances{
                    columns + lane, stride,    L::load(columns + static_cast<long long>(a) * stride + lane),
                    list,           list_keys, buffer};
                Keys above = L::all(0);
                for (int j = 0; j < length; ++j) {
                    const Keys distance = distances.template at<false>(j);
                    if (buffered) L::store(buffer + static_cast<long long>(j) * L::WIDTH, distance);
                    L::count_above(above, distance, L::all(bound));
                }
                if (L::any(L::below(L::all(static_cast<Key>(length)) - above, k))) {
                    open = 1;
                    continue;
                }
                Keys radius = buffered ? kth_smallest<T, Rule, true>(distances, length, k, bound)
                                       : kth_smallest<T, Rule, false>(distances, length, k, bound);
                if constexpr (Rule::TIES) {
                    radius = radius + 1;
                    Keys joint = L::all(0);
                    for (int j = 0; j < length; ++j) {
                        const Keys distance =
                            buffered ? distances.template at<true>(j) : distances.template at<false>(j);
                        L::count_below(joint, distance, radius);
                    }
                    for (int l = 0; l < L::WIDTH; ++l) {
                        sums[lane + l] -= static_cast<unsigned long long>(psi[L::get(joint, l)]);
                    }
                } else {
                    radius = L::larger(radius, L::all(1));  // zero: those at distance zero count
                }
                L::store(radii + lane, radius);
                largest = L::larger(largest, radius);
                Keys near = L::all(1);  // the sample itself
                for (int j = 0; j < length; ++j) L::count_below(near, L::all(list_keys[j]), radius);
                for (int l = 0; l < L::WIDTH; ++l) near_in_both[lane + l] = static_cast<int>(L::get(near, l));
            }
            if constexpr (!EMPTY) {
                Key most = 1;
                for (int l = 0; l < L::WIDTH; ++l) most = larger(most, L::get(largest, l));
                if (most > 1) atomicMax(&largest_radius, static_cast<long long>(most));
            }
            if (!__syncthreads_or(open)) break;
            attempt = min(2 * attempt, n - 1);
            if (thread == 0) cursors[0] = 0;
            __syncthreads();
        }
        usual = attempt == usual ? max(usual - usual / 64, wanted) : min(usual + usual / 4 + 1, n - 1);

        // The counts in (V_i, S) and in S.
        if constexpr (EMPTY) {
            for (int lane = thread * L::WIDTH; lane < lanes; lane += threads * L::WIDTH) {
                for (int l = lane; l < min(lane + L::WIDTH, lanes); ++l) {
                    const T x = columns[static_cast<long long>(a) * stride + l];
                    const T* sorted = counting.sorted + static_cast<long long>(set[0]) * n;
                    const int near = count_around<T, Rule>(sorted, n, counting.ranks, x, radii[l]);
                    sums[l] +=
                        static_cast<unsigned long long>(psi[near - SELF] + psi[near_in_both[l] - SELF] - psi[n - SELF]);
                }
            }
        } else {
            list_up_to<T>(in_set, span, static_cast<Key>(largest_radius - 1), &cursors[1], list, list_keys);
            __syncthreads();
            const int length = cursors[1];
            for (int lane = thread * L::WIDTH; lane < lanes; lane += threads * L::WIDTH) {
                const Distances<T, Rule> distances{
                    columns + lane, stride,    L::load(columns + static_cast<long long>(a) * stride + lane),
                    list,           list_keys, buffer};
                const Keys radius = L::load_keys(radii + lane);
                Keys near = L::all(1), near_in_set = L::all(1);
                for (int j = 0; j < length; ++j) {
                    L::count_below(near, distances.template at<false>(j), radius);
                    L::count_below(near_in_set, L::all(list_keys[j]), radius);
                }
                for (int l = 0; l < L::WIDTH; ++l) {
                    sums[lane + l] += static_cast<unsigned long long>(psi[L::get(near, l) - SELF] +
                                                                      psi[near_in_both[lane + l] - SELF] -
                                                                      psi[L::get(near_in_set, l) - SELF]);
                }
            }
        }
        __syncthreads();
    }
    for (int lane = thread * L::WIDTH; lane < lanes; lane += threads * L::WIDTH) {
        for (int l = lane; l < min(lane + L::WIDTH, lanes); ++l) {
            atomicAdd(&tests.sums(blockIdx.y)[l], sums[l]);
        }
    }
}
