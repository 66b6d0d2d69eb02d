"""The test of mixed data on the CPU for the search of `_cmiknn_search`, which `mixed-serial` and `mixed-parallel`
share."""

from collections.abc import Callable

import numpy as np

from baselines import _mixed
from baselines._cmiknn_search import CmiknnTest, cmiknn_skeleton
from gpupc_impl.core.registry import Run
from gpupc_impl.core.result import Skeleton
from gpupc_impl.mixed.problem import MixedProblem


def mixed_skeleton(problem: MixedProblem, run: Run, threads: int) -> Skeleton:
    """Find the skeleton with this many threads, which share the samples of each test."""
    return cmiknn_skeleton(problem, run, threads, MixedTest)


class MixedTest(CmiknnTest):
    """The test for one permuted variable and set, and any number of other variables at once."""

    COLUMN_MULTIPLE = 1
    _problem: MixedProblem

    def _adder(self, columns: np.ndarray, permuted: int, others: list[int], members: list[int]) -> Callable:
        """Return a function from a range of samples to their sums of psi(n_xz) + psi(n_yz) - psi(n_z) - psi(k~), (w,
        width)."""
        problem, rows = self._problem, np.ascontiguousarray(columns.T)
        values, categorical = problem.values, problem.categories > 0
        ys, s = (values[others], categorical[others]), (values[members], categorical[members])
        fixed = rows, categorical[permuted], *ys, *s, problem.k_cmi, problem.psi
        return lambda samples: _mixed.partial_sums(*fixed, *samples)

    def _fill_neighbours(self, members: list[int], first: int, last: int, neighbours: np.ndarray) -> None:
        s, categorical = self._problem.values[members], self._problem.categories[members] > 0
        _mixed.nearest_neighbours(s, categorical, self._problem.k_perm, first, last, neighbours)
