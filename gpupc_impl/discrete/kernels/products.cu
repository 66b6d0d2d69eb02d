// Level 0 for all pairs whose tables are counted by planes: the product of the matrix of planes with its transpose,
// where a product of bits is an AND and a sum their number.
#include "discrete/kernels/bit_product.cuh"
#include "discrete/kernels/decide.cuh"

// Variables and planes of a band of rows, and their tables. discrete/device.py, PRODUCTS, declares the same.
struct Products {
    const unsigned long long* planes;  // (planes, words)
    const int* variables;              // (planes): whose each is
    PairTables pairs;
    int p, number, words;  // variables, planes, words of a plane
    int last;              // the band: variables from pairs.first to below `last`
    int first_row;         // the first of the band's planes

    // The cell of two planes' categories; null where their variables are no pair of the band.
    __device__ __forceinline__ unsigned* cell(int row, int column) const {
        if (row >= number || column >= number) return nullptr;
        const int i = variables[row], j = variables[column];
        if (i >= j || i >= last || !pairs.have(i, j)) return nullptr;
        return pairs.of(i, j) + (row - pairs.first_plane[i]) * pairs.categories[j] + (column - pairs.first_plane[j]);
    }
};

constexpr int PRODUCT_TILE = 64;  // planes a side of what a block makes

#ifdef GPUPC_HOST

constexpr int EACH = 4;  // planes a side of what stays in registers

struct Corner {
    Counts counts[EACH][EACH] = {};

    void add(const Bits (&rows)[EACH], const Bits (&columns)[EACH]) {
        for (int a = 0; a < EACH; ++a) {
            for (int b = 0; b < EACH; ++b) counts[a][b] += count_bits(rows[a] & columns[b]);
        }
    }
};

// Words of 2 * PRODUCT_TILE planes that stay in a core's second cache, and of 2 * EACH in its first.
constexpr int STEP = 512;

// Grid (tiles of columns, tiles of rows), block (1).
__global__ void plane_products(const __grid_constant__ Products product) {
    const int row = product.first_row + blockIdx.y * PRODUCT_TILE,
              column = product.first_row + blockIdx.x * PRODUCT_TILE;
    if (column < row) return;
    unsigned sums[PRODUCT_TILE][PRODUCT_TILE] = {};
    for (int first = 0; first < product.words; first += STEP) {
        const int last = min(first + STEP, product.words);
        for (int y = 0; y < PRODUCT_TILE && row + y < product.number; y += EACH) {
            for (int x = 0; x < PRODUCT_TILE && column + x < product.number; x += EACH) {
                if (column + x + EACH <= row + y) continue;  // below the diagonal
                const unsigned long long *of_rows[EACH], *of_columns[EACH];
                for (int a = 0; a < EACH; ++a) {  // beyond the last plane: that again, for nobody
                    const long long words = product.words, end = product.number - 1;
                    of_rows[a] = product.planes + min(static_cast<long long>(row + y + a), end) * words;
                    of_columns[a] = product.planes + min(static_cast<long long>(column + x + a), end) * words;
                }
                Corner corner;
                for (int w = first; w < last; w += WORDS_AT_ONCE) {
                    Bits rows[EACH], columns[EACH];
                    for (int a = 0; a < EACH; ++a) {
                        rows[a] = *reinterpret_cast<const Bits*>(of_rows[a] + w);
                        columns[a] = *reinterpret_cast<const Bits*>(of_columns[a] + w);
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

constexpr int STEP = 16;        // words in shared memory at a time
constexpr int ROOM = STEP + 4;  // so that groups of lanes meet in few banks
constexpr int WARPS_DOWN = 4, WARPS_ACROSS = 2, THREADS = WARPS_DOWN * WARPS_ACROSS * LANES;
constexpr int ACROSS = PRODUCT_TILE / WARPS_ACROSS / COLUMNS;  // tiles of a warp, side by side
static_assert(WARPS_DOWN * ROWS == PRODUCT_TILE, "a warp has one tile's height");

// `counts` are zero before. Grid (tiles of columns, tiles of rows, any), block (THREADS): blocks of a tile share out
// the words.
__global__ void __launch_bounds__(THREADS, 4) plane_products(const __grid_constant__ Products product) {
    __shared__ unsigned long long of_rows[PRODUCT_TILE][ROOM], of_columns[PRODUCT_TILE][ROOM];
    const int row = product.first_row + blockIdx.y * PRODUCT_TILE,
              column = product.first_row + blockIdx.x * PRODUCT_TILE;
    if (column < row) return;
    const int thread = threadIdx.x, warp = thread / LANES, group = thread % LANES / 4, own = thread % 4;
    const int down = warp / WARPS_ACROSS * ROWS, across = warp % WARPS_ACROSS * ACROSS * COLUMNS;
    unsigned sums[ACROSS][4] = {};
    for (int first = blockIdx.z * STEP; first < product.words; first += gridDim.z * STEP) {
        for (int q = thread; q < PRODUCT_TILE * STEP; q += THREADS) {
            const int plane = q / STEP, w = q % STEP;
            const bool there = first + w < product.words;
            const unsigned long long* const word = product.planes + first + w;
            of_rows[plane][w] =
                there && row + plane < product.number ? word[static_cast<long long>(row + plane) * product.words] : 0;
            of_columns[plane][w] = there && column + plane < product.number
                                       ? word[static_cast<long long>(column + plane) * product.words]
                                       : 0;
        }
        __syncthreads();
#pragma unroll
        for (int step = 0; step < STEP; step += 4) {
            const int w = step + own;
            const unsigned long long above = of_rows[down + group][w], below = of_rows[down + group + 8][w];
#pragma unroll
            for (int n = 0; n < ACROSS; ++n) {
                add_product(sums[n], above, below, of_columns[across + n * COLUMNS + group][w]);
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
            shape.set(pairs.categories, i, j, nullptr, 0);
            unsigned long long df = 0;
            const double sum = stratum_statistic(search.rules, shape.rows, shape.columns, pairs.of(i, j), df);
            search.decide(shape, sum, df, 0);
        }
    }
}
