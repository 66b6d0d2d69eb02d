"""The conditional mutual information of pairs with and without an edge, which the kernels of searches estimate for
reports."""

from typing import ClassVar

import numpy as np

from gpupc_impl.backends import open_backend
from gpupc_impl.nonlinear.device import CmiEstimator, counts_of
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.nonlinear.tuning import DEFAULTS


class Strength:
    """Implements `core.family.Strength`; the first variable of a pair is permuted."""

    effect = "cmi"
    estimator_of: ClassVar[type[CmiEstimator]] = CmiEstimator

    def __init__(self, problem: NonlinearProblem, backend: str):
        self._problem = problem
        self._estimator = self.estimator_of(problem, open_backend(backend), DEFAULTS)

    def __call__(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        level = sets.shape[1]
        counts, cmi = np.empty(len(pairs)), np.empty(len(pairs))
        done = 0
        while done < len(pairs):
            room = self._estimator.fitting(level, len(pairs) - done, 1)
            part = slice(done, done + room)
            owners = np.concatenate([pairs[part, :1], np.sort(sets[part])], axis=1)
            tests = np.stack([np.arange(len(owners)), pairs[part, 1]], axis=1)
            partials = self._estimator.partials(level, owners, tests)
            counts[part], cmi[part] = counts_of(partials), self._problem.cmi(partials[:, 0])
            done += room
        return self._problem.p_value(counts), cmi
