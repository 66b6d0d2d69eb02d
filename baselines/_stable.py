"""PC-stable on the CPU: the search that `stable-serial` and `stable-parallel` share."""

import concurrent.futures

import numpy as np

from baselines import _fisher_z
from gpupc_impl.core.pc_stable import LevelOutcome, pc_stable
from gpupc_impl.core.problem import PSEUDO_INVERSE_TOLERANCE, RESIDUAL_TOLERANCE, GaussianProblem
from gpupc_impl.core.registry import Run
from gpupc_impl.core.result import Skeleton

LARGEST_TASK = 4096
"""Edges handed over at a time: bounds the memory for separating sets that are found."""


def stable_skeleton(problem: GaussianProblem, run: Run, threads: int) -> Skeleton:
    """Find the skeleton with that many threads.

    The edges of a level are shared out in small runs, and each run returns what it removed, so the answer does not
    depend on the number of threads.
    """
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        map_tasks = map if threads == 1 else pool.map
        search = _StableSearch(problem, run.pmax, threads, map_tasks)
        return pc_stable(problem, search, facts=run.facts, progress=run.progress)


class _StableSearch:
    """PC-stable at work on one problem (cuPC, Algorithm 1); a `LevelSearch`."""

    def __init__(self, problem: GaussianProblem, pmax: bool, threads: int, map_tasks):
        self._problem, self._threads, self._map_tasks = problem, threads, map_tasks
        p = problem.n_variables
        self._adjacent = ~np.eye(p, dtype=bool)
        self._pmax = np.full((p, p), np.nan) if pmax else None

    def adjacency(self) -> np.ndarray:
        return self._adjacent

    def pmax(self) -> np.ndarray | None:
        return self._pmax

    def run_level(self, level: int) -> LevelOutcome:
        return self._run_level_zero() if level == 0 else self._run_level(level)

    def _run_level_zero(self) -> LevelOutcome:
        problem, p = self._problem, self._problem.n_variables
        edges = _fisher_z.separate_pairs(problem.correlation, problem.critical_r_squared(0), self._adjacent)
        if self._pmax is not None:
            self._pmax[:] = problem.p_value(problem.correlation**2, 0)
            np.fill_diagonal(self._pmax, np.nan)
        return LevelOutcome(edges=edges, max_degree=self._max_degree(), tests=p * (p - 1) // 2)

    def _run_level(self, level: int) -> LevelOutcome:
        problem = self._problem
        limits = (problem.critical_r_squared(level), RESIDUAL_TOLERANCE, PSEUDO_INVERSE_TOLERANCE)
        starts, neighbours, edges = _fisher_z.neighbour_lists(self._adjacent)
        smallest = np.full(len(edges) if self._pmax is not None else 0, np.inf)

        def test(task: slice):
            graph = (problem.correlation, starts, neighbours, edges[task])
            if level == 1:
                removed, sets, *counts = _fisher_z.separate_edges_level_one(*graph, limits, smallest[task])
            else:
                removed, sets, *counts = _fisher_z.separate_edges(*graph, level, limits, smallest[task])
            return edges[task][removed], sets.copy(), *counts  # not a view, which would keep the unused rows

        size = min(max(len(edges) // (32 * self._threads), 1), LARGEST_TASK)
        tasks = (slice(first, first + size) for first in range(0, len(edges), size))
        removed, sets, *counts = zip(*self._map_tasks(test, tasks), strict=True)
        tests, undefined, pseudo_inverses = (sum(count) for count in counts)
        removed = np.concatenate(removed)
        self._adjacent[removed[:, 0], removed[:, 1]] = self._adjacent[removed[:, 1], removed[:, 0]] = False
        if self._pmax is not None:
            self._update_pmax(edges, smallest, level)
        return LevelOutcome(
            edges=len(edges) - len(removed),
            max_degree=self._max_degree(),
            tests=tests,
            pairs=removed,
            sets=np.concatenate(sets),
            undefined=undefined,
            pseudo_inverses=pseudo_inverses,
        )

    def _max_degree(self) -> int:
        return int(self._adjacent.sum(axis=1).max())

    def _update_pmax(self, edges: np.ndarray, smallest: np.ndarray, level: int) -> None:
        """An edge whose tests of this level were all undefined keeps the value of the levels before."""
        defined = np.isfinite(smallest)
        i, j = edges[defined].T
        p_values = np.fmax(self._pmax[i, j], self._problem.p_value(smallest[defined], level))
        self._pmax[i, j] = self._pmax[j, i] = p_values
