"""PC-stable with chi-square or G-square tests (gpuPC, Algorithm 1) on one core."""

from gpupc_impl.core.problem import Problem
from gpupc_impl.core.registry import Run, method, needs_package
from gpupc_impl.core.result import Skeleton


@method(
    "discrete-serial",
    family="discrete",
    backends=("cpu",),
    source="gpuPC, Algorithm 1",
    summary="PC-stable on coded data, edge by edge on one core (numba)",
    reference=True,
    unavailable=needs_package("numba", "numba"),
)
def discrete_serial(problem: Problem, run: Run) -> Skeleton:
    from baselines._discrete_search import discrete_skeleton  # Loading the module imports numba.

    return discrete_skeleton(problem, run, threads=1)
