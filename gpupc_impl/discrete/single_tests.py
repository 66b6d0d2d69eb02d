"""Chi-square and G-square tests for pairs and sets that a caller chooses."""

import numpy as np

from gpupc_impl.core.independence import IndependenceTests
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.discrete.retest import Retest
from gpupc_impl.discrete.statistic import statistics


class DiscreteTests(IndependenceTests):
    """The tests of a `DiscreteProblem`, of which the test from scratch makes the decisions.

    The effect size of chi-square is Cramér's V (1946), sqrt(X / (n (min(|Vi|, |Vj|) - 1))), with the statistic X summed
    over the strata; it lies in [0, 1], with strata as without. The effect size of G-square is G / (2 n), the
    conditional mutual information in nats.
    """

    def __init__(self, problem: DiscreteProblem, backend: str):
        self._problem, self._retest = problem, Retest(problem)
        self.effect = "cramers_v" if problem.test == "chi-square" else "mutual_information"

    def separates(self, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
        if self._problem.obstacle(sets.shape[1]) is not None:
            return np.zeros(len(pairs), bool)
        return self._retest.ratios(pairs, sets)[0] <= 1

    def strengths(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        problem = self._problem
        found, df = statistics(problem, pairs, np.sort(sets))
        if problem.test == "g-square":
            effects = found / (2 * problem.n_samples)
        else:
            most = problem.n_samples * (problem.categories[pairs].min(axis=1) - 1)
            effects = np.sqrt(np.minimum(found / np.maximum(most, 1), 1.0))
        return np.asarray(problem.p_value(found, df)), effects
