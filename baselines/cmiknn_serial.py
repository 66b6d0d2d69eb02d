"""PC-stable with CMIknn (GPU-CMIknn, Algorithm 1) on one core, relative to which speedups are computed.

This reference draws the random numbers of the GPU methods, so its answer is theirs.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gpupc_impl.core.registry import Run, method, needs_package
from gpupc_impl.core.result import Skeleton
from gpupc_impl.nonlinear.problem import NonlinearProblem


@method(
    "cmiknn-serial",
    family="nonlinear",
    backends=("cpu",),
    source="GPU-CMIknn, Algorithm 1 (Runge 2018) in PC-stable, on one core",
    summary="PC-stable with CMIknn, test by test on one core (numba)",
    reference=True,
    unavailable=needs_package("numba", "numba"),
)
def cmiknn_serial(problem: NonlinearProblem, run: Run) -> Skeleton:
    from baselines._cmiknn_search import cmiknn_skeleton  # Loading the module imports numba.

    return cmiknn_skeleton(problem, run, threads=1)


def open_test(problem: NonlinearProblem, backend: None, params: Mapping[str, Any]) -> Callable[..., float]:
    """Return the function (i, j, S) -> p-value for `measurement.single_tests`."""
    from baselines._cmiknn_search import CmiknnTest

    return CmiknnTest(problem).p_value
