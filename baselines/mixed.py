"""PC-stable with CMIknn of mixed data on one core and on several, with the random numbers of the GPU method."""

from collections.abc import Callable, Mapping
from typing import Any

from baselines._numba_methods import PARALLEL, SERIAL, threads
from gpupc_impl.core.registry import Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.mixed.problem import MixedProblem


@method(
    "mixed-serial",
    family="mixed",
    source="Mesner and Shalizi (2021) and local permutation (Runge 2018) in PC-stable, on one core",
    summary="PC-stable with CMIknn of mixed data, test by test on one core (numba)",
    **SERIAL,
)
@method(
    "mixed-parallel",
    family="mixed",
    source="Mesner and Shalizi (2021) and local permutation (Runge 2018) in PC-stable; samples shared among threads",
    summary="PC-stable with CMIknn of mixed data, each test spread over the cores (numba)",
    **PARALLEL,
)
def mixed(problem: MixedProblem, run: Run) -> Skeleton:
    from baselines._cmiknn_search import cmiknn_skeleton  # imports numba
    from baselines._mixed import MixedTest

    return cmiknn_skeleton(problem, run, threads(run.params), MixedTest)


def open_test(problem: MixedProblem, backend: None, params: Mapping[str, Any]) -> Callable[..., float]:
    """A function (i, j, S) -> p-value for `measurement.single_tests`."""
    from baselines._mixed import MixedTest

    return MixedTest.single(problem, threads(params))
