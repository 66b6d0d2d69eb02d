"""PC-stable with CMIknn of mixed data on one core, with the random numbers of the GPU method."""

from collections.abc import Callable, Mapping
from typing import Any

from gpupc_impl.core.registry import Run, method, needs_package
from gpupc_impl.core.result import Skeleton
from gpupc_impl.mixed.problem import MixedProblem


@method(
    "mixed-serial",
    family="mixed",
    backends=("cpu",),
    source="Mesner and Shalizi (2021) and local permutation (Runge 2018) in PC-stable, on one core",
    summary="PC-stable with CMIknn of mixed data, test by test on one core (numba)",
    reference=True,
    unavailable=needs_package("numba", "numba"),
)
def mixed_serial(problem: MixedProblem, run: Run) -> Skeleton:
    from baselines._mixed_search import mixed_skeleton  # Loading the module imports numba.

    return mixed_skeleton(problem, run, threads=1)


def open_test(problem: MixedProblem, backend: None, params: Mapping[str, Any]) -> Callable[..., float]:
    """Return the function (i, j, S) -> p-value for `measurement.single_tests`."""
    from baselines._mixed_search import MixedTest

    return MixedTest(problem).p_value
