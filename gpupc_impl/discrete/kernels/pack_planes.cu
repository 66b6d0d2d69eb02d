// Makes the planes of all categories: bit k of a category's plane is set if sample k has that category. A warp reads
// the codes of 64 samples once, two a lane, and a ballot for each category gives a word of its plane. Grid (any, up to
// p), block (warps).
#include "discrete/kernels/data.cuh"
#include "engine/kernels/warp.cuh"

template <class Code>
__global__ void pack_planes(const __grid_constant__ Data<Code> data, int p, unsigned long long* planes) {
    const Variables& variables = data.variables;
    const int warps = gridDim.x * warp_count();
    for (int x = blockIdx.y; x < p; x += gridDim.y) {
        if (variables.first_plane[x] < 0) continue;
        const Code* const own = data.of(x);
        const int categories = variables.categories[x];
        unsigned long long* const out = planes + static_cast<long long>(variables.first_plane[x]) * variables.words;
        for (int w = blockIdx.x * warp_count() + warp_index(); w < variables.words; w += warps) {
            // Each lane has the codes of two samples; beyond the last sample it has a code that no category has.
            PerLane<unsigned> low, high;
            const int present = data.n - w * 64;
            each_lane(LANES, [&](int lane) {
                low[lane] = lane < present ? own[w * 64 + lane] : ~0u;
                high[lane] = lane + LANES < present ? own[w * 64 + LANES + lane] : ~0u;
            });
            for (int v = 0; v < categories; ++v) {
                const unsigned wanted = v;
                const unsigned long long first = ballot(LANES, [&](int lane) { return low[lane] == wanted; });
                const unsigned long long second = ballot(LANES, [&](int lane) { return high[lane] == wanted; });
                if (warp_leader()) out[static_cast<long long>(v) * variables.words + w] = first | second << 32;
            }
        }
    }
}
