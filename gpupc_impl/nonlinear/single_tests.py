"""CMIknn for pairs and sets that a caller chooses, by the kernels of searches."""

from typing import ClassVar

import numpy as np

from gpupc_impl.backends import open_backend
from gpupc_impl.core.independence import IndependenceTests
from gpupc_impl.nonlinear.cmi_estimator import CmiEstimator, counts_of
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.nonlinear.tuning import DEFAULTS


class CmiknnTests(IndependenceTests):
    """The tests of a `NonlinearProblem`; the effect size is the conditional mutual information in nats."""

    effect = "cmi"
    estimator_of: ClassVar[type[CmiEstimator]] = CmiEstimator

    def __init__(self, problem: NonlinearProblem, backend: str):
        self._problem = problem
        self._estimator = self.estimator_of(problem, open_backend(backend), DEFAULTS)

    def separates(self, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
        return self._counts(pairs, sets)[0] >= self._problem.critical_count

    def strengths(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        counts, cmi = self._counts(pairs, sets)
        return self._problem.p_value(counts), cmi

    def _counts(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of permutations whose CMI is at least the data's, and the data's CMI, (k,) each."""
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
        return counts, cmi
