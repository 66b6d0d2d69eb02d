// CMI of V_i and V_j given S for V_i itself and its permutations, by sorted insertion: GPU-CMIknn, Algorithm 4, as it
// stands. A thread works on one sample in one permutation and keeps its k nearest distances in order; where k is small,
// in registers. Neighbouring threads read the same sample at the same time, which the cache hands to all at once.
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
// Grid (any), block (gamma).
template <class T, int CAPACITY>
__global__ void __launch_bounds__(512)
    estimate_by_insertion(const __grid_constant__ Sets<T> sets, const __grid_constant__ Tests tests, const T* rows,
                          KeyOf<T>* scratch) {
    using Key = KeyOf<T>;
    const int n = sets.n, level = sets.level, lanes = tests.lanes, k = tests.k;
    const long long* psi = tests.psi;
    const long long pieces = (n + blockDim.x - 1) / blockDim.x,
                    threads = static_cast<long long>(gridDim.x) * blockDim.x;
    [[maybe_unused]] const long long thread = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (long long item = blockIdx.x; item < pieces * lanes * tests.count; item += gridDim.x) {
        const int a = static_cast<int>(item % pieces * blockDim.x + threadIdx.x);
        if (a >= n) continue;
        const int lane = static_cast<int>(item / pieces % lanes), number = static_cast<int>(item / pieces / lanes);
        const int* test = tests.first + 2ll * number;
        const int* set = sets.set(test[0]);
        const T* x = rows + (static_cast<long long>(test[0]) * lanes + lane) * n;
        const T* y = sets.of(test[1]);
        const T x_own = x[a], y_own = y[a];
#ifdef GPUPC_HOST
        Key* const slots = CAPACITY != 0 ? nullptr : scratch + thread * k;  // a core reads its own
        const long long stride = 1;
#else
        Key* const slots = CAPACITY != 0 ? nullptr : scratch + thread;  // a warp reads neighbours
        const long long stride = threads;
#endif
        Nearest<Key, CAPACITY> nearest(k, slots, stride, Number<T>::LARGEST);
        for (int b = 0; b < n; ++b) {
            if (b == a) continue;
            Key distance = larger(Number<T>::distance(x_own, x[b]), Number<T>::distance(y_own, y[b]));
            for (int s = 1; s <= level; ++s) {
                const T* v = sets.of(set[s]);
                distance = larger(distance, Number<T>::distance(v[a], v[b]));
            }
            if (distance < nearest.farthest()) nearest.insert(distance);
        }
        const Key radius = larger(nearest.farthest(), Key(1));  // zero: those at distance zero count
        int near_x = 0, near_y = 0, near_set = 0;
        for (int b = 0; b < n; ++b) {
            Key distance = 0;
            for (int s = 1; s <= level; ++s) {
                const T* v = sets.of(set[s]);
                distance = larger(distance, Number<T>::distance(v[a], v[b]));
            }
            if (distance >= radius) continue;
            ++near_set;
            near_x += Number<T>::distance(x_own, x[b]) < radius;
            near_y += Number<T>::distance(y_own, y[b]) < radius;
        }
        atomicAdd(&tests.partials[static_cast<long long>(number) * lanes + lane],
                  static_cast<unsigned long long>(psi[near_x] + psi[near_y] - psi[near_set]));
    }
}
