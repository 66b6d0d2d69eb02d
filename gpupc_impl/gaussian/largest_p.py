"""The largest p-value of each pair in a search on a device. It is a module of its own so that verification, which needs
no kernel, does not import it."""

import numpy as np

from gpupc_impl.engine.graph import NO_KEY
from gpupc_impl.gaussian.partial_correlation import removed_p_values
from gpupc_impl.gaussian.problem import GaussianProblem


class LargestPValues:
    """The largest p-value of each pair, `values`, (p, p) float64, NaN for pairs without a test; computed from the
    smallest r^2 that the kernels of each level record."""

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
