"""Effect sizes of chi-square and G-square tests, for reports."""

import numpy as np

from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.discrete.statistic import statistic


class Strength:
    """See `core.family.Strength`.

    The effect size of chi-square is Cramér's V (1946) with the statistic X summed over the strata,
    sqrt(X / (n (min(|Vi|, |Vj|) - 1))), which lies in [0, 1] as without strata. That of G-square is G / (2 n), the
    conditional mutual information in nats.
    """

    def __init__(self, problem: DiscreteProblem, backend: str):
        self._problem = problem
        self.effect = "cramers_v" if problem.test == "chi-square" else "mutual_information"

    def __call__(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        problem = self._problem
        tests = [statistic(problem, i, j, members) for (i, j), members in zip(pairs, np.sort(sets), strict=True)]
        statistics, df = np.array(tests, np.float64).reshape(-1, 2).T
        if problem.test == "g-square":
            effects = statistics / (2 * problem.n_samples)
        else:
            most = problem.n_samples * (problem.categories[pairs].min(axis=1) - 1)
            effects = np.sqrt(np.minimum(statistics / np.maximum(most, 1), 1.0))
        return np.asarray(problem.p_value(statistics, df)), effects
