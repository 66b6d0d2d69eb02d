// Computes the terms of those samples and replicates for which the lists of neighbours end too early (lists.cuh). For
// these, the k-th joint distance is beyond the range of the lists. A warp processes the samples that are near enough in
// S[0]. It counts joint distances in PARTS intervals of a range beyond the lists. While the k-th distance is not in
// that range, the warp continues with a range twice as long. Then it divides the interval that contains the k-th
// distance, until that is a single key. A last pass counts the samples within the radius.
#include "nonlinear/kernels/around.cuh"

constexpr int FAR_WARPS = 4;  // the warps of a block

// Shared memory of a warp.
template <class T>
struct Workspace {
    static constexpr int PARTS = 256;
    int counts[PARTS];
    int before, inside;
};

// Adds to the partials of tests the terms of the samples and replicates in Lists::far. Each warp processes some of
// them, one after the other. Grid (any), block (up to 32 FAR_WARPS).
template <class T, bool EMPTY, class Rule = Continuous>
__global__ void __launch_bounds__(32 * FAR_WARPS)
    estimate_far(const __grid_constant__ Sets<T> sets, const __grid_constant__ Tests tests,
                 const __grid_constant__ Lists<T> lists, const __grid_constant__ Columns<T> columns) {
    using Key = Wide<T>;
    using Space = Workspace<T>;
    constexpr int PARTS = Space::PARTS, NEAR = 4;
    constexpr int SELF = Rule::TIES ? 1 : 0;  // The counts that exclude the sample itself are smaller by this number.
    __shared__ Space spaces[FAR_WARPS];
    const Warp warp;
    const int own_warp = threadIdx.x / 32, warps = (blockDim.x + 31) / 32;
    Space& space = spaces[own_warp];
    const int n = sets.n, k = tests.k;
    const long long* psi = tests.psi;
    const unsigned count = *lists.counters;

    for (unsigned item = blockIdx.x * warps + own_warp; item < count; item += gridDim.x * warps) {
        const unsigned index = lists.far[item], test_and_sample = index / lists.replicates;
        const int replicate = index % lists.replicates, place = lists.first + test_and_sample % lists.samples,
                  test = test_and_sample / lists.samples;
        const Arranged<T> arranged(sets, lists, test);
        const Around<T, EMPTY, Rule> around(arranged, sets.level, place);
        const int set = tests.pairs[2ll * test];
        const T* values = columns.rows + (static_cast<long long>(set) * tests.replicates + replicate) * n;
        const T own = values[sets.sample(set, place)];
        const auto distance = [&](int b) -> Key { return distance_between<T, Rule>(own, values[sets.sample(set, b)]); };
        int first = 0, end = n;  // This finds the samples within a bound in S[0].
        const auto look_as_far_as = [&](Key key) {
            if constexpr (!EMPTY) {
                first = window_end<T, Rule>(arranged.of(0), n, place, key + 1ll, false);
                end = window_end<T, Rule>(arranged.of(0), n, place, key + 1ll, true);
            }
        };

        // The k-th joint distance is at least `from`; it is at most `to` if `certain` is true.
        const Header& header = *Neighbours<T, EMPTY>(lists, test, place).header;
        Key length = static_cast<Key>(header.last - 1) << header.shift;
        Key from = static_cast<Key>(header.low) + length, to = from;
        bool certain = false;
        const auto look_on = [&] {
            to = length < lists.widest - from ? from + length : static_cast<Key>(lists.widest);
            certain = to == lists.widest;
            look_as_far_as(to);
        };
        look_on();
        while (!certain || from < to) {
            const auto span = static_cast<unsigned long long>(to - from);
            const int shift = span < PARTS ? 0 : 64 - __clzll(static_cast<long long>(span / PARTS));
            for (int p = warp.thread; p < PARTS; p += warp.threads) space.counts[p] = 0;
            if (warp.thread == 0) space.before = space.inside = 0;
            warp.join();
            // This counts the keys below the interval, and those in it by parts of 2^shift keys.
            int nearer = 0, between = 0;
            around.each(first + warp.thread, end, warp.threads, distance, [&](int, Key x, Key y, Key) {
                const Key key = larger(x, y);
                nearer += key < from;
                if (key < from || key > to) return;
                atomicAdd(&space.counts[static_cast<int>((key - from) >> shift)], 1);
                ++between;
            });
            atomicAdd(&space.before, nearer);
            atomicAdd(&space.inside, between);
            warp.join();
            const int before = space.before - 1;  // The sample itself is excluded.
            certain = certain || before + space.inside >= k;
            if (!certain) {
                from = to + 1;
                length = to;
                look_on();
                warp.join();
                continue;
            }
            const int part = bin_with(k - before, space.counts, PARTS, warp);
            warp.join();
            from += static_cast<Key>(part) << shift;
            to = from + min((Key(1) << shift) - 1, to - from);
        }
        // If the radius is 0, samples at distance 0 count.
        const Key radius = Rule::TIES ? from + 1 : larger(from, Key(1));
        warp.join();
        if (warp.thread == 0) {
            for (int c = 0; c < NEAR; ++c) space.counts[c] = 0;
        }
        warp.join();
        look_as_far_as(from);
        int near[NEAR] = {};  // the counts in (V_i, S), (V_j, S), S and the joint space
        around.each(first + warp.thread, end, warp.threads, distance, [&](int, Key x, Key y, Key z) {
            near[0] += larger(x, z) < radius;
            near[1] += y < radius;
            near[2] += z < radius;
            near[3] += larger(x, y) < radius;
        });
        for (int c = 0; c < NEAR; ++c) atomicAdd(&space.counts[c], near[c]);
        warp.join();
        for (int c = 0; c < NEAR; ++c) near[c] = space.counts[c] - SELF;
        warp.join();
        if (warp.thread == 0) {
            const long long term = psi[near[0]] + psi[near[1]] - psi[near[2]] - (Rule::TIES ? psi[near[3]] : 0);
            atomicAdd(&tests.sums(test)[replicate], static_cast<unsigned long long>(term));
        }
    }
}
