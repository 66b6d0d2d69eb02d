// Matrices of correlations by fixed_order.cuh. Both backends compute a tile at a time, with some samples of its
// variables in fast memory, shared on a GPU, where a thread has 8 x 4 entries in registers, or 4 x 4 of a small tile.
#include "gaussian/kernels/fixed_order.cuh"

constexpr int SMALL_TILE = 32;  // rows and columns of a small tile

#ifdef GPUPC_HOST
constexpr int TILE_ROWS = 64, TILE_COLUMNS = 64, SAMPLES = 32;
template <bool SMALL>
struct Shape {
    static constexpr int ROWS = SMALL ? SMALL_TILE : TILE_ROWS, COLUMNS = SMALL ? SMALL_TILE : TILE_COLUMNS,
                         THREADS = 1;
};
#else
constexpr int TILE_ROWS = 128, TILE_COLUMNS = 64, SAMPLES = 16;
template <bool SMALL>
struct Shape {
    static constexpr int ROWS = SMALL ? SMALL_TILE : TILE_ROWS, COLUMNS = SMALL ? SMALL_TILE : TILE_COLUMNS;
    static constexpr int SIDE = SMALL ? 8 : 16;  // the threads on a side of a tile
    static constexpr int PER_ROW = ROWS / SIDE, PER_COLUMN = COLUMNS / SIDE, THREADS = SIDE * SIDE;
};
#endif

// The correlations of variables rows[r] with columns[c] go to out[r * n_columns + c].
struct Target {
    const int *rows, *columns;
    double* out;
    int n_rows, n_columns;
};

// make_tile computes the tile at (first_row, first_column) of standardised samples (m, p). The whole block calls it.
#ifdef GPUPC_HOST

template <bool SMALL>
inline void make_tile(const double* samples, int m, int p, const Target& to, int first_row, int first_column) {
    constexpr int TILE_ROWS = Shape<SMALL>::ROWS, TILE_COLUMNS = Shape<SMALL>::COLUMNS;
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
        double* const out = to.out + static_cast<long long>(first_row + r) * to.n_columns + first_column;
        for (int c = 0; c < width; ++c) out[c] = as_correlation(sum[r][c], rows[r], columns[c]);
    }
}

#else

// Queues an asynchronous copy to shared memory, or of 0 if there is no source. Devices before sm_80 copy at once.
__device__ __forceinline__ void copy_in(double* shared, const double* global, bool there) {
#if __CUDA_ARCH__ >= 800
    const unsigned place = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(place), "l"(global), "r"(there ? 8 : 0));
#else
    *shared = there ? *global : 0.0;
#endif
}

// Closes the group of the copies queued so far.
__device__ __forceinline__ void end_group() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;");
#endif
}

// Waits for this thread's copies except those of the last group.
__device__ __forceinline__ void wait_for_all_but_one_group() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
}

// Copies samples of WIDTH variables to shared memory; a thread always copies those of the same variable.
template <int WIDTH, int SIDE>
struct Loader {
    static constexpr int STEP = SIDE * SIDE / WIDTH;  // samples that the block copies at a time

    const double* of_variable;
    int p, column, first_sample;
    bool there;

    __device__ __forceinline__ Loader(const double* samples, int p, const int* variables, int first, int n) : p(p) {
        const int thread = threadIdx.y * SIDE + threadIdx.x;
        column = thread % WIDTH;
        first_sample = thread / WIDTH;
        there = first + column < n;
        of_variable = samples + (there ? variables[first + column] : 0);
    }

    // Queues the copies of `count` samples from s on, at most SAMPLES of them.
    __device__ __forceinline__ void load(double (*target)[WIDTH], int s, int count) const {
#pragma unroll
        for (int k = first_sample; k < SAMPLES; k += STEP) {
            const bool in = there && k < count;
            copy_in(&target[k][column], in ? of_variable + static_cast<long long>(s + k) * p : of_variable, in);
        }
    }
};

template <int SIDE, int PER_ROW, int PER_COLUMN>
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

template <bool SMALL>
__device__ __forceinline__ void make_tile(const double* samples, int m, int p, const Target& to, int first_row,
                                          int first_column) {
    using Tile = Shape<SMALL>;
    constexpr int SIDE = Tile::SIDE, PER_ROW = Tile::PER_ROW, PER_COLUMN = Tile::PER_COLUMN;
    // Double buffering: the next samples are copied into one half while those in the other are used.
    __shared__ __align__(16) double of_rows[2][SAMPLES][Tile::ROWS];
    __shared__ __align__(16) double of_columns[2][SAMPLES][Tile::COLUMNS];
    const Loader<Tile::ROWS, SIDE> rows(samples, p, to.rows, first_row, to.n_rows);
    const Loader<Tile::COLUMNS, SIDE> columns(samples, p, to.columns, first_column, to.n_columns);
    double sum[PER_ROW][PER_COLUMN] = {};
    rows.load(of_rows[0], 0, m);
    columns.load(of_columns[0], 0, m);
    end_group();
    for (int s = 0, half = 0; s < m; s += SAMPLES, half ^= 1) {
        const int next = s + SAMPLES;
        if (next < m) {
            rows.load(of_rows[half ^ 1], next, m - next);
            columns.load(of_columns[half ^ 1], next, m - next);
        }
        end_group();
        wait_for_all_but_one_group();
        __syncthreads();
        if (next <= m) {
#pragma unroll
            for (int k = 0; k < SAMPLES; ++k) add_sample<SIDE>(sum, of_rows[half][k], of_columns[half][k]);
        } else {
            for (int k = 0; k < m - s; ++k) add_sample<SIDE>(sum, of_rows[half][k], of_columns[half][k]);
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
                to.out[static_cast<long long>(row) * to.n_columns + column] =
                    as_correlation(sum[r][c], to.rows[row], to.columns[column]);
            }
        }
    }
}

#endif

// The correlations of variables rows[r] with columns[c] go to out[r * n_columns + c]. Grid (tiles of columns, tiles of
// rows), block (16, 16) on a GPU and (1) on CPU cores.
__global__ void __launch_bounds__(Shape<false>::THREADS, 2)
    correlate(const double* samples, int m, int p, const int* rows, int n_rows, const int* columns, int n_columns,
              double* out) {
    const Target to{rows, columns, out, n_rows, n_columns};
    make_tile<false>(samples, m, p, to, blockIdx.y * TILE_ROWS, blockIdx.x * TILE_COLUMNS);
}

// Square matrices: matrix g has the variables from variables[starts[g]] to variables[starts[g + 1] - 1], and begins at
// out[places[g]]. Tile t is described by three numbers from tiles[3 * t] on: its matrix, its first row, and its first
// column. Grid (tiles), block as for correlate, or (8, 8) on a GPU if tiles are small.
template <bool SMALL>
__global__ void __launch_bounds__(Shape<SMALL>::THREADS, SMALL ? 8 : 2)
    correlate_squares(const double* samples, int m, int p, const int* variables, const long long* starts,
                      const long long* places, const int* tiles, double* out) {
    const int* tile = tiles + 3 * static_cast<long long>(blockIdx.x);
    const long long start = starts[tile[0]];
    const int n = static_cast<int>(starts[tile[0] + 1] - start);
    const Target to{variables + start, variables + start, out + places[tile[0]], n, n};
    make_tile<SMALL>(samples, m, p, to, tile[1], tile[2]);
}
