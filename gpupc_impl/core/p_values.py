"""Verification of families whose test from scratch returns a p-value, one test at a time."""

from collections.abc import Callable

import numpy as np

TOLERANCE = 1e-5
"""Relative difference of p-values within which another order of additions may change the decision."""


class PValueRetest:
    """See `core.family.Retest`. The ratio is alpha over the p-value, so that a ratio up to 1 separates.

    Args:
        test: (i, j, members) -> the p-value and the statistic, computed from scratch.
        affordable: the number of tests that are made if there are more removed edges.
    """

    def __init__(self, test: Callable[..., tuple[float, float]], alpha: float, affordable: int):
        self._test, self._alpha, self.affordable = test, alpha, max(affordable, 1)

    def ratios(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return alpha / p-value for (k, 2) pairs given (k, l) sets, and the tolerances, (k,) each."""
        p_values = np.array([self._test(*pair, members)[0] for pair, members in zip(pairs, sets, strict=True)], float)
        with np.errstate(divide="ignore"):
            return self._alpha / p_values, np.full(len(pairs), TOLERANCE)
