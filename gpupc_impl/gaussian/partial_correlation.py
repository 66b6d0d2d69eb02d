"""Partial correlations and p-values of many pairs at once in plain NumPy, for reports and never for decisions."""

from typing import Any

import numpy as np

from gpupc_impl.gaussian.problem import RESIDUAL_TOLERANCE, GaussianProblem


def partial_r_squared(correlation: np.ndarray, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Return squared partial correlations (cuPC, Equation 5).

    Args:
        correlation: (p, p) float64.
        pairs: (k, 2) variable indexes.
        sets: (k, level) conditioning sets.

    Returns:
        (k,) float64; one if an endpoint has no variance left given the set.
    """
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
    """Eliminate the first `level` variables of each of k correlation matrices; `matrix` is overwritten.

    Args:
        matrix: (k, level + 2, level + 2) float64, the correlations of the members of a set, followed by a pair.
        level: the number of members.
        xp: the library of the arrays, NumPy or CuPy.

    Returns:
        The (k, 2, 2) residual covariances of the pairs, and the (k,) smallest pivots.
    """
    smallest = xp.full(len(matrix), np.inf)
    for k in range(level):
        pivot, column = matrix[:, k, k], matrix[:, k + 1 :, k]
        smallest = xp.fmin(smallest, pivot)
        matrix[:, k + 1 :, k + 1 :] -= column[:, :, None] * (column / pivot[:, None])[:, None, :]
    return matrix[:, level:, level:], smallest


def removed_p_values(problem: GaussianProblem, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Return (k,) p-values of (k, 2) pairs that their (k, level) sets separate, clamped to at least alpha.

    The method that decided that these pairs are independent used other arithmetic than this function. Without the
    clamp, a p-value could contradict that decision if a test is near the threshold, or if rounding errors decide the
    test (with `GaussianProblem.residual_tolerance` of zero).
    """
    level = sets.shape[1]
    squares = partial_r_squared(problem.correlation, pairs, sets)
    return problem.p_value(np.minimum(squares, problem.critical_r_squared(level)), level)
