"""PC-stable on several cores, which replaces Parallel-PC (cuPC, reference [17])."""

from baselines._threads import PARAMETERS, threads
from gpupc_impl.core.registry import Run, method, needs_package
from gpupc_impl.core.result import Skeleton
from gpupc_impl.gaussian.problem import GaussianProblem


@method(
    "stable-parallel",
    family="gaussian",
    backends=("cpu",),
    source="cuPC, Algorithm 1, with the edges of a level shared among threads; as R package ParallelPC",
    summary="PC-stable with a level's edges spread over the cores (numba)",
    params=PARAMETERS,
    reference=True,
    unavailable=needs_package("numba", "numba"),
)
def stable_parallel(problem: GaussianProblem, run: Run) -> Skeleton:
    from baselines._stable import stable_skeleton  # Loading the module imports numba.

    return stable_skeleton(problem, run, threads=threads(run.params))
