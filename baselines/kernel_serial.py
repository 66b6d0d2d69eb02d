"""PC-stable with RCIT, RCoT or KCI test by test, in plain NumPy: the reference of the kernel family."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gpupc_impl.core import watching
from gpupc_impl.core.pc_stable import LevelOutcome, LevelSearch, pc_stable
from gpupc_impl.core.registry import Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.kernel.plain import PlainTest
from gpupc_impl.kernel.problem import KernelProblem


@method(
    "kernel-serial",
    family="kernel",
    backends=("cpu",),
    source="RCIT and RCoT (Strobl, Zhang and Visweswaran 2019), KCI (Zhang et al. 2011) in PC-stable",
    summary="PC-stable with RCIT, RCoT or KCI, test by test in plain NumPy",
    reference=True,
)
def kernel_serial(problem: KernelProblem, run: Run) -> Skeleton:
    return pc_stable(problem, SerialSearch(problem, run.pmax), facts=run.facts, progress=run.progress)


def open_test(problem: KernelProblem, backend: None, params: Mapping[str, Any]) -> Callable[..., float]:
    """Single tests (`measurement.single_tests`): (i, j, S) -> p-value."""
    test = PlainTest(problem)
    return lambda i, j, members: test(i, j, members)[0]


class SerialSearch(LevelSearch):
    """PC-stable edge by edge (cuPC, Algorithm 1)."""

    def __init__(self, problem: KernelProblem, pmax: bool):
        self._problem, self._test = problem, PlainTest(problem)
        p = problem.n_variables
        self._adjacent = problem.start_graph()
        self._pmax = np.full((p, p), np.nan) if pmax else None

    def adjacency(self) -> np.ndarray:
        return self._adjacent

    def pmax(self) -> np.ndarray | None:
        return self._pmax

    def run_level(self, level: int) -> LevelOutcome:
        start = self._adjacent.copy()
        tests, pairs, sets = 0, [], []
        edges = self._problem.edges_to_test(np.argwhere(np.triu(start))).tolist()
        for done, (i, j) in enumerate(edges):
            watching.advance(done, len(edges), "edges")
            for members in self._sets(start, i, j, level):
                tests += 1
                p_value, _ = self._test(i, j, members)
                if self._pmax is not None:
                    self._pmax[i, j] = self._pmax[j, i] = np.fmax(self._pmax[i, j], p_value)
                if p_value >= self._problem.alpha:
                    pairs.append((i, j))
                    sets.append(members)
                    self._adjacent[i, j] = self._adjacent[j, i] = False
                    break
        return LevelOutcome(
            edges=int(self._adjacent.sum()) // 2,
            max_degree=self._problem.most_tested_degree(self._adjacent.sum(axis=1)),
            tests=tests,
            pairs=np.array(pairs, np.int32).reshape(-1, 2),
            sets=np.array(sets, np.int32).reshape(len(sets), level),
        )

    @staticmethod
    def _sets(graph: np.ndarray, i: int, j: int, level: int):
        """The sets of a pair in canonical order, one among the neighbours of both ends once."""
        yield from itertools.combinations([k for k in np.flatnonzero(graph[i]).tolist() if k != j], level)
        if level:
            for members in itertools.combinations([k for k in np.flatnonzero(graph[j]).tolist() if k != i], level):
                if not graph[i, list(members)].all():
                    yield members
