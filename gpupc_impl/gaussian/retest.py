"""Fisher's z test from scratch in extended precision, for verification without the code of the kernels.

Extended precision is `numpy.longdouble`, which has 64 bits of mantissa on x86. If a test is so ill-conditioned that
float64 and extended precision may decide differently, verification takes the decision of the canonical evaluation
(canonical.py), which has the same bits as every method.
"""

import numpy as np

from gpupc_impl.gaussian import canonical
from gpupc_impl.gaussian.problem import PSEUDO_INVERSE_TOLERANCE, RESIDUAL_TOLERANCE, GaussianProblem

NEAR = 1e-9
"""A test is near its threshold if |r^2 / critical - 1| is below `NEAR_LIMIT` and below `NEAR` divided by the
conditioning of the test, which is the smallest residual variance in its computation."""

NEAR_LIMIT = 1e-3

_CHUNK = 1 << 16


class Retest:
    """Implements `core.family.Retest` for Fisher's z test, by the rules of docs/ci-tests.md."""

    affordable = None

    def __init__(self, problem: GaussianProblem):
        self._problem = problem
        self._correlation = problem.correlation

    def ratios(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (k,) statistics of (k, 2) pairs given (k, l) sets, divided by the critical value, and (k,) tolerances.

        At level 0 the statistics are the squares of the entries of the correlation matrix.
        """
        level = sets.shape[1]
        if self._problem.obstacle(level) is not None:
            return np.full(len(pairs), np.inf), np.zeros(len(pairs))
        critical = self._problem.critical_r_squared(level)
        if level == 0:
            return self._correlation[pairs[:, 0], pairs[:, 1]] ** 2 / critical, np.full(len(pairs), NEAR)
        squares, tolerances, ill_conditioned = self._statistics(pairs, sets)
        by_rounding = np.isinf(tolerances)
        for k in np.flatnonzero(ill_conditioned & ~by_rounding & ~(squares <= critical * (1 + tolerances))):
            squares[k] = self._canonical_square(*pairs[k].tolist(), sets[k])
        return np.where(by_rounding, 1.0, squares / critical).astype(float), tolerances

    def statistics(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return squared partial correlations of (k, 2) pairs given (k, l) sets, and their tolerances, (k,) each.

        An undefined test, which never separates, has an infinite statistic. A test has an infinite tolerance if
        rounding errors decide it: a variance in its computation is at most `RESIDUAL_TOLERANCE`, but the test is
        defined because the problem has a smaller `residual_tolerance`.
        """
        return self._statistics(pairs, sets)[:2]

    def _statistics(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return `statistics` and (k,) bool that marks ill-conditioned tests, for which the pseudo-inverse was used, or
        a variance is so small that `NEAR_LIMIT` is their tolerance."""
        squares = np.empty(len(pairs), np.longdouble)
        tolerances = np.empty(len(pairs))
        ill_conditioned = np.empty(len(pairs), bool)
        for start in range(0, len(pairs), _CHUNK):
            part = slice(start, start + _CHUNK)
            squares[part], tolerances[part], ill_conditioned[part] = self._chunk(pairs[part], sets[part])
        return squares, tolerances, ill_conditioned

    def _canonical_square(self, i: int, j: int, members: np.ndarray) -> float:
        """Return the squared partial correlation with the bits of every method; infinite if the test is undefined."""
        problem = self._problem
        h = canonical.residuals(self._correlation, i, j, np.sort(members).tolist(), problem.pivot_tolerance)
        if min(h.ii, h.jj) <= problem.residual_tolerance:
            return np.inf
        return h.ij * h.ij / (h.ii * h.jj)

    def _chunk(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        size = sets.shape[1]
        variables = np.concatenate([sets, pairs], axis=1)
        original = self._correlation[variables[:, :, None], variables[:, None, :]].astype(np.longdouble)
        matrix = original.copy()
        smallest = np.full(len(pairs), np.inf, np.longdouble)
        with np.errstate(divide="ignore", invalid="ignore"):
            for k in range(size):  # The loop eliminates the members of the set.
                pivot = matrix[:, k, k]
                smallest = np.fmin(smallest, pivot)
                column = matrix[:, k + 1 :, k]
                matrix[:, k + 1 :, k + 1 :] -= column[:, :, None] * column[:, None, :] / pivot[:, None, None]
        zero = self._problem.residual_tolerance
        singular = np.flatnonzero(smallest <= self._problem.pivot_tolerance) if size > 1 else []
        residual = matrix[:, size:, size:]
        for k in singular:
            explained = pseudo_inverse_products(original[k, :size, :size], original[k, :size, size:])
            residual[k] = original[k, size:, size:] - explained
        variance = np.minimum(residual[:, 0, 0], residual[:, 1, 1])
        undefined = variance <= zero
        with np.errstate(divide="ignore", invalid="ignore"):
            squares = residual[:, 0, 1] ** 2 / (residual[:, 0, 0] * residual[:, 1, 1])
        squares[undefined] = np.inf
        conditioning = np.minimum(smallest, variance)
        ill_conditioned = ~(conditioning > NEAR / NEAR_LIMIT)
        ill_conditioned[singular] = True
        tolerances = (NEAR / np.maximum(conditioning, RESIDUAL_TOLERANCE)).astype(float)
        if zero < RESIDUAL_TOLERANCE:  # Rounding errors decide tests; `NEAR_LIMIT` would apply to most of them.
            tolerances[~(conditioning > RESIDUAL_TOLERANCE)] = np.inf
            return squares, tolerances, ill_conditioned
        return squares, np.minimum(tolerances, NEAR_LIMIT), ill_conditioned


def pseudo_inverse_products(matrix: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return (k, k) products v^T M^+ w, where M is (l, l) and symmetric, and v and w are the columns of (l, k) vectors.

    The pseudo-inverse M^+ is that of cuPC, Algorithm 7, in the form of docs/ci-tests.md, with the precision of the
    arguments.
    """
    size, gram = len(matrix), matrix.T @ matrix
    tolerance = PSEUDO_INVERSE_TOLERANCE * np.diagonal(gram).min()
    factor = np.zeros((size, 0), matrix.dtype)
    for k in range(size):
        column = gram[:, k] - factor @ factor[k]
        column[:k] = 0
        if column[k] > tolerance:
            factor = np.column_stack([factor, column / np.sqrt(column[k])])
    return _least_squares(factor, vectors).T @ _least_squares(factor, matrix @ vectors)


def _least_squares(matrix: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the x that minimises |matrix x - target| for each column of targets.

    `numpy.linalg` does not support extended precision.
    """
    rank = matrix.shape[1]
    work = np.concatenate([matrix, targets], axis=1)
    triangle = np.zeros((rank, work.shape[1]), matrix.dtype)
    for k in range(rank):  # The loop is the modified Gram-Schmidt process.
        triangle[k, k] = np.sqrt(work[:, k] @ work[:, k])
        along = work[:, k] / triangle[k, k]
        triangle[k, k + 1 :] = along @ work[:, k + 1 :]
        work[:, k + 1 :] -= along[:, None] * triangle[k, k + 1 :]
    x = triangle[:, rank:]
    for k in reversed(range(rank)):
        x[k] = (x[k] - triangle[k, k + 1 : rank] @ x[k + 1 :]) / triangle[k, k]
    return x
