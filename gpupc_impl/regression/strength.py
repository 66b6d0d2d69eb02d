"""P-values and statistics of regression tests for reports, by the same batches as in searches."""

import numpy as np

from gpupc_impl.backends import open_backend
from gpupc_impl.core.batched_search import strengths
from gpupc_impl.regression.batched import RegressionTests
from gpupc_impl.regression.problem import RegressionProblem


class Strength:
    """See `core.family.Strength`. The effect is the statistic, which grows with the number of samples."""

    effect = "statistic"

    def __init__(self, problem: RegressionProblem, backend: str):
        self._tests = RegressionTests(problem, open_backend(backend))

    def __call__(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return strengths(self._tests, pairs, sets)
