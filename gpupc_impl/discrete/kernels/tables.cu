// What a search needs beside its tests: planes, the largest tables of a level, and what happens between levels.
#include "discrete/kernels/tables.cuh"
#include "engine/kernels/keys.cuh"
#include "engine/kernels/rows.cuh"

constexpr int MAX_PLANES = 32;  // of a variable

// Which samples have which category, 64 samples a thread. Grid (ceil(words / threads), p).
template <class Code>
__global__ void pack_planes(const __grid_constant__ Data<Code> data, int p, unsigned long long* planes) {
    const int word = blockIdx.x * blockDim.x + threadIdx.x;
    if (word >= data.words) return;
    for (int x = blockIdx.y; x < p; x += gridDim.y) {
        if (data.first_plane[x] < 0) continue;
        unsigned long long bits[MAX_PLANES] = {};
        const Code* const own = data.of(x);
        const int first = word * 64;
        for (int k = 0; k < min(64, data.n - first); ++k) bits[own[first + k]] |= 1ull << k;
        unsigned long long* out = planes + static_cast<long long>(data.first_plane[x]) * data.words + word;
        for (int v = 0; v < data.categories[x]; ++v, out += data.words) *out = bits[v];
    }
}

// The edges that level 0 leaves: those without a key. Grid (p).
__global__ void keep_unseparated(const __grid_constant__ BestKeys best, unsigned char* adjacency) {
    const int i = blockIdx.x;
    for (int j = threadIdx.x; j < best.p; j += blockDim.x) {
        adjacency[best.cell(i, j)] = i != j && best.keys[best.cell(i, j)] == NO_KEY;
    }
}

// A bound on the cells of each row's tables: its own categories and the largest counts among its neighbours. A thread a
// row. largest: the maximum.
__global__ void largest_tables(const __grid_constant__ Rows rows, const int* categories, int level,
                               unsigned long long* row_cells, unsigned long long* largest) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows.p) return;
    unsigned long long cells = 0;
    if (rows.degrees[i] > level) {
        const int* const row = rows.of(i);
        cells = categories[i];
        int smallest = categories[i], below = 1 << 30;
        for (int wanted = level + 1; wanted > 0;) {  // the largest count below the last one, as often as it occurs
            int most = 0, times = 0;
            for (int q = 0; q < rows.degrees[i]; ++q) {
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
__global__ void settle(const __grid_constant__ BestKeys best, const int* pairs, const unsigned long long* keys,
                       int count) {
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < count) best.separate(pairs[2 * k], pairs[2 * k + 1], keys[k]);
}

// How many neighbours with a larger index each variable has. Grid (p).
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
__device__ void first_set(const Rows& rows, int level, int i, int j, int* set) {
    const int owner = rows.degrees[i] > level ? i : j;
    const bool any = rows.degrees[owner] > level;
    const int* const row = rows.of(owner);
    for (int a = 0, q = 0; a < level; ++q) {
        const int member = any ? row[q] : q;
        if (member != i && member != j) set[a++] = member;
    }
}

// Removes the edges that a workload's rule does not keep. Row i's edges to later variables are those from starts[i] on;
// the removed ones are listed from slots[i] on, with their first sets, unless pairs is null (then of `rows` only p
// counts). A thread a row.
__global__ void decay(const __grid_constant__ Rows rows, int level, const long long* starts, const unsigned char* kept,
                      const long long* slots, unsigned char* adjacency, int* pairs, int* sets) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, p = rows.p;
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
        first_set(rows, level, i, static_cast<int>(j), sets + slot * level);
        ++slot;
    }
}
