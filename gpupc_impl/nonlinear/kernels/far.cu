// Computes the terms of those samples and replicates for which the lists of neighbours end too early (lists.cuh).
//
// For these, the k-th joint distance is beyond the range of the lists. A warp processes the samples that are near
// enough in S[0]. It counts joint distances in PARTS intervals of a range beyond the lists. While the k-th distance is
// not in that range, the warp continues with a range twice as long. Then it divides the interval that contains the k-th
// distance, until there are so few distances in that interval that they can be kept and the k-th can be selected. A
// last pass counts the samples within the radius.
#include "nonlinear/kernels/around.cuh"

constexpr int FAR_WARPS = 4;  // the warps of a block

// Shared memory of a warp.
template <class T>
struct Workspace {
    static constexpr int PARTS = 256, KEPT = 32;
    int counts[PARTS];
    Wide<T> keys[KEPT];
    int before, kept;
};

// Returns the k-th smallest of all keys. It is among the keys that a warp keeps, and `before` keys are smaller than
// these.
template <class T>
__device__ __forceinline__ Wide<T> kth_kept(const Workspace<T>& space, int k, int before, Wide<T> none,
                                            const Warp& warp) {
    const int kept = space.kept;
    bool chosen = false;
    Wide<T> key = none;
    if (warp.thread < kept) {
        key = space.keys[warp.thread];
        int less = before, up_to = before;
        for (int i = 0; i < kept; ++i) {
            less += space.keys[i] < key;
            up_to += space.keys[i] <= key;
        }
        chosen = less < k && k <= up_to;
    }
    return warp.broadcast(chosen, key);
}

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
        int inside = n;
        bool certain = false;
        const auto look_on = [&] {
            to = length < lists.widest - from ? from + length : static_cast<Key>(lists.widest);
            certain = to == lists.widest;
            look_as_far_as(to);
        };
        look_on();
        // One pass over the samples: counts the keys below the interval, and either counts the keys in it by parts of
        // 2^shift keys or, if `shift` is KEEP, keeps them.
        constexpr int KEEP = -1;
        int before = 0;
        const auto pass = [&](int shift) {
            int nearer = 0, between = 0;
            if (warp.thread == 0) space.before = space.kept = 0;
            warp.join();
            around.each(first + warp.thread, end, warp.threads, distance, [&](int, Key x, Key y, Key) {
                const Key key = larger(x, y);
                nearer += key < from;
                if (key < from || key > to) return;
                if (shift == KEEP) {
                    space.keys[atomicAdd(&space.kept, 1)] = key;
                } else {
                    atomicAdd(&space.counts[static_cast<int>((key - from) >> shift)], 1);
                    ++between;
                }
            });
            atomicAdd(&space.before, nearer);
            if (shift != KEEP) atomicAdd(&space.kept, between);
            warp.join();
            before = space.before - 1;  // The sample itself is excluded.
        };
        while (!certain || (from < to && inside > warp.threads)) {
            const auto span = static_cast<unsigned long long>(to - from);
            const int shift = span < PARTS ? 0 : 64 - __clzll(static_cast<long long>(span / PARTS));
            for (int p = warp.thread; p < PARTS; p += warp.threads) space.counts[p] = 0;
            pass(shift);
            certain = certain || before + space.kept >= k;
            if (!certain) {
                from = to + 1;
                length = to;
                look_on();
                warp.join();
                continue;
            }
            const Bin part = Bin::with(k - before, space.counts, PARTS, warp);
            warp.join();
            inside = part.inside;
            from += static_cast<Key>(part.index) << shift;
            to = from + min((Key(1) << shift) - 1, to - from);
        }
        if (from < to) {
            pass(KEEP);
            from = kth_kept<T>(space, k, before, from, warp);
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
