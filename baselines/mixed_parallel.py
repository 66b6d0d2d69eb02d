"""PC-stable with CMIknn of mixed data on several cores, with the random numbers of the GPU method."""

from baselines._threads import PARAMETERS, threads
from gpupc_impl.core.registry import Run, method, needs_package
from gpupc_impl.core.result import Skeleton
from gpupc_impl.mixed.problem import MixedProblem


@method(
    "mixed-parallel",
    family="mixed",
    backends=("cpu",),
    source="Mesner and Shalizi (2021) and local permutation (Runge 2018) in PC-stable; samples shared among threads",
    summary="PC-stable with CMIknn of mixed data, each test spread over the cores (numba)",
    params=PARAMETERS,
    reference=True,
    unavailable=needs_package("numba", "numba"),
)
def mixed_parallel(problem: MixedProblem, run: Run) -> Skeleton:
    from baselines._mixed_search import mixed_skeleton  # Loading the module imports numba.

    return mixed_skeleton(problem, run, threads=threads(run.params))
