// Correlations whose bits do not depend on where, when and with how many others they are made: entry (i, j) is one
// chain of fused multiply-adds over the samples, in their order, whatever the tile; and (j, i) is the same, since
// products commute. Both backends take a tile of entries at a time, and some samples of its variables to fast memory.
// gpupc_impl/distributed/correlations.py has the same tiles.
#include "backends/simt/portable.cuh"

#ifdef GPUPC_HOST
constexpr int TILE_ROWS = 64, TILE_COLUMNS = 64, SAMPLES = 32;
#else
constexpr int SIDE = 16, PER_ROW = 8, PER_COLUMN = 4;  // threads a side of a tile, and entries of a thread
constexpr int TILE_ROWS = SIDE * PER_ROW, TILE_COLUMNS = SIDE * PER_COLUMN, SAMPLES = 16;
#endif

// Sums of rounded products may leave [-1, 1] by a little.
__device__ __forceinline__ double as_correlation(double product, int i, int j) {
    if (i == j) return 1.0;
    return product > 1.0 ? 1.0 : product < -1.0 ? -1.0 : product;
}

// Some variables with others, and where their correlations go: entry (r, c) to out[r * pitch + c].
struct Target {
    const int *rows, *columns;
    double* out;
    int n_rows, n_columns, pitch;
};

// The tile of entries whose first is (first_row, first_column), from standardised samples (m, p); all threads of a
// block.
#ifdef GPUPC_HOST

inline void make_tile(const double* samples, int m, int p, const Target& to, int first_row, int first_column) {
    const int height = min(TILE_ROWS, to.n_rows - first_row), width = min(TILE_COLUMNS, to.n_columns - first_column);
    const int *const rows = to.rows + first_row, *const columns = to.columns + first_column;
    double of_rows[SAMPLES][TILE_ROWS], of_columns[SAMPLES][TILE_COLUMNS] = {}, sum[TILE_ROWS][TILE_COLUMNS] = {};
    for (int s = 0; s < m; s += SAMPLES) {
        const int count = min(SAMPLES, m - s);
        for (int k = 0; k < count; ++k) {
            const double* sample = samples + static_cast<long long>(s + k) * p;
            for (int r = 0; r < height; ++r) of_rows[k][r] = sample[rows[r]];
            for (int c = 0; c < width; ++c) of_columns[k][c] = sample[columns[c]];
        }
        for (int r = 0; r < height; ++r) {
            for (int k = 0; k < count; ++k) {
                const double of_row = of_rows[k][r];
                for (int c = 0; c < TILE_COLUMNS; ++c) sum[r][c] = fma(of_row, of_columns[k][c], sum[r][c]);
            }
        }
    }
    for (int r = 0; r < height; ++r) {
        double* const out = to.out + static_cast<long long>(first_row + r) * to.pitch + first_column;
        for (int c = 0; c < width; ++c) out[c] = as_correlation(sum[r][c], rows[r], columns[c]);
    }
}

#else

// The samples s, s + 1, ... of some variables; 0 beyond the last variable.
template <int WIDTH>
__device__ __forceinline__ void load(double (*target)[WIDTH], const double* samples, int p, int s, int count,
                                     const int* variables, int first, int n) {
    const int thread = threadIdx.y * SIDE + threadIdx.x;
#pragma unroll
    for (int q = 0; q < SAMPLES * WIDTH / (SIDE * SIDE); ++q) {
        const int at = thread + q * SIDE * SIDE, k = at / WIDTH, v = first + at % WIDTH;
        target[k][at % WIDTH] = k < count && v < n ? samples[static_cast<long long>(s + k) * p + variables[v]] : 0.0;
    }
}

__device__ __forceinline__ void add_sample(double (&sum)[PER_ROW][PER_COLUMN], const double* of_rows,
                                           const double* of_columns) {
    double a[PER_ROW], b[PER_COLUMN];
#pragma unroll
    for (int r = 0; r < PER_ROW; ++r) a[r] = of_rows[threadIdx.y * PER_ROW + r];
#pragma unroll
    for (int c = 0; c < PER_COLUMN; ++c) b[c] = of_columns[threadIdx.x + c * SIDE];
#pragma unroll
    for (int r = 0; r < PER_ROW; ++r) {
#pragma unroll
        for (int c = 0; c < PER_COLUMN; ++c) sum[r][c] = fma(a[r], b[c], sum[r][c]);
    }
}

__device__ __forceinline__ void make_tile(const double* samples, int m, int p, const Target& to, int first_row,
                                          int first_column) {
    __shared__ __align__(16) double of_rows[SAMPLES][TILE_ROWS];
    __shared__ __align__(16) double of_columns[SAMPLES][TILE_COLUMNS];
    double sum[PER_ROW][PER_COLUMN] = {};
    for (int s = 0; s < m; s += SAMPLES) {
        const int count = min(SAMPLES, m - s);
        load<TILE_ROWS>(of_rows, samples, p, s, count, to.rows, first_row, to.n_rows);
        load<TILE_COLUMNS>(of_columns, samples, p, s, count, to.columns, first_column, to.n_columns);
        __syncthreads();
        if (count == SAMPLES) {
#pragma unroll
            for (int k = 0; k < SAMPLES; ++k) add_sample(sum, of_rows[k], of_columns[k]);
        } else {
            for (int k = 0; k < count; ++k) add_sample(sum, of_rows[k], of_columns[k]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < PER_ROW; ++r) {
        const int row = first_row + threadIdx.y * PER_ROW + r;
#pragma unroll
        for (int c = 0; c < PER_COLUMN; ++c) {
            const int column = first_column + threadIdx.x + c * SIDE;
            if (row < to.n_rows && column < to.n_columns) {
                to.out[static_cast<long long>(row) * to.pitch + column] =
                    as_correlation(sum[r][c], to.rows[row], to.columns[column]);
            }
        }
    }
}

#endif

#ifdef GPUPC_HOST
constexpr int TILE_THREADS = 1;
#else
constexpr int TILE_THREADS = SIDE * SIDE;
#endif

// Variables rows[r] with columns[c] to out[r * pitch + first + c]. Grid (tiles of columns, tiles of rows), block (16,
// 16) on a GPU and (1) on CPU cores.
__global__ void __launch_bounds__(TILE_THREADS, 2)
    correlate(const double* samples, int m, int p, const int* rows, int n_rows, const int* columns, int n_columns,
              double* out, int pitch, int first) {
    const Target to{rows, columns, out + first, n_rows, n_columns, pitch};
    make_tile(samples, m, p, to, blockIdx.y * TILE_ROWS, blockIdx.x * TILE_COLUMNS);
}

// Square matrices: matrix g is that of the variables from variables[starts[g]] to variables[starts[g + 1]], and begins
// at out[places[g]]. Tile t is of matrix tiles[3 * t], and begins at the row and the column that follow there. Grid
// (tiles), block as above.
__global__ void __launch_bounds__(TILE_THREADS, 2)
    correlate_squares(const double* samples, int m, int p, const int* variables, const long long* starts,
                      const long long* places, const int* tiles, double* out) {
    const int* tile = tiles + 3 * static_cast<long long>(blockIdx.x);
    const long long start = starts[tile[0]];
    const int n = static_cast<int>(starts[tile[0] + 1] - start);
    const Target to{variables + start, variables + start, out + places[tile[0]], n, n, n};
    make_tile(samples, m, p, to, tile[1], tile[2]);
}

// Entries that another panel of whole rows has already, since the matrix is symmetric: rows of `other`, which has those
// of n_other variables from first_other on, become columns of the `count` rows of `own`, which begin at variable first.
// Grid (ceil(n_other / 32), ceil(count / 32)), block (32, 8).
__global__ void mirror(const double* other, int n_other, int first_other, double* own, int count, int first, int p) {
    __shared__ double tile[32][33];
    const int column = blockIdx.y * 32 + threadIdx.x;
    for (int y = threadIdx.y; y < 32; y += blockDim.y) {
        const int row = blockIdx.x * 32 + y;
        if (row < n_other && column < count) {
            tile[y][threadIdx.x] = other[static_cast<long long>(row) * p + first + column];
        }
    }
    __syncthreads();
    const int target = blockIdx.x * 32 + threadIdx.x;
    for (int y = threadIdx.y; y < 32; y += blockDim.y) {
        const int row = blockIdx.y * 32 + y;
        if (row < count && target < n_other) {
            own[static_cast<long long>(row) * p + first_other + target] = tile[threadIdx.x][y];
        }
    }
}
