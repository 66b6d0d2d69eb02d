// Kernels that use one CUDA word each; tests/unit/backends/test_simt_words.py says what they must give.
#include "backends/simt/portable.cuh"

struct Place {
    int thread[3], block[3], block_dim[3], grid_dim[3];
};

// --- Indexes and memory ------------------------------------------------------------------------------------------

__global__ void indexes(int* out) {
    const dim3 b = blockDim, g = gridDim;
    const long long block = blockIdx.x + g.x * (blockIdx.y + static_cast<long long>(g.y) * blockIdx.z);
    const int thread = threadIdx.x + b.x * (threadIdx.y + b.y * threadIdx.z);
    Place* place = reinterpret_cast<Place*>(out) + block * (b.x * b.y * b.z) + thread;
    *place = {{int(threadIdx.x), int(threadIdx.y), int(threadIdx.z)},
              {int(blockIdx.x), int(blockIdx.y), int(blockIdx.z)},
              {int(b.x), int(b.y), int(b.z)},
              {int(g.x), int(g.y), int(g.z)}};
}

// The same after every thread has waited: registers must follow their thread.
__global__ void indexes_after_barrier(int* out) {
    const int before = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    __syncthreads();
    const int after = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[before] = after;
}

template <class T>
__device__ T twice_of_neighbour(T* shared, T value) {
    __shared__ T doubled[1024];
    const int t = threadIdx.x, n = blockDim.x;
    shared[t] = value;
    doubled[t] = value + value;
    __syncthreads();
    return shared[(t + 1) % n] + doubled[(t + n - 1) % n];
}

template <class T>
__global__ void shared_memory(const T* in, T* out) {
    GPUPC_DYNAMIC_SHARED(T, shared);
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = twice_of_neighbour<T>(shared, in[i]);
}

__global__ void dynamic_shared_alignment(unsigned long long* out) {
    GPUPC_DYNAMIC_SHARED(double, shared);
    out[0] = reinterpret_cast<unsigned long long>(shared) % 16;
}

__device__ const int device_table[4] = {2, 3, 5, 7};
__constant__ int constant_table[4] = {11, 13, 17, 19};
template <int N, bool twice>
__global__ __launch_bounds__(64) void tables(int* __restrict__ out) {
    const int i = threadIdx.x;
    out[i] = (device_table[i % 4] + __ldg(&constant_table[i % 4]) + N) * (twice ? 2 : 1);
}

// --- Block barriers ----------------------------------------------------------------------------------------------

// Thread t takes part in rounds[t] barriers, then exits.
__global__ void barrier_votes(const int* rounds, const int* predicate, int most, int* count, int* all, int* any) {
    const int t = threadIdx.x;
    for (int r = 0; r < rounds[t]; ++r) {
        const int p = predicate[t * most + r];
        count[t * most + r] = __syncthreads_count(p);
        __syncthreads();
        all[t * most + r] = __syncthreads_and(p);
        any[t * most + r] = __syncthreads_or(p);
    }
}

// An inclusive scan: log2(n) rounds of two barriers.
__global__ void scan(int* data) {
    GPUPC_DYNAMIC_SHARED(int, part);
    const unsigned t = threadIdx.x;
    part[t] = data[t];
    for (unsigned step = 1; step < blockDim.x; step *= 2) {
        __syncthreads();
        const int before = t >= step ? part[t - step] : 0;
        __syncthreads();
        part[t] += before;
    }
    data[t] = part[t];
}

// --- Warps -------------------------------------------------------------------------------------------------------

// Lane by lane: which group of lanes it belongs to (its mask), how long it dawdles, and what it asks for.
template <class T>
__global__ void shuffles(const T* value, const unsigned* mask, const int* delay, const int* argument, int width,
                         T* out) {
    const int t = threadIdx.x;
    const unsigned m = mask[t];
    if (m == 0) return;
    for (int i = 0; i < delay[t]; ++i) __syncwarp(m);
    out[4 * t] = __shfl_sync(m, value[t], argument[t], width);
    out[4 * t + 1] = __shfl_up_sync(m, value[t], static_cast<unsigned>(argument[t]), width);
    out[4 * t + 2] = __shfl_down_sync(m, value[t], static_cast<unsigned>(argument[t]), width);
    out[4 * t + 3] = __shfl_xor_sync(m, value[t], argument[t], width);
}

__global__ void votes(const unsigned* mask, const int* predicate, unsigned* out) {
    const int t = threadIdx.x;
    const unsigned m = mask[t];
    if (m == 0) return;
    out[3 * t] = __ballot_sync(m, predicate[t]);
    out[3 * t + 1] = __any_sync(m, predicate[t]);
    out[3 * t + 2] = __all_sync(m, predicate[t]);
}

// Lanes that have exited no longer count, though the mask still names them.
__global__ void ballot_after_exit(int stay, unsigned* out) {
    const int t = threadIdx.x;
    if (t >= stay) return;
    out[t] = __ballot_sync(0xffffffffu, 1);
}

__global__ void warp_reduce(const double* in, double* out) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    double sum = in[t];
    for (int step = warpSize / 2; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
    if (threadIdx.x % warpSize == 0) atomicAdd(out + t / warpSize, sum);
}

__global__ void active_mask(unsigned* out) {
    const unsigned mask = __activemask();
    out[threadIdx.x] = mask >> (threadIdx.x % warpSize) & 1;
    __syncwarp(mask);
}

// --- Atomics -----------------------------------------------------------------------------------------------------

// Every thread of every block at once; op chooses the word.
template <class T>
__global__ void atomics(const T* operand, T* cell) {
    const T v = operand[blockIdx.x * blockDim.x + threadIdx.x];
    atomicAdd(cell, v);
    atomicMin(cell + 1, v);
    atomicMax(cell + 2, v);
    atomicAnd(cell + 3, v);
    atomicOr(cell + 4, v);
    atomicXor(cell + 5, v);
    // The values exchanged, in sum: all but the one that stays.
    atomicAdd(cell + 7, atomicExch(cell + 6, v));
    T seen = load_relaxed(cell + 8);
    for (;;) {
        const T old = atomicCAS(cell + 8, seen, static_cast<T>(seen + v));
        if (old == seen) break;
        seen = old;
    }
}

__global__ void atomics_signed_64(const long long* operand, long long* cell) {
    const long long v = operand[blockIdx.x * blockDim.x + threadIdx.x];
    atomicMin(cell, v);
    atomicMax(cell + 1, v);
}

template <class T>
__global__ void atomic_sub(const T* operand, T* cell) {
    atomicSub(cell, operand[blockIdx.x * blockDim.x + threadIdx.x]);
}

template <class T>
__global__ void atomic_add_float(const T* operand, T* cell) {
    atomicAdd(cell, operand[blockIdx.x * blockDim.x + threadIdx.x]);
}

// The old values returned: each ticket goes to one thread.
__global__ void tickets(unsigned long long* counter, int* taken) { atomicAdd(taken + atomicAdd(counter, 1ull), 1); }

// The last block to arrive sums what the others left.
__global__ void last_block(const int* in, int* part, unsigned* arrived, int* out) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        part[blockIdx.x] = in[blockIdx.x];
        __threadfence();
        last = atomicAdd(arrived, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last || threadIdx.x != 0) return;
    __threadfence();
    int sum = 0;
    for (unsigned b = 0; b < gridDim.x; ++b) sum += part[b];
    *out = sum;
}

template <class T>
__global__ void relaxed(T* cells) {
    const int t = threadIdx.x;
    store_relaxed(cells + t, static_cast<T>(load_relaxed(cells + t) + T(1)));
}

// --- Arithmetic --------------------------------------------------------------------------------------------------

__global__ void bits(const unsigned long long* in, int* out) {
    const int t = threadIdx.x;
    const unsigned long long v = in[t];
    const unsigned low = static_cast<unsigned>(v);
    int* o = out + 6 * t;
    o[0] = __popc(low);
    o[1] = __popcll(v);
    o[2] = __ffs(static_cast<int>(low));
    o[3] = __ffsll(static_cast<long long>(v));
    o[4] = __clz(static_cast<int>(low));
    o[5] = __clzll(static_cast<long long>(v));
}

__global__ void high_products(const unsigned long long* a, const unsigned long long* b, unsigned long long* out) {
    const int t = threadIdx.x;
    out[2 * t] = __umul64hi(a[t], b[t]);
    out[2 * t + 1] = __umulhi(static_cast<unsigned>(a[t]), static_cast<unsigned>(b[t]));
}

__global__ void reals(const double* a, const double* b, const double* c, double* out) {
    const int t = threadIdx.x;
    double* o = out + 12 * t;
    o[0] = fma(a[t], b[t], c[t]);
    o[1] = a[t] * b[t] + c[t];  // never contracted
    o[2] = sqrt(fabs(a[t]));
    o[3] = a[t] / b[t];
    o[4] = __fma_rn(a[t], b[t], c[t]);
    o[5] = __dmul_rn(a[t], b[t]);
    o[6] = __longlong_as_double(__double_as_longlong(a[t]) ^ 1);
    o[7] = fmaf(static_cast<float>(a[t]), static_cast<float>(b[t]), static_cast<float>(c[t]));
    o[8] = __uint_as_float(__float_as_uint(static_cast<float>(a[t])) ^ 1u);
    o[9] = __int_as_float(__float_as_int(static_cast<float>(b[t])));
    o[10] = __dadd_rn(__dsub_rn(a[t], b[t]), __ddiv_rn(b[t], c[t]));
    o[11] = sqrtf(fabsf(static_cast<float>(a[t]))) + __dsqrt_rn(fabs(b[t]));
}

template <class T>
__global__ void extremes(const T* a, const T* b, T* least, T* greatest) {
    const int t = threadIdx.x;
    least[t] = min(a[t], b[t]);
    greatest[t] = max(a[t], b[t]);
}

// Of mixed types CUDA takes the common one.
__global__ void mixed_extremes(double* out) {
    out[0] = min(-1, 1u);
    out[1] = max(-1ll, 1ull) == ~0ull;
    out[2] = min(1.5f, 1.25);
    out[3] = max(1.5, 1.25f);
    out[4] = min(7l, 9l);
}

__global__ void says() {
    if (threadIdx.x == 0) printf("block %d says %.3f\n", static_cast<int>(blockIdx.x), 0.5);
}

__device__ __noinline__ void insert(int* sorted, int count, int value) {
    for (; count > 0 && sorted[count - 1] > value; --count) sorted[count] = sorted[count - 1];
    sorted[count] = value;
}

// Threads that never wait, each with an array on its stack that another function writes to.
__global__ void sort_own(const int* in, int* out) {
    int own[16];
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = 0; i < 16; ++i) insert(own, i, in[(t + i) % 64]);
    out[t] = own[8];
}
