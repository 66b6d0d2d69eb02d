"""Fisher's z test in extended precision (`numpy.longdouble`, 64 bits of mantissa on x86), for verification without the
code of the kernels. If a test is so ill-conditioned that float64 and extended precision may decide differently,
verification takes the decision of the canonical evaluation (canonical.py), which has the bits of every method."""

import numpy as np

from gpupc_impl.gaussian import canonical
from gpupc_impl.gaussian.problem import RESIDUAL_TOLERANCE, GaussianProblem

NEAR = 1e-9
"""A test is near its threshold if |r^2 / critical - 1| is below `NEAR_LIMIT` and below `NEAR` divided by the
conditioning of the test, which is the smallest residual variance in its computation."""

NEAR_LIMIT = 1e-3


class Retest:
    """Implements `core.family.Retest` for Fisher's z test, by the rules of docs/ci-tests.md."""

    affordable = None

    def __init__(self, problem: GaussianProblem):
        self._problem = problem
        self._correlation = problem.correlation

    def ratios(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (k,) statistics of (k, 2) pairs given (k, l) sets, divided by the critical value, and (k,) tolerances.
        At level 0 the statistics are the squares of the entries of the correlation matrix."""
        level = sets.shape[1]
        if self._problem.obstacle(level) is not None:
            return np.full(len(pairs), np.inf), np.zeros(len(pairs))
        critical = self._problem.critical_r_squared(level)
        if level == 0:
            return self._correlation[pairs[:, 0], pairs[:, 1]] ** 2 / critical, np.full(len(pairs), NEAR)
        squares, tolerances, ill_conditioned = self.statistics(pairs, sets)
        by_rounding = np.isinf(tolerances)
        some = np.flatnonzero(ill_conditioned & ~by_rounding & ~(squares <= critical * (1 + tolerances)))
        if len(some):
            squares[some] = self._canonical_squares(pairs[some], sets[some])
        return np.where(by_rounding, 1.0, squares / critical).astype(float), tolerances

    def statistics(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return squared partial correlations of (k, 2) pairs given (k, l) sets, their tolerances, and whether tests
        are ill-conditioned, (k,) each. An undefined test, which never separates, has an infinite statistic. A test has
        an infinite tolerance if rounding errors decide it: a variance in its computation is at most
        `RESIDUAL_TOLERANCE`, but the problem's `residual_tolerance` is smaller. A test is ill-conditioned if the
        pseudo-inverse was used, or if a variance is so small that `NEAR_LIMIT` is its tolerance."""
        problem = self._problem
        h = canonical.quick_residuals(problem, self._correlation, pairs, sets, dtype=np.longdouble)
        variance = np.minimum(h.ii, h.jj)
        with np.errstate(divide="ignore", invalid="ignore"):
            squares = np.where(variance <= problem.residual_tolerance, np.inf, h.ij**2 / (h.ii * h.jj))
        conditioning = np.minimum(h.pivots.min(axis=0, initial=np.inf), variance)
        ill_conditioned = h.near_singular | ~(conditioning > NEAR / NEAR_LIMIT)
        tolerances = (NEAR / np.maximum(conditioning, RESIDUAL_TOLERANCE)).astype(float)
        if problem.residual_tolerance < RESIDUAL_TOLERANCE:
            # Rounding errors decide most of the tests to which `NEAR_LIMIT` would apply.
            tolerances[~(conditioning > RESIDUAL_TOLERANCE)] = np.inf
            return squares, tolerances, ill_conditioned
        return squares, np.minimum(tolerances, NEAR_LIMIT), ill_conditioned

    def _canonical_squares(self, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
        """Return squared partial correlations with the bits of every method, (k,); infinite if a test is undefined."""
        h = canonical.residuals(self._correlation, pairs, sets, self._problem.pivot_tolerance)
        defined = h.defined(self._problem.residual_tolerance)
        return np.where(defined, h.ij * h.ij / np.where(defined, h.ii * h.jj, 1.0), np.inf)
