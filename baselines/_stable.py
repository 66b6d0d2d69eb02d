"""PC-stable with Fisher's z test on the CPU, which `stable-serial` and `stable-parallel` share."""

import numpy as np

from baselines import _fisher_z
from baselines._levels import Graph, Tested, search
from gpupc_impl.core.registry import Run
from gpupc_impl.core.result import Skeleton
from gpupc_impl.gaussian.problem import PSEUDO_INVERSE_TOLERANCE, GaussianProblem


def stable_skeleton(problem: GaussianProblem, run: Run, threads: int) -> Skeleton:
    """Find the skeleton with that many threads."""
    return search(problem, run, _FisherZTests(problem, run.pmax), threads)


class _FisherZTests:
    """Fisher's z test on one problem, which implements `Tests`."""

    def __init__(self, problem: GaussianProblem, pmax: bool):
        self._problem, self._record = problem, pmax

    def separate_pairs(self, adjacent: np.ndarray, pmax: np.ndarray | None, map_tasks) -> int:
        problem = self._problem
        if pmax is not None:
            pmax[:] = problem.p_value(problem.correlation**2, 0)
            np.fill_diagonal(pmax, np.nan)
        return _fisher_z.separate_pairs(problem.correlation, problem.critical_r_squared(0), adjacent)

    def separate_edges(self, graph: Graph, task: slice, level: int) -> Tested:
        problem, edges = self._problem, graph.edges[task]
        tolerances = problem.residual_tolerance, problem.pivot_tolerance, PSEUDO_INVERSE_TOLERANCE
        limits = problem.critical_r_squared(level), *tolerances
        smallest = np.full(len(edges) if self._record else 0, np.inf)
        data = (problem.correlation, graph.starts, graph.neighbours, edges)
        if level == 1:
            removed, sets, *counts = _fisher_z.separate_edges_level_one(*data, limits, smallest)
        else:
            removed, sets, *counts = _fisher_z.separate_edges(*data, level, limits, smallest)
        p_values = None
        if self._record:  # An edge whose tests are all undefined has no p-value.
            defined = np.isfinite(smallest)
            p_values = np.full(len(edges), np.nan)
            p_values[defined] = problem.p_value(smallest[defined], level)
        return Tested(removed, sets.copy(), *counts, p_values)  # A view would keep the unused rows in memory.

    def after_level(self, graph: Graph, level: int, pairs: np.ndarray, sets: np.ndarray):
        return pairs, sets
