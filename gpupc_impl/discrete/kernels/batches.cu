// Levels from 1 on, many tests of an edge at a time: a batch, whose sets share all members but the last. The tables of
// a batch are one product of bit matrices for each stratum of the common members. A row of the product is a category of
// Vi and one of Vj within the stratum, a column is a category of a last member, and an entry, the number of samples
// that have both, is a cell of that member's table. The planes of Vi, Vj and the common members are thus combined once
// for all tests of the batch, and tensor cores do the counting. Consecutive sets in lexicographic order form a batch.
//
// A crew (a warp or a whole block) makes the batches of an edge one after the other. Each lane decides one test of the
// batch, and in the product it holds the entries that the tensor core assigns to it. The terms of a statistic are added
// in the same order as those of a table (statistic.cuh).
#include "discrete/kernels/batches.cuh"

#include "discrete/kernels/bit_product.cuh"
#include "discrete/kernels/level.cuh"
#include "engine/kernels/warp.cuh"

constexpr int MAX_COLUMNS = 64, MAX_STRATA = 4;  // the strata of a batch that are counted at once

// The warps that make a batch: one warp or, if there are few edges, all warps of a block, which share the samples.
template <bool BLOCK_AN_EDGE>
struct Crew {
    __device__ __forceinline__ static int part() { return BLOCK_AN_EDGE ? warp_index() : 0; }
    __device__ __forceinline__ static int parts() { return BLOCK_AN_EDGE ? warp_count() : 1; }

    // Waits for all warps of the crew; their earlier writes are then visible to all of them.
    __device__ __forceinline__ static void join() {
        if (BLOCK_AN_EDGE) {
            __syncthreads();
        } else {
            join_lanes();
        }
    }

    // Calls f(k) for all k < count; one lane of the crew makes each call.
    template <class F>
    __device__ __forceinline__ static void share_out(int count, F f) {
        each_lane(LANES, [&](int lane) {
            for (int k = part() * LANES + lane; k < count; k += parts() * LANES) f(k);
        });
    }

    // Stores the count of a crew of one warp, or adds a warp's count to the total of a larger crew, zero at first.
    __device__ __forceinline__ static void put(unsigned& count, unsigned sum) {
        if (!BLOCK_AN_EDGE) {
            count = sum;
        } else if (sum != 0) {
            atomicAdd(&count, sum);
        }
    }
};

// A crew's shared memory, whose size discrete/batches.py computes (batch_doubles).
struct Room {
    double* parts;           // for each test, the terms of the strata in its statistic
    unsigned long long* df;  // (LANES) adjusted degrees of freedom of the tests
    int* planes;             // (MAX_COLUMNS) the plane of each column
    int* tests;              // (MAX_COLUMNS) the test of each column
    // (level + 1) the common members, the position of the first last member, whether there is a batch
    int* members;
    int* strata;       // (MAX_STRATA, level - 1) planes of the common members, for each stratum that is counted
    unsigned* counts;  // the same for the strata that are counted

    __device__ __forceinline__ Room(double* shared, const Batches& batches, int level)
        : parts(shared),
          df(reinterpret_cast<unsigned long long*>(parts + batches.parts)),
          planes(reinterpret_cast<int*>(df + LANES)),
          tests(planes + MAX_COLUMNS),
          members(tests + MAX_COLUMNS),
          strata(members + level + 1),
          counts(reinterpret_cast<unsigned*>(strata + MAX_STRATA * (level - 1))) {}
};

// What the tests of a batch share.
struct Common {
    Shape shape;  // the table of Vi and Vj, with the strata of the common members
    int members;  // number of common members
    int at_once;  // the number of strata that are counted at once
    int columns;  // the number of categories of the last members of all tests

    // Returns whether the cells of a stratum, of Vi and Vj, fit into the rows of a tensor core tile.
    __device__ __forceinline__ bool in_a_tile() const { return shape.rows * shape.columns <= ROWS; }
};

#ifdef GPUPC_HOST

// Counts `at_once` strata in all columns: counts[(x * at_once + m) * stride + a * columns + b] is the number of samples
// in column x and stratum m with category a of Vi and b of Vj. For a crew of several warps all counts are zero before.
template <class Crew>
void count_batch(const Variables& variables, const Common& common, const Room& room) {
    const Shape& shape = common.shape;
    const int stride = Batches::stride(shape);
    for (int m = 0; m < common.at_once; ++m) {
        Stratum stratum;
        stratum.level = 0;
        stratum.words = variables.words;
        const int* const planes = room.strata + m * common.members;
        for (int cell = 0; cell < shape.rows * shape.columns; ++cell) {
            const unsigned long long* const row = variables.plane(shape.low, cell / shape.columns);
            const unsigned long long* const column = variables.plane(shape.high, cell % shape.columns);
            for (int x = 0; x < common.columns; ++x) {
                const unsigned long long* const last = variables.plane(room.planes[x]);
                Counts sum = {};
                for (int w = Crew::part() * WORDS_AT_ONCE; w < variables.words; w += Crew::parts() * WORDS_AT_ONCE) {
                    Bits samples = Stratum::load(row + w) & Stratum::load(column + w) & Stratum::load(last + w);
                    for (int a = 0; a < common.members; ++a) {
                        samples &= Stratum::load(variables.plane(planes[a]) + w);
                    }
                    sum += count_bits(samples);
                }
                Crew::put(room.counts[(x * common.at_once + m) * stride + cell], sum_parts(sum));
            }
        }
    }
}

#else

// The bits of 128 samples.
struct __align__(16) Pair {
    unsigned long long first, second;

    __device__ __forceinline__ friend Pair operator&(const Pair& x, const Pair& y) {
        return {x.first & y.first, x.second & y.second};
    }
};

// Adds the products of two rows with the columns of ACROSS tiles.
template <int ACROSS>
__device__ __forceinline__ void add_products(unsigned (&sums)[ACROSS][4], Pair above, Pair under,
                                             const Pair (&columns)[ACROSS]) {
#pragma unroll
    for (int n = 0; n < ACROSS; ++n) add_product(sums[n], above.first, under.first, columns[n].first);
#pragma unroll
    for (int n = 0; n < ACROSS; ++n) add_product(sums[n], above.second, under.second, columns[n].second);
}

// The words that a lane reads from planes: the four lanes of a group read 64 consecutive bytes at a time, 16 each.
struct Reader {
    const Pair* planes;
    unsigned words;  // the blocks of 128 bits of a plane
    int group, own;  // the lane's group of four, and its position in the group

    __device__ __forceinline__ explicit Reader(const Variables& variables)
        : planes(reinterpret_cast<const Pair*>(variables.planes)),
          words(variables.words / 2),
          group(threadIdx.x % LANES / 4),
          own(threadIdx.x % 4) {}
    __device__ __forceinline__ unsigned place(int plane) const { return static_cast<unsigned>(plane) * words + own; }

    // The positions of the group's column in each tile. Columns are clamped; counts beyond the last are unused.
    template <int ACROSS>
    __device__ __forceinline__ void columns(const Common& common, const Room& room, unsigned (&places)[ACROSS]) const {
#pragma unroll
        for (int n = 0; n < ACROSS; ++n) {
            places[n] = place(room.planes[min(n * COLUMNS + group, common.columns - 1)]);
        }
    }
};

// Counts on tensor cores if the cells of a stratum fit into a tile's rows. STRATA strata and up to ACROSS tiles are
// counted at a time. Each step issues all its loads before it uses the first one, so that their latencies overlap.
template <class Crew, int STRATA, int ACROSS>
__device__ __forceinline__ void count_strata(const Variables& variables, const Common& common, const Room& room) {
    const Reader reader(variables);
    const Pair* const planes = reader.planes;
    const Shape& shape = common.shape;
    const int cells = shape.rows * shape.columns, group = reader.group, own = reader.own;
    unsigned column_places[ACROSS], member_places[STRATA], low_places[2], high_places[2];
    reader.columns(common, room, column_places);
#pragma unroll
    for (int m = 0; m < STRATA; ++m) {
        member_places[m] = common.members == 0 ? 0 : reader.place(room.strata[m * common.members]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int cell = min(group + 8 * half, cells - 1);
        low_places[half] = reader.place(variables.first_plane[shape.low] + cell / shape.columns);
        high_places[half] = reader.place(variables.first_plane[shape.high] + cell % shape.columns);
    }
    unsigned sums[STRATA][ACROSS][4] = {};
#pragma unroll 1
    for (unsigned w = 4 * Crew::part(); w < reader.words; w += 4 * Crew::parts()) {
        Pair columns[ACROSS], stratum[STRATA];
#pragma unroll
        for (int n = 0; n < ACROSS; ++n) columns[n] = planes[column_places[n] + w];
        const Pair row = planes[low_places[0] + w] & planes[high_places[0] + w];
        const Pair below = planes[low_places[1] + w] & planes[high_places[1] + w];
#pragma unroll
        for (int m = 0; m < STRATA; ++m) {
            stratum[m] = common.members == 0 ? Pair{~0ull, ~0ull} : planes[member_places[m] + w];
        }
        for (int a = 1; a < common.members; ++a) {
#pragma unroll
            for (int m = 0; m < STRATA; ++m) {
                stratum[m] = stratum[m] & planes[reader.place(room.strata[m * common.members + a]) + w];
            }
        }
#pragma unroll
        for (int m = 0; m < STRATA; ++m) {
            add_products(sums[m], row & stratum[m], below & stratum[m], columns);
        }
    }
    const int stride = Batches::stride(shape);
#pragma unroll
    for (int n = 0; n < ACROSS; ++n) {
#pragma unroll
        for (int m = 0; m < STRATA; ++m) {
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const int x = n * COLUMNS + 2 * own + k % 2, cell = group + 8 * (k / 2);
                if (x < common.columns && cell < cells) {
                    Crew::put(room.counts[(x * STRATA + m) * stride + cell], sums[m][n][k]);
                }
            }
        }
    }
}

// Counts one stratum at a time if it has more cells: half of a tile's rows are eight categories of Vj with one of Vi,
// so that DOWN tiles read few planes.
template <class Crew, int DOWN, int ACROSS>
__device__ __noinline__ void count_categories(const Variables& variables, const Common& common, const Room& room) {
    constexpr int HALF = ROWS / 2;
    const Reader reader(variables);
    const Pair* const planes = reader.planes;
    const Shape& shape = common.shape;
    const int stride = Batches::stride(shape);
    unsigned column_places[ACROSS];
    reader.columns(common, room, column_places);
    for (int a = 0; a < shape.rows; a += 2 * DOWN) {
        const unsigned low_place = reader.place(variables.first_plane[shape.low] + a);
        for (int first = 0; first < shape.columns; first += HALF) {
            const int b = first + reader.group;
            const unsigned high_place = reader.place(variables.first_plane[shape.high] + min(b, shape.columns - 1));
            unsigned sums[DOWN][ACROSS][4] = {};
#pragma unroll 1
            for (unsigned w = 4 * Crew::part(); w < reader.words; w += 4 * Crew::parts()) {
                Pair columns[ACROSS], low[2 * DOWN], high = planes[high_place + w];
#pragma unroll
                for (int n = 0; n < ACROSS; ++n) columns[n] = planes[column_places[n] + w];
#pragma unroll
                for (int m = 0; m < 2 * DOWN; ++m)
                    low[m] = planes[low_place + min(m, shape.rows - 1 - a) * reader.words + w];
                for (int k = 0; k < common.members; ++k) high = high & planes[reader.place(room.strata[k]) + w];
#pragma unroll
                for (int m = 0; m < DOWN; ++m) {
                    if (a + 2 * m >= shape.rows) break;
                    add_products(sums[m], low[2 * m] & high, low[2 * m + 1] & high, columns);
                }
            }
#pragma unroll
            for (int n = 0; n < ACROSS; ++n) {
#pragma unroll
                for (int m = 0; m < DOWN; ++m) {
#pragma unroll
                    for (int k = 0; k < 4; ++k) {
                        const int x = n * COLUMNS + 2 * reader.own + k % 2, row = a + 2 * m + k / 2;
                        if (x < common.columns && row < shape.rows && b < shape.columns) {
                            Crew::put(room.counts[x * stride + row * shape.columns + b], sums[m][n][k]);
                        }
                    }
                }
            }
        }
    }
}

template <class Crew>
__device__ __forceinline__ void count_batch(const Variables& variables, const Common& common, const Room& room) {
    if (!common.in_a_tile()) {
        count_categories<Crew, 2, 4>(variables, common, room);
    } else if (common.at_once == MAX_STRATA) {
        count_strata<Crew, MAX_STRATA, 4>(variables, common, room);
    } else if (common.at_once == 2) {
        count_strata<Crew, 2, 4>(variables, common, room);
    } else if (common.columns > 32) {
        count_strata<Crew, 1, 8>(variables, common, room);
    } else {
        count_strata<Crew, 1, 4>(variables, common, room);
    }
}

#endif

// Writes the number of each column's plane and of its test: the first `made` lanes have `own` columns each, from
// `before` on, whose last members are `neighbour(lane)`.
template <class Neighbour>
__device__ __forceinline__ void list_columns(const Variables& variables, const Room& room, PerLane<int>& own,
                                             PerLane<int>& before, int made, Neighbour neighbour) {
    each_lane(made, [&](int lane) {
        const int first_plane = own[lane] == 0 ? 0 : variables.first_plane[neighbour(lane)];
        for (int v = 0; v < own[lane]; ++v) {
            room.planes[before[lane] + v] = first_plane + v;
            room.tests[before[lane] + v] = lane;
        }
        room.df[lane] = 0;
    });
}

// Counts a batch's strata, and writes their terms of the statistics and the tests' adjusted degrees of freedom.
template <class Crew>
__device__ __forceinline__ void write_parts(const DiscreteSearch& search, const Variables& variables,
                                            const Common& common, const Room& room) {
    const Shape& shape = common.shape;
    const int stride = Batches::stride(shape), strata = static_cast<int>(shape.strata);
    const int units = common.columns * common.at_once;
    for (int first = 0; first < strata; first += common.at_once) {
        Crew::share_out(common.at_once * common.members, [&](int k) {
            int left = min(first + k / common.members, strata - 1);
            const int a = k % common.members, member = room.members[a];
            for (int b = 0; b < a; ++b) left /= variables.categories[room.members[b]];
            room.strata[k] = variables.first_plane[member] + left % variables.categories[member];
        });
        if (Crew::parts() > 1) Crew::share_out(units * stride, [&](int k) { room.counts[k] = 0; });
        Crew::join();
        count_batch<Crew>(variables, common, room);
        Crew::join();
        Crew::share_out(units, [&](int k) {
            const int x = k / common.at_once, s = first + k % common.at_once;
            if (s >= strata) return;
            unsigned long long df = 0;
            unsigned* const counts = room.counts + k * stride;
            room.parts[x * strata + s] = stratum_statistic(search.rules, shape.rows, shape.columns, counts, df);
            if (search.rules.adjusted && df != 0) atomicAdd(&room.df[room.tests[x]], df);
        });
        Crew::join();
    }
}

// Adds up the terms of a test's strata in the order of a table: first in chunks, then the chunks.
__device__ __forceinline__ double sum_of_parts(const double* parts, int all_strata) {
    double statistic = 0.0;
    for (int first = 0; first < all_strata; first += CHUNK) {
        double sum = 0.0;
        for (int s = first; s < min(first + CHUNK, all_strata); ++s) sum += parts[s];
        statistic += sum;
    }
    return statistic;
}

// Makes up to LANES tests, beginning with set number t of the `sets` sets that are tried. Tests that do not belong in a
// batch are skipped. Returns the number of sets, including the skipped ones; 0 if the edge is settled.
template <class Crew>
__device__ __forceinline__ int make_batch(const DiscreteSearch& search, const Variables& variables, const Rows& rows,
                                          const Batches& batches, const Room& room, int level, int i, int position,
                                          unsigned long long t, unsigned long long sets, Tally& tally) {
    const int* const neighbours = rows.of(i);
    const int degree = rows.degrees[i], j = neighbours[position];
    const auto neighbour = [&](int k) { return neighbours[k + (k >= position)]; };
    if (Crew::part() == 0 && warp_leader()) {
        const bool goes_on = !search.settled(i, j, set_key(i, j, t));  // Later keys are larger still.
        room.members[level] = goes_on;
        if (goes_on) unrank_combination(rows.binomial, degree - 1, level, t, room.members);
        for (int a = 0; goes_on && a < level - 1; ++a) room.members[a] = neighbour(room.members[a]);
    }
    Crew::join();
    if (room.members[level] == 0) {
        Crew::join();  // All lanes have read it before the next batch overwrites it.
        return 0;
    }
    const int place = room.members[level - 1], others = degree - 1 - place;
    const int run = static_cast<int>(min(static_cast<unsigned long long>(min(others, LANES)), sets - t));
    Common common;
    common.members = level - 1;
    common.shape.set(variables.categories, i, j, room.members, common.members);
    const Shape& shape = common.shape;
    const bool all = all_have_planes(variables, shape, room.members, common.members);
    PerLane<int> own, before;  // the columns of the lane's test, and of the tests before it
    each_lane(LANES, [&](int lane) {
        own[lane] = 0;
        if (all && lane < run) {
            const int last = neighbour(place + lane);
            Shape test_shape = shape;
            test_shape.strata *= variables.categories[last];
            if (variables.first_plane[last] >= 0 && batches.fit(test_shape, variables.categories[last])) {
                own[lane] = variables.categories[last];
            }
        }
        before[lane] = own[lane];
    });
    const int total = sums_before(before);
    if (total == 0) {
        Crew::join();
        return run;
    }
    const int stride = Batches::stride(shape), strata = static_cast<int>(shape.strata);
    common.at_once = !common.in_a_tile() ? 1 : strata >= 3 ? MAX_STRATA : strata;
    while (common.at_once > 1 && common.at_once * stride * LANES > batches.words) common.at_once /= 2;
    const int room_columns = min(batches.words / (stride * common.at_once), batches.parts / strata);
    const int most = min(common.in_a_tile() && common.at_once == 1 ? MAX_COLUMNS : MAX_COLUMNS / 2, room_columns);
    const unsigned beyond = ballot(run, [&](int lane) { return before[lane] + own[lane] > most; });
    const int made = beyond == 0 ? run : __ffs(beyond) - 1;
    common.columns = made == run ? total : of_lane(before, made);
    if (Crew::part() == 0) {
        list_columns(variables, room, own, before, made, [&](int lane) { return neighbour(place + lane); });
    }
    write_parts<Crew>(search, variables, common, room);
    if (Crew::part() == 0) {
        each_lane(made, [&](int lane) {
            if (own[lane] == 0) return;
            Shape test_shape = shape;
            test_shape.strata *= own[lane];
            const double statistic = sum_of_parts(room.parts + before[lane] * strata, strata * own[lane]);
            search.decide(test_shape, statistic, room.df[lane], set_key(i, j, t + lane));
        });
        tally.tests += __popc(ballot(made, [&](int lane) { return own[lane] != 0; }));
    }
    Crew::join();  // All lanes have read it before the memory is reused.
    return made;
}

// A warp, or with BLOCK_AN_EDGE a block, processes the batches of an edge in one of the `busy` rows that have tests.
// Grid (busy, ceil(n' / edges) * splits), block (warps).
template <bool BLOCK_AN_EDGE>
__global__ void __launch_bounds__(128, 3)
    gpupc_batches(const __grid_constant__ Variables variables, const __grid_constant__ DiscreteSearch search,
                  const __grid_constant__ Level level, const __grid_constant__ Batches batches, const int* busy_rows,
                  int busy, int room_doubles) {
    GPUPC_DYNAMIC_SHARED(double, shared);
    const Rows& rows = level.rows;
    const int edges = BLOCK_AN_EDGE ? 1 : warp_count(), edge = BLOCK_AN_EDGE ? 0 : warp_index();
    const Room room(shared + edge * room_doubles, batches, level.level);
    const int columns = gridDim.y / batches.splits, split = blockIdx.y / columns;
    Tally tally;
    for (int row = blockIdx.x; row < busy; row += gridDim.x) {
        const int i = busy_rows[row], degree = rows.degrees[i];
        if (degree <= level.level) continue;
        for (int position = blockIdx.y % columns * edges + edge; position < degree; position += columns * edges) {
            const unsigned long long sets = level.sets_to_try(i, rows.of(i)[position]);
            // Consecutive sets make a batch, so blocks that share an edge take turns of LANES sets.
            const unsigned long long turn = batches.splits == 1 ? sets : LANES;
            bool goes_on = true;
            for (unsigned long long first = split * turn; goes_on && first < sets; first += batches.splits * turn) {
                const unsigned long long end = min(first + turn, sets);
                for (unsigned long long t = first; goes_on && t < end;) {
                    const int made = make_batch<Crew<BLOCK_AN_EDGE>>(search, variables, rows, batches, room,
                                                                     level.level, i, position, t, end, tally);
                    goes_on = made != 0;
                    t += made;
                }
            }
        }
    }
    if (warp_leader()) tally.add_to(level.counters);
}
