"""tigramite's CMIknnMixed inside PC-stable, with the estimator of Mesner and Shalizi: an outside oracle.

tigramite has random numbers of its own, so its skeleton may differ from ours where a p-value is near alpha. How
else its test differs is listed in docs/mixed.md.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from baselines.tigramite_pc import TigramiteTest, _EdgeSearch
from gpupc_impl.core.pc_stable import pc_stable
from gpupc_impl.core.registry import Run, method, needs_package
from gpupc_impl.core.result import Skeleton
from gpupc_impl.mixed.problem import MixedProblem


@method(
    "tigramite-mixed",
    family="mixed",
    backends=("cpu",),
    source="tigramite, CMIknnMixed (Popescu et al. 2023), estimator MS (Mesner and Shalizi 2021), in PC-stable",
    summary="PC-stable with CMIknnMixed of the package tigramite (k-d trees, slow)",
    reference=True,
    random=True,
    unavailable=needs_package("tigramite", "tigramite"),
)
def tigramite_mixed(problem: MixedProblem, run: Run) -> Skeleton:
    search = _EdgeSearch(problem, run.pmax, functools.partial(map, TigramiteMixedTest(problem).first_separating_set))
    return pc_stable(problem, search, facts=run.facts, progress=run.progress)


def open_test(problem: MixedProblem, backend: None, params: Mapping[str, Any]) -> Callable[..., float]:
    """Single tests (`measurement.single_tests`): (i, j, S) -> p-value, in the paper's convention."""
    test = TigramiteMixedTest(problem)
    return lambda i, j, members: problem.p_value(test.count(i, j, members))


class TigramiteMixedTest(TigramiteTest):
    """CMIknnMixed with a problem's values and parameters, and random numbers for each test of its own."""

    def __init__(self, problem: MixedProblem):
        from tigramite.independence_tests.cmiknn_mixed import CMIknnMixed

        super().__init__(problem)
        self._test = CMIknnMixed(
            knn=problem.k_cmi,
            estimator="MS",
            shuffle_neighbors=problem.k_perm,
            transform="none",  # the problem's values are transformed
            sig_samples=problem.permutations,
            sig_blocklength=1,  # samples are independent: level 0 permutes them one by one
            workers=1,
        )

    def dependence(self, i: int, j: int, members: tuple[int, ...]) -> float:
        array, roles = self._samples(i, j, members)
        return self._test.get_dependence_measure(array, roles, data_type=self._kinds(array, i, j, members))

    def count(self, permuted: int, other: int, members: tuple[int, ...]) -> int:
        """How many permutations have at least the CMI of the data; see `TigramiteTest.count`."""
        problem = self._problem
        if self._constant & {permuted, other}:
            return problem.permutations
        seed = np.random.SeedSequence([problem.seed, permuted, other, *members])
        self._test.random_state = np.random.default_rng(seed)
        array, roles = self._samples(permuted, other, members)
        kinds = self._kinds(array, permuted, other, members)
        value = self._test.get_dependence_measure(array, roles, data_type=kinds)
        p_value = self._test.get_shuffle_significance(array, roles, value, data_type=kinds)
        return round(p_value * (problem.permutations + 1)) - 1

    def _kinds(self, array: np.ndarray, i: int, j: int, members: tuple[int, ...]) -> np.ndarray:
        """1 where a sample of (2 + l, n) is a category, 0 where it is a number."""
        categorical = self._problem.categories[[i, j, *members]] > 0
        return np.broadcast_to(categorical[:, None], array.shape).astype(int)
