// Permutations of the values of V_i: local ones given S (GPU-CMIknn, Algorithms 1 and 3) and free ones (level 0). A
// local permutation gives each sample the value of one of its k nearest samples in the space of S, such that each value
// is used once as far as possible, so that the distribution of V_i given S is kept while its dependence on V_j is
// broken. The replicates of a set fill `rows`, (1 + perm, n) values: row 0 is V_i as observed, row m + 1 permutation m.
#include "nonlinear/kernels/philox.cuh"
#include "nonlinear/kernels/tests.cuh"

constexpr unsigned long long FREE = ~0ull;  // no sample has this priority
constexpr int PANEL = 32;                   // the replicates whose values `lay_side_by_side` transposes at a time
constexpr int FEW_NEAREST = 16;  // With list lengths up to this number, the order of a list fits into one number.

__device__ Key key_of(unsigned long long seed, const int* set, int level) {
    Key key;
    key.fold(static_cast<unsigned>(seed));
    key.fold(static_cast<unsigned>(seed >> 32));
    key.fold(set[0]);
    key.fold(level);
    for (int s = 1; s <= level; ++s) key.fold(set[s]);
    return key;
}

// Gathers the values of the members of S, and with `pairs` of V_j, so that other kernels read them contiguously.
// Grid (any, sets or tests), any block.
// pairs: those of the tests (Tests::pairs), or null for the sets themselves.
// order: (p, n) the samples in ascending order of each variable, to arrange them in the order of S[0]; or null.
// arranged: (sets or tests, level, or with `pairs` level + 1, n).
template <class T>
__global__ void arrange(const __grid_constant__ Sets<T> sets, const int* pairs, const int* order, T* arranged) {
    const int n = sets.n, level = sets.level, rows = pairs == nullptr ? level : level + 1;
    const int* pair = pairs == nullptr ? nullptr : pairs + 2ll * blockIdx.y;
    const int* set = sets.set(pair == nullptr ? blockIdx.y : pair[0]);
    if (order != nullptr) order += static_cast<long long>(set[1]) * n;
    arranged += static_cast<long long>(blockIdx.y) * rows * n;
    for (int place = blockIdx.x * blockDim.x + threadIdx.x; place < n; place += gridDim.x * blockDim.x) {
        const int b = order == nullptr ? place : order[place];
        for (int d = 0; d < rows; ++d) {
            arranged[static_cast<long long>(d) * n + place] = sets.of(d < level ? set[d + 1] : pair[1])[b];
        }
    }
}

// One sample's list of its k nearest others in the space of S, kept in ascending order of distance, then of `turn`.
template <class T, class Rule>
struct NearestList {
    using Key = KeyOf<T>;
    static constexpr Key NONE = Number<T>::LARGEST;  // the distance that marks an empty place
#ifdef GPUPC_HOST
    static constexpr int TILE = 64;
#else
    static constexpr int TILE = 8;
#endif

    const int* order;   // (n) samples by their position in the order of S[0]
    const T* arranged;  // (level, n) values of S in that order
    int n, level, k, a, own_place;
    Key* distances;  // (k), `stride` apart, as the samples are
    int* samples;
    int stride;
    Key farthest;  // the distance of the last entry

    // Samples at equal distances are compared by this number.
    __device__ __forceinline__ int turn_of(int b) const { return Rule::CYCLIC && b < a ? b + n : b; }
    __device__ __forceinline__ bool is_behind(int place, Key key, int turn) const {
        const Key other = distances[place * stride];
        return other > key || (other == key && samples[place * stride] > turn);
    }

    // Inserts the samples at some consecutive positions that are near enough. in_turn: among equal distances these
    // samples come after all that were examined before.
    __device__ __forceinline__ void look_at(int start, int width, bool in_turn) {
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
            int place = k - 1;
            if (!is_behind(place, tile[c], turn)) continue;
            for (; place > 0 && is_behind(place - 1, tile[c], turn); --place) {
                distances[place * stride] = distances[(place - 1) * stride];
                samples[place * stride] = samples[(place - 1) * stride];
            }
            distances[place * stride] = tile[c];
            samples[place * stride] = turn;
            farthest = distances[(k - 1) * stride];
        }
    }

    __device__ __forceinline__ bool may_be_near(int place) const {
        const Key distance = Rule::template separation<T>(arranged[own_place], arranged[place]);
        return distance <= farthest && distance != NONE;
    }
    __device__ __forceinline__ bool has_same(int place) const { return arranged[place] == arranged[own_place]; }

    // Moves first and end around own_place to the bounds of the samples with the same value of S[0].
    __device__ __forceinline__ void equal_range(int& first, int& end) const {
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
    }

    // Examines the samples with the same value of S[0] in ascending order of their turns, then those on both sides
    // until the next ones are too far in S[0] alone.
    __device__ __forceinline__ void search() {
        int first = own_place, end = own_place + 1;
        equal_range(first, end);
        for (int part = 0; part < 2; ++part) {
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
    }
};

// Finds the k nearest other samples of each sample in the space of S (Algorithm 3, lines 1-17), nearest first, equal
// distances in the order of the samples. A distance in S is at least that in S[0]. In the order of S[0] the search
// therefore proceeds outwards from the sample and ends when the distance in S[0] alone exceeds that of the k-th nearest
// so far. Under a CYCLIC rule, a list of fewer than k samples is repeated, and an empty one holds the sample itself.
// Each thread processes a sample. Grid (ceil(n / beta), sets), block (beta).
//
// arranged: the result of `arrange`, without `pairs`.
// knn: (sets, n, k) the lists.
// scratch: (sets, n, k) distances; null: distances and samples are in shared memory until the list is whole.
template <class T, class Rule = Continuous>
__global__ void nearest(const __grid_constant__ Sets<T> sets, const int* order, const T* arranged, int k, int* knn,
                        KeyOf<T>* scratch) {
    using Key = KeyOf<T>;
    using List = NearestList<T, Rule>;
    const int n = sets.n, level = sets.level;
    GPUPC_DYNAMIC_SHARED(unsigned char, shared);
    const int own_place = blockIdx.x * blockDim.x + threadIdx.x;
    if (own_place >= n) return;
    order += static_cast<long long>(sets.set(blockIdx.y)[1]) * n;
    arranged += static_cast<long long>(blockIdx.y) * level * n;
    const int a = order[own_place];
    int* own_knn = knn + (static_cast<long long>(blockIdx.y) * n + a) * k;
    Key* distances;
    int* samples = own_knn;
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
    for (int s = 0; s < k; ++s) distances[s * stride] = List::NONE;
    List list{order, arranged, n, level, k, a, own_place, distances, samples, stride, List::NONE};
    list.search();
    int length = k;
    if constexpr (Rule::CYCLIC) {
        length = 0;
        while (length < k && distances[length * stride] < List::NONE) ++length;
        for (int s = 0; s < length; ++s) samples[s * stride] %= n;
        if (length == 0) samples[length++] = a;
    }
    for (int s = length; s < k; ++s) samples[s * stride] = samples[(s - length) * stride];
    if (samples != own_knn) {
        for (int s = 0; s < k; ++s) own_knn[s] = samples[s * stride];
    }
}

// The lists of nearest samples, and the seed by which permutations shuffle them.
struct Shuffles {
    const int* knn;  // (sets, n, k)
    int k;
    unsigned long long seed;
};

// A sample's list of neighbours in the random order of one permutation, by a Fisher-Yates shuffle from the front that
// stops after the last sample that is taken. FEW: a list has at most FEW_NEAREST samples, and its order is kept in one
// number, 4 bits for each place; otherwise only the draws are kept, and the swaps are undone from these.
template <bool FEW>
struct Shuffled {
    static constexpr int KEPT = FEW ? 1 : 24;  // the number of draws that are kept; later ones are computed again

    Key key;
    const int* knn;  // (n, k)
    int k, permutation;
    int sample, next;
    const int* list;
    Words words;
    unsigned long long places;
    int drawn[KEPT];  // position y is swapped with drawn[y]

    __device__ Shuffled(const Key& key_, const int* knn_, int k_, int permutation_)
        : key(key_), knn(knn_), k(k_), permutation(permutation_) {}

    // Starts the list of a sample, and returns its priority.
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
            for (int t = y - 1; t >= 0; --t) {  // where the sample that is now at `place` was before the swaps
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

// Draws local permutations (Algorithm 1, lines 5-20): in ascending order of their priorities, each sample takes the
// first sample of its shuffled list that no other sample has taken. This sequential rule equals deferred acceptance
// (Gale and Shapley 1962) if every sample prefers the proposer of smallest priority: a sample that proposes displaces
// an owner of larger priority, which continues with the rest of its list. The outcome does not depend on the order of
// the proposals, so all threads may propose at once by atomicMin. Each block draws a permutation. Relies on shared
// memory or scratch of n words of 64 bits. FEW: k <= FEW_NEAREST. Grid (perm, sets), block (beta).
template <class T, bool FEW>
__global__ void __launch_bounds__(1024)
    assign(const __grid_constant__ Sets<T> sets, const __grid_constant__ Shuffles shuffles, unsigned long long* scratch,
           T* rows) {
    GPUPC_DYNAMIC_SHARED(unsigned long long, shared);
    const int m = blockIdx.x, perm = gridDim.x, n = sets.n, k = shuffles.k;
    const int* set = sets.set(blockIdx.y);
    const T* original = sets.of(set[0]);
    T* row = rows + (static_cast<long long>(blockIdx.y) * (perm + 1) + m + 1) * n;
    unsigned long long* owners =
        scratch == nullptr ? shared : scratch + (static_cast<long long>(blockIdx.y) * perm + m) * n;
    if (m == 0) {
        for (int a = threadIdx.x; a < n; a += blockDim.x) row[a - n] = original[a];
    }
    const int* knn = shuffles.knn + static_cast<long long>(blockIdx.y) * n * k;
    const Key key = key_of(shuffles.seed, set, sets.level);
    for (int a = threadIdx.x; a < n; a += blockDim.x) owners[a] = FREE;
    __syncthreads();
    Shuffled<FEW> shuffled(key, knn, k, m);
    for (int a = threadIdx.x; a < n; a += blockDim.x) {
        unsigned long long proposer = shuffled.start(a);
        for (;;) {
            const int requested = shuffled.take();
            const unsigned long long owner = atomicMin(&owners[requested], proposer);
            if (owner == FREE) break;
            if (owner > proposer) {  // The displaced owner continues after the sample that it lost.
                proposer = shuffled.start(sample_of(owner));
                while (shuffled.take() != requested) {
                }
            }
            if (shuffled.exhausted()) {
                // The last sample of the list is used although it is taken.
                row[shuffled.sample] = original[requested];
                break;
            }
        }
    }
    __syncthreads();
    for (int x = threadIdx.x; x < n; x += blockDim.x) {
        if (owners[x] != FREE) row[sample_of(owners[x])] = original[x];
    }
}

// Draws local permutations by Algorithm 3, lines 18-29, with another random generator: the first thread that requests a
// sample gets it, so the outcome changes from run to run. Each thread processes a sample in all permutations. Grid
// (ceil(n / beta), sets), block (beta). used: (sets, perm, n) zeros.
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
        int requested = shuffled.take();
        while (atomicCAS(&taken[requested], 0, 1) != 0 && !shuffled.exhausted()) requested = shuffled.take();
        row[a] = original[requested];
    }
}

// Draws the permutations of level 0: sample a gets the value of the sample with the a-th smallest priority. This is a
// sort of n random numbers. The leading bits of these numbers are uniform, so a bucket sort with n buckets puts about
// one into each, and insertion sorts within the buckets. Each block draws a permutation. Relies on shared memory or
// scratch of n + (n + 1) / 2 words of 64 bits. Grid (perm, sets), block (beta).
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
    // the position where the bucket begins; the next loop advances it to where the bucket ends
    for (int b = first; b < last; ++b) {
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

// Transposes the rows of each set into panels: the values of `panel` replicates lie side by side for each sample,
// samples in the order of the sets, one panel after another; replicates up to `stride` are zero. Tiles of shared memory
// make both sides coalesced. Each block transposes 32 samples in PANEL replicates. Grid (ceil(n / 32), stride / PANEL,
// sets), any block.
// rows: (sets, replicates, n).
// columns: (sets, stride / panel, n, panel), where panel is `stride`, PANEL or a part of it.
template <class T>
__global__ void lay_side_by_side(const __grid_constant__ Sets<T> sets, const T* rows, int replicates, int stride,
                                 int panel, T* columns) {
    __shared__ T tile[PANEL][PANEL + 1];
    const int b0 = blockIdx.x * PANEL, replicate0 = blockIdx.y * PANEL, n = sets.n;
    rows += static_cast<long long>(blockIdx.z) * replicates * n;
    columns += static_cast<long long>(blockIdx.z) * n * stride;
    for (int r = 0; r < PANEL; ++r) {
        for (int t = threadIdx.x; t < PANEL; t += blockDim.x) {
            const bool exists = replicate0 + r < replicates && b0 + t < n;
            const long long row = static_cast<long long>(replicate0 + r) * n;
            tile[r][t] = exists ? rows[row + sets.sample(blockIdx.z, b0 + t)] : T(0);
        }
    }
    __syncthreads();
    for (int b = 0; b < PANEL && b0 + b < n; ++b) {
        for (int t = threadIdx.x; t < PANEL && replicate0 + t < stride; t += blockDim.x) {
            const int replicate = replicate0 + t, place = replicate % panel;
            columns[static_cast<long long>(replicate - place) * n + static_cast<long long>(b0 + b) * panel + place] =
                tile[t][b];
        }
    }
}
