"""PC-stable's tests on coded data, compiled with numba, which the references of the discrete family share.

This is Algorithm 1 of gpuPC on a CPU. The level loop is that of all references (`_levels`); this module tests the edges
of a level, with chi-square or G-square (gpuPC, section 2.3). The references share no code with the GPU methods but give
the same answers: they test the same sets in the same order, add the terms of each statistic in the same order, and
compare with the same critical values. Edges and separating sets are therefore equal, and so are the numbers of tests of
a fixed workload.

A small table is counted by bitmaps; a table that is not much larger than the data by a histogram. For larger tables the
samples are sorted by stratum, so that only strata that occur take memory and time.
"""

import collections

import numpy as np

from baselines._compile import compiled
from baselines._discrete_counts import (
    BASE,
    BITMAP_CELLS,
    begin_pair,
    begin_set,
    count_by_bitmaps,
    count_by_histogram,
    count_pair_by_bitmaps,
)
from baselines._discrete_statistic import statistic_of_sorted, statistic_of_table
from baselines._graph import neighbours_without, next_combination

Criticals = collections.namedtuple("Criticals", ["small", "keys", "values", "below", "above"])
"""Critical values by degrees of freedom.

Attributes:
    small: float64: the critical values of 0, 1, 2, ... degrees of freedom.
    keys, values: int64 larger degrees of freedom, and their float64 critical values.
    below, above: -log(1 - alpha) and -log(alpha), for bounds on all other critical values.
"""


@compiled
def test(data, space, i, j, members):
    """Return the statistic of Vi and Vj (i < j) given the members (ascending), and the adjusted degrees of freedom.

    The size of the table determines how it is counted; see `_discrete_counts` and `_discrete_statistic`.
    """
    r_i, r_j = data.categories[i], data.categories[j]
    by_bitmaps = data.bit_rows[i] >= 0 and data.bit_rows[j] >= 0
    strata = 1
    for s in members:
        by_bitmaps &= data.bit_rows[s] >= 0
        strata *= data.categories[s]
    if by_bitmaps and r_i * r_j * strata <= BITMAP_CELLS:
        if len(members):
            count_by_bitmaps(data, space, i, j, members)
        else:
            count_pair_by_bitmaps(data, space.table, i, j)
        return statistic_of_table(space, r_i, r_j, strata, data.logs)
    if space.valid[BASE] < 0:
        space.valid[BASE] = 0
        codes_i, codes_j = data.codes[i], data.codes[j]
        for k in range(len(codes_i)):
            space.base[0, k] = np.int64(codes_i[k]) * r_j + codes_j[k]
    if r_i * r_j * strata <= len(space.table):
        count_by_histogram(data, space, r_i * r_j, members)
        return statistic_of_table(space, r_i, r_j, strata, data.logs)
    return statistic_of_sorted(data, space, r_i, r_j, members)


@compiled
def test_pairs(data, space, first, last, statistics, degrees):
    """Write the statistics and degrees of freedom of level 0, (last - first, p), for pairs with first <= i < last and j
    > i."""
    empty_set = np.empty(0, np.int32)
    for i in range(first, last):
        for j in range(i + 1, len(data.categories)):
            begin_pair(space)
            statistic, df = test(data, space, i, j, empty_set)
            if not data.adjusted:
                df = (data.categories[i] - 1) * (data.categories[j] - 1)
            statistics[i - first, j] = statistic
            degrees[i - first, j] = df


@compiled
def decide(statistic, df, criticals):
    """Return 1 if a set separates, 0 if it does not, and -1 if the exact critical value is needed.

    Beyond the tabulated values, bounds decide nearly all tests: the quantile lies between df - 2 sqrt(df below) and
    df + 2 sqrt(df above) + 2 above (Laurent and Massart 2000, lemma 1).
    """
    if df == 0:
        return 1
    if df < len(criticals.small):
        return int(statistic <= criticals.small[df])
    if statistic < (df - 2 * np.sqrt(df * criticals.below)) * (1 - 1e-9):
        return 1
    if statistic > (df + 2 * np.sqrt(df * criticals.above) + 2 * criticals.above) * (1 + 1e-9):
        return 0
    for at in range(len(criticals.keys)):
        if criticals.keys[at] == df:
            return int(statistic <= criticals.values[at])
    return -1


@compiled
def separate_edges(data, space, starts, neighbours, edges, tiers, level, criticals, tests_per_edge, record):
    """Test edges one after the other given sets of ``level`` variables, each until a set separates it.

    The order is that of a serial PC-stable: sets from the neighbours of i, then sets from those of j, both in
    lexicographic order. If ``tests_per_edge`` is not 0, each edge has that many tests, and no edge is removed.

    Returns:
        the indices of the removed edges and their separating sets; the number of tests; with ``record``, the edges,
        statistics and degrees of freedom of tests among which is that of each edge's largest p-value; the number of
        edges that were tested; and the degrees of freedom whose critical value is needed to go on, or 0.
    """
    removed = np.empty(len(edges), np.int64)
    sets = np.empty((len(edges), level), np.int32)
    n_removed = tests = 0
    edge_of, statistics, degrees = np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64)
    recorded = 0
    candidates = np.empty(len(data.categories), np.int32)
    members = np.empty(level, np.int32)
    for e in range(len(edges)):
        i, j = np.int64(edges[e, 0]), np.int64(edges[e, 1])
        begin_pair(space)
        made, front, separated = 0, recorded, False
        for row, other in ((i, j), (j, i)):
            n = neighbours_without(starts, neighbours, row, other, tiers, candidates)
            if n < level or separated:
                continue
            chosen = np.arange(level)  # the positions of the members among the candidates
            changed = 0
            while changed >= 0 and not separated and (tests_per_edge == 0 or made < tests_per_edge):
                for t in range(changed, level):
                    members[t] = candidates[chosen[t]]
                begin_set(space, changed)
                statistic, df = test(data, space, i, j, members)
                if not data.adjusted:
                    df = (data.categories[i] - 1) * (data.categories[j] - 1)
                    for s in members:
                        df *= data.categories[s]
                made += 1
                if tests_per_edge == 0:
                    decision = decide(statistic, df, criticals)
                    if decision < 0:
                        separated = (removed[:n_removed], sets[:n_removed])
                        return *separated, tests, (edge_of[:front], statistics[:front], degrees[:front]), e, df
                    separated = decision == 1
                if record:
                    if recorded == len(edge_of):
                        edge_of, statistics, degrees = longer(edge_of), longer(statistics), longer(degrees)
                    recorded = add_to_front(edge_of, statistics, degrees, front, recorded, e, statistic, df)
                changed = next_combination(chosen, n)
        tests += made
        if separated:
            removed[n_removed] = e
            for t in range(level):
                sets[n_removed, t] = members[t]
            n_removed += 1
    separated = (removed[:n_removed], sets[:n_removed])
    return *separated, tests, (edge_of[:recorded], statistics[:recorded], degrees[:recorded]), len(edges), 0


@compiled
def longer(array):
    """Return a copy with room for more than twice as many elements."""
    grown = np.empty(2 * len(array) + 16, array.dtype)
    for at in range(len(array)):
        grown[at] = array[at]
    return grown


@compiled
def add_to_front(edge_of, statistics, degrees, front, recorded, edge, statistic, df):
    """Add a test to the Pareto front of an edge's tests, whose record begins at position ``front``.

    A p-value decreases with the statistic and increases with the degrees of freedom, so the largest p-value belongs to
    a test on the front: no other test has both a statistic at most as large and degrees of freedom at least as large.

    Returns:
        the end of the front.
    """
    for at in range(front, recorded):
        if statistics[at] <= statistic and degrees[at] >= df:
            return recorded
    kept = front
    for at in range(front, recorded):
        if statistics[at] < statistic or degrees[at] > df:
            statistics[kept], degrees[kept] = statistics[at], degrees[at]
            kept += 1
    edge_of[kept], statistics[kept], degrees[kept] = edge, statistic, df
    return kept + 1


@compiled
def first_sets(starts, neighbours, edges, tiers, level, n_variables):
    """Return the first set of each edge in canonical order; if there is none, the smallest variables other than its
    ends."""
    sets = np.empty((len(edges), level), np.int32)
    candidates = np.empty(n_variables, np.int32)
    for e in range(len(edges)):
        i, j = edges[e]
        n = neighbours_without(starts, neighbours, i, j, tiers, candidates)
        if n < level:
            n = neighbours_without(starts, neighbours, j, i, tiers, candidates)
        if n < level:
            n = 0
            for v in range(n_variables):
                if v not in (i, j):
                    candidates[n] = v
                    n += 1
        for t in range(level):
            sets[e, t] = candidates[t]
    return sets
