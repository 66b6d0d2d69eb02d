"""GPU-CMIknn Single (GPU-CMIknn, sections 4.1 and 4.2, Algorithm 2), which makes one test at a time and processes its
samples and permutations in parallel."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend
from gpupc_impl.core.pc_stable import pc_stable
from gpupc_impl.core.registry import Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.core.tiers import allowed_members
from gpupc_impl.nonlinear.cmi_estimator import CmiEstimator, ci_test
from gpupc_impl.nonlinear.cmiknn_search import Search
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.nonlinear.tuning import PARAMS, SEARCH_PARAMS


class SingleSearch(Search):
    """The search that tests each pair in ascending order until its first separating set, like a serial PC-stable."""

    def _test_all(self, level: int) -> None:
        self.estimator.fitting(level, 1, 1)
        rows = [row.nonzero()[0] for row in self.edges]
        for i in range(self.p):
            for j in rows[i].tolist():
                if j > i:
                    self._test_pair(level, i, j, rows)

    def _test_pair(self, level: int, i: int, j: int, rows: list[np.ndarray]) -> None:
        sides = ((i, j),) if level == 0 else ((i, j), (j, i))
        for owner, other in sides:
            if not self.open(owner, other):
                return
            row = rows[owner][rows[owner] != other]
            row = row[allowed_members(self.problem.tiers, row, i, j)]
            for members in itertools.combinations(row.tolist(), level):
                self.make(level, [(owner, *members)], [(0, other)])
                if not self.open(owner, other):
                    return


def open_test(
    problem: NonlinearProblem,
    backend: Backend,
    params: Mapping[str, Any],
    estimator_of: type[CmiEstimator] = CmiEstimator,
) -> Callable[..., float]:
    """Return a function (i, j, S) -> p-value for `measurement.single_tests`; each call copies the data to the
    device."""
    test_params = {name: value for name, value in params.items() if name in PARAMS}

    def test(i: int, j: int, members: tuple[int, ...]) -> float:
        count, _, _ = ci_test(problem, i, j, members, backend, estimator_of=estimator_of, **test_params)
        return problem.p_value(count)

    return test


@method(
    "gpucmiknn-single",
    family="nonlinear",
    source="GPU-CMIknn, sections 4.1 and 4.2, Algorithm 2",
    summary="one test at a time: its local permutations, then its CMI values",
    params=SEARCH_PARAMS,
    open_test=open_test,
    tiers=True,
)
def gpucmiknn_single(problem: NonlinearProblem, run: Run) -> Skeleton:
    return pc_stable(problem, SingleSearch(problem, run), facts=dict(run.facts), progress=run.progress)


@method(
    "gpucmiknn-single-racing",
    family="nonlinear",
    source="GPU-CMIknn, sections 4.1 and 4.2, Algorithms 2 and 3 with another random generator",
    summary="the same, but the first thread to come takes a sample, so p-values change from run to run",
    params=SEARCH_PARAMS,
    open_test=open_test,
    random=True,
    tiers=True,
)
def gpucmiknn_single_racing(problem: NonlinearProblem, run: Run) -> Skeleton:
    return pc_stable(problem, SingleSearch(problem, run, racing=True), facts=dict(run.facts), progress=run.progress)
