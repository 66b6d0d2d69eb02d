"""PC-stable with chi-square or G-square tests (gpuPC, Algorithm 1) on several cores.

This reference replaces the packages bnlearn and parallelPC of the paper's comparison (section 4.1).
"""

from baselines._threads import PARAMETERS, threads
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.registry import Run, method, needs_package
from gpupc_impl.core.result import Skeleton


@method(
    "discrete-parallel",
    family="discrete",
    backends=("cpu",),
    source="gpuPC, Algorithm 1, with the edges of a level shared among threads; as R package bnlearn",
    summary="PC-stable on coded data, a level's edges spread over the cores (numba)",
    params=PARAMETERS,
    reference=True,
    unavailable=needs_package("numba", "numba"),
)
def discrete_parallel(problem: Problem, run: Run) -> Skeleton:
    from baselines._discrete_search import discrete_skeleton  # Loading the module imports numba.

    return discrete_skeleton(problem, run, threads=threads(run.params))
