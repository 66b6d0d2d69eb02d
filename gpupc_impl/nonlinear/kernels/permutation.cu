// Permutations of the values of V_i: local ones given S (GPU-CMIknn, Algorithms 1 and 3) and free ones (level 0).
//
// A set's permutations fill `rows`: (1 + perm, n) values, row 0 those of V_i itself.
#include "nonlinear/kernels/philox.cuh"
#include "nonlinear/kernels/tests.cuh"
#include "nonlinear/kernels/warp.cuh"

constexpr unsigned long long FREE = ~0ull;  // no sample has this priority

__device__ Key key_of(unsigned long long seed, const int* set, int level) {
    Key key;
    key.fold(static_cast<unsigned>(seed));
    key.fold(static_cast<unsigned>(seed >> 32));
    key.fold(set[0]);
    key.fold(level);
    for (int s = 1; s <= level; ++s) key.fold(set[s]);
    return key;
}

// The values of the members of S in the order of S[0], (sets, level, n). order: (p, n) the samples in ascending order
// of each variable. Grid (any, sets), any block.
template <class T>
__global__ void arrange_members(const __grid_constant__ Sets<T> sets, const int* order, T* arranged) {
    const int n = sets.n, level = sets.level;
    const int* members = sets.set(blockIdx.y) + 1;
    order += static_cast<long long>(members[0]) * n;
    arranged += static_cast<long long>(blockIdx.y) * level * n;
    for (int place = blockIdx.x * blockDim.x + threadIdx.x; place < n; place += gridDim.x * blockDim.x) {
        const int b = order[place];
        for (int s = 0; s < level; ++s) arranged[static_cast<long long>(s) * n + place] = sets.of(members[s])[b];
    }
}

// Algorithm 3, lines 1-17: the k nearest other samples of each sample in the space of S, nearest first, equal distances
// in the order of the samples. A thread a sample; its list is in shared memory, or where there is no room in `scratch`.
// No sample is nearer in S than in S[0], so a thread looks at those with the same value there, and to both sides in the
// order of S[0] until all others are too far there. Under a CYCLIC rule the order of the samples begins behind the
// sample, and a list of fewer than k is repeated; one of none has the sample itself. `arranged` is made by
// arrange_members. Grid (ceil(n / beta), sets), block (beta).
template <class T, class Rule = Continuous>
__global__ void nearest(const __grid_constant__ Sets<T> sets, const int* order, const T* arranged, int k, int* knn,
                        KeyOf<T>* scratch) {
    using Key = KeyOf<T>;
    constexpr Key NONE = Number<T>::LARGEST;
    const int n = sets.n, level = sets.level;
#ifdef GPUPC_HOST
    constexpr int TILE = 64;
#else
    constexpr int TILE = 8;
#endif
    GPUPC_DYNAMIC_SHARED(unsigned char, shared);
    const int own_place = blockIdx.x * blockDim.x + threadIdx.x;
    if (own_place >= n) return;
    order += static_cast<long long>(sets.set(blockIdx.y)[1]) * n;
    arranged += static_cast<long long>(blockIdx.y) * level * n;
    const int a = order[own_place];
    int* found = knn + (static_cast<long long>(blockIdx.y) * n + a) * k;
    Key* distances;
    int* samples = found;
    int stride = 1;
    if (scratch == nullptr) {
#ifdef GPUPC_HOST
        const int own = threadIdx.x * k;
#else
        const int own = threadIdx.x;
        stride = blockDim.x;
#endif
        distances = reinterpret_cast<Key*>(shared) + own;
        samples = reinterpret_cast<int*>(shared + sizeof(long long) * ((blockDim.x * k * sizeof(Key) + 7) / 8)) + own;
    } else {
        distances = scratch + (static_cast<long long>(blockIdx.y) * n + a) * k;
    }
    // Samples as equal distances are ordered by.
    const auto turn_of = [&](int b) { return Rule::CYCLIC && b < a ? b + n : b; };
    for (int s = 0; s < k; ++s) distances[s * stride] = NONE;
    Key farthest = NONE;
    // in_turn: all that were looked at before come before these where distances are equal.
    const auto look_at = [&](int start, int width, bool in_turn) {
        Key tile[TILE];
#pragma unroll
        for (int c = 0; c < TILE; ++c) tile[c] = c < width ? Key(0) : NONE;
        for (int s = 0; s < level; ++s) {
            const T* v = arranged + static_cast<long long>(s) * n;
            const T own = v[own_place];
            if (width == TILE) {
#pragma unroll
                for (int c = 0; c < TILE; ++c)
                    tile[c] = larger(tile[c], Rule::template separation<T>(own, v[start + c]));
            } else {
#pragma unroll
                for (int c = 0; c < TILE; ++c)
                    if (c < width) tile[c] = larger(tile[c], Rule::template separation<T>(own, v[start + c]));
            }
        }
        Key least = NONE;
#pragma unroll
        for (int c = 0; c < TILE; ++c) least = tile[c] < least ? tile[c] : least;
        const auto is_far = [&](Key key) { return key > farthest || key == NONE || (in_turn && key == farthest); };
        if (is_far(least)) return;
#pragma unroll
        for (int c = 0; c < TILE; ++c) {
            if (is_far(tile[c])) continue;
            const int turn = turn_of(order[start + c]);
            const auto is_behind = [&](int place) {
                const Key other = distances[place * stride];
                return other > tile[c] || (other == tile[c] && samples[place * stride] > turn);
            };
            int place = k - 1;
            if (!is_behind(place)) continue;
            for (; place > 0 && is_behind(place - 1); --place) {
                distances[place * stride] = distances[(place - 1) * stride];
                samples[place * stride] = samples[(place - 1) * stride];
            }
            distances[place * stride] = tile[c];
            samples[place * stride] = turn;
            farthest = distances[(k - 1) * stride];
        }
    };
    const auto may_be_near = [&](int place) {
        const Key apart = Rule::template separation<T>(arranged[own_place], arranged[place]);
        return apart <= farthest && apart != NONE;
    };
    const auto has_same = [&](int place) { return arranged[place] == arranged[own_place]; };
    int first = own_place, end = own_place + 1;  // those between have the same value, or have been looked at
    if (first > 0 && has_same(first - 1)) {
        for (int below = -1; first - below > 1;) {
            const int middle = (below + first) / 2;
            (has_same(middle) ? first : below) = middle;
        }
    }
    if (end < n && has_same(end)) {
        for (int above = n; above - end > 0;) {
            const int middle = (end + above) / 2;
            if (has_same(middle)) {
                end = middle + 1;
            } else {
                above = middle;
            }
        }
    }
    for (int part = 0; part < 2; ++part) {  // in the order of the samples, or of what follows on this one
        const bool below = Rule::CYCLIC ? part == 1 : part == 0;
        const int last = below ? own_place : end;
        for (int start = below ? first : own_place + 1; start < last; start += TILE) {
            look_at(start, min(TILE, last - start), true);
        }
    }
    for (bool above = true, below = true; above || below;) {
        above = end < n && may_be_near(end);
        if (above) {
            const int width = min(TILE, n - end);
            look_at(end, width, false);
            end += width;
        }
        below = first > 0 && may_be_near(first - 1);
        if (below) {
            const int width = min(TILE, first);
            first -= width;
            look_at(first, width, false);
        }
    }
    int length = k;
    if constexpr (Rule::CYCLIC) {
        length = 0;
        while (length < k && distances[length * stride] < NONE) ++length;
        for (int s = 0; s < length; ++s) samples[s * stride] %= n;
        if (length == 0) samples[length++] = a;
    }
    for (int s = length; s < k; ++s) samples[s * stride] = samples[(s - length) * stride];
    if (samples != found) {
        for (int s = 0; s < k; ++s) found[s] = samples[s * stride];
    }
}

// What shuffles the lists of nearest samples.
struct Shuffles {
    const int* knn;  // (sets, n, k)
    int k;
    unsigned long long seed;
};

// A sample's list of neighbours in the random order of one permutation, made as far as it is looked at: a Fisher-Yates
// shuffle from the front. FEW, where a list has at most 16 samples: their places in a number, 4 bits each; else only
// the draws are kept.
template <bool FEW>
struct Shuffled {
    static constexpr int KEPT = FEW ? 1 : 24;

    Key key;
    const int* knn;  // (n, k)
    int k, permutation;
    int sample, next;
    const int* list;
    Words words;
    unsigned long long places;
    int drawn[KEPT];  // the first draws: position y is swapped with drawn[y]

    __device__ Shuffled(const Key& key_, const int* knn_, int k_, int permutation_)
        : key(key_), knn(knn_), k(k_), permutation(permutation_) {}

    // Begins with a sample, whose priority is returned.
    __device__ __forceinline__ unsigned long long start(int sample_) {
        sample = sample_;
        next = 0;
        list = knn + static_cast<long long>(sample) * k;
        places = 0xfedcba9876543210ull;
        words = key.words(sample, permutation, 0);
        return priority(words, sample);
    }

    __device__ __forceinline__ bool exhausted() const { return next == k; }

    // The list's next sample.
    __device__ __forceinline__ int take() {
        const int y = next++;
        const int word = 2 + y;
        if (word % 4 == 0) words = key.words(sample, permutation, word / 4);
        int place = y + static_cast<int>(__umulhi(select(words, word % 4), k - y));
        if constexpr (FEW) {
            const auto taken = places >> (4 * place) & 15, moved = places >> (4 * y) & 15;
            places ^= (taken ^ moved) << (4 * place);
            return list[taken];
        } else {
            const int last = place;
            for (int t = y - 1; t >= 0; --t) {  // where the sample at `place` was before the swaps
                if (place == draw(t)) place = t;
            }
            if (y < KEPT) drawn[y] = last;
            return list[place];
        }
    }

 private:
    static __device__ __forceinline__ unsigned select(const Words& words, int i) {
        return i < 2 ? (i == 0 ? words.w[0] : words.w[1]) : (i == 2 ? words.w[2] : words.w[3]);
    }

    __device__ __forceinline__ int draw(int t) const {
        if (t < KEPT) return drawn[t];
        return t + static_cast<int>(__umulhi(select(key.words(sample, permutation, (2 + t) / 4), (2 + t) % 4), k - t));
    }
};

constexpr int BY_PRIORITY = 256;  // buckets of priorities, by their leading bits

// Algorithm 1, lines 5-20, for one permutation a block: samples in the order of their priorities each take the first
// sample of their shuffled list that nobody took. In parallel: a sample that asks with a smaller priority than the
// owner's displaces the owner, which goes on with its list from there. The outcome does not depend on who asks when
// (Gale and Shapley 1962, all preferring the same order); so that few are displaced, they ask about in the order of
// their priorities where this is `ordered`, of up to 2^16 samples. Shared memory or scratch: n words of 64 bits, if
// ordered (n + 3) / 4 more. FEW: k <= 16. Grid (perm, sets), block (beta).
template <class T, bool FEW>
__global__ void __launch_bounds__(1024)
    assign(const __grid_constant__ Sets<T> sets, const __grid_constant__ Shuffles shuffles, unsigned long long* scratch,
           bool ordered, T* rows) {
    GPUPC_DYNAMIC_SHARED(unsigned long long, shared);
    __shared__ int ends[BY_PRIORITY];
    const int m = blockIdx.x, perm = gridDim.x, n = sets.n, k = shuffles.k;
    const long long words = n + (ordered ? (n + 3ll) / 4 : 0);
    const int* set = sets.set(blockIdx.y);
    const T* original = sets.of(set[0]);
    T* row = rows + (static_cast<long long>(blockIdx.y) * (perm + 1) + m + 1) * n;
    unsigned long long* owners =
        scratch == nullptr ? shared : scratch + (static_cast<long long>(blockIdx.y) * perm + m) * words;
    unsigned short* order = reinterpret_cast<unsigned short*>(owners + n);
    if (m == 0) {
        for (int a = threadIdx.x; a < n; a += blockDim.x) row[a - n] = original[a];
    }
    const int* knn = shuffles.knn + static_cast<long long>(blockIdx.y) * n * k;
    const Key key = key_of(shuffles.seed, set, sets.level);
    if (ordered) {  // priorities wait where owners will be
        const auto bucket_of = [](unsigned long long priority) {
            return static_cast<int>(priority / (~0ull / BY_PRIORITY + 1));
        };
        for (int b = threadIdx.x; b < BY_PRIORITY; b += blockDim.x) ends[b] = 0;
        __syncthreads();
        for (int a = threadIdx.x; a < n; a += blockDim.x) {
            owners[a] = priority(key.words(a, m, 0), a);
            atomicAdd(&ends[bucket_of(owners[a])], 1);
        }
        __syncthreads();
        if (threadIdx.x < 32) {  // now where each bucket begins; the next pass moves it to where it ends
            const Warp warp;
            const int width = (BY_PRIORITY + warp.threads - 1) / warp.threads;
            const int first = min(warp.thread * width, BY_PRIORITY), last = min(first + width, BY_PRIORITY);
            int sum = 0;
            for (int b = first; b < last; ++b) sum += ends[b];
            sum = warp.sum_before(sum);
            for (int b = first; b < last; ++b) {
                const int count = ends[b];
                ends[b] = sum;
                sum += count;
            }
        }
        __syncthreads();
        for (int a = threadIdx.x; a < n; a += blockDim.x) {
            order[atomicAdd(&ends[bucket_of(owners[a])], 1)] = static_cast<unsigned short>(a);
        }
        __syncthreads();
    }
    for (int a = threadIdx.x; a < n; a += blockDim.x) owners[a] = FREE;
    __syncthreads();
    Shuffled<FEW> shuffled(key, knn, k, m);
    for (int turn = threadIdx.x; turn < n; turn += blockDim.x) {
        unsigned long long asking = shuffled.start(ordered ? order[turn] : turn);
        for (;;) {
            const int wanted = shuffled.take();
            const unsigned long long owner = atomicMin(&owners[wanted], asking);
            if (owner == FREE) break;
            if (owner > asking) {  // displaced: it goes on behind `wanted`
                asking = shuffled.start(sample_of(owner));
                while (shuffled.take() != wanted) {
                }
            }
            if (shuffled.exhausted()) {
                row[shuffled.sample] = original[wanted];  // the last of the list, although another has it
                break;
            }
        }
    }
    __syncthreads();
    for (int x = threadIdx.x; x < n; x += blockDim.x) {
        if (owners[x] != FREE) row[sample_of(owners[x])] = original[x];
    }
}

// Algorithm 3, lines 18-29, to the letter except for the generator: a thread a sample, for all permutations. The first
// thread to come takes a sample, so the outcome changes from run to run. used: (sets, perm, n) zeros.
// Grid (ceil(n / beta), sets), block (beta).
template <class T>
__global__ void assign_racing(const __grid_constant__ Sets<T> sets, const __grid_constant__ Shuffles shuffles, int perm,
                              int* used, T* rows) {
    const int a = blockIdx.x * blockDim.x + threadIdx.x, n = sets.n, k = shuffles.k;
    if (a >= n) return;
    const int* set = sets.set(blockIdx.y);
    const T* original = sets.of(set[0]);
    const int* knn = shuffles.knn + static_cast<long long>(blockIdx.y) * n * k;
    const Key key = key_of(shuffles.seed, set, sets.level);
    T* row = rows + static_cast<long long>(blockIdx.y) * (perm + 1) * n;
    row[a] = original[a];
    for (int m = 0; m < perm; ++m) {
        row += n;
        Shuffled<false> shuffled(key, knn, k, m);
        shuffled.start(a);
        int* taken = used + (static_cast<long long>(blockIdx.y) * perm + m) * n;
        int wanted = shuffled.take();
        while (atomicCAS(&taken[wanted], 0, 1) != 0 && !shuffled.exhausted()) wanted = shuffled.take();
        row[a] = original[wanted];
    }
}

// Level 0: permutation m gives sample a the value of the sample with the a-th smallest priority. A block sorts the
// priorities by their leading bits, which are uniform: about one falls into a bucket, and buckets are put in order one
// by one. Shared memory or scratch: n + (n + 1) / 2 words of 64 bits. Grid (perm, sets), block (beta).
template <class T>
__global__ void permute_freely(const __grid_constant__ Sets<T> sets, unsigned long long seed,
                               unsigned long long* scratch, T* rows) {
    GPUPC_DYNAMIC_SHARED(unsigned long long, shared);
    __shared__ int sums[1024];
    const int m = blockIdx.x, perm = gridDim.x, thread = threadIdx.x, n = sets.n;
    const int* set = sets.set(blockIdx.y);
    const T* original = sets.of(set[0]);
    T* row = rows + (static_cast<long long>(blockIdx.y) * (perm + 1) + m + 1) * n;
    unsigned long long* sorted =
        scratch == nullptr ? shared : scratch + (static_cast<long long>(blockIdx.y) * perm + m) * (n + (n + 1) / 2);
    int* ends = reinterpret_cast<int*>(sorted + n);
    const Key key = key_of(seed, set, 0);
    for (int a = thread; a < n; a += blockDim.x) {
        ends[a] = 0;
        if (m == 0) row[a - n] = original[a];
    }
    __syncthreads();
    for (int a = thread; a < n; a += blockDim.x) atomicAdd(&ends[__umulhi(key.words(a, m, 0).w[0], n)], 1);
    __syncthreads();
    const int width = (n + blockDim.x - 1) / blockDim.x;
    const int first = min(thread * width, n), last = min(first + width, n);
    int sum = 0;
    for (int b = first; b < last; ++b) sum += ends[b];
    sums[thread] = sum;
    __syncthreads();
    int before = 0;
    for (int t = 0; t < thread; ++t) before += sums[t];
    for (int b = first; b < last; ++b) {  // now where the bucket begins; the next pass moves it to where it ends
        const int count = ends[b];
        ends[b] = before;
        before += count;
    }
    __syncthreads();
    for (int a = thread; a < n; a += blockDim.x) {
        const Words words = key.words(a, m, 0);
        sorted[atomicAdd(&ends[__umulhi(words.w[0], n)], 1)] = priority(words, a);
    }
    __syncthreads();
    for (int b = thread; b < n; b += blockDim.x) {
        const int begin = b == 0 ? 0 : ends[b - 1];
        for (int i = begin + 1; i < ends[b]; ++i) {
            const unsigned long long moved = sorted[i];
            int place = i;
            for (; place > begin && sorted[place - 1] > moved; --place) sorted[place] = sorted[place - 1];
            sorted[place] = moved;
        }
    }
    __syncthreads();
    for (int a = thread; a < n; a += blockDim.x) row[a] = original[sample_of(sorted[a])];
}

// The rows of each set as columns: of rows[lane * n + b] for lane <= perm, and zero up to stride, `together` lanes lie
// side by side, all or a part of 32, at columns[lane / together * together * n + b * together + lane % together], the
// samples in the order of the sets. Grid (ceil(n / 32), ceil(stride / 32), sets), any block.
template <class T>
__global__ void lay_side_by_side(const __grid_constant__ Sets<T> sets, const T* rows, int lanes, int stride,
                                 int together, T* columns) {
    __shared__ T tile[32][33];
    const int b0 = blockIdx.x * 32, lane0 = blockIdx.y * 32, n = sets.n;
    rows += static_cast<long long>(blockIdx.z) * lanes * n;
    columns += static_cast<long long>(blockIdx.z) * n * stride;
    for (int l = 0; l < 32; ++l) {
        for (int t = threadIdx.x; t < 32; t += blockDim.x) {
            const bool there = lane0 + l < lanes && b0 + t < n;
            const long long row = static_cast<long long>(lane0 + l) * n;
            tile[l][t] = there ? rows[row + sets.sample(blockIdx.z, b0 + t)] : T(0);
        }
    }
    __syncthreads();
    for (int b = 0; b < 32 && b0 + b < n; ++b) {
        for (int t = threadIdx.x; t < 32 && lane0 + t < stride; t += blockDim.x) {
            const int lane = lane0 + t, beside = lane % together;
            columns[static_cast<long long>(lane - beside) * n + static_cast<long long>(b0 + b) * together + beside] =
                tile[t][b];
        }
    }
}
