// Makes the lists of neighbours (lists.cuh) that the kernels of tests read. A histogram of the keys in (V_j, S) with
// FINE buckets determines which keys the k-th joint distance can have: it is at least the k-th key, and most probably
// at most that of the neighbour of rank `reach`. A counting sort by buckets of that range makes the lists.
#include "nonlinear/kernels/around.cuh"

constexpr int FINE = 256;  // the buckets of the histogram

// Shared memory of a block that makes the lists of one sample.
template <int LISTS>
struct ListState {
    int fine[FINE];
    int counts[LISTS][BINS];  // the counts of the buckets, and later the position of the next entry of each
    int shift, last;          // Header::shift and Header::last
    int window[2];            // the bounds in the order of S[0] of the samples that are near enough to be listed
    long long low;            // Header::low
    bool complete;            // whether all samples on which the range depends were examined
};

// Sets the range of the buckets from the samples examined so far, and the window of the samples that may be in it.
// Returns the key below which there are at least `reach` samples. The threads of a warp call this.
template <class T, class Rule, bool EMPTY, int LISTS>
__device__ __forceinline__ long long set_range(ListState<LISTS>& state, const Lists<T>& lists,
                                               const Arranged<T>& values, int k, int a) {
    const Warp warp;
    const long long with_k = bin_with(k, state.fine, FINE, warp);
    const long long with_all = bin_with(lists.reach, state.fine, FINE, warp);
    const Wide<T> fine_low = lists.fine_low;
    const long long from = with_k == 0 ? 0 : fine_low + (with_k << lists.fine_shift);
    const long long to = fine_low + ((with_all + 1) << lists.fine_shift), span = to - from;
    const int width = span < BINS - 2 ? 0 : 64 - __clzll(span / (BINS - 2));
    const int buckets = min(static_cast<int>((span - 1) >> width) + 1, BINS - 2);
    if (threadIdx.x == 0) {
        state.low = from;
        state.shift = width;
        state.last = 1 + buckets;
    }
    constexpr long long MOST = Number<T>::LARGEST;  // The upper end of the range is clamped, because no key is LARGEST.
    const bool beyond = width >= 58 || (static_cast<long long>(buckets) << width) > MOST - from;
    const long long bound = beyond ? MOST : from + (static_cast<long long>(buckets) << width);
    for (int side = threadIdx.x; side < 2; side += warp.threads) {
        state.window[side] = EMPTY ? side * values.n : window_end<T, Rule>(values.of(0), values.n, a, bound, side == 1);
    }
    return to;
}

// Exclusive prefix sums of the buckets' counts: fills the header, and pads the lists. The threads of a warp call this.
template <class T, bool EMPTY, int LISTS>
__device__ __forceinline__ void write_header(ListState<LISTS>& state, const Neighbours<T, EMPTY>& here,
                                             Entry<T>* const (&entries)[LISTS], Wide<T> low) {
    const Warp warp;
    const int width = (BINS + warp.threads - 1) / warp.threads;
    const int from = min(static_cast<int>(threadIdx.x) * width, BINS), to = min(from + width, BINS);
    for (int l = 0; l < LISTS; ++l) {
        int own = 0;
        for (int bin = from; bin < to; ++bin) own += state.counts[l][bin];
        int start = warp.sum_before(own);
        for (int bin = from; bin < to; ++bin) {
            const int count = state.counts[l][bin];
            here.header->starts[l][bin] = state.counts[l][bin] = start;
            start += count;
        }
        if (from < to && to == BINS) {  // The list ends here.
            here.header->starts[l][BINS] = start;
            for (; start % ENTRIES != 0; ++start) entries[l][start] = Entry<T>::of(0, Number<T>::LARGEST);
        }
    }
    if (threadIdx.x == 0) {
        here.header->low = low;
        here.header->shift = state.shift;
        here.header->last = state.last;
    }
}

// Makes the lists of a sample of a test. EMPTY: level 0, without a list for S. The histogram is first of `near` samples
// on either side in the order of S[0], which mostly suffice, then of others that may be near enough. A second pass
// counts each bucket's samples, a third places them. A block has a sample. Grid (samples, tests), any block.
template <class T, bool EMPTY, class Rule = Continuous>
__global__ void list_neighbours(const __grid_constant__ Sets<T> sets, const __grid_constant__ Tests tests,
                                const __grid_constant__ Lists<T> lists) {
    using Key = Wide<T>;
    using Here = Neighbours<T, EMPTY>;
    constexpr int LISTS = Here::LISTS;
    __shared__ ListState<LISTS> state;
    const int thread = threadIdx.x, threads = blockDim.x, n = sets.n;
    const int a = lists.first + blockIdx.x;
    const Here here(lists, blockIdx.y, a);
    const Arranged<T> values(sets, lists, blockIdx.y);
    const Around<T, EMPTY, Rule> around(values, sets.level, a);

    for (int bin = thread; bin < FINE; bin += threads) state.fine[bin] = 0;
    for (int bin = thread; bin < BINS; bin += threads) {
        for (int l = 0; l < LISTS; ++l) state.counts[l][bin] = 0;
    }
    __syncthreads();
    const Key fine_low = lists.fine_low;
    const int first = EMPTY ? 0 : max(a - lists.near, 0), end = EMPTY ? n : min(a + lists.near + 1, n);
    const auto look_at = [&](int from, int to) {
        around.each_other(from, to, [&](int, Key y, Key) {
            atomicAdd(&state.fine[(larger(y, fine_low) - fine_low) >> lists.fine_shift], 1);
        });
        __syncthreads();
    };
    look_at(first, end);
    if (thread < 32) {
        const long long enough = set_range<T, Rule, EMPTY>(state, lists, values, tests.k, a);
        const T* by = values.of(0);
        const auto is_far = [&](int b) { return distance_between<T, Rule>(by[a], by[b]) >= enough; };
        if (thread == 0) state.complete = (first == 0 || is_far(first - 1)) && (end == n || is_far(end));
    }
    __syncthreads();
    if (!state.complete) {
        look_at(state.window[0], first);
        look_at(end, state.window[1]);
        if (thread < 32) set_range<T, Rule, EMPTY>(state, lists, values, tests.k, a);
        __syncthreads();
    }
    const int shift = state.shift, last = state.last;
    const auto low = static_cast<Key>(state.low), least = low > 0 ? low - 1 : Key(0);

    // The key that an entry has in a list.
    const auto key_in = [&](int list, Key y, Key z) { return larger(list == 0 ? y : z, least); };
    const auto is_listed = [&](int bin) { return bin < last; };
    around.each_other(state.window[0], state.window[1], [&](int, Key y, Key z) {
        for (int l = 0; l < LISTS; ++l) {
            const int bin = bin_of(key_in(l, y, z), low, shift);
            if (is_listed(bin)) atomicAdd(&state.counts[l][bin], 1);
        }
    });
    __syncthreads();
    Entry<T>* entries[LISTS];
    for (int l = 0; l < LISTS; ++l) entries[l] = here.lists[l]->of;
    if (thread < 32) write_header<T, EMPTY>(state, here, entries, low);
    __syncthreads();
    around.each_other(state.window[0], state.window[1], [&](int b, Key y, Key z) {
        for (int l = 0; l < LISTS; ++l) {
            const Key key = key_in(l, y, z);
            const int bin = bin_of(key, low, shift);
            if (is_listed(bin)) entries[l][atomicAdd(&state.counts[l][bin], 1)] = Entry<T>::of(b, key);
        }
    });
}
