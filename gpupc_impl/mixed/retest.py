"""The CMIknn test of mixed data from scratch in NumPy by docs/mixed.md, for verification without the code of the
kernels. Each category has a coordinate, which is 1 for the samples of the category and 0 for others."""

import numpy as np

from gpupc_impl.core.mapped_arrays import pieces
from gpupc_impl.mixed.problem import MixedProblem
from gpupc_impl.nonlinear.retest import Retest, distances, set_own

_AT_ONCE = 1 << 18  # upper bound on the numbers in a temporary array


class MixedRetest(Retest):
    """Implements `core.family.Retest` for CMIknn of mixed data, with the code of `nonlinear.retest.Retest`."""

    _problem: MixedProblem

    def _space(self, variables: list[int]) -> np.ndarray:
        return self._problem.coordinates(variables)

    def _nearest(self, members: list[int]) -> np.ndarray | None:
        if not members:
            return None
        n, k = self._problem.n_samples, self._problem.k_perm
        numbers = self._space([v for v in members if not self._problem.categories[v]])
        categories = self._space([v for v in members if self._problem.categories[v]])
        result = np.empty((n, k), np.int32)
        for rows in pieces(n, max(_AT_ONCE // n, 1)):
            apart = distances(numbers, rows)
            apart[distances(categories, rows) > 0] = np.inf
            set_own(apart, rows)
            behind = (np.arange(n) - np.arange(rows.start, rows.stop)[:, None]) % n
            order = np.lexsort((behind, apart), axis=1)[:, :k]
            for a, row in zip(range(rows.start, rows.stop), order, strict=True):
                neighbours = row[np.isfinite(apart[a - rows.start, row])]
                result[a] = np.resize(neighbours, k) if len(neighbours) else a
        return result

    def _terms(self, radius, joint, in_x, in_y, in_set) -> np.ndarray:
        psi = self._problem.psi
        # The distance of a sample to itself is infinite in the joint space and 0 in the others.
        near_x, near_y, near_set = (np.count_nonzero(d <= radius, axis=1) - 1 for d in (in_x, in_y, in_set))
        return psi[near_x] + psi[near_y] - psi[near_set] - psi[np.count_nonzero(joint <= radius, axis=1)]
