// CMI of V_i and V_j given S for all replicates (GPU-CMIknn, Algorithm 4), by bisection and counting. The radius of a
// sample is the k-th smallest of its joint distances, in (V_i, V_j, S). Bisection asks how many distances are at most a
// bound, which takes as long for every k. The distances in (V_j, S) and in S are the same in all replicates and are
// computed once for each sample. A joint distance is at least that in (V_j, S), so only samples near in (V_j, S) are
// examined: first about as many as uniform samples would need, then twice as many if some replicate needs more.
//
// A block processes a sample at a time, and its threads share the replicates, whose values lie side by side: a warp of
// a GPU reads neighbouring memory, and a core of the host works on a vector of replicates.
#include "nonlinear/kernels/tests.cuh"

constexpr int LINEAR_STEPS = 12;  // the number of bisections of the distances before their keys are bisected

// The samples of one thread of the block: strided on a GPU, so that reads are coalesced; contiguous on the host, so
// that the compiler can vectorise the loop.
struct Span {
    int first, last;
#ifdef GPUPC_HOST
    static constexpr int step = 1;
    __device__ explicit Span(int n) {
        const int width = (n + blockDim.x - 1) / blockDim.x;
        first = min(static_cast<int>(threadIdx.x) * width, n);
        last = min(first + width, n);
    }
    __device__ bool has(int a) const { return first <= a && a < last; }
#else
    int step;
    __device__ explicit Span(int n) : first(threadIdx.x), last(n), step(blockDim.x) {}
    __device__ bool has(int a) const { return a % blockDim.x == threadIdx.x; }
#endif
};

// A sum over the threads of the block with one barrier; three totals are used in turn.
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

// Returns how many of a thread's keys are at most a bound.
template <class T>
__device__ int count_up_to(const KeyOf<T>* keys, const Span& span, KeyOf<T> bound) {
    int count = 0;
    for (int b = span.first; b < span.last; b += span.step) count += keys[b] <= bound;
    return count;
}

// A bound that at least `length` of the n - 1 keys do not exceed, and few more. All threads of the block call this.
template <class T>
__device__ KeyOf<T> bound_for(const KeyOf<T>* keys, int n, const Span& span, int length, KeyOf<T> guess,
                              KeyOf<T> widest, BlockSum& block_sum) {
    if (length >= n - 1) return widest;
    KeyOf<T> low = -1, high = widest;
    for (int step = 0; high - low > 1; ++step) {
        const bool guessed = step == 0 && guess > low && guess < high;
        const KeyOf<T> bound = guessed ? guess : middle<T>(low, high, step > LINEAR_STEPS);
        const int count = block_sum(count_up_to<T>(keys, span, bound));
        if (count < length) {
            low = bound;
        } else if (count > length + length / 4 + 4) {
            high = bound;
        } else {
            return bound;
        }
    }
    return high;
}

// Lists the samples whose key is at most a bound, in any order, with their keys. The number of these is added to
// `cursor`, which is zero before; the caller waits for the block before it reads the list.
template <class T>
__device__ void list_up_to(const KeyOf<T>* keys, const Span& span, KeyOf<T> bound, int* cursor, int* list,
                           KeyOf<T>* list_keys) {
#ifdef GPUPC_HOST
    if (blockDim.x == 1) {  // This has no unpredictable branches; the arrays have room for one more entry.
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

// The joint distances of one sample to those of a list, for a thread's replicates: computed at each use, or buffered.
template <class T, class Rule>
struct Distances {
    using V = Vector<T>;
    const T* columns;  // the replicates of the thread
    int stride;
    typename V::Values own;
    const int* list;
    const KeyOf<T>* list_keys;
    KeyOf<T>* buffer;

    template <bool BUFFERED>
    __device__ __forceinline__ typename V::Keys at(int j) const {
        if constexpr (BUFFERED) return V::load_keys(buffer + static_cast<long long>(j) * V::ELEMENTS);
        return V::larger(Rule::template distances<T>(V::load(columns + static_cast<long long>(list[j]) * stride), own),
                         V::all(list_keys[j]));
    }
};

// The k-th smallest of `length` distances in each replicate; at least k are at most `bound`.
template <class T, class Rule, bool BUFFERED>
__device__ __forceinline__ typename Vector<T>::Keys kth_smallest(const Distances<T, Rule>& distances, int length, int k,
                                                                 KeyOf<T> bound) {
    using V = Vector<T>;
    using Keys = typename V::Keys;
    const auto rank = static_cast<KeyOf<T>>(k);
    Keys low = V::all(-1), high = V::all(bound);
    for (int step = 0; V::any(V::at_least(high - low, 2)); ++step) {
        const Keys middle = V::middles(low, high, step >= LINEAR_STEPS);
        Keys above = V::all(0);
        for (int j = 0; j < length; ++j) V::count_above(above, distances.template at<BUFFERED>(j), middle);
        const Keys count = V::all(static_cast<KeyOf<T>>(length)) - above;
        const auto enough = V::at_least(count, rank);
        high = V::choose(enough, middle, high);
        // If exactly k distances are at most `middle`, the k-th is the largest of them, and the bisection ends.
        low = V::choose(enough, V::choose(V::at_least(count, rank + 1), low, middle - 1), middle);
    }
    Keys largest = V::all(0);
    for (int j = 0; j < length; ++j) {
        const Keys distance = distances.template at<BUFFERED>(j);
        largest = V::larger(largest, V::choose(V::at_least(high - distance, 0), distance, largest));
    }
    return largest;
}

// The replicates, and the limits of what a block examines and keeps.
template <class T>
struct Counting {
    const T* columns;  // (sets, n, stride) the replicates side by side; stride is a multiple of 32
    const T* sorted;   // (p, n) the values of each variable, ascending; used at level 0
    bool ranks;        // whether these are 0, ..., n - 1 or constant
    int stride;
    int first_length;         // the number of samples near in (V_j, S) that are tried first
    KeyOf<T> widest;          // an upper bound of all distances
    int capacity;             // the distances that the buffer of each thread holds, or 0
    unsigned char* scratch;   // global memory that replaces shared memory if that is too small, or null
    long long scratch_bytes;  // the bytes of each block
};

// The arrays of a block, in shared memory or in scratch: CountingSelection of selections.py computes their size.
template <class T>
struct Workspace {
    using Key = KeyOf<T>;
    Key* buffer;               // (capacity) vectors of each thread
    unsigned long long* sums;  // (stride) the block's share of the partials
    Key* radii;                // (stride) the radii of the present sample; -1: not known yet
    int* near_in_both;         // (stride) n_yz
    int* list;                 // (n + 1) samples that are near
    Key* list_keys;            // (n + 1) and their distances
    Key* both;                 // (n) distances in (V_j, S)
    Key* in_set;               // (n) distances in S; unused at level 0

    __device__ __forceinline__ Workspace(unsigned char* memory, int thread, int threads, int capacity, int stride,
                                         int n) {
        constexpr int ELEMENTS = Vector<T>::ELEMENTS;
        buffer = reinterpret_cast<Key*>(memory) + static_cast<long long>(thread) * capacity * ELEMENTS;
        memory += static_cast<long long>(threads) * capacity * ELEMENTS * sizeof(Key);
        sums = reinterpret_cast<unsigned long long*>(memory);
        radii = reinterpret_cast<Key*>(sums + stride);
        near_in_both = reinterpret_cast<int*>(radii + stride);
        list = near_in_both + stride;
        list += (n + 1) % 2;  // aligns keys of 64 bits
        list_keys = reinterpret_cast<Key*>(list + n + 1);
        both = list_keys + n + 1;
        in_set = both + n;
    }
};

// Fills `both` and `in_set` with the distances of sample a, which no replicate changes; to itself it is LARGEST.
template <class T, bool EMPTY, class Rule>
__device__ __forceinline__ void measure(const Sets<T>& sets, const int* set, const T* other, const Span& span, int a,
                                        KeyOf<T>* both, KeyOf<T>* in_set) {
    const T own = other[a];
    if constexpr (EMPTY) {
        for (int b = span.first; b < span.last; b += span.step) both[b] = Rule::template distance<T>(own, other[b]);
    } else {
        const T* v = sets.of(set[1]);
        const T first = v[a];
        for (int b = span.first; b < span.last; b += span.step) in_set[b] = Rule::template distance<T>(first, v[b]);
        for (int s = 2; s <= sets.level; ++s) {
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
}

// Finds the radii of the replicates r, ... of a thread and their counts in (V_j, S), from a list of the `length`
// samples up to `bound`; returns false if these are too few. Raises `largest` to the radii.
template <class T, class Rule>
__device__ __forceinline__ bool find_radii(const Workspace<T>& work, const Distances<T, Rule>& distances, int r,
                                           int length, bool buffered, int k, KeyOf<T> bound, const long long* psi,
                                           typename Vector<T>::Keys& largest) {
    using V = Vector<T>;
    using Keys = typename V::Keys;
    Keys above = V::all(0);
    for (int j = 0; j < length; ++j) {
        const Keys distance = distances.template at<false>(j);
        if (buffered) V::store(work.buffer + static_cast<long long>(j) * V::ELEMENTS, distance);
        V::count_above(above, distance, V::all(bound));
    }
    if (V::any(V::below(V::all(static_cast<KeyOf<T>>(length)) - above, k))) return false;
    Keys radius = buffered ? kth_smallest<T, Rule, true>(distances, length, k, bound)
                           : kth_smallest<T, Rule, false>(distances, length, k, bound);
    if constexpr (Rule::TIES) {
        radius = radius + 1;
        Keys joint = V::all(0);
        for (int j = 0; j < length; ++j) {
            const Keys distance = buffered ? distances.template at<true>(j) : distances.template at<false>(j);
            V::count_below(joint, distance, radius);
        }
        for (int e = 0; e < V::ELEMENTS; ++e) {
            work.sums[r + e] -= static_cast<unsigned long long>(psi[V::get(joint, e)]);
        }
    } else {
        radius = V::larger(radius, V::all(1));  // If the radius is 0, samples at distance 0 count.
    }
    V::store(work.radii + r, radius);
    largest = V::larger(largest, radius);
    Keys near = V::all(1);  // the sample itself
    for (int j = 0; j < length; ++j) V::count_below(near, V::all(work.list_keys[j]), radius);
    for (int e = 0; e < V::ELEMENTS; ++e) work.near_in_both[r + e] = static_cast<int>(V::get(near, e));
    return true;
}

// Adds to tests' partials. A test's blocks share its samples. EMPTY: level 0. Grid (any, tests), block (gamma).
template <class T, bool EMPTY, class Rule = Continuous>
__global__ void __launch_bounds__(512, 2)
    estimate(const __grid_constant__ Sets<T> sets, const __grid_constant__ Tests tests,
             const __grid_constant__ Counting<T> counting) {
    using V = Vector<T>;
    using Key = KeyOf<T>;
    using Keys = typename V::Keys;
    constexpr int SELF = Rule::TIES ? 1 : 0;  // The counts that exclude the sample itself are smaller by this number.
    GPUPC_DYNAMIC_SHARED(unsigned char, shared);
    __shared__ int totals[3], cursors[2];
    __shared__ long long largest_radius;
    const int thread = threadIdx.x, threads = blockDim.x;
    const int first_replicate = thread * V::ELEMENTS, step = threads * V::ELEMENTS;  // the replicates of the thread
    const int n = sets.n, replicates = tests.replicates, k = tests.k;
    const int stride = counting.stride, first_length = counting.first_length, capacity = counting.capacity;
    const long long* psi = tests.psi;
    unsigned char* memory = shared;
    if (counting.scratch != nullptr) {
        const long long block = static_cast<long long>(blockIdx.y) * gridDim.x + blockIdx.x;
        memory = counting.scratch + block * counting.scratch_bytes;
    }
    const Workspace<T> work(memory, thread, threads, capacity, stride, n);
    const int* pair = tests.pairs + 2ll * blockIdx.y;
    const int* set = sets.set(pair[0]);
    const T* other = sets.of(pair[1]);
    const T* columns = counting.columns + static_cast<long long>(pair[0]) * n * stride;
    const Span span(n);
    BlockSum block_sum{totals};
    if (thread < 3) totals[thread] = 0;
    if (threads < 3 && thread == 0) totals[1] = totals[2] = 0;
    for (int r = first_replicate; r < replicates; r += step) {
        for (int e = r; e < r + V::ELEMENTS; ++e) work.sums[e] = 0;
    }
    Key bound = 0;
    int usual_length = first_length;
    for (int a = blockIdx.x; a < n; a += gridDim.x) {
        if (thread == 0) {
            cursors[0] = cursors[1] = 0;
            largest_radius = 1;
        }
        measure<T, EMPTY, Rule>(sets, set, other, span, a, work.both, work.in_set);
        for (int r = first_replicate; r < replicates; r += step) V::store(work.radii + r, V::all(-1));
        __syncthreads();

        const auto distances_of = [&](int r) {
            return Distances<T, Rule>{
                columns + r, stride,         V::load(columns + static_cast<long long>(a) * stride + r),
                work.list,   work.list_keys, work.buffer};
        };
        Keys largest = V::all(1);
        int attempted_length = usual_length;
        for (;;) {
            bound = bound_for<T>(work.both, n, span, attempted_length, bound, counting.widest, block_sum);
            list_up_to<T>(work.both, span, bound, &cursors[0], work.list, work.list_keys);
            __syncthreads();
            const int length = cursors[0];
            const bool buffered = length <= capacity;
            int open = 0;
            for (int r = first_replicate; r < replicates; r += step) {
                if (work.radii[r] >= 0) continue;
                if (!find_radii(work, distances_of(r), r, length, buffered, k, bound, psi, largest)) open = 1;
            }
            if constexpr (!EMPTY) {
                Key most = 1;
                for (int e = 0; e < V::ELEMENTS; ++e) most = larger(most, V::get(largest, e));
                if (most > 1) atomicMax(&largest_radius, static_cast<long long>(most));
            }
            if (!__syncthreads_or(open)) break;
            attempted_length = min(2 * attempted_length, n - 1);
            if (thread == 0) cursors[0] = 0;
            __syncthreads();
        }
        usual_length = attempted_length == usual_length ? max(usual_length - usual_length / 64, first_length)
                                                        : min(usual_length + usual_length / 4 + 1, n - 1);

        // This computes the counts in (V_i, S) and in S.
        if constexpr (EMPTY) {
            for (int r = first_replicate; r < replicates; r += step) {
                for (int e = r; e < min(r + V::ELEMENTS, replicates); ++e) {
                    const T x = columns[static_cast<long long>(a) * stride + e];
                    const T* sorted = counting.sorted + static_cast<long long>(set[0]) * n;
                    const int near = count_around<T, Rule>(sorted, n, counting.ranks, x, work.radii[e]);
                    work.sums[e] += static_cast<unsigned long long>(psi[near - SELF] +
                                                                    psi[work.near_in_both[e] - SELF] - psi[n - SELF]);
                }
            }
        } else {
            list_up_to<T>(work.in_set, span, static_cast<Key>(largest_radius - 1), &cursors[1], work.list,
                          work.list_keys);
            __syncthreads();
            const int length = cursors[1];
            for (int r = first_replicate; r < replicates; r += step) {
                const Distances<T, Rule> distances = distances_of(r);
                const Keys radius = V::load_keys(work.radii + r);
                Keys near = V::all(1), near_in_set = V::all(1);
                for (int j = 0; j < length; ++j) {
                    V::count_below(near, distances.template at<false>(j), radius);
                    V::count_below(near_in_set, V::all(work.list_keys[j]), radius);
                }
                for (int e = 0; e < V::ELEMENTS; ++e) {
                    work.sums[r + e] += static_cast<unsigned long long>(psi[V::get(near, e) - SELF] +
                                                                        psi[work.near_in_both[r + e] - SELF] -
                                                                        psi[V::get(near_in_set, e) - SELF]);
                }
            }
        }
        __syncthreads();
    }
    for (int r = first_replicate; r < replicates; r += step) {
        for (int e = r; e < min(r + V::ELEMENTS, replicates); ++e) {
            atomicAdd(&tests.sums(blockIdx.y)[e], work.sums[e]);
        }
    }
}
