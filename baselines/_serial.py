"""PC-stable in plain Python with any test of single pairs, for references whose tests take most of the time."""

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from gpupc_impl.core import watching
from gpupc_impl.core.pc_stable import GraphSearch, LevelOutcome
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.tiers import allowed_members


class SerialSearch(GraphSearch):
    """PC-stable edge by edge (cuPC, Algorithm 1).

    Args:
        test: (i, j, S) -> the p-value and the statistic.
    """

    def __init__(self, problem: Problem, pmax: bool, test: Callable[..., tuple[float, float]]):
        super().__init__(problem, pmax)
        self._test = test

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
