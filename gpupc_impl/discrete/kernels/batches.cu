// Levels from 1 on, many tests of an edge at a time: those whose sets have all members but the last in common. Their
// tables are one product of bits. A row of it is a category of Vi and one of Vj in a stratum of the common members, a
// column a category of a last member, and an entry, the samples that have both, is a cell of that member's table.
#include "discrete/kernels/batches.cuh"

#include "discrete/kernels/bit_product.cuh"
#include "discrete/kernels/level.cuh"
#include "engine/kernels/warp.cuh"

constexpr int MOST_COLUMNS = 64, MOST_STRATA = 4;  // of a batch, that are worked on at a time

// Warps that make batches together: one, or where there are few edges all of a block, which share out the samples.
template <bool TOGETHER>
struct Crew {
    __device__ __forceinline__ static int part() { return TOGETHER ? warp_index() : 0; }
    __device__ __forceinline__ static int parts() { return TOGETHER ? warp_count() : 1; }

    // What one of them wrote before, all of them read after.
    __device__ __forceinline__ static void join() {
        if (TOGETHER) {
            __syncthreads();
        } else {
            join_lanes();
        }
    }

    // Calls f(k) for all k < count, each in one lane.
    template <class F>
    __device__ __forceinline__ static void share_out(int count, F f) {
        each_lane(LANES, [&](int lane) {
            for (int k = part() * LANES + lane; k < count; k += parts() * LANES) f(k);
        });
    }

    // What one of them counted, into a count that is zero before.
    __device__ __forceinline__ static void put(unsigned& count, unsigned sum) {
        if (!TOGETHER) {
            count = sum;
        } else if (sum != 0) {
            atomicAdd(&count, sum);
        }
    }
};

// What a crew has in shared memory. discrete/gpupc.py, batch_doubles, says how much.
struct Room {
    double* parts;           // of the strata, test by test
    unsigned long long* df;  // (LANES) of the tests, if they are adjusted
    int* planes;             // (MOST_COLUMNS) of the columns
    int* tests;              // (MOST_COLUMNS) whose they are
    int* members;  // (level + 1) the common members, the place of the first last one, whether there is a batch
    int* strata;   // (MOST_STRATA, level - 1) planes of the common members, by stratum that is worked on
    unsigned* counts;

    __device__ __forceinline__ Room(double* shared, const Batches& batches, int level)
        : parts(shared),
          df(reinterpret_cast<unsigned long long*>(parts + batches.parts)),
          planes(reinterpret_cast<int*>(df + LANES)),
          tests(planes + MOST_COLUMNS),
          members(tests + MOST_COLUMNS),
          strata(members + level + 1),
          counts(reinterpret_cast<unsigned*>(strata + MOST_STRATA * (level - 1))) {}
};

// What a batch's tests have in common.
struct Common {
    Shape shape;  // strata: of the common members
    int members;  // how many
    int at_once;  // strata that are worked on at a time
    int columns;

    // Whether a stratum's categories of Vi and Vj fit into the rows of a tile.
    __device__ __forceinline__ bool in_a_tile() const { return shape.rows * shape.columns <= ROWS; }
};

#ifdef GPUPC_HOST

// Counts the crew's samples of `at_once` strata in all columns: counts[(x * at_once + m) * stride + a * columns + b] is
// column x in stratum m with categories a of Vi and b of Vj. Of a crew of several all counts are zero before.
template <class Crew, class Code>
void count_batch(const Data<Code>& data, const Common& common, const Room& room) {
    const Shape& shape = common.shape;
    const int stride = Batches::stride(shape);
    for (int m = 0; m < common.at_once; ++m) {
        Stratum stratum;
        stratum.level = 0;
        stratum.words = data.words;
        const int* const planes = room.strata + m * common.members;
        for (int cell = 0; cell < shape.rows * shape.columns; ++cell) {
            const unsigned long long* const row = data.plane(shape.low, cell / shape.columns);
            const unsigned long long* const column = data.plane(shape.high, cell % shape.columns);
            for (int x = 0; x < common.columns; ++x) {
                const unsigned long long* const last =
                    data.planes + static_cast<long long>(room.planes[x]) * data.words;
                Counts sum = {};
                for (int w = Crew::part() * WORDS_AT_ONCE; w < data.words; w += Crew::parts() * WORDS_AT_ONCE) {
                    Bits samples = Stratum::load(row + w) & Stratum::load(column + w) & Stratum::load(last + w);
                    for (int a = 0; a < common.members; ++a) {
                        samples &= Stratum::load(data.planes + static_cast<long long>(planes[a]) * data.words + w);
                    }
                    sum += count_bits(samples);
                }
                Crew::put(room.counts[(x * common.at_once + m) * stride + cell], sum_parts(sum));
            }
        }
    }
}

#else

// Bits of 128 samples.
struct __align__(16) Pair {
    unsigned long long first, second;

    __device__ __forceinline__ friend Pair operator&(const Pair& x, const Pair& y) {
        return {x.first & y.first, x.second & y.second};
    }
};

// Where a lane reads planes: of each 64 bytes its group of four reads together, 16.
template <class Code>
struct Reader {
    const Pair* planes;
    unsigned words;  // of 128 bits, of a plane
    int group, own;  // the lane's group of four, and its place there

    __device__ __forceinline__ explicit Reader(const Data<Code>& data)
        : planes(reinterpret_cast<const Pair*>(data.planes)),
          words(data.words / 2),
          group(threadIdx.x % LANES / 4),
          own(threadIdx.x % 4) {}
    __device__ __forceinline__ unsigned place(int plane) const { return static_cast<unsigned>(plane) * words + own; }

    // The places of the group's column of each tile; beyond the last column that again, for nobody.
    template <int ACROSS>
    __device__ __forceinline__ void columns(const Common& common, const Room& room, unsigned (&places)[ACROSS]) const {
#pragma unroll
        for (int n = 0; n < ACROSS; ++n) {
            places[n] = place(room.planes[min(n * COLUMNS + group, common.columns - 1)]);
        }
    }
};

// See above, of categories that fit into a tile's rows. STRATA and up to ACROSS tiles of columns are worked on at a
// time. All that a step reads is on its way at the same time.
template <class Crew, int STRATA, int ACROSS, class Code>
__device__ __forceinline__ void count_strata(const Data<Code>& data, const Common& common, const Room& room) {
    const Reader<Code> reader(data);
    const Pair* const planes = reader.planes;
    const Shape& shape = common.shape;
    const int cells = shape.rows * shape.columns, group = reader.group, own = reader.own;
    unsigned of_column[ACROSS], of_member[STRATA], of_low[2], of_high[2];  // the first common member's
    reader.columns(common, room, of_column);
#pragma unroll
    for (int m = 0; m < STRATA; ++m) {
        of_member[m] = common.members == 0 ? 0 : reader.place(room.strata[m * common.members]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int cell = min(group + 8 * half, cells - 1);
        of_low[half] = reader.place(data.first_plane[shape.low] + cell / shape.columns);
        of_high[half] = reader.place(data.first_plane[shape.high] + cell % shape.columns);
    }
    unsigned sums[STRATA][ACROSS][4] = {};
#pragma unroll 1
    for (unsigned w = 4 * Crew::part(); w < reader.words; w += 4 * Crew::parts()) {
        Pair columns[ACROSS], stratum[STRATA];
#pragma unroll
        for (int n = 0; n < ACROSS; ++n) columns[n] = planes[of_column[n] + w];
        const Pair row = planes[of_low[0] + w] & planes[of_high[0] + w];
        const Pair below = planes[of_low[1] + w] & planes[of_high[1] + w];
#pragma unroll
        for (int m = 0; m < STRATA; ++m) {
            stratum[m] = common.members == 0 ? Pair{~0ull, ~0ull} : planes[of_member[m] + w];
        }
        for (int a = 1; a < common.members; ++a) {
#pragma unroll
            for (int m = 0; m < STRATA; ++m) {
                stratum[m] = stratum[m] & planes[reader.place(room.strata[m * common.members + a]) + w];
            }
        }
#pragma unroll
        for (int m = 0; m < STRATA; ++m) {
            const Pair above = row & stratum[m], under = below & stratum[m];
#pragma unroll
            for (int n = 0; n < ACROSS; ++n) add_product(sums[m][n], above.first, under.first, columns[n].first);
#pragma unroll
            for (int n = 0; n < ACROSS; ++n) add_product(sums[m][n], above.second, under.second, columns[n].second);
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

// See above, of one stratum at a time with more categories: half of a tile's rows are eight of Vj with one of Vi, so
// that DOWN tiles of rows read few planes.
template <class Crew, int DOWN, int ACROSS, class Code>
__device__ __noinline__ void count_categories(const Data<Code>& data, const Common& common, const Room& room) {
    constexpr int HALF = ROWS / 2;
    const Reader<Code> reader(data);
    const Pair* const planes = reader.planes;
    const Shape& shape = common.shape;
    const int stride = Batches::stride(shape);
    unsigned of_column[ACROSS];
    reader.columns(common, room, of_column);
    for (int a = 0; a < shape.rows; a += 2 * DOWN) {
        const unsigned of_low = reader.place(data.first_plane[shape.low] + a);
        for (int first = 0; first < shape.columns; first += HALF) {
            const int b = first + reader.group;
            const unsigned of_high = reader.place(data.first_plane[shape.high] + min(b, shape.columns - 1));
            unsigned sums[DOWN][ACROSS][4] = {};
#pragma unroll 1
            for (unsigned w = 4 * Crew::part(); w < reader.words; w += 4 * Crew::parts()) {
                Pair columns[ACROSS], low[2 * DOWN], high = planes[of_high + w];
#pragma unroll
                for (int n = 0; n < ACROSS; ++n) columns[n] = planes[of_column[n] + w];
#pragma unroll
                for (int m = 0; m < 2 * DOWN; ++m)
                    low[m] = planes[of_low + min(m, shape.rows - 1 - a) * reader.words + w];
                for (int k = 0; k < common.members; ++k) high = high & planes[reader.place(room.strata[k]) + w];
#pragma unroll
                for (int m = 0; m < DOWN; ++m) {
                    if (a + 2 * m >= shape.rows) break;
                    const Pair above = low[2 * m] & high, under = low[2 * m + 1] & high;
#pragma unroll
                    for (int n = 0; n < ACROSS; ++n) {
                        add_product(sums[m][n], above.first, under.first, columns[n].first);
                    }
#pragma unroll
                    for (int n = 0; n < ACROSS; ++n) {
                        add_product(sums[m][n], above.second, under.second, columns[n].second);
                    }
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

template <class Crew, class Code>
__device__ __forceinline__ void count_batch(const Data<Code>& data, const Common& common, const Room& room) {
    if (!common.in_a_tile()) {
        count_categories<Crew, 2, 4>(data, common, room);
    } else if (common.at_once == MOST_STRATA) {
        count_strata<Crew, MOST_STRATA, 4>(data, common, room);
    } else if (common.at_once == 2) {
        count_strata<Crew, 2, 4>(data, common, room);
    } else if (common.columns > 32) {
        count_strata<Crew, 1, 8>(data, common, room);
    } else {
        count_strata<Crew, 1, 4>(data, common, room);
    }
}

#endif

// Makes up to LANES tests from set number t on, of which there are `sets` to try; returns how many sets these were, and
// 0 where the edge is settled. Tests that are not taken are passed over.
template <class Crew, class Code>
__device__ __forceinline__ int make_batch(const DiscreteSearch& search, const Data<Code>& data, const Rows& rows,
                                          const Batches& batches, const Room& room, int level, int i, int position,
                                          unsigned long long t, unsigned long long sets, Tally& tally) {
    const int* const neighbours = rows.of(i);
    const int degree = rows.degrees[i], j = neighbours[position];
    const auto neighbour = [&](int k) { return neighbours[k + (k >= position)]; };
    if (Crew::part() == 0 && warp_leader()) {
        const bool goes_on = !search.settled(i, j, set_key(i, j, t));  // later keys are larger still
        room.members[level] = goes_on;
        if (goes_on) unrank_combination(rows.binomial, degree - 1, level, t, room.members);
        for (int a = 0; goes_on && a < level - 1; ++a) room.members[a] = neighbour(room.members[a]);
    }
    Crew::join();
    if (room.members[level] == 0) {
        Crew::join();  // before it is written again
        return 0;
    }
    const int place = room.members[level - 1], others = degree - 1 - place;
    const int run = static_cast<int>(min(static_cast<unsigned long long>(min(others, LANES)), sets - t));
    Common common;
    common.members = level - 1;
    common.shape.set(data.categories, i, j, room.members, common.members);
    const Shape& shape = common.shape;
    const bool all = all_have_planes(data, shape, room.members, common.members);
    PerLane<int> own, before;  // columns of the lane's test, and of those before
    each_lane(LANES, [&](int lane) {
        own[lane] = 0;
        if (all && lane < run) {
            const int last = neighbour(place + lane);
            Shape of_test = shape;
            of_test.strata *= data.categories[last];
            if (data.first_plane[last] >= 0 && batches.fit(of_test, data.categories[last])) {
                own[lane] = data.categories[last];
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
    common.at_once = !common.in_a_tile() ? 1 : strata >= 3 ? MOST_STRATA : strata;
    while (common.at_once > 1 && common.at_once * stride * LANES > batches.words) common.at_once /= 2;
    const int room_columns = min(batches.words / (stride * common.at_once), batches.parts / strata);
    const int most = min(common.in_a_tile() && common.at_once == 1 ? MOST_COLUMNS : MOST_COLUMNS / 2, room_columns);
    const unsigned beyond = ballot(run, [&](int lane) { return before[lane] + own[lane] > most; });
    const int made = beyond == 0 ? run : __ffs(beyond) - 1;
    common.columns = made == run ? total : of_lane(before, made);
    if (Crew::part() == 0) {
        each_lane(made, [&](int lane) {
            const int first_plane = own[lane] == 0 ? 0 : data.first_plane[neighbour(place + lane)];
            for (int v = 0; v < own[lane]; ++v) {
                room.planes[before[lane] + v] = first_plane + v;
                room.tests[before[lane] + v] = lane;
            }
            room.df[lane] = 0;
        });
    }
    const int units = common.columns * common.at_once;
    for (int first = 0; first < strata; first += common.at_once) {
        Crew::share_out(common.at_once * common.members, [&](int k) {
            int left = min(first + k / common.members, strata - 1);
            const int a = k % common.members, member = room.members[a];
            for (int b = 0; b < a; ++b) left /= data.categories[room.members[b]];
            room.strata[k] = data.first_plane[member] + left % data.categories[member];
        });
        if (Crew::parts() > 1) Crew::share_out(units * stride, [&](int k) { room.counts[k] = 0; });
        Crew::join();
        count_batch<Crew>(data, common, room);
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
    if (Crew::part() == 0) {
        each_lane(made, [&](int lane) {
            if (own[lane] == 0) return;
            const double* const parts = room.parts + before[lane] * strata;
            Shape of_test = shape;
            of_test.strata *= own[lane];
            const int all_strata = strata * own[lane];
            double statistic = 0.0;
            for (int first = 0; first < all_strata; first += CHUNK) {
                double sum = 0.0;
                for (int s = first; s < min(first + CHUNK, all_strata); ++s) sum += parts[s];
                statistic += sum;
            }
            search.decide(of_test, statistic, room.df[lane], set_key(i, j, t + lane));
        });
        tally.tests += __popc(ballot(made, [&](int lane) { return own[lane] != 0; }));
    }
    Crew::join();  // before the room is used again
    return made;
}

// Grid (busy, ceil(n' / edges) * splits), block (warps): a warp an edge of one of the `busy` rows that have tests, or
// all warps of a block one edge, if they work together.
template <class Code, bool TOGETHER>
__global__ void __launch_bounds__(128, 3)
    gpupc_batches(const __grid_constant__ Data<Code> data, const __grid_constant__ DiscreteSearch search,
                  const __grid_constant__ Level level, const __grid_constant__ Batches batches, const int* busy_rows,
                  int busy, int room_doubles) {
    GPUPC_DYNAMIC_SHARED(double, shared);
    const Rows& rows = level.rows;
    const int edges = TOGETHER ? 1 : warp_count(), edge = TOGETHER ? 0 : warp_index();
    const Room room(shared + edge * room_doubles, batches, level.level);
    const int columns = gridDim.y / batches.splits, split = blockIdx.y / columns;
    Tally tally;
    for (int row = blockIdx.x; row < busy; row += gridDim.x) {
        const int i = busy_rows[row], degree = rows.degrees[i];
        if (degree <= level.level) continue;
        for (int position = blockIdx.y % columns * edges + edge; position < degree; position += columns * edges) {
            const unsigned long long sets = level.sets_to_try(i, rows.of(i)[position]);
            // Sets that follow one another are made together, so splits take turns of as many as there are lanes.
            const unsigned long long turn = batches.splits == 1 ? sets : LANES;
            bool goes_on = true;
            for (unsigned long long first = split * turn; goes_on && first < sets; first += batches.splits * turn) {
                const unsigned long long end = min(first + turn, sets);
                for (unsigned long long t = first; goes_on && t < end;) {
                    const int made = make_batch<Crew<TOGETHER>>(search, data, rows, batches, room, level.level, i,
                                                                position, t, end, tally);
                    goes_on = made != 0;
                    t += made;
                }
            }
        }
    }
    if (warp_leader()) tally.add_to(level.counters);
}
