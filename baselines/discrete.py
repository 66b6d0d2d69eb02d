"""PC-stable with chi-square or G-square tests (gpuPC, Algorithm 1) on one core and on several.

The parallel reference replaces the packages bnlearn and parallelPC of the paper's comparison (section 4.1).
"""

from baselines._numba_methods import PARALLEL, SERIAL, threads
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.registry import Run, method
from gpupc_impl.core.result import Skeleton


@method(
    "discrete-serial",
    family="discrete",
    source="gpuPC, Algorithm 1",
    summary="PC-stable on coded data, edge by edge on one core (numba)",
    **SERIAL,
)
@method(
    "discrete-parallel",
    family="discrete",
    source="gpuPC, Algorithm 1, with the edges of a level shared among threads; as R package bnlearn",
    summary="PC-stable on coded data, a level's edges spread over the cores (numba)",
    **PARALLEL,
)
def discrete(problem: Problem, run: Run) -> Skeleton:
    from baselines._discrete_search import discrete_skeleton  # imports numba

    return discrete_skeleton(problem, run, threads(run.params))
