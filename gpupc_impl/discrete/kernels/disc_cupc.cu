// disc-cupc (gpuPC, section 4.1): cuPC-E's strategy, a thread a test with a table of its own in device memory.
#include "discrete/kernels/level.cuh"

// The threads' tables, one after another.
struct Tables {
    unsigned* first;
    unsigned long long cells;  // of each

    __device__ __forceinline__ unsigned* of(unsigned long long thread) const { return first + thread * cells; }
};

// One thread's test, table and all.
template <class Code>
__device__ void make_test_alone(const DiscreteSearch& search, const Data<Code>& data, const Shape& shape,
                                const int* members, int level, unsigned* table, unsigned long long key) {
    const Team alone{0, 1};
    for (unsigned long long c = 0; c < shape.cells(); ++c) table[c] = 0;
    count_samples(data, shape, members, level, alone, table);
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

// Level 0: a thread a pair. Grid (ceil(p / 32), p), block (32), or less: then threads take several.
template <class Code>
__global__ void __launch_bounds__(512, 2)
    disc_cupc_level_zero(const __grid_constant__ Data<Code> data, const __grid_constant__ DiscreteSearch search,
                         const __grid_constant__ Tables tables) {
    const int p = search.best.p;
    const unsigned long long block = static_cast<unsigned long long>(blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned* const table = tables.of(block * blockDim.x + threadIdx.x);
    for (int i = blockIdx.y; i < p; i += gridDim.y) {
        for (int j = blockIdx.x * blockDim.x + threadIdx.x; j < p; j += gridDim.x * blockDim.x) {
            if (j <= i) continue;
            Shape shape;
            shape.set(data.categories, i, j, nullptr, 0);
            make_test_alone(search, data, shape, nullptr, 0, table, 0);
        }
    }
}

// Levels from 1 on (cuPC, Algorithm 4): beta edges of a row a block, gamma threads an edge. Row i's blocks are those
// from first_block[i] to first_block[i + 1]; rows without a test have none. Grid (first_block[p]), or less: then blocks
// take several. Block (beta, gamma).
template <class Code>
__global__ void __launch_bounds__(512, 2)
    disc_cupc_level(const __grid_constant__ Data<Code> data, const __grid_constant__ DiscreteSearch search,
                    const __grid_constant__ Level level, const __grid_constant__ Tables tables,
                    const long long* first_block, int* all_members) {
    const Rows& rows = level.rows;
    const int p = rows.p, size = level.level;
    const int beta = blockDim.x, gamma = blockDim.y;
    const long long thread = static_cast<long long>(blockIdx.x) * beta * gamma + threadIdx.y * beta + threadIdx.x;
    unsigned* const table = tables.of(thread);
    int* const members = all_members + thread * size;
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
        const int* const neighbours = rows.of(i);
        const long long position = (block - first_block[i]) * beta + threadIdx.x;
        if (position >= degree) continue;
        const int j = neighbours[position];
        const unsigned long long sets = level.sets_to_try(i, j);
        for (unsigned long long t = threadIdx.y; t < sets; t += gamma) {
            const unsigned long long key = set_key(i, j, t);
            if (search.settled(i, j, key)) break;  // later keys are larger still
            unrank_combination(rows.binomial, degree - 1, size, t, members);
            for (int a = 0; a < size; ++a) members[a] = neighbours[members[a] + (members[a] >= position)];
            Shape shape;
            shape.set(data.categories, i, j, members, size);
            make_test_alone(search, data, shape, members, size, table, key);
            ++tally.tests;
        }
    }
    tally.add_to(level.counters);
}
