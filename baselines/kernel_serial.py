"""PC-stable with RCIT, RCoT or KCI in plain NumPy, one test at a time: the reference of the kernel family."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from gpupc_impl.core import watching
from gpupc_impl.core.pc_stable import GraphSearch, LevelOutcome, pc_stable
from gpupc_impl.core.registry import Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.core.tiers import allowed_members
from gpupc_impl.kernel.plain import PlainTest
from gpupc_impl.kernel.problem import KernelProblem


@method(
    "kernel-serial",
    family="kernel",
    backends=("cpu",),
    source="RCIT and RCoT (Strobl, Zhang and Visweswaran 2019), KCI (Zhang et al. 2011) in PC-stable",
    summary="PC-stable with RCIT, RCoT or KCI, test by test in plain NumPy",
    reference=True,
    tiers=True,
)
def kernel_serial(problem: KernelProblem, run: Run) -> Skeleton:
    return pc_stable(problem, SerialSearch(problem, run.pmax), facts=run.facts, progress=run.progress)


def open_test(problem: KernelProblem, backend: None, params: Mapping[str, Any]) -> Callable[..., float]:
    """Return the function (i, j, S) -> p-value for `measurement.single_tests`."""
    test = PlainTest(problem)
    return lambda i, j, members: test(i, j, members)[0]


class SerialSearch(GraphSearch):
    """PC-stable edge by edge (cuPC, Algorithm 1)."""

    def __init__(self, problem: KernelProblem, pmax: bool):
        super().__init__(problem, pmax)
        self._test = PlainTest(problem)

    def run_level(self, level: int) -> LevelOutcome:
        tests, removed = 0, {}
        edges = self.problem.edges_to_test(np.argwhere(np.triu(self.adjacent))).tolist()
        for done, (i, j) in enumerate(edges):
            watching.advance(done, len(edges), "edges")
            for members in self._sets(i, j, level):
                tests += 1
                p_value, _ = self._test(i, j, members)
                self.note_p_values(i, j, p_value)
                if p_value >= self.problem.alpha:
                    removed[i, j] = members
                    break
        return self.remove(level, tests, removed)

    def _sets(self, i: int, j: int, level: int) -> Iterator[tuple[int, ...]]:
        """Yield the sets of a pair in canonical order; a set among the neighbours of both ends occurs once."""
        graph, tiers = self.adjacent, self.problem.tiers
        rows = (np.setdiff1d(np.flatnonzero(graph[end]), (i, j)) for end in (i, j))
        of_i, of_j = (row[allowed_members(tiers, row, i, j)].tolist() for row in rows)
        yield from itertools.combinations(of_i, level)
        if level:
            for members in itertools.combinations(of_j, level):
                if not graph[i, list(members)].all():
                    yield members
