"""Discrete tests made again for verification."""

import numpy as np

from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.discrete.statistic import statistics

NEAR = 1e-9  # relative tolerance around the critical value within which rounding may decide a test
ROWS_AFFORDED = 2 * 10**9  # samples that the tests of an answer count together, in about half a minute


class Retest:
    """Implements `core.family.Retest` for chi-square and G-square."""

    def __init__(self, problem: DiscreteProblem):
        self._problem = problem
        self.affordable = max(ROWS_AFFORDED // problem.n_samples, 1000)

    def ratios(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (k,) statistics of (k, 2) pairs given (k, l) sets, divided by the critical value, and (k,) relative
        tolerances. The ratio of a test without degrees of freedom is 0."""
        from scipy import stats  # imported here, since it takes seconds and every process lists the families

        found, df = statistics(self._problem, pairs, np.sort(sets))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = found / stats.chi2.isf(self._problem.alpha, df)
        ratios[(df == 0) | (found == 0)] = 0.0
        return ratios, np.full(len(pairs), NEAR)
