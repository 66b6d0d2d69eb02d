// disc-cupc, the baseline of gpuPC (section 4.1): the strategy of cuPC-E, in which each thread makes a test with its
// own table. Every thread counts all samples into its table and adds up the statistic alone, so threads never wait for
// each other. But the device needs as many tables as it has threads, each as large as the level's largest.
#include "discrete/kernels/level.cuh"
#include "discrete/kernels/planes.cuh"
#include "discrete/kernels/samples.cuh"

// Who allocates the tables in device memory: the host ahead of the launch, or each thread inside the kernel, as in the
// paper. A kernel with malloc reserves a heap on the device, so the two are different kernels.
enum Allocation { AHEAD, IN_KERNEL };

// The threads' tables: those of up to `shared_cells` cells are in shared memory, larger in device memory.
struct Tables {
    unsigned* first;           // null if all tables fit into shared memory; not read by kernels that allocate
    unsigned long long cells;  // the cells of a thread's table in device memory
    // the words of a thread's table in shared memory: odd, so that equal cells are in different banks; or 0
    unsigned shared_cells;
    unsigned long long* refused;  // the bytes of a table for which the heap had no room; 0 if there is none

    // Returns a table in the heap, which the calling thread frees; null if the heap has no room.
    __device__ __forceinline__ unsigned* allocate() const {
        const unsigned long long bytes = cells * sizeof(unsigned);
        unsigned* const table = static_cast<unsigned*>(malloc(bytes));
        if (table == nullptr) atomicMax(refused, bytes);
        return table;
    }

    // A thread's table. `thread` is its number in the grid, `here` in the block, with tables from `shared` on.
    __device__ __forceinline__ unsigned* of(const Shape& shape, unsigned* shared, unsigned long long thread,
                                            int here) const {
        if (shape.cells() <= shared_cells) return shared + static_cast<unsigned long long>(here) * shared_cells;
        return first + thread * cells;
    }
};

// Makes a test in one thread: counts its table, adds up the statistic in the order of statistic.cuh, and decides.
template <class Code>
__device__ void make_test_alone(const DiscreteSearch& search, const Data<Code>& data, const Shape& shape,
                                const int* members, int level, unsigned* table, unsigned long long key) {
    const Team alone{0, 1};
    for (unsigned long long c = 0; c < shape.cells(); ++c) table[c] = 0;
    if (has_planes(data.variables, shape, members, level)) {
        count_planes(data.variables, shape, members, level, alone, table);
    } else {
        count_samples(data, shape, members, level, alone, table);
    }
    unsigned long long df = 0;
    double total = 0.0;
    for (unsigned long long first = 0; first < shape.strata; first += CHUNK) {
        double sum = 0.0;
        for (unsigned long long s = first; s < min(first + CHUNK, shape.strata); ++s) {
            sum += stratum_statistic(search.rules, shape.rows, shape.columns, table + s * shape.block(), df);
        }
        total += sum;
    }
    search.decide(shape, total, df, key);
}

// Level 0 (cuPC, Algorithm 3): a thread tests pairs in turn. Grid (up to ceil(p / 32), up to p), block (32).
template <class Code, Allocation ALLOCATION>
__global__ void __launch_bounds__(MAX_THREADS, 1)
    disc_cupc_level_zero(const __grid_constant__ Data<Code> data, const __grid_constant__ DiscreteSearch search,
                         const __grid_constant__ Tables tables) {
    GPUPC_DYNAMIC_SHARED(unsigned, shared);
    const int p = search.best.p;
    const unsigned long long block = static_cast<unsigned long long>(blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned long long thread = block * blockDim.x + threadIdx.x;
    for (int i = blockIdx.y; i < p; i += gridDim.y) {
        for (int j = blockIdx.x * blockDim.x + threadIdx.x; j < p; j += gridDim.x * blockDim.x) {
            if (j <= i) continue;
            Shape shape;
            shape.set(data.variables.categories, i, j, nullptr, 0);
            unsigned* const table =
                ALLOCATION == IN_KERNEL ? tables.allocate() : tables.of(shape, shared, thread, threadIdx.x);
            if (ALLOCATION == IN_KERNEL && table == nullptr) continue;
            make_test_alone(search, data, shape, nullptr, 0, table, 0);
            if (ALLOCATION == IN_KERNEL) free(table);
        }
    }
}

// Levels from 1 on (cuPC, Algorithm 4): a block processes beta edges of a row with gamma threads per edge, and keeps
// the row in shared memory if it fits. Blocks first_block[i] to first_block[i + 1] - 1 are those of row i; rows without
// a test have none. A thread that allocates does so once for all its tests of an edge: in the paper's grid it has one
// edge. Grid (up to first_block[p], whose blocks take several in turn), block (beta, gamma).
template <class Code, Allocation ALLOCATION>
__global__ void __launch_bounds__(MAX_THREADS, 1)
    disc_cupc_level(const __grid_constant__ Data<Code> data, const __grid_constant__ DiscreteSearch search,
                    const __grid_constant__ Level level, const __grid_constant__ Tables tables,
                    const long long* first_block, int* all_members, bool use_shared) {
    GPUPC_DYNAMIC_SHARED(unsigned, shared);
    const Rows& rows = level.rows;
    const int p = rows.p, size = level.level;
    const int beta = blockDim.x, gamma = blockDim.y, here = threadIdx.y * beta + threadIdx.x;
    const long long thread = static_cast<long long>(blockIdx.x) * beta * gamma + here;
    int* const members = all_members + thread * size;
    int* const shared_row = reinterpret_cast<int*>(shared + static_cast<long long>(beta) * gamma * tables.shared_cells);
    Tally tally;
    for (long long block = blockIdx.x; block < first_block[p]; block += gridDim.x) {
        int i = 0;  // the row with first_block[i] <= block < first_block[i + 1]
        for (int beyond = p; beyond - i > 1;) {
            const int middle = i + (beyond - i) / 2;
            if (first_block[middle] <= block) {
                i = middle;
            } else {
                beyond = middle;
            }
        }
        const int degree = rows.degrees[i];
        const int* neighbours = rows.of(i);
        if (use_shared) {
            __syncthreads();  // The row that was read before is no longer used.
            for (int q = here; q < degree; q += beta * gamma) shared_row[q] = neighbours[q];
            __syncthreads();
            neighbours = shared_row;
        }
        const long long position = (block - first_block[i]) * beta + threadIdx.x;
        if (position >= degree) continue;
        const int j = neighbours[position];
        const unsigned long long sets = level.sets_to_try(i, j);
        unsigned* own = nullptr;  // the table that this thread allocates
        if (ALLOCATION == IN_KERNEL && threadIdx.y < sets) {
            own = tables.allocate();
            if (own == nullptr) continue;
        }
        for (unsigned long long t = threadIdx.y; t < sets; t += gamma) {
            const unsigned long long key = set_key(i, j, t);
            if (search.settled(i, j, key)) break;  // Later keys are larger still.
            level.set_members(neighbours, degree, position, t, members);
            Shape shape;
            shape.set(data.variables.categories, i, j, members, size);
            unsigned* const table = ALLOCATION == IN_KERNEL ? own : tables.of(shape, shared, thread, here);
            make_test_alone(search, data, shape, members, size, table, key);
            ++tally.tests;
        }
        if (ALLOCATION == IN_KERNEL) free(own);
    }
    tally.add_to(level.counters);
}
