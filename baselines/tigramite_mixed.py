"""tigramite's CMIknnMixed inside PC-stable, an independent oracle with the estimator of Mesner and Shalizi.

tigramite draws its own random numbers, so its skeleton may differ from ours if a p-value is near alpha. docs/mixed.md
lists the other differences of its test.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from baselines.tigramite_pc import TigramiteTest, serial_skeleton
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
    return serial_skeleton(problem, run, TigramiteMixedTest(problem))


def open_test(problem: MixedProblem, backend: None, params: Mapping[str, Any]) -> Callable[..., float]:
    """Return a function (i, j, S) -> p-value for `measurement.single_tests`, in the paper's convention."""
    test = TigramiteMixedTest(problem)
    return lambda i, j, members: problem.p_value(test.count(i, j, members))


class TigramiteMixedTest(TigramiteTest):
    """Return CMIknnMixed with a problem's values and parameters; each test has a random seed of its own."""

    _problem: MixedProblem

    def _tigramite_test(self, **parameters: Any) -> Any:
        from tigramite.independence_tests.cmiknn_mixed import CMIknnMixed

        # The problem's values are transformed already.
        return CMIknnMixed(estimator="MS", transform="none", **parameters)

    def _samples(self, i: int, j: int, members: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        array, roles, _ = super()._samples(i, j, members)
        categorical = self._problem.categories[[i, j, *members]] > 0
        kinds = np.broadcast_to(categorical[:, None], array.shape).astype(int)  # 1 for a category, 0 for a number
        return array, roles, {"data_type": kinds}
