"""P-values and partial correlations of many pairs at once in plain NumPy, for reports."""

import numpy as np

from gpupc_impl.gaussian.array_search import ArrayProblem
from gpupc_impl.gaussian.partial_correlation import eliminate
from gpupc_impl.gaussian.problem import PSEUDO_INVERSE_TOLERANCE, GaussianProblem


class Strength:
    """Implements `core.family.Strength`."""

    effect = "partial_correlation"

    def __init__(self, problem: GaussianProblem, backend: str):
        self._problem = problem

    def __call__(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        level = sets.shape[1]
        correlations = partial_correlations(self._problem, pairs, sets)
        if self._problem.obstacle(level) is not None:  # No search makes such a test.
            return np.full(len(pairs), np.nan), correlations
        if isinstance(self._problem, ArrayProblem):
            outcome = self._problem.tests()(pairs, sets, True)
            return outcome.p_values, outcome.effects
        return np.asarray(self._problem.p_value(np.square(correlations), level)), correlations


def partial_correlations(problem: GaussianProblem, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
    """Return (k,) partial correlations (cuPC, Equation 5) of (k, 2) pairs given (k, l) sets; NaN if an endpoint has no
    variance left."""
    level = sets.shape[1]
    variables = np.concatenate([sets, pairs], axis=1)
    matrix = problem.correlation[variables[:, :, None], variables[:, None, :]]
    with np.errstate(divide="ignore", invalid="ignore"):
        residual, smallest = eliminate(matrix, level)
    singular = np.flatnonzero(smallest <= problem.pivot_tolerance) if level > 1 else np.empty(0, np.int64)
    if len(singular):
        whole = problem.correlation[variables[singular][:, :, None], variables[singular][:, None, :]]
        inverse = np.linalg.pinv(whole[:, :level, :level], rcond=PSEUDO_INVERSE_TOLERANCE, hermitian=True)
        across = whole[:, :level, level:]
        residual[singular] = whole[:, level:, level:] - across.swapaxes(1, 2) @ inverse @ across
    first, second = residual[:, 0, 0], residual[:, 1, 1]
    defined = np.minimum(first, second) > problem.residual_tolerance
    return np.clip(residual[:, 0, 1] / np.sqrt(np.where(defined, first * second, np.nan)), -1.0, 1.0)
