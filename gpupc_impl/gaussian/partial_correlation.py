"""Squared partial correlations of many pairs at once, in plain NumPy: for reports, never for decisions."""

from __future__ import annotations

import numpy as np

from gpupc_impl.gaussian.problem import RESIDUAL_TOLERANCE, GaussianProblem


def partial_r_squared(correlation: np.ndarray, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Squared partial correlations (cuPC, Equation 5).

    Args:
        correlation: (p, p) float64.
        pairs: (k, 2) variable indexes.
        sets: (k, level) conditioning sets.

    Returns:
        (k,) float64, one where an endpoint has no variance left.
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


def removed_p_values(problem: GaussianProblem, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """(k,) p-values of (k, 2) pairs that their (k, level) sets separate: at least alpha, as a method has decided.

    Another arithmetic than the method's may see a test near its threshold, or one of rounding errors alone
    (`GaussianProblem.residual_tolerance` of zero), on the other side.
    """
    level = sets.shape[1]
    squares = partial_r_squared(problem.correlation, pairs, sets)
    return problem.p_value(np.minimum(squares, problem.critical_r_squared(level)), level)
