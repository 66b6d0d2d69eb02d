// CMI of V_i and V_j given S for all replicates, by sorted insertion as in the paper (GPU-CMIknn, Algorithm 4). The
// radius of a sample is the k-th smallest of its joint distances. A first pass keeps the k smallest so far in ascending
// order, in registers if k is small; a second pass counts the samples within the radius. A thread works on one sample
// in one replicate. A block reads tiles of a sample a thread into shared memory, which each thread goes through.
#include "nonlinear/kernels/tests.cuh"

// The k smallest distances so far. The distances take CAPACITY registers, the first CAPACITY - k of which hold -1
// throughout; or, if CAPACITY is 0, k places in memory, `stride` apart.
template <class Key, int CAPACITY>
struct Nearest {
    Key slots[CAPACITY];

    __device__ __forceinline__ Nearest(int k, Key*, long long, Key largest) {
#pragma unroll
        for (int s = 0; s < CAPACITY; ++s) slots[s] = s < CAPACITY - k ? Key(-1) : largest;
    }
    __device__ __forceinline__ Key farthest() const { return slots[CAPACITY - 1]; }
    __device__ __forceinline__ void insert(Key key) {
#pragma unroll
        for (int s = 0; s < CAPACITY; ++s) {
            const Key slot = slots[s];
            slots[s] = slot < key ? slot : key;
            key = slot < key ? key : slot;
        }
    }
};

template <class Key>
struct Nearest<Key, 0> {
    Key* slots;
    long long stride;
    int k;
    Key last;

    __device__ __forceinline__ Nearest(int k_, Key* slots_, long long stride_, Key largest)
        : slots(slots_), stride(stride_), k(k_), last(largest) {
        for (int s = 0; s < k; ++s) slots[s * stride] = largest;
    }
    __device__ __forceinline__ Key farthest() const { return last; }
    __device__ __forceinline__ void insert(Key key) {
        int place = k - 1;
        for (; place > 0 && slots[(place - 1) * stride] > key; --place)
            slots[place * stride] = slots[(place - 1) * stride];
        slots[place * stride] = key;
        last = slots[(k - 1) * stride];
    }
};

// Adds to the partials of tests. An item of work is a tile of samples in one replicate of one test, and a block takes
// every gridDim.x-th item. Relies on shared memory of 2 (level + 2) values for each thread. Grid (any), block (gamma).
//
// rows: (sets, replicates, n) values.
// scratch: k keys for each thread of the grid, if CAPACITY is 0.
template <class T, int CAPACITY>
__global__ void __launch_bounds__(512)
    estimate_by_insertion(const __grid_constant__ Sets<T> sets, const __grid_constant__ Tests tests, const T* rows,
                          KeyOf<T>* scratch) {
    using Key = KeyOf<T>;
    GPUPC_DYNAMIC_SHARED(unsigned char, shared);
    const int n = sets.n, level = sets.level, replicates = tests.replicates, k = tests.k, width = blockDim.x;
    const long long* psi = tests.psi;
    const long long tiles = (n + width - 1) / width, threads = static_cast<long long>(gridDim.x) * width;
    [[maybe_unused]] const long long thread = static_cast<long long>(blockIdx.x) * width + threadIdx.x;
    // Values of V_i, V_j and the members of S, one row for each: of the threads' own samples, and of the tile.
    T* const own = reinterpret_cast<T*>(shared);
    T* const tile = own + (level + 2) * width;
    for (long long item = blockIdx.x; item < tiles * replicates * tests.count; item += gridDim.x) {
        const int a = static_cast<int>(item % tiles) * width + threadIdx.x;
        const int replicate = static_cast<int>(item / tiles % replicates);
        const int test = static_cast<int>(item / tiles / replicates);
        const int* pair = tests.pairs + 2ll * test;
        const int* set = sets.set(pair[0]);
        const T* x = rows + (static_cast<long long>(pair[0]) * replicates + replicate) * n;
        const T* y = sets.of(pair[1]);
        const auto load_into_shared = [&](T* place, int sample) {
            if (sample >= n) return;
            place[threadIdx.x] = x[sample];
            place[width + threadIdx.x] = y[sample];
            for (int s = 1; s <= level; ++s) place[(s + 1) * width + threadIdx.x] = sets.of(set[s])[sample];
        };
        // Loads the tile of samples from `start` on and returns its end. All threads of the block call this.
        const auto next_tile = [&](int start) {
            __syncthreads();
            load_into_shared(tile, start + threadIdx.x);
            __syncthreads();
            return min(start + width, n);
        };
        const auto distance = [&](const T* column, int variable) {
            return Number<T>::distance(own[variable * width + threadIdx.x], column[variable * width]);
        };
        const auto distance_in_set = [&](const T* column) {
            Key farthest = 0;
            for (int s = 1; s <= level; ++s) farthest = larger(farthest, distance(column, s + 1));
            return farthest;
        };
#ifdef GPUPC_HOST
        Key* const slots = CAPACITY != 0 ? nullptr : scratch + thread * k;  // contiguous for a core
        const long long stride = 1;
#else
        Key* const slots = CAPACITY != 0 ? nullptr : scratch + thread;  // coalesced for a warp
        const long long stride = threads;
#endif
        Nearest<Key, CAPACITY> nearest(k, slots, stride, Number<T>::LARGEST);
        load_into_shared(own, a);
        for (int start = 0; start < n; start += width) {
            const int end = next_tile(start);
            for (int b = start; a < n && b < end; ++b) {
                if (b == a) continue;
                const T* column = tile + (b - start);
                const Key key = larger(larger(distance(column, 0), distance(column, 1)), distance_in_set(column));
                if (key < nearest.farthest()) nearest.insert(key);
            }
        }
        const Key radius = larger(nearest.farthest(), Key(1));  // If the radius is 0, samples at distance 0 count.
        int near_x = 0, near_y = 0, near_set = 0;
        for (int start = 0; start < n; start += width) {
            const int end = next_tile(start);
            for (int b = start; a < n && b < end; ++b) {
                const T* column = tile + (b - start);
                if (distance_in_set(column) >= radius) continue;
                ++near_set;
                near_x += distance(column, 0) < radius;
                near_y += distance(column, 1) < radius;
            }
        }
        if (a >= n) continue;
        atomicAdd(&tests.sums(test)[replicate],
                  static_cast<unsigned long long>(psi[near_x] + psi[near_y] - psi[near_set]));
    }
}
