"""PC-stable on coded data on the CPU (gpuPC, Algorithm 1), which `discrete-serial` and `discrete-parallel` share."""

import math
import threading
from collections.abc import Callable

import numpy as np

from baselines import _discrete, _discrete_counts
from baselines._levels import LARGEST_TASK, LEAST_TASK, Graph, Tested, Tests, search
from gpupc_impl.core.registry import Run
from gpupc_impl.core.result import Skeleton
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.integers import ceil_div

TABULATED = 8192  # degrees of freedom up to here have tabulated critical values
COUNTED = 1 << 17  # samples that a task counts, in a tenth of a millisecond


def discrete_skeleton(problem: DiscreteProblem, run: Run, threads: int) -> Skeleton:
    return search(problem, run, _DiscreteTests(problem, run.pmax), threads)


class _DiscreteTests(Tests):
    def __init__(self, problem: DiscreteProblem, pmax: bool):
        self._problem, self._record, self._of_thread = problem, pmax, threading.local()
        largest = int(problem.categories.max())
        self._criticals = _discrete.Criticals(
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
            _discrete.test_pairs(self._data, self._space(0), first, last, statistics, degrees)
            later = np.arange(p) > np.arange(first, last)[:, None]
            statistics, degrees = statistics[later], degrees[later]
            distinct, which = np.unique(degrees, return_inverse=True)
            adjacent[first:last][later] = statistics > problem.critical_values(distinct)[which]
            if pmax is not None:
                pmax[first:last][later] = problem.p_value(statistics, degrees)

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
            separated, members, performed, recorded, done, missing_df = _discrete.separate_edges(
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
                np.fmax.at(p_values, first + which, self._problem.p_value(statistics, degrees))
            first += done
            if missing_df:
                self._add_critical_value(missing_df)
        return Tested(np.concatenate(removed), np.concatenate(sets), tests, p_values=p_values)

    def after_level(self, graph: Graph, level: int, pairs: np.ndarray, sets: np.ndarray):
        if self._problem.decided_by_tests:
            return pairs, sets
        removed = graph.edges[~self._problem.decayed(graph.edges)]
        return removed, _discrete.first_sets(
            graph.starts, graph.neighbours, removed, graph.tiers, level, self._problem.n_variables
        )

    def _space(self, level: int) -> _discrete_counts.Space:
        if getattr(self._of_thread, "level", None) != level:
            self._of_thread.level, self._of_thread.space = level, _discrete_counts.new_space(self._data, level)
        return self._of_thread.space

    def _add_critical_value(self, df: int) -> None:
        """Add a critical value; if two threads do this at once, one is lost, and added again when it is needed."""
        known = self._criticals
        self._criticals = known._replace(
            keys=np.append(known.keys, df), values=np.append(known.values, self._problem.critical_value(df))
        )


def prepared(problem: DiscreteProblem, map_tasks: Callable = map) -> _discrete_counts.Data:
    n = problem.n_samples
    categories = problem.categories.astype(np.int64)
    with_bits = categories <= _discrete_counts.BITMAP_CATEGORIES
    rows = np.where(with_bits, categories, 0)
    logs = np.empty(0)
    if problem.test == "g-square":
        logs = np.log(np.maximum(np.arange(n + 1), 1).astype(np.float64))
    data = _discrete_counts.Data(
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
            _discrete_counts.count_categories(data.codes[v], data.bit_rows[v], data.bits, totals)

    together = max(COUNTED // n, 1)
    list(map_tasks(count, range(0, problem.n_variables, together)))
    return data
