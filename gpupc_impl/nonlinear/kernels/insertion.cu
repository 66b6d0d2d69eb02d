// CMI of V_i and V_j given S for V_i itself and its permutations, by sorted insertion: GPU-CMIknn, Algorithm 4, as it
// stands. A thread works on one sample in one permutation and keeps its k nearest distances in order; where k is small,
// in registers. The block reads as many samples as it has threads into shared memory, and each thread goes through
// them.
#include "nonlinear/kernels/tests.cuh"

// The k smallest distances met. CAPACITY of them in registers, the first CAPACITY - k of which are never asked for; or,
// if CAPACITY is 0, k in memory, slots `stride` apart.
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

// The partials of tests. rows: (sets, lanes, n) values, a lane a row.
// scratch: k keys for each thread of the grid, if CAPACITY is 0. Blocks take turns at lanes x ceil(n / gamma) x tests.
// Shared memory: 2 (level + 2) values a thread. Grid (any), block (gamma).
template <class T, int CAPACITY>
__global__ void __launch_bounds__(512)
    estimate_by_insertion(const __grid_constant__ Sets<T> sets, const __grid_constant__ Tests tests, const T* rows,
                          KeyOf<T>* scratch) {
    using Key = KeyOf<T>;
    GPUPC_DYNAMIC_SHARED(unsigned char, shared);
    const int n = sets.n, level = sets.level, lanes = tests.lanes, k = tests.k, width = blockDim.x;
    const long long* psi = tests.psi;
    const long long strides = (n + width - 1) / width, threads = static_cast<long long>(gridDim.x) * width;
    [[maybe_unused]] const long long thread = static_cast<long long>(blockIdx.x) * width + threadIdx.x;
    // V_i, V_j and the members of S, a variable a row: of the threads' own samples, and of those that all go through.
    T* const own = reinterpret_cast<T*>(shared);
    T* const tile = own + (level + 2) * width;
    for (long long item = blockIdx.x; item < strides * lanes * tests.count; item += gridDim.x) {
        const int a = static_cast<int>(item % strides) * width + threadIdx.x;
        const int lane = static_cast<int>(item / strides % lanes), number = static_cast<int>(item / strides / lanes);
        const int* test = tests.first + 2ll * number;
        const int* set = sets.set(test[0]);
        const T* x = rows + (static_cast<long long>(test[0]) * lanes + lane) * n;
        const T* y = sets.of(test[1]);
        const auto load_into_shared = [&](T* place, int sample) {
            if (sample >= n) return;
            place[threadIdx.x] = x[sample];
            place[width + threadIdx.x] = y[sample];
            for (int s = 1; s <= level; ++s) place[(s + 1) * width + threadIdx.x] = sets.of(set[s])[sample];
        };
        // The tile's samples, from `start` on, and where they end; all threads of the block call it.
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
        Key* const slots = CAPACITY != 0 ? nullptr : scratch + thread * k;  // a core reads its own
        const long long stride = 1;
#else
        Key* const slots = CAPACITY != 0 ? nullptr : scratch + thread;  // a warp reads neighbours
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
        const Key radius = larger(nearest.farthest(), Key(1));  // zero: those at distance zero count
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
        atomicAdd(&tests.sums(number)[lane],
                  static_cast<unsigned long long>(psi[near_x] + psi[near_y] - psi[near_set]));
    }
}
