"""CMIknn tests with the conditional mutual information, by the kernels of the searches: for reports."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from gpupc_impl.backends import open_backend
from gpupc_impl.nonlinear.device import PARAMS, Engine, counts_of
from gpupc_impl.nonlinear.problem import NonlinearProblem


class Strength:
    """See `core.family.Strength`. A pair's first variable is the one that is permuted."""

    effect = "cmi"
    engine_of: ClassVar[type[Engine]] = Engine

    def __init__(self, problem: NonlinearProblem, backend: str):
        self._problem = problem
        defaults = {name: parameter.default for name, parameter in PARAMS.items()}
        self._engine = self.engine_of(problem, open_backend(backend), defaults)

    def __call__(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        level = sets.shape[1]
        counts, cmi = np.empty(len(pairs)), np.empty(len(pairs))
        done = 0
        while done < len(pairs):
            room = self._engine.fitting(level, len(pairs) - done, 1)
            part = slice(done, done + room)
            owners = np.concatenate([pairs[part, :1], np.sort(sets[part])], axis=1)
            tests = np.stack([np.arange(len(owners)), pairs[part, 1]], axis=1)
            partials = self._engine.partials(level, owners, tests)
            counts[part], cmi[part] = counts_of(partials), self._problem.cmi(partials[:, 0])
            done += room
        return self._problem.p_value(counts), cmi
