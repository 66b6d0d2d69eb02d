"""The kernel tests from scratch, for verification; see kernel/plain.py."""

import numpy as np

from gpupc_impl.kernel.plain import PlainTest
from gpupc_impl.kernel.problem import KernelProblem

TOLERANCE = 1e-5
"""Relative difference of p-values within which another order of additions may change the decision."""

AFFORDED = {"fourier": 2 * 10**7, "kci": 10**11}
"""Upper bound on the samples (RCIT, RCoT) or their cubes (KCI), summed over all tests of one answer: about a minute."""


class Retest:
    """See `core.family.Retest`. The ratio is alpha over the p-value, so that a ratio up to 1 separates."""

    def __init__(self, problem: KernelProblem):
        self._test, self._alpha = PlainTest(problem), problem.alpha
        n = problem.n_samples
        self.affordable = max(AFFORDED["kci"] // n**3 if problem.test == "kci" else AFFORDED["fourier"] // n, 1)

    def ratios(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return alpha / p-value for (k, 2) pairs given (k, l) sets, and the tolerances, (k,) each."""
        p_values = np.array([self._test(*pair, members)[0] for pair, members in zip(pairs, sets, strict=True)], float)
        with np.errstate(divide="ignore"):
            return self._alpha / p_values, np.full(len(pairs), TOLERANCE)
