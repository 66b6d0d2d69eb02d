"""The regression tests from scratch, for verification; see regression/plain.py."""

import numpy as np

from gpupc_impl.regression.plain import PlainTest
from gpupc_impl.regression.problem import RegressionProblem

TOLERANCE = 1e-5
"""Relative difference of p-values within which another order of additions may change the decision."""


class Retest:
    """See `core.family.Retest`. The ratio is alpha over the p-value, so that a ratio up to 1 separates."""

    def __init__(self, problem: RegressionProblem):
        self._test, self._alpha = PlainTest(problem), problem.alpha
        self.affordable = max(10**7 // problem.n_samples, 1)

    def ratios(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return alpha / p-value for (k, 2) pairs given (k, l) sets, and the tolerances, (k,) each."""
        p_values = np.array([self._test(*pair, members)[0] for pair, members in zip(pairs, sets, strict=True)], float)
        with np.errstate(divide="ignore"):
            return self._alpha / p_values, np.full(len(pairs), TOLERANCE)
