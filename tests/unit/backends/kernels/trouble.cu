// Kernels with something wrong, each beside one without, and kernels that run for long.
#include "backends/simt/portable.cuh"

// --- Waits that never end ----------------------------------------------------------------------------------------

__global__ void barrier_against_warp() {
    if (threadIdx.x < 5)
        __syncwarp(0xffu);
    else
        __syncthreads();
}

__global__ void shuffle_against_vote() {
    if (threadIdx.x % 2 == 0)
        __shfl_sync(0xffffffffu, 1, 0);
    else
        __ballot_sync(0xffffffffu, 1);
}

__global__ void foreign_mask() { __syncwarp(1u << ((threadIdx.x + 1) % 32)); }

__global__ void one_block_of_many() {
    if (blockIdx.x == 3 && threadIdx.x == 0)
        __syncwarp(3u);
    else
        __syncthreads();
}

__global__ void never_ending_barriers(const int* stop) {
    while (load_relaxed(stop) == 0) __syncthreads();
}

// Blocks that take a moment each, far more than anyone would wait for.
__global__ void long_grid(unsigned long long* sink) {
    unsigned long long x = blockIdx.x;
    for (int i = 0; i < 20000; ++i) x = x * 6364136223846793005ull + 1442695040888963407ull;
    if (x == 0) *sink = x;
}

__global__ void add_one(int* cells, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) cells[i] += 1;
}

// A barrier met by one half of a warp in one branch and by the other half in the other.
__global__ void barrier_in_branches(int* out) {
    __shared__ int seen[64];
    const int t = threadIdx.x;
    seen[t] = t;
    if (t % 2 == 0) {
        __syncthreads();
        out[t] = seen[t + 1];
    } else {
        __syncthreads();
        out[t] = seen[t - 1];
    }
}

__device__ __noinline__ int depth(volatile int* frame, int levels) {
    volatile int own[256];
    own[0] = frame[0] + 1;
    return levels == 0 ? own[0] : depth(own, levels - 1) + own[0] - own[0];
}

// Needs a kilobyte of stack a level.
__global__ void deep(int* out, int levels) {
    int start = 0;
    __syncthreads();
    out[threadIdx.x] = depth(&start, levels);
}

// --- Arguments ---------------------------------------------------------------------------------------------------

__global__ void every_type(const double* d, float* f, const int* i, unsigned long long* u, unsigned char* c, bool* b,
                           void* any, int i4, unsigned u4, long long i8, unsigned long long u8, float f4, double f8,
                           bool b1, double* out) {
    out[0] = d ? d[0] : -1;
    out[1] = f ? f[0] : -1;
    out[2] = i ? i[0] : -1;
    out[3] = u ? static_cast<double>(u[0]) : -1;
    out[4] = c ? c[0] : -1;
    out[5] = b ? b[0] : -1;
    out[6] = any ? 1 : -1;
    out[7] = i4;
    out[8] = u4;
    out[9] = static_cast<double>(i8);
    out[10] = static_cast<double>(u8);
    out[11] = f4;
    out[12] = f8;
    out[13] = b1;
}

__global__ void nothing() {}

// --- What sanitizers must see ------------------------------------------------------------------------------------

__global__ void write_at(int* cells, int i) { cells[i] = 1; }

__global__ void write_dynamic_at(int i) {
    GPUPC_DYNAMIC_SHARED(int, cells);
    __syncthreads();
    cells[i] = 1;
}

__global__ void write_static_at(int* out, int i) {
    __shared__ int cells[8];
    __syncthreads();
    cells[i] = 1;
    out[0] = cells[i];
}

__global__ void double_it(int* cell) { cell[0] = cell[0] + cell[0]; }

// --- Races and their cures ---------------------------------------------------------------------------------------

template <bool barrier>
__global__ void reverse_block(int* out) {
    __shared__ int cells[64];
    const int t = threadIdx.x;
    cells[t] = t;
    if (barrier) __syncthreads();
    out[blockIdx.x * 64 + t] = cells[63 - t];
    if (barrier) __syncthreads();
    cells[t] = -1;
}

template <bool sync>
__global__ void swap_in_warp(int* out) {
    __shared__ int cells[64];
    const int t = threadIdx.x;
    cells[t] = t;
    // A shuffle brings lanes together but, as under CUDA, orders no memory.
    if (sync)
        __syncwarp();
    else
        __shfl_sync(0xffffffffu, t, 0);
    out[blockIdx.x * 64 + t] = cells[t ^ 1];
}

template <bool atomic>
__global__ void blocks_race(int* cell) {
    if (threadIdx.x != 0) return;
    if (atomic)
        atomicMax(cell, static_cast<int>(blockIdx.x));
    else if (cell[0] < static_cast<int>(blockIdx.x))
        cell[0] = static_cast<int>(blockIdx.x);
}

template <bool relaxed>
__global__ void flag_race(int* flag) {
    if (relaxed) {
        if (load_relaxed(flag) == 0) store_relaxed(flag, 1);
    } else {
        if (flag[0] == 0) flag[0] = 1;
    }
}
