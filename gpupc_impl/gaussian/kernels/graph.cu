// The graph between levels: level 0 (cuPC, Algorithm 3), compaction (section 3.3), and the removal of separated edges.
#include "gaussian/kernels/search.cuh"

// Level 0: a thread a pair. Grid (ceil(p / 32), ceil(p / 32)), block (32, 32).
__global__ void level_zero(const double* C, int p, double critical_r_squared, unsigned char* adjacency) {
    const int i = blockIdx.y * 32 + threadIdx.y;
    const int j = blockIdx.x * 32 + threadIdx.x;
    if (i >= p || j >= p || i > j) return;
    const double r = C[static_cast<long long>(i) * p + j];
    const bool edge = i != j && r * r > critical_r_squared;
    adjacency[static_cast<long long>(i) * p + j] = edge;
    adjacency[static_cast<long long>(j) * p + i] = edge;
}

// Columns [first, last) of a row that a thread looks after.
struct Segment {
    int first, last;

    __device__ explicit Segment(int p) {
        const int width = (p + blockDim.x - 1) / blockDim.x;
        first = min(static_cast<int>(threadIdx.x) * width, p);
        last = min(first + width, p);
    }

    __device__ int count(const unsigned char* flags) const {
        int n = 0;
        for (int j = first; j < last; ++j) n += flags[j];
        return n;
    }
};

// Degrees, their maximum and their sum. totals: {sum, maximum}. Grid (p).
__global__ void count_degrees(const unsigned char* adjacency, int p, int* degrees, unsigned long long* totals) {
    __shared__ int degree;
    const int i = blockIdx.x;
    if (threadIdx.x == 0) degree = 0;
    __syncthreads();
    const int n = Segment(p).count(adjacency + static_cast<long long>(i) * p);
    if (n != 0) atomicAdd(&degree, n);
    __syncthreads();
    if (threadIdx.x == 0) {
        degrees[i] = degree;
        atomicAdd(&totals[0], static_cast<unsigned long long>(degree));
        atomicMax(&totals[1], static_cast<unsigned long long>(degree));
    }
}

constexpr int COMPACT_THREADS = 128;

// A_G to A'_G by a parallel scan: row i's neighbours, ascending, at rows[i * stride]. Grid (p), block COMPACT_THREADS.
__global__ void compact(const unsigned char* adjacency, int p, int* rows, int stride) {
    __shared__ int counts[2][COMPACT_THREADS];
    const int i = blockIdx.x, thread = threadIdx.x;
    const unsigned char* flags = adjacency + static_cast<long long>(i) * p;
    const Segment segment(p);
    const int own = segment.count(flags);
    // Inclusive scan (Hillis and Steele, the paper's reference [37]).
    int side = 0;
    counts[0][thread] = own;
    for (int distance = 1; distance < COMPACT_THREADS; distance *= 2) {
        __syncthreads();
        const int left = thread >= distance ? counts[side][thread - distance] : 0;
        counts[1 - side][thread] = counts[side][thread] + left;
        side = 1 - side;
    }
    int* out = rows + static_cast<long long>(i) * stride + (counts[side][thread] - own);
    for (int j = segment.first; j < segment.last; ++j) {
        if (flags[j]) *out++ = j;
    }
}

// Removes the edges that were separated in this level; removed[0] counts them. Grid (p).
__global__ void remove_separated(const int* rows, int stride, const int* degrees, int p, const unsigned long long* best,
                                 unsigned char* adjacency, unsigned long long* removed) {
    const int i = blockIdx.x;
    unsigned long long n = 0;
    for (int q = threadIdx.x; q < degrees[i]; q += blockDim.x) {
        const long long cell = static_cast<long long>(i) * p + rows[static_cast<long long>(i) * stride + q];
        if (best[cell] == NO_KEY) continue;
        adjacency[cell] = 0;
        n += rows[static_cast<long long>(i) * stride + q] > i;
    }
    if (n != 0) atomicAdd(removed, n);
}

// Lists the edges removed in this level, with their separating sets, in any order. `of_whole_row` tells what ranks
// number: subsets of the whole row (cuPC-S), or of the row without the edge's other end. Grid (p).
__global__ void list_separated(const int* rows, int stride, const int* degrees, int p,
                               const unsigned long long* binomials, int max_degree, int level, int of_whole_row,
                               const unsigned long long* best, unsigned long long* cursor, int* pairs, int* sets) {
    const int i = blockIdx.x;
    const Binomials binomial{binomials, max_degree};
    for (int q = threadIdx.x; q < degrees[i]; q += blockDim.x) {
        const int j = rows[static_cast<long long>(i) * stride + q];
        const unsigned long long key = best[static_cast<long long>(i) * p + j];
        if (j < i || key == NO_KEY) continue;
        const unsigned long long slot = atomicAdd(cursor, 1ull);
        pairs[2 * slot] = i;
        pairs[2 * slot + 1] = j;
        const int owner = key & SECOND_SIDE ? j : i, other = key & SECOND_SIDE ? i : j;
        const int* row = rows + static_cast<long long>(owner) * stride;
        int* set = sets + slot * level;
        unrank_combination(binomial, degrees[owner] - (of_whole_row ? 0 : 1), level, key & ~SECOND_SIDE, set);
        bool passed = false;  // whether the other end has been stepped over
        for (int a = 0; a < level; ++a) {
            passed |= !of_whole_row && row[set[a]] >= other;
            set[a] = row[set[a] + passed];
        }
    }
}
