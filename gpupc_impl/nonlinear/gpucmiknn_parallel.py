"""GPU-CMIknn Parallel (GPU-CMIknn, section 4.2, Algorithm 5), which uses the permutations of a variable given a set for
the tests with all its neighbours."""

import itertools
import math
from collections.abc import Iterator

import numpy as np

from gpupc_impl.core.pc_stable import pc_stable
from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.core.tiers import allowed_partners
from gpupc_impl.nonlinear.cmiknn_search import Search
from gpupc_impl.nonlinear.declarations import search_kernels
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.nonlinear.tuning import SEARCH_PARAMS

SETS_AT_ONCE = Parameter(0, "sets at once (delta); 0: what suits the backend", minimum=0, maximum=1 << 20)


class ParallelSearch(Search):
    """The search in batches of sets, each with the tests of its variable and all neighbours that are still open."""

    def _test_all(self, level: int) -> None:
        rows = [row.nonzero()[0] for row in self.edges]
        for batch in self._batches(level, rows):
            sets = [(i, *members) for i, members, _ in batch]
            tests = [(index, j) for index, (_, _, others) in enumerate(batch) for j in others]
            self.make(level, sets, tests)

    def _batches(self, level: int, rows: list[np.ndarray]) -> Iterator[list[tuple[int, tuple[int, ...], list[int]]]]:
        """Yield the sets (i, S) with the V_j to test, in batches that fill the device.

        A batch takes the next set of each variable in turn. A pair then has few tests in a batch, so few of its tests
        are unnecessary if one of them separates the pair. If one set fills the device, all sets of a variable come
        before those of the next.
        """
        busy_tests, requested = self.estimator.busy_tests, self.params["delta"]
        most_tests = max(len(row) for row in rows) - level
        room = self.estimator.fitting(level, requested or max(1, int(busy_tests)), most_tests)
        enough = math.inf if requested else busy_tests
        queues = [(i, rows[i], itertools.combinations(rows[i].tolist(), level)) for i in range(self.p)]
        queues = [queue for queue in queues if len(queue[1]) > level]
        while queues:
            batch, tests, finished = [], 0, set()
            while len(batch) < room and tests < enough and len(finished) < len(queues):
                for place, (i, row, sets) in enumerate(queues):
                    if place in finished:
                        continue
                    chosen = self._next(level, i, row, sets)
                    if chosen is None:
                        finished.add(place)
                        continue
                    batch.append((i, *chosen))
                    tests += len(chosen[1])
                    if len(batch) >= room or tests >= enough:
                        break
            queues = [queue for place, queue in enumerate(queues) if place not in finished]
            if batch:
                batch.sort(key=lambda entry: entry[:2])
                yield batch

    def _next(
        self, level: int, i: int, row: np.ndarray, sets: Iterator[tuple[int, ...]]
    ) -> tuple[tuple[int, ...], list[int]] | None:
        """Return the variable's next set with an open test, and the V_j to test; None if no set is left."""
        others = row[row > i] if level == 0 else row
        candidates = others[self.open(i, others)].tolist()
        if not candidates:
            return None
        for members in sets:
            chosen = allowed_partners(self.problem.tiers, i, candidates, members)
            if chosen:
                return members, chosen
        return None


@method(
    "gpucmiknn-parallel",
    family="nonlinear",
    source="GPU-CMIknn, section 4.2, Algorithm 5",
    summary="permutations of several sets at once, each used for all neighbours of its variable",
    params={**SEARCH_PARAMS, "delta": SETS_AT_ONCE},
    tiers=True,
    kernels=search_kernels,
)
def gpucmiknn_parallel(problem: NonlinearProblem, run: Run) -> Skeleton:
    return pc_stable(problem, ParallelSearch(problem, run), facts=dict(run.facts), progress=run.progress)
