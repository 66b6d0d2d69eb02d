"""Partial correlations and p-values for reports: they decide nothing."""

import numpy as np

from gpupc_impl.engine.graph import NO_KEY
from gpupc_impl.gaussian.problem import RESIDUAL_TOLERANCE, GaussianProblem


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


def removed_p_values(problem: GaussianProblem, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Return (k,) p-values of (k, 2) pairs that their (k, level) sets separate, clamped to at least alpha: the method
    that decided used other arithmetic than this function, whose p-value could contradict the decision if a test is near
    the threshold, or if rounding errors decide it."""
    level = sets.shape[1]
    squares = partial_r_squared(problem.correlation, pairs, sets)
    return problem.p_value(np.minimum(squares, problem.critical_r_squared(level)), level)


class LargestPValues:
    """Largest p-values, `values`, (p, p) float64, NaN without a test, from the smallest r^2 that kernels record."""

    def __init__(self, problem: GaussianProblem):
        self.problem = problem
        self.values = np.full((problem.n_variables,) * 2, np.nan)

    def begin(self) -> None:
        """Set `values` to the p-values of level 0."""
        self.values = np.array(self.problem.p_value(np.square(self.problem.correlation), 0))
        np.fill_diagonal(self.values, np.nan)

    def update(self, level: int, smallest: np.ndarray, pairs: np.ndarray, sets: np.ndarray) -> None:
        """Update `values` with the p-values of a level from 1 on, of which `smallest`, (p, p) uint64, has the bits of
        the smallest r^2 for i < j, and `NO_KEY` for pairs without a test; removed pairs get those given their sets."""
        tested = np.triu(smallest != NO_KEY)
        p_values = self.problem.p_value(np.where(tested, smallest, 0).view(np.float64), level)
        self.values[tested] = np.fmax(self.values[tested], p_values[tested])
        i, j = pairs.T
        self.values[i, j] = removed_p_values(self.problem, pairs, sets)
        lower = np.tril_indices(len(self.values), -1)
        self.values[lower] = self.values.T[lower]
