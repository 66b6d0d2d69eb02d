"""PC-stable with CMIknn (GPU-CMIknn, Algorithm 1) on several cores, with the random numbers of the GPU methods."""

import concurrent.futures
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from baselines._threads import PARAMETERS, threads
from gpupc_impl.core.registry import Run, method, needs_package
from gpupc_impl.core.result import Skeleton
from gpupc_impl.nonlinear.problem import NonlinearProblem


@method(
    "cmiknn-parallel",
    family="nonlinear",
    backends=("cpu",),
    source="GPU-CMIknn, Algorithm 1 (Runge 2018) in PC-stable; samples and permutations shared among threads",
    summary="PC-stable with CMIknn, each test spread over the cores (numba)",
    params=PARAMETERS,
    reference=True,
    unavailable=needs_package("numba", "numba"),
)
def cmiknn_parallel(problem: NonlinearProblem, run: Run) -> Skeleton:
    from baselines._cmiknn_search import cmiknn_skeleton  # Loading the module imports numba.

    return cmiknn_skeleton(problem, run, threads=threads(run.params))


def open_test(problem: NonlinearProblem, backend: None, params: Mapping[str, Any]) -> Callable[..., float]:
    """Return the function (i, j, S) -> p-value for `measurement.single_tests`; its threads end when it is garbage
    collected."""
    from baselines._cmiknn_search import CmiknnTest

    pool = concurrent.futures.ThreadPoolExecutor(threads(params))
    test = CmiknnTest(problem, threads(params), pool.map)
    weakref.finalize(test, pool.shutdown)
    return test.p_value
