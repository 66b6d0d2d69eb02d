// What a search needs beside its tests: planes, the largest tables of a level, and what happens between levels.
#include "engine/kernels/keys.cuh"

constexpr int MAX_PLANES = 32;  // of a variable

// Which samples have which category, 64 samples a thread. Grid (ceil(words / threads), p).
template <class Code>
__global__ void pack_planes(const Code* codes, long long stride, int n, int p, const int* categories,
                            const int* first_plane, int words, unsigned long long* planes) {
    const int word = blockIdx.x * blockDim.x + threadIdx.x;
    if (word >= words) return;
    for (int x = blockIdx.y; x < p; x += gridDim.y) {
        if (first_plane[x] < 0) continue;
        unsigned long long bits[MAX_PLANES] = {};
        const Code* const own = codes + x * stride;
        const int first = word * 64;
        for (int k = 0; k < min(64, n - first); ++k) bits[own[first + k]] |= 1ull << k;
        unsigned long long* out = planes + static_cast<long long>(first_plane[x]) * words + word;
        for (int v = 0; v < categories[x]; ++v, out += words) *out = bits[v];
    }
}

// The edges that level 0 leaves: those without a key. Grid (p).
__global__ void keep_unseparated(int p, const unsigned long long* best, unsigned char* adjacency) {
    const long long row = static_cast<long long>(blockIdx.x) * p;
    for (int j = threadIdx.x; j < p; j += blockDim.x) {
        adjacency[row + j] = static_cast<int>(blockIdx.x) != j && best[row + j] == NO_KEY;
    }
}

// A bound on the cells of each row's tables: its own categories and the largest counts among its neighbours. A thread a
// row. largest: the maximum.
__global__ void largest_tables(const int* rows, int row_stride, const int* degrees, int p, const int* categories,
                               int level, unsigned long long* row_cells, unsigned long long* largest) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p) return;
    unsigned long long cells = 0;
    if (degrees[i] > level) {
        const int* const row = rows + static_cast<long long>(i) * row_stride;
        cells = categories[i];
        int smallest = categories[i], below = 1 << 30;
        for (int wanted = level + 1; wanted > 0;) {  // the largest count below the last one, as often as it occurs
            int most = 0, times = 0;
            for (int q = 0; q < degrees[i]; ++q) {
                const int count = categories[row[q]];
                smallest = min(smallest, count);
                if (count >= below || count < most) continue;
                times = count == most ? times + 1 : 1;
                most = count;
            }
            for (; times > 0 && wanted > 0; --times, --wanted) {
                cells = cells > (1ull << 62) / most ? 1ull << 62 : cells * most;
            }
            below = most;
        }
        cells += cells / smallest;  // the sums of the columns
    }
    row_cells[i] = cells;
    if (cells != 0) atomicMax(largest, cells);
}

// Keys that the host decided to be separating.
__global__ void settle(int p, const int* pairs, const unsigned long long* keys, int count, unsigned long long* best) {
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= count) return;
    const long long i = pairs[2 * k], j = pairs[2 * k + 1];
    atomicMin(&best[i * p + j], keys[k]);
    atomicMin(&best[j * p + i], keys[k]);
}

// How many neighbours each variable has behind itself. Grid (p).
__global__ void count_upper(const unsigned char* adjacency, int p, int* upper) {
    __shared__ int count;
    const int i = blockIdx.x;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    int own = 0;
    for (int j = i + 1 + threadIdx.x; j < p; j += blockDim.x) own += adjacency[static_cast<long long>(i) * p + j];
    if (own != 0) atomicAdd(&count, own);
    __syncthreads();
    if (threadIdx.x == 0) upper[i] = count;
}

// The first set that would be tried for an edge: from adj(i), else from adj(j); else the smallest variables stand in
// (DiscreteProblem.first_sets).
__device__ void first_set(const int* rows, int stride, const int* degrees, int level, int i, int j, int* set) {
    const int owner = degrees[i] > level ? i : j;
    const bool any = degrees[owner] > level;
    const int* const row = rows + static_cast<long long>(owner) * stride;
    for (int a = 0, q = 0; a < level; ++q) {
        const int member = any ? row[q] : q;
        if (member != i && member != j) set[a++] = member;
    }
}

// Removes the edges that a workload's rule does not keep. Row i's edges to later variables are those from starts[i] on;
// the removed ones are listed from slots[i] on, with their first sets, unless pairs is null. A thread a row.
__global__ void decay(unsigned char* adjacency, int p, const long long* starts, const unsigned char* kept,
                      const int* rows, int stride, const int* degrees, int level, const long long* slots, int* pairs,
                      int* sets) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p) return;
    unsigned char* const row = adjacency + static_cast<long long>(i) * p;
    long long slot = slots[i];
    for (long long j = i + 1, edge = starts[i]; edge < starts[i + 1]; ++j) {
        if (row[j] == 0 || kept[edge++] != 0) continue;
        row[j] = 0;
        adjacency[j * p + i] = 0;  // below the diagonal, where no thread looks
        if (pairs == nullptr) continue;
        pairs[2 * slot] = i;
        pairs[2 * slot + 1] = static_cast<int>(j);
        first_set(rows, stride, degrees, level, i, static_cast<int>(j), sets + slot * level);
        ++slot;
    }
}
