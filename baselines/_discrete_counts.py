"""Counts contingency tables of coded data by bitmaps and by histograms, compiled with numba. A bitmap is a bit vector
of the samples that have a category. The count of a cell is the number of bits that are set in the bitmaps of all its
categories; bitmaps that the sets of an edge share are combined only once. A histogram takes one pass over the samples,
which reads only the last member of the set. Both number the cells as the GPU methods' kernels do."""

import collections

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from baselines._compile import compiled

BITMAP_CATEGORIES = 16  # upper bound on the categories of a variable with bitmaps
BITMAP_CELLS = 256  # upper bound on the cells of a table that is counted by bitmaps
SMALL_TABLE = 4096  # cells of a table counted by a histogram, unless it has at most two cells per sample
BITMAPS, BASE = range(2)  # Indices into Space.valid

Data = collections.namedtuple(
    "Data", ["codes", "categories", "places", "totals", "bit_rows", "bits", "logs", "adjusted"]
)
"""The data of a problem, prepared for counting.

Attributes:
    codes: (p, n) unsigned.
    categories: (p,) int64.
    places: (p + 1,) int64: the totals of variable v begin at ``totals[places[v]]``.
    totals: (sum of categories,) int64: the number of samples of each category.
    bit_rows: (p,) int64: the row of ``bits`` for variable v's first category; -1 for a variable without bitmaps.
    bits: (rows, words) uint64.
    logs: (n + 1,) float64 natural logarithms of 0 to n, with 0 for 0, for G-square; empty for chi-square.
    adjusted: whether degrees of freedom are counted from the rows and columns that occur.
"""

Space = collections.namedtuple("Space", "table rows cols used base sorted order other_order prefix prefix_counts valid")
"""The working memory of a thread that tests edges at one level; t ranges from 0 to level - 1.

Attributes:
    table: counts of a table, stratum by stratum; inside a stratum the category of Vj varies fastest.
    rows, cols, used: sums of the rows and the columns of a stratum, and the columns that occur.
    base: (level, n): each sample's cell in the table of the pair and the first t members.
    sorted: (n,): the pair's cells of the samples of one stratum.
    order, other_order: (n,): the samples sorted by stratum, and scratch.
    prefix, prefix_counts: (level, cells, words), (level, cells): the bitmaps of the table of the pair and the first t
        members, and the number of their bits; the bitmaps of empty cells are not written.
    valid: (2,): the number of members for which ``prefix`` and ``base`` are valid; -1: not even for the pair.
"""


@intrinsic
def popcount(typing_context, word):
    def generate(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


# --- preparation -----------------------------------------------------------------------------------------------------
@compiled
def count_categories(codes, first_row, bits, totals):
    """Write one variable's bitmaps, if it has any, from ``bits[first_row]`` on, and the counts of its categories."""
    n = len(codes)
    for c in range(len(totals)):
        totals[c] = 0
    for k in range(n):
        totals[codes[k]] += 1
    if first_row >= 0:
        for k in range(n):
            bits[first_row + codes[k], k >> 6] |= np.uint64(1) << np.uint64(k & 63)


def new_space(data, level):
    n = data.codes.shape[1]
    most = int(data.categories.max())
    kept = max(level, 1)
    return Space(
        table=np.empty(max(2 * n, SMALL_TABLE), np.int32),
        rows=np.empty(most, np.int64),
        cols=np.zeros(most, np.int64),
        used=np.empty(most, np.int64),
        base=np.empty((kept, n), np.uint32),
        sorted=np.empty(n, np.int64),
        order=np.empty(n, np.int32),
        other_order=np.empty(n, np.int32),
        prefix=np.empty((kept, BITMAP_CELLS, data.bits.shape[1]), np.uint64),
        prefix_counts=np.empty((kept, BITMAP_CELLS), np.int64),
        valid=np.full(2, -1, np.int64),
    )


@compiled
def begin_pair(space):
    """Invalidate the counts of the previous pair."""
    for t in range(len(space.valid)):
        space.valid[t] = -1


@compiled
def begin_set(space, changed):
    """Invalidate the counts that depend on members from index ``changed`` on."""
    space.valid[BITMAPS] = min(space.valid[BITMAPS], changed)
    space.valid[BASE] = min(space.valid[BASE], changed)


@compiled
def common_bits(a, b):
    count = 0
    for w in range(len(a)):
        count += popcount(a[w] & b[w])
    return count


@compiled
def count_pair_by_bitmaps(data, table, i, j):
    """Count the table of a pair at level 0; its last row and column follow from the other ones and the totals."""
    r_i, r_j = data.categories[i], data.categories[j]
    bits_i, bits_j = data.bits[data.bit_rows[i] :], data.bits[data.bit_rows[j] :]
    total_i, total_j = data.totals[data.places[i] :], data.totals[data.places[j] :]
    last_row = (r_i - 1) * r_j
    for b in range(r_j):
        table[last_row + b] = total_j[b]
    for a in range(r_i - 1):
        left = total_i[a]
        for b in range(r_j):
            count = left
            if left and b < r_j - 1:
                count = common_bits(bits_i[a], bits_j[b])
            table[a * r_j + b] = count
            table[last_row + b] -= count
            left -= count


@compiled
def count_by_bitmaps(data, space, i, j, members):
    """Count the pair's table given at least one member, from bitmaps of the pair and all members but the last."""
    prefix, counts = space.prefix, space.prefix_counts
    level = len(members)
    cells = data.categories[i] * data.categories[j]
    if space.valid[BITMAPS] < 0:
        cell = 0
        for a in range(data.categories[i]):
            for b in range(data.categories[j]):
                bits_a, bits_b = data.bits[data.bit_rows[i] + a], data.bits[data.bit_rows[j] + b]
                counts[0, cell] = combine(bits_a, bits_b, prefix[0, cell])
                cell += 1
        space.valid[BITMAPS] = 0
    for t in range(level - 1):
        categories = data.categories[members[t]]
        if space.valid[BITMAPS] <= t:
            for p in range(cells):
                for d in range(categories):
                    count = 0
                    if counts[t, p]:
                        bits_d = data.bits[data.bit_rows[members[t]] + d]
                        count = combine(prefix[t, p], bits_d, prefix[t + 1, p + cells * d])
                    counts[t + 1, p + cells * d] = count
            space.valid[BITMAPS] = t + 1
        cells *= categories
    last = members[level - 1]
    for p in range(cells):
        left = counts[level - 1, p]
        for d in range(data.categories[last]):
            count = left
            if left and d < data.categories[last] - 1:
                count = common_bits(prefix[level - 1, p], data.bits[data.bit_rows[last] + d])
            space.table[p + cells * d] = count
            left -= count


@compiled
def count_by_histogram(data, space, cells, members):
    """Count the table of the pair, which has that many cells, given the members."""
    table, base, depth = space.table, space.base, max(len(members) - 1, 0)
    for t in range(depth):
        if space.valid[BASE] <= t:
            codes = data.codes[members[t]]
            for k in range(len(codes)):
                base[t + 1, k] = np.int64(base[t, k]) + cells * codes[k]
            space.valid[BASE] = t + 1
        cells *= data.categories[members[t]]
    known = base[depth]
    if len(members):
        codes = data.codes[members[depth]]
        for cell in range(cells * data.categories[members[depth]]):
            table[cell] = 0
        for k in range(len(codes)):
            table[np.int64(known[k]) + cells * codes[k]] += 1
    else:
        for cell in range(cells):
            table[cell] = 0
        for cell in known:
            table[cell] += 1


@compiled
def combine(a, b, out):
    """Write the bits that are set in both a and b; returns their number."""
    count = 0
    for w in range(len(a)):
        word = a[w] & b[w]
        out[w] = word
        count += popcount(word)
    return count
