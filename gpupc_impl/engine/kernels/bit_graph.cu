// A graph of bits between levels. Each warp has a range of rows of its own.
#include "engine/kernels/bit_graph.cuh"

// What follows a level: degrees, their sum and maximum, and of each row the pairs with a larger variable that went.
// Grid (any), block (warps).
__global__ void count_rows(const unsigned* before, const unsigned* after, int words, int p, int* degrees, int* removed,
                           unsigned long long* counters, int level) {
    unsigned long long* const own = counters + COUNTERS * level;
    const WarpRows rows(p);
    unsigned long long sum = 0, most = 0;
    for (int i = rows.first; i < rows.last; ++i) {
        const BitRow was(before, words, i), is(after, words, i);
        PerLane<int> left, gone;
        each_lane(LANES, [&](int lane) { left[lane] = gone[lane] = 0; });
        for (int w = 0; w < words; w += LANES) {
            each_lane(min(words - w, LANES), [&](int lane) {
                const unsigned now = is.bits[w + lane];
                left[lane] += __popc(now);
                gone[lane] += __popc(was.bits[w + lane] & ~now & above(i, w + lane));
            });
        }
        const int degree = sums_before(left), pairs = sums_before(gone);
        if (warp_leader()) {
            degrees[i] = degree;
            removed[i] = pairs;
        }
        sum += degree;
        most = max(most, static_cast<unsigned long long>(degree));
    }
    if (warp_leader() && sum != 0) {
        atomicAdd(&own[DEGREE_SUM], sum);
        atomicMax(&own[MOST_DEGREE], most);
    }
}

// What a level needs: row i's neighbours, ascending, at neighbours[starts[i]] up to neighbours[starts[i + 1]], as many
// cells of `best` filled with ones, and two copies of the graph. Grid (any), block (warps).
__global__ void begin_level(const unsigned* bits, int words, int p, const int* degrees, long long* starts,
                            int* neighbours, unsigned long long* best, unsigned* copy, unsigned* other_copy) {
    const WarpRows rows(p);
    long long next = sum_of(degrees, rows.first);
    for (int i = rows.first; i < rows.last; ++i) {
        const BitRow row(bits, words, i);
        if (warp_leader()) starts[i] = next;
        for (int w = 0; w < words; w += LANES) {
            PerLane<int> place;
            each_lane(LANES, [&](int lane) { place[lane] = w + lane < words ? __popc(row.bits[w + lane]) : 0; });
            const int found = sums_before(place);
            each_lane(min(words - w, LANES), [&](int lane) {
                const long long cell = static_cast<long long>(i) * words + w + lane;
                unsigned word = row.bits[w + lane];
                copy[cell] = other_copy[cell] = word;
                for (long long q = next + place[lane]; word != 0; word &= word - 1, ++q) {
                    neighbours[q] = 32 * (w + lane) + __ffs(word) - 1;
                    best[q] = ~0ull;
                }
            });
            next += found;
        }
    }
    if (rows.last == p && rows.first < p && warp_leader()) starts[p] = next;
}

// The adjacency matrix, a byte an entry. Grid (any), block (warps).
__global__ void expand(const unsigned* bits, int words, int p, unsigned char* adjacency) {
    const WarpRows rows(p);
    for (int i = rows.first; i < rows.last; ++i) {
        const BitRow row(bits, words, i);
        unsigned char* out = adjacency + static_cast<long long>(i) * p;
        for (int j = 0; j < p; j += LANES) {
            const unsigned word = row.bits[j / 32];
            each_lane(min(p - j, LANES), [&](int lane) { out[j + lane] = word >> lane & 1; });
        }
    }
}
