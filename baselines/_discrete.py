"""PC-stable on coded data on the CPU, compiled with numba, which `discrete-serial` and `discrete-parallel` share. This
is Algorithm 1 of gpuPC. The level loop is that of all references (`_levels`); this module tests the edges of a level,
with chi-square or G-square (gpuPC, section 2.3). It shares no code with the GPU methods but gives the same answers: it
tests the same sets in the same order, adds the terms of each statistic in the same order, and compares with the same
critical values. Edges and separating sets are therefore equal, and so are the numbers of tests of a fixed workload. A
small table is counted by bitmaps; a table that is not much larger than the data by a histogram. For larger tables the
samples are sorted by stratum, so that only strata that occur take memory and time."""

import collections
import math
import threading
from collections.abc import Callable

import numpy as np

from baselines._compile import compiled, inlined
from baselines._discrete_counts import (
    BASE,
    BITMAP_CATEGORIES,
    BITMAP_CELLS,
    Data,
    Space,
    begin_pair,
    begin_set,
    count_by_bitmaps,
    count_by_histogram,
    count_categories,
    count_pair_by_bitmaps,
    new_space,
)
from baselines._levels import (
    LARGEST_TASK,
    LEAST_TASK,
    Graph,
    Tested,
    Tests,
    neighbours_without,
    next_combination,
    search,
)
from gpupc_impl.core.registry import Run
from gpupc_impl.core.result import Skeleton
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.integers import ceil_div

TABULATED = 8192  # degrees of freedom up to here have tabulated critical values
COUNTED = 1 << 17  # samples that a task counts, in a tenth of a millisecond
CHUNK = 64  # number of strata whose terms are added up before their sum is added to the total
Criticals = collections.namedtuple("Criticals", ["small", "keys", "values", "below", "above"])
"""Critical values of 0, 1, 2, ... degrees of freedom (small) and of some larger ones (keys, values), and -log(1 -
alpha) and -log(alpha) (below, above) for bounds on all others."""


@compiled
def test(data, space, i, j, members):
    """Return the statistic of Vi and Vj (i < j) given the members (ascending), and the adjusted degrees of freedom."""
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
    """Write the statistics and degrees of freedom of level 0, (last - first, p), for first <= i < last and j > i."""
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
    """Return 1 if a set separates, 0 if it does not, and -1 if the exact critical value is needed. Beyond the tabulated
    values, bounds decide nearly all tests: the quantile lies between df - 2 sqrt(df below) and df + 2 sqrt(df above) +
    2 above (Laurent and Massart 2000, lemma 1)."""
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
    """Test edges one after the other given sets of ``level`` variables, each until a set separates it. The order is
    that of a serial PC-stable: sets from the neighbours of i, then from those of j, in lexicographic order. If
    ``tests_per_edge`` is not 0, each edge has that many tests, and no edge is removed. Returns indices of the removed
    edges and their sets; the number of tests; with ``record``, the edges, statistics and degrees of freedom of tests
    among which is that of each edge's largest p-value; the number of edges tested; and the degrees of freedom whose
    critical value is needed to go on, or 0."""
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
    """Add a test to the Pareto front of an edge's tests, which begins at position ``front``; return the front's end. A
    p-value decreases with the statistic and increases with the degrees of freedom, so the largest belongs to a test of
    the front: no other test has both a statistic at most as large and degrees of freedom at least as large."""
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
    """Return the first set of each edge in canonical order, or else the smallest variables other than its ends."""
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


# --- statistics ------------------------------------------------------------------------------------------------------
# The order of additions is that of the GPU methods, so that statistics have the same bits: the terms of a stratum by
# rows and then columns, the strata in chunks of `CHUNK`, and then the chunks.


@compiled
def statistic_of_table(space, r_i, r_j, strata, logs):
    """Return the statistic of the counts in ``space.table``, and the adjusted degrees of freedom."""
    total = in_chunk = 0.0
    df = 0
    for stratum in range(strata):
        if stratum % CHUNK == 0:
            total += in_chunk
            in_chunk = 0.0
        part, degrees = statistic_of_counts(space, stratum * r_i * r_j, r_i, r_j, logs)
        in_chunk += part
        df += degrees
    total += in_chunk
    return (2.0 * total if len(logs) else total), df


@compiled
def statistic_of_counts(space, at, r_i, r_j, logs):
    """Return the terms and degrees of freedom of one stratum, from its counts from ``space.table[at]`` on."""
    table, rows, cols = space.table, space.rows, space.cols
    n = n_rows = n_cols = 0
    for a in range(r_i):
        in_row = 0
        for b in range(r_j):
            count = table[at + a * r_j + b]
            in_row += count
            cols[b] += count
        rows[a] = in_row
        n_rows += in_row > 0
        n += in_row
    for b in range(r_j):
        n_cols += cols[b] > 0
    part = 0.0
    if n_rows > 1 and n_cols > 1:  # Otherwise every count equals its expectation.
        for a in range(r_i):
            if rows[a]:
                for b in range(r_j):
                    if cols[b]:
                        part += term(table[at + a * r_j + b], rows[a], cols[b], n, logs)
    for b in range(r_j):
        cols[b] = 0
    return part, max(n_rows - 1, 0) * max(n_cols - 1, 0)


@compiled
def term(count, in_row, in_col, n, logs):
    """Return a cell's term: (N - E)^2 / E, or N log(N / E) of half of G-square; row and column are not empty."""
    if len(logs):
        # All methods add the same tabulated logarithms instead of the logarithm of a quotient.
        return count * ((logs[count] + logs[n]) - (logs[in_row] + logs[in_col])) if count else 0.0
    expected = (float(in_row) * float(in_col)) / float(n)
    difference = float(count) - expected
    return difference * difference / expected


@compiled
def statistic_of_sorted(data, space, r_i, r_j, members):
    """Return the statistic and the adjusted degrees of freedom, from samples sorted by stratum."""
    order, other, base = space.order, space.other_order, space.base[0]
    for k in range(len(order)):
        order[k] = k
    for s in members:  # The sort is stable, so the last member is the most significant.
        sort_by_code(data.codes[s], order, data.totals[data.places[s] : data.places[s + 1]], other)
        order, other = other, order
    total = in_chunk = 0.0
    chunk = df = start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and same_stratum(data.codes, members, order[start], order[stop]):
            stop += 1
        if stop - start > 1:  # The count of a single sample equals its expectation.
            stratum, stride = 0, 1
            for s in members:
                stratum += stride * data.codes[s, order[start]]
                stride *= data.categories[s]
            if stratum // CHUNK != chunk:
                total += in_chunk
                in_chunk, chunk = 0.0, stratum // CHUNK
            cells = space.sorted[: stop - start]
            for at in range(start, stop):
                cells[at - start] = base[order[at]]
            if r_i * r_j <= min(4 * len(cells), len(space.table)):
                for cell in range(r_i * r_j):
                    space.table[cell] = 0
                for cell in cells:
                    space.table[cell] += 1
                part, degrees = statistic_of_counts(space, 0, r_i, r_j, data.logs)
            else:
                sort(cells)
                part, degrees = statistic_of_cells(cells, r_j, space.cols, space.used, data.logs)
            in_chunk += part
            df += degrees
        start = stop
    total += in_chunk
    return (2.0 * total if len(data.logs) else total), df


@inlined
def same_stratum(codes, members, a, b):
    same = True
    for s in members:
        same &= codes[s, a] == codes[s, b]
    return same


@compiled
def sort(values):
    """Sort in place by Shell's method, which suits the few samples of most strata."""
    n = len(values)
    gap = 1
    while gap < n // 3:
        gap = 3 * gap + 1
    while gap:
        for at in range(gap, n):
            value, to = values[at], at
            while to >= gap and values[to - gap] > value:
                values[to] = values[to - gap]
                to -= gap
            values[to] = value
        gap //= 3


@compiled
def statistic_of_cells(cells, r_j, cols, used, logs):
    """Return a stratum's terms and degrees of freedom, from ascending cells; ``cols`` is zero before and after."""
    n, n_rows, n_cols, part = len(cells), 0, 0, 0.0
    for cell in cells:
        cols[cell % r_j] += 1
    for b in range(r_j):
        if cols[b]:
            used[n_cols] = b
            n_cols += 1
    at = 0
    while at < n:
        row = cells[at] // r_j
        stop = at
        while stop < n and cells[stop] // r_j == row:
            stop += 1
        in_row = stop - at
        n_rows += 1
        for t in range(n_cols):
            count = 0
            while at < stop and cells[at] == row * r_j + used[t]:
                count += 1
                at += 1
            part += term(count, in_row, cols[used[t]], n, logs)
    for t in range(n_cols):
        cols[used[t]] = 0
    return part, (n_rows - 1) * (n_cols - 1)


@compiled
def sort_by_code(codes, order, totals, out):
    """Write the samples in ascending order of their codes, by a stable counting sort of the samples in ``order``."""
    ends = np.empty(len(totals), np.int64)
    end = 0
    for c in range(len(totals)):
        ends[c] = end
        end += totals[c]
    for k in order:
        out[ends[codes[k]]] = k
        ends[codes[k]] += 1


# --- the search -------------------------------------------------------------------------------------------------------
def discrete_skeleton(problem: DiscreteProblem, run: Run, threads: int) -> Skeleton:
    return search(problem, run, _DiscreteTests(problem, run.pmax), threads)


class _DiscreteTests(Tests):
    """The tests of one problem; each thread counts in a `Space` of its own."""

    def __init__(self, problem: DiscreteProblem, pmax: bool):
        self._problem, self._record, self._of_thread = problem, pmax, threading.local()
        largest = int(problem.categories.max())
        self._criticals = Criticals(
            small=problem.critical_values(np.arange(min(largest ** min(problem.n_variables, 13), TABULATED))),
            keys=np.empty(0, np.int64),
            values=np.empty(0),
            below=-math.log1p(-problem.alpha),
            above=-math.log(problem.alpha),
        )

    def separate_pairs(self, adjacent: np.ndarray, pmax: np.ndarray | None, map_tasks) -> int:
        problem, p = self._problem, self._problem.n_variables

        def test(rows: tuple[int, int]) -> None:
            first, last = rows
            statistics, degrees = np.zeros((last - first, p)), np.zeros((last - first, p), np.int64)
            test_pairs(self._data, self._space(0), first, last, statistics, degrees)
            later = np.arange(p) > np.arange(first, last)[:, None]
            statistics, degrees = statistics[later], degrees[later]
            distinct, which = np.unique(degrees, return_inverse=True)
            adjacent[first:last][later] = statistics > problem.critical_values(distinct)[which]
            if pmax is not None:
                pmax[first:last][later] = problem.p_value(np.maximum(statistics, 0), degrees)

        self._data = prepared(problem, map_tasks)
        rows = max(min(LARGEST_TASK // p, p // 32), ceil_div(2 * LEAST_TASK, p))
        list(map_tasks(test, [(first, min(first + rows, p)) for first in range(0, p, rows)]))
        if not problem.decided_by_tests:
            adjacent[:] = True
            edges = np.argwhere(np.triu(adjacent, 1))
            removed = edges[~problem.decayed(edges)]
            adjacent[removed[:, 0], removed[:, 1]] = False
        adjacent[:] = np.triu(adjacent, 1)
        adjacent |= adjacent.T
        if pmax is not None:
            for i in range(p):
                pmax[i + 1 :, i] = pmax[i, i + 1 :]
        return int(np.count_nonzero(adjacent)) // 2

    def separate_edges(self, graph: Graph, task: slice, level: int) -> Tested:
        edges = graph.edges[task]
        removed, sets, tests = [], [], 0
        p_values = np.full(len(edges), np.nan) if self._record else None
        space, first = self._space(level), 0
        while first < len(edges):
            separated, members, performed, recorded, done, missing_df = separate_edges(
                self._data,
                space,
                graph.starts,
                graph.neighbours,
                edges[first:],
                graph.tiers,
                level,
                self._criticals,
                self._problem.tests_per_edge or 0,
                self._record,
            )
            removed.append(first + separated)
            sets.append(members.copy())  # A view would keep the unused rows in memory.
            tests += performed
            if self._record:
                which, statistics, degrees = recorded
                np.fmax.at(p_values, first + which, self._problem.p_value(np.maximum(statistics, 0), degrees))
            first += done
            if missing_df:
                self._add_critical_value(missing_df)
        return Tested(np.concatenate(removed), np.concatenate(sets), tests, p_values=p_values)

    def after_level(self, graph: Graph, level: int, pairs: np.ndarray, sets: np.ndarray):
        if self._problem.decided_by_tests:
            return pairs, sets
        removed = graph.edges[~self._problem.decayed(graph.edges)]
        return removed, first_sets(
            graph.starts, graph.neighbours, removed, graph.tiers, level, self._problem.n_variables
        )

    def _space(self, level: int) -> Space:
        if getattr(self._of_thread, "level", None) != level:
            self._of_thread.level, self._of_thread.space = level, new_space(self._data, level)
        return self._of_thread.space

    def _add_critical_value(self, df: int) -> None:
        """Add a critical value; if two threads do this at once, one is lost, and added again when it is needed."""
        known = self._criticals
        self._criticals = known._replace(
            keys=np.append(known.keys, df), values=np.append(known.values, self._problem.critical_values(df))
        )


def prepared(problem: DiscreteProblem, map_tasks: Callable = map) -> Data:
    n = problem.n_samples
    categories = problem.categories.astype(np.int64)
    with_bits = categories <= BITMAP_CATEGORIES
    rows = np.where(with_bits, categories, 0)
    logs = np.empty(0)
    if problem.test == "g-square":
        logs = np.log(np.maximum(np.arange(n + 1), 1).astype(np.float64))
    data = Data(
        codes=problem.codes,
        categories=categories,
        places=np.concatenate(([0], np.cumsum(categories))),
        totals=np.empty(categories.sum(), np.int64),
        bit_rows=np.where(with_bits, np.cumsum(rows) - rows, -1),
        bits=np.zeros((rows.sum(), ceil_div(n, 64)), np.uint64),
        logs=logs,
        adjusted=problem.df_rule == "adjusted",
    )

    def count(first: int) -> None:
        for v in range(first, min(first + together, problem.n_variables)):
            totals = data.totals[data.places[v] : data.places[v + 1]]
            count_categories(data.codes[v], data.bit_rows[v], data.bits, totals)

    together = max(COUNTED // n, 1)
    list(map_tasks(count, range(0, problem.n_variables, together)))
    return data
