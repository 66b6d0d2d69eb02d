// Level 0 for all pairs whose tables are counted by planes. The cell of category a of Vi and b of Vj is the number of
// samples with both, the number of bits set in both planes. All tables are therefore the product of the matrix of
// planes with its transpose, in which a product of two bits is their AND and a sum counts them. A block counts a tile
// of 64 x 64 planes, which reads each plane once for 64 others; on a GPU tensor cores multiply, on the host a core
// keeps 4 x 4 counts in vector registers. `decide_pairs` then computes each table's statistic, a thread a pair.
#include "discrete/kernels/bit_product.cuh"
#include "discrete/kernels/decide.cuh"
#include "discrete/kernels/pair_tables.cuh"

// A band of consecutive variables: their planes are the rows of the product, and their tables are counted.
struct Products {
    PairTables pairs;
    const int* owners;  // (planes): the variable of each plane
    int p, number;      // the numbers of variables and of planes
    int last;           // The band consists of the variables pairs.first to last - 1.
    int first_row;      // the first plane of the band

    // Returns the cell for the categories of two planes; null if their variables are no pair of the band.
    __device__ __forceinline__ unsigned* cell(int row, int column) const {
        if (row >= number || column >= number) return nullptr;
        const int i = owners[row], j = owners[column];
        if (i >= j || i >= last || !pairs.have(i, j)) return nullptr;
        const int *first_plane = pairs.variables.first_plane, *categories = pairs.variables.categories;
        return pairs.of(i, j) + (row - first_plane[i]) * categories[j] + (column - first_plane[j]);
    }
};

constexpr int PRODUCT_TILE = 64;  // planes along a side of a block's tile
constexpr int PRODUCT_STEP = 16;  // words in shared memory at a time
constexpr int WARPS_DOWN = 4, WARPS_ACROSS = 2, PRODUCT_THREADS = WARPS_DOWN * WARPS_ACROSS * LANES;

#ifdef GPUPC_HOST

constexpr int EACH = 4;  // planes along a side of the counts that stay in registers

struct Corner {
    Counts counts[EACH][EACH] = {};
    void add(const Bits (&rows)[EACH], const Bits (&columns)[EACH]) {
        for (int a = 0; a < EACH; ++a) {
            for (int b = 0; b < EACH; ++b) counts[a][b] += count_bits(rows[a] & columns[b]);
        }
    }
};

// The words processed at a time: those of 2 * PRODUCT_TILE planes fit into a core's L2 cache, of 2 * EACH into its L1.
constexpr int HOST_STEP = 512;

// Counts the tables of the band. Grid (tiles of columns, tiles of rows), block (1).
__global__ void plane_products(const __grid_constant__ Products product) {
    const int row = product.first_row + blockIdx.y * PRODUCT_TILE,
              column = product.first_row + blockIdx.x * PRODUCT_TILE;
    if (column < row) return;
    const Variables& variables = product.pairs.variables;
    unsigned sums[PRODUCT_TILE][PRODUCT_TILE] = {};
    for (int first = 0; first < variables.words; first += HOST_STEP) {
        const int last = min(first + HOST_STEP, variables.words);
        for (int y = 0; y < PRODUCT_TILE && row + y < product.number; y += EACH) {
            for (int x = 0; x < PRODUCT_TILE && column + x < product.number; x += EACH) {
                if (column + x + EACH <= row + y) continue;  // The tile is below the diagonal.
                const unsigned long long *row_planes[EACH], *column_planes[EACH];
                // Indexes are clamped to the last plane; the counts beyond are unused.
                for (int a = 0; a < EACH; ++a) {
                    row_planes[a] = variables.plane(min(row + y + a, product.number - 1));
                    column_planes[a] = variables.plane(min(column + x + a, product.number - 1));
                }
                Corner corner;
                for (int w = first; w < last; w += WORDS_AT_ONCE) {
                    Bits rows[EACH], columns[EACH];
                    for (int a = 0; a < EACH; ++a) {
                        rows[a] = *reinterpret_cast<const Bits*>(row_planes[a] + w);
                        columns[a] = *reinterpret_cast<const Bits*>(column_planes[a] + w);
                    }
                    corner.add(rows, columns);
                }
                for (int a = 0; a < EACH; ++a) {
                    for (int b = 0; b < EACH; ++b) sums[y + a][x + b] += sum_parts(corner.counts[a][b]);
                }
            }
        }
    }
    for (int y = 0; y < PRODUCT_TILE; ++y) {
        for (int x = 0; x < PRODUCT_TILE; ++x) {
            unsigned* const cell = product.cell(row + y, column + x);
            if (cell != nullptr) *cell = sums[y][x];
        }
    }
}

#else

constexpr int PADDED_STEP = PRODUCT_STEP + 4;  // With this padding, groups of lanes have few bank conflicts.
constexpr int ACROSS = PRODUCT_TILE / WARPS_ACROSS / COLUMNS;  // tensor core tiles of a warp, side by side
static_assert(WARPS_DOWN * ROWS == PRODUCT_TILE, "a warp has one tensor core tile down");

// The blocks of a tile share its words, and add up their counts, which are zeros before the launch.
// Grid (tiles of columns, tiles of rows, any), block (PRODUCT_THREADS).
__global__ void __launch_bounds__(PRODUCT_THREADS, 4) plane_products(const __grid_constant__ Products product) {
    __shared__ unsigned long long row_words[PRODUCT_TILE][PADDED_STEP], column_words[PRODUCT_TILE][PADDED_STEP];
    const int row = product.first_row + blockIdx.y * PRODUCT_TILE,
              column = product.first_row + blockIdx.x * PRODUCT_TILE;
    if (column < row) return;
    const int thread = threadIdx.x, warp = thread / LANES, group = thread % LANES / 4, own = thread % 4;
    const int down = warp / WARPS_ACROSS * ROWS, across = warp % WARPS_ACROSS * ACROSS * COLUMNS;
    const Variables& variables = product.pairs.variables;
    unsigned sums[ACROSS][4] = {};
    for (int first = blockIdx.z * PRODUCT_STEP; first < variables.words; first += gridDim.z * PRODUCT_STEP) {
        for (int q = thread; q < PRODUCT_TILE * PRODUCT_STEP; q += PRODUCT_THREADS) {
            const int plane = q / PRODUCT_STEP, w = q % PRODUCT_STEP;
            const bool present = first + w < variables.words;
            row_words[plane][w] = present && row + plane < product.number ? variables.plane(row + plane)[first + w] : 0;
            column_words[plane][w] =
                present && column + plane < product.number ? variables.plane(column + plane)[first + w] : 0;
        }
        __syncthreads();
#pragma unroll
        for (int step = 0; step < PRODUCT_STEP; step += 4) {
            const int w = step + own;
            const unsigned long long above = row_words[down + group][w], below = row_words[down + group + 8][w];
#pragma unroll
            for (int n = 0; n < ACROSS; ++n) {
                add_product(sums[n], above, below, column_words[across + n * COLUMNS + group][w]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int n = 0; n < ACROSS; ++n) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            if (sums[n][k] == 0) continue;
            unsigned* const cell =
                product.cell(row + down + group + 8 * (k / 2), column + across + n * COLUMNS + 2 * own + k % 2);
            if (cell != nullptr) atomicAdd(cell, sums[n][k]);
        }
    }
}

#endif

// Decides the band's pairs by their tables, a thread a pair. Grid (any, any), block (any).
__global__ void decide_pairs(const __grid_constant__ DiscreteSearch search, const __grid_constant__ Products product) {
    const PairTables& pairs = product.pairs;
    for (int i = pairs.first + blockIdx.y; i < product.last; i += gridDim.y) {
        const int step = gridDim.x * blockDim.x;
        for (int j = i + 1 + blockIdx.x * blockDim.x + threadIdx.x; j < product.p; j += step) {
            if (!pairs.have(i, j)) continue;
            Shape shape;
            shape.set(pairs.variables.categories, i, j, nullptr, 0);
            unsigned long long df = 0;
            const double sum = stratum_statistic(search.rules, shape.rows, shape.columns, pairs.of(i, j), df);
            search.decide(shape, sum, df, 0);
        }
    }
}
