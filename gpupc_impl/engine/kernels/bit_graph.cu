// A graph of bits between levels: degrees, rows of neighbours, removed pairs, the adjacency matrix. A warp a row.
#include "engine/kernels/bit_graph.cuh"

// Degrees, their sum and their maximum. totals: {sum, maximum}. Grid (any), block (warps).
__global__ void count_degrees(const unsigned* bits, int words, int p, int* degrees, unsigned long long* totals) {
    unsigned long long sum = 0, most = 0;
    for (int i = blockIdx.x * warp_count() + warp_index(); i < p; i += gridDim.x * warp_count()) {
        const BitRow row(bits, words, i);
        PerLane<int> own;
        each_lane(LANES, [&](int lane) { own[lane] = 0; });
        for (int w = 0; w < words; w += LANES) {
            each_lane(min(words - w, LANES), [&](int lane) { own[lane] += __popc(row.bits[w + lane]); });
        }
        const int degree = sums_before(own);
        if (warp_leader()) degrees[i] = degree;
        sum += degree;
        most = max(most, static_cast<unsigned long long>(degree));
    }
    if (warp_leader() && sum != 0) {
        atomicAdd(&totals[0], sum);
        atomicMax(&totals[1], most);
    }
}

// Of each row, the pairs with a larger variable that are in `before` and not in `after`. Grid (any), block (warps).
__global__ void count_removed(const unsigned* before, const unsigned* after, int words, int p, int* counts) {
    for (int i = blockIdx.x * warp_count() + warp_index(); i < p; i += gridDim.x * warp_count()) {
        const BitRow was(before, words, i), is(after, words, i);
        PerLane<int> own;
        each_lane(LANES, [&](int lane) { own[lane] = 0; });
        for (int w = i / 32; w < words; w += LANES) {
            each_lane(min(words - w, LANES), [&](int lane) {
                own[lane] += __popc(was.bits[w + lane] & ~is.bits[w + lane] & above(i, w + lane));
            });
        }
        const int removed = sums_before(own);
        if (warp_leader()) counts[i] = removed;
    }
}

// starts[k] = values[0] + ... + values[k - 1] for k = 0..n. One block, of any number of threads up to 1024.
__global__ void __launch_bounds__(1024) sum_up(const int* values, int n, long long* starts) {
    __shared__ long long sums[2][1024];
    const int threads = blockDim.x, thread = threadIdx.x, width = (n + threads - 1) / threads;
    const int first = min(thread * width, n), last = min(first + width, n);
    long long own = 0;
    for (int k = first; k < last; ++k) own += values[k];
    int side = 0;
    sums[0][thread] = own;
    for (int distance = 1; distance < threads; distance *= 2) {
        __syncthreads();
        sums[1 - side][thread] = sums[side][thread] + (thread >= distance ? sums[side][thread - distance] : 0);
        side = 1 - side;
    }
    long long sum = sums[side][thread] - own;
    for (int k = first; k < last; ++k) {
        starts[k] = sum;
        sum += values[k];
    }
    if (thread == threads - 1) starts[n] = sums[side][thread];
}

// The neighbours of each row, ascending, from neighbours[starts[i]] on. Grid (any), block (warps).
__global__ void list_neighbours(const unsigned* bits, int words, int p, const long long* starts, int* neighbours) {
    for (int i = blockIdx.x * warp_count() + warp_index(); i < p; i += gridDim.x * warp_count()) {
        const BitRow row(bits, words, i);
        int* next = neighbours + starts[i];
        for (int w = 0; w < words; w += LANES) {
            PerLane<int> place;
            each_lane(LANES, [&](int lane) { place[lane] = w + lane < words ? __popc(row.bits[w + lane]) : 0; });
            const int found = sums_before(place);
            each_lane(min(words - w, LANES), [&](int lane) {
                int* out = next + place[lane];
                for (unsigned word = row.bits[w + lane]; word != 0; word &= word - 1) {
                    *out++ = 32 * (w + lane) + __ffs(word) - 1;
                }
            });
            next += found;
        }
    }
}

// The adjacency matrix, a byte an entry. Grid (any), block (warps).
__global__ void expand(const unsigned* bits, int words, int p, unsigned char* adjacency) {
    for (int i = blockIdx.x * warp_count() + warp_index(); i < p; i += gridDim.x * warp_count()) {
        const BitRow row(bits, words, i);
        unsigned char* out = adjacency + static_cast<long long>(i) * p;
        for (int j = 0; j < p; j += LANES) {
            const unsigned word = row.bits[j / 32];
            each_lane(min(p - j, LANES), [&](int lane) { out[j + lane] = word >> lane & 1; });
        }
    }
}
