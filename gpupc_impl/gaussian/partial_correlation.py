"""Partial correlations of many pairs at once, by the same code for NumPy and CuPy.

They decide in the searches of missing values (array_search.py), and elsewhere serve reports alone.
"""

from typing import Any

import numpy as np

from gpupc_impl.gaussian.problem import PSEUDO_INVERSE_TOLERANCE, RESIDUAL_TOLERANCE, GaussianProblem


def partial_r_squared(correlation: np.ndarray, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Return (k,) squared partial correlations (cuPC, Equation 5) of (k, 2) pairs given (k, l) sets by pseudo-inverses,
    as recorded p-values have them; one if an endpoint has no variance left."""
    if not len(pairs):
        return np.empty(0)
    m2 = correlation[sets[:, :, None], sets[:, None, :]]
    m1 = correlation[sets[:, :, None], pairs[:, None, :]]
    m0 = correlation[pairs[:, :, None], pairs[:, None, :]]
    inverse = np.linalg.pinv(m2, rcond=RESIDUAL_TOLERANCE, hermitian=True)
    h = m0 - np.swapaxes(m1, 1, 2) @ inverse @ m1
    variances = h[:, 0, 0] * h[:, 1, 1]
    defined = np.minimum(h[:, 0, 0], h[:, 1, 1]) > RESIDUAL_TOLERANCE
    return np.where(defined, np.square(h[:, 0, 1]) / np.where(defined, variances, 1.0), 1.0)


def eliminate(matrix: Any, level: int, xp: Any = np) -> tuple[Any, Any]:
    """Eliminate the first `level` variables of (k, n, n) correlations in place; return the residual covariances of the
    others, and the (k,) smallest pivots."""
    smallest = xp.full(len(matrix), np.inf)
    for k in range(level):
        pivot, column = matrix[:, k, k], matrix[:, k + 1 :, k]
        smallest = xp.fmin(smallest, pivot)
        matrix[:, k + 1 :, k + 1 :] -= column[:, :, None] * (column / pivot[:, None])[:, None, :]
    return matrix[:, level:, level:], smallest


def residuals(
    xp: Any, problem: GaussianProblem, correlation: Any, pairs: Any, sets: Any, dtype: Any = np.float64
) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Return H of cuPC, section 4.3, for (k, 2) pairs given (k, l) sets, by the rules of docs/ci-tests.md.

    Args:
        problem: the problem, of which the tolerances are read.
        correlation: (p, p), an array of the library.
        dtype: the precision of the computation.

    Returns:
        The residual variances of both ends and their covariance; whether both ends have variance left; whether the
        pseudo-inverse of the conditioning matrix was used; and the smallest pivot; (k,) each.
    """
    level = sets.shape[1]
    variables = xp.concatenate([sets, pairs], axis=1)
    original = correlation[variables[:, :, None], variables[:, None, :]]
    with np.errstate(divide="ignore", invalid="ignore"):
        left, smallest = eliminate(original.astype(dtype), level, xp)
        pseudo = (smallest <= problem.pivot_tolerance) & (level > 1)
        for k in np.flatnonzero(to_host(pseudo)).tolist():
            matrix = to_host(original[k]).astype(dtype)
            explained = pseudo_inverse_products(matrix[:level, :level], matrix[:level, level:])
            left[k] = xp.asarray(matrix[level:, level:] - explained)
    first, second, covariance = left[:, 0, 0], left[:, 1, 1], left[:, 0, 1]
    return first, second, covariance, xp.minimum(first, second) > problem.residual_tolerance, pseudo, smallest


def to_host(array: Any) -> np.ndarray:
    """Return an array of NumPy or CuPy as one of NumPy."""
    return array.get() if hasattr(array, "get") else np.asarray(array)


def partial_correlations(problem: GaussianProblem, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Return (k,) partial correlations (cuPC, Equation 5) of (k, 2) pairs given (k, l) sets; NaN if an endpoint has no
    variance left."""
    first, second, covariance, defined, *_ = residuals(np, problem, problem.correlation, np.sort(pairs, axis=1), sets)
    return np.clip(covariance / np.sqrt(np.where(defined, first * second, np.nan)), -1.0, 1.0)


def removed_p_values(problem: GaussianProblem, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Return (k,) p-values of (k, 2) pairs that their (k, level) sets separate, clamped to at least alpha.

    The method that decided used other arithmetic than this function, whose p-value could contradict the decision if a
    test is near the threshold, or if rounding errors decide it.
    """
    level = sets.shape[1]
    squares = partial_r_squared(problem.correlation, pairs, sets)
    return problem.p_value(np.minimum(squares, problem.critical_r_squared(level)), level)


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
