"""PC-stable with CMIknn (GPU-CMIknn, Algorithm 1) on one core, the base of speedups, and on several.

This reference draws the random numbers of the GPU methods, so its answer is theirs.
"""

from collections.abc import Callable, Mapping
from typing import Any

from baselines._numba_methods import PARALLEL, SERIAL, threads
from gpupc_impl.core.registry import Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.nonlinear.problem import NonlinearProblem


@method(
    "cmiknn-serial",
    family="nonlinear",
    source="GPU-CMIknn, Algorithm 1 (Runge 2018) in PC-stable, on one core",
    summary="PC-stable with CMIknn, test by test on one core (numba)",
    **SERIAL,
)
@method(
    "cmiknn-parallel",
    family="nonlinear",
    source="GPU-CMIknn, Algorithm 1 (Runge 2018) in PC-stable; samples and permutations shared among threads",
    summary="PC-stable with CMIknn, each test spread over the cores (numba)",
    **PARALLEL,
)
def cmiknn(problem: NonlinearProblem, run: Run) -> Skeleton:
    from baselines._cmiknn_search import cmiknn_skeleton  # imports numba

    return cmiknn_skeleton(problem, run, threads(run.params))


def open_test(problem: NonlinearProblem, backend: None, params: Mapping[str, Any]) -> Callable[..., float]:
    """Return the function (i, j, S) -> p-value for `measurement.single_tests`."""
    from baselines._cmiknn_search import CmiknnTest

    return CmiknnTest.single(problem, threads(params))
