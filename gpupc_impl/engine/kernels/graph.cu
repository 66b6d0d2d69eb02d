// The graph between levels: compaction (cuPC, section 3.3) and the removal of separated edges.
#include "engine/kernels/keys.cuh"
#include "engine/kernels/rows.cuh"

// Sets the range [first, last) of the n columns that one thread of a block processes.
struct Segment {
    int first, last;

    __device__ explicit Segment(int n) {
        const int width = (n + blockDim.x - 1) / blockDim.x;
        first = min(static_cast<int>(threadIdx.x) * width, n);
        last = min(first + width, n);
    }

    __device__ int count(const unsigned char* flags) const {
        int n = 0;
        for (int j = first; j < last; ++j) n += flags[j];
        return n;
    }
};

// Returns the sum of a number of each thread. All threads of the block must call it; it is a barrier for them.
template <class T>
__device__ T block_sum(T own) {
    __shared__ T sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    if (own != 0) atomicAdd(&sum, own);
    __syncthreads();
    const T total = sum;
    __syncthreads();  // The next call sets the sum to zero.
    return total;
}

// Stores the variable's degree; adds it to totals[0] and the maximum totals[1]. The whole block must call it.
__device__ void count_degree(const unsigned char* adjacency, int p, int* degrees, unsigned long long* totals) {
    const int i = blockIdx.x, degree = block_sum(Segment(p).count(adjacency + static_cast<long long>(i) * p));
    if (threadIdx.x == 0) {
        degrees[i] = degree;
        atomicAdd(&totals[0], static_cast<unsigned long long>(degree));
        atomicMax(&totals[1], static_cast<unsigned long long>(degree));
    }
}

// Counts the degree of every variable; totals[0] receives their sum and totals[1] their maximum. Grid (p).
__global__ void count_degrees(const unsigned char* adjacency, int p, int* degrees, unsigned long long* totals) {
    count_degree(adjacency, p, degrees, totals);
}

// Writes a value for each pair into both triangles of a (p, p) matrix. Grid (ceil(count / threads)).
template <class T>
__global__ void mark_pairs(const int* pairs, int count, int p, T value, T* matrix) {
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= count) return;
    const long long i = pairs[2 * k], j = pairs[2 * k + 1];
    matrix[i * p + j] = matrix[j * p + i] = value;
}

constexpr int ROW_THREADS = 128;  // The number of threads in a block that processes one row.

// Returns the sum of `own` over the threads before this one. All ROW_THREADS threads of the block must call it.
__device__ int counted_before(int own) {
    __shared__ int counts[2][ROW_THREADS];
    const int thread = threadIdx.x;
    int side = 0;  // This is an inclusive scan (Hillis and Steele, the paper's reference [37]).
    counts[0][thread] = own;
    for (int distance = 1; distance < ROW_THREADS; distance *= 2) {
        __syncthreads();
        const int left = thread >= distance ? counts[side][thread - distance] : 0;
        counts[1 - side][thread] = counts[side][thread] + left;
        side = 1 - side;
    }
    return counts[side][thread] - own;
}

// Compacts A_G to A'_G by a parallel scan: neighbours ascend from rows[i * stride]. Grid (p), block ROW_THREADS.
__global__ void compact(const unsigned char* adjacency, int p, int* rows, int stride) {
    const int i = blockIdx.x;
    const unsigned char* flags = adjacency + static_cast<long long>(i) * p;
    const Segment segment(p);
    int* out = rows + static_cast<long long>(i) * stride + counted_before(segment.count(flags));
    for (int j = segment.first; j < segment.last; ++j) {
        if (flags[j]) *out++ = j;
    }
}

// Removes the edges that were separated in this level, and counts the degrees that are left as `count_degrees` does;
// removed[i] counts the removed edges between i and larger variables. Grid (p).
__global__ void remove_separated(const __grid_constant__ Rows rows, const unsigned long long* best,
                                 unsigned char* adjacency, int* removed, int* degrees, unsigned long long* totals) {
    const int i = blockIdx.x;
    int n = 0;
    for (int q = threadIdx.x; q < rows.degrees[i]; q += blockDim.x) {
        const int j = rows.of(i)[q];
        const long long cell = static_cast<long long>(i) * rows.p + j;
        if (best[cell] == NO_KEY) continue;
        adjacency[cell] = 0;
        n += j > i;
    }
    const int in_row = block_sum(n);  // From here on the row lacks what any thread of the block removed.
    if (threadIdx.x == 0) removed[i] = in_row;
    count_degree(adjacency, rows.p, degrees, totals);
}

// Lists the edges removed in this level, ascending, with their separating sets; `removed` is that of
// `remove_separated`. Ranks number the subsets of the whole row if `ranks_whole_row` (cuPC-S), else those of the row
// without the edge's other end. Grid (p), block ROW_THREADS.
__global__ void list_separated(const __grid_constant__ Rows rows, int level, bool ranks_whole_row,
                               const unsigned long long* best, const int* removed, int* pairs, int* sets) {
    const int i = blockIdx.x;
    if (removed[i] == 0) return;
    unsigned long long before = 0;
    for (int row = threadIdx.x; row < i; row += blockDim.x) before += removed[row];
    const int* neighbours = rows.of(i);
    best += static_cast<long long>(i) * rows.p;
    const auto separated = [&](int q) { return neighbours[q] > i && best[neighbours[q]] != NO_KEY; };
    const Segment segment(rows.degrees[i]);
    int own = 0;
    for (int q = segment.first; q < segment.last; ++q) own += separated(q);
    long long slot = block_sum(before) + counted_before(own);
    for (int q = segment.first; q < segment.last; ++q) {
        if (!separated(q)) continue;
        const int j = neighbours[q];
        const unsigned long long key = best[j];
        pairs[2 * slot] = i;
        pairs[2 * slot + 1] = j;
        const int owner = key & SECOND_SIDE ? j : i, other = key & SECOND_SIDE ? i : j;
        const int* row = rows.of(owner);
        int* set = sets + slot * level;
        const int n = rows.degrees[owner] - (ranks_whole_row ? 0 : 1);
        unrank_combination(rows.binomial, n, level, key & ~SECOND_SIDE, set);
        bool passed = false;  // whether the members so far include or follow the position of the edge's other end
        for (int a = 0; a < level; ++a) {
            passed |= !ranks_whole_row && row[set[a]] >= other;
            set[a] = row[set[a] + passed];
        }
        ++slot;
    }
}
