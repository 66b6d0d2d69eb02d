// Copies the upper triangle of a symmetric (p, p) matrix to the lower one. A block transposes one 32 x 32 tile in
// shared memory, so that reads and writes are coalesced; blocks below the diagonal return at once. Grid (ceil(p / 32),
// ceil(p / 32)), block (32, any).
#include "backends/simt/portable.cuh"

template <class T>
__global__ void mirror(T* matrix, int p) {
    __shared__ T tile[32][33];
    if (blockIdx.x < blockIdx.y) return;
    const int column = blockIdx.x * 32 + threadIdx.x;
    for (int y = threadIdx.y; y < 32; y += blockDim.y) {
        const int row = blockIdx.y * 32 + y;
        if (row < p && column < p) tile[y][threadIdx.x] = matrix[static_cast<long long>(row) * p + column];
    }
    __syncthreads();
    const int row_out = blockIdx.y * 32 + threadIdx.x;
    for (int y = threadIdx.y; y < 32; y += blockDim.y) {
        const int column_out = blockIdx.x * 32 + y;
        if (column_out > row_out && column_out < p) {
            matrix[static_cast<long long>(column_out) * p + row_out] = tile[threadIdx.x][y];
        }
    }
}
