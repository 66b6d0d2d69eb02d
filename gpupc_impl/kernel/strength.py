"""P-values and statistics of kernel tests for reports, by the same batches as in searches."""

import numpy as np

from gpupc_impl.backends import open_backend
from gpupc_impl.kernel.problem import KernelProblem
from gpupc_impl.kernel.search import open_tests


class Strength:
    """See `core.family.Strength`. The effect is the statistic, which grows with the number of samples."""

    effect = "statistic"

    def __init__(self, problem: KernelProblem, backend: str):
        self._tests = open_tests(problem, open_backend(backend))

    def __call__(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        different, numbers = np.unique(np.sort(sets, axis=1), axis=0, return_inverse=True)
        tests = np.column_stack([numbers.reshape(-1), np.sort(pairs, axis=1)])
        order = np.argsort(tests[:, 0], kind="stable")
        p_values, statistics = np.empty(len(pairs)), np.empty(len(pairs))
        p_values[order], statistics[order] = self._tests.p_values(different, tests[order])
        return p_values, statistics
