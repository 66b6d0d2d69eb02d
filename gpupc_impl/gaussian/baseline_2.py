"""Baseline 2 (cuPC, section 5.3): the threads of a block make all tests of an edge in parallel."""

import math

from gpupc_impl.backends.launch import MAX_GRID_Y
from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.gaussian.level_search import INVERSE, LevelKernel
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import round_up


def _block(p: int, max_degree: int, level: int, params: dict) -> tuple[int, int]:
    """Return the shape of a block with a thread for each test, up to the largest block; if there are more tests, each
    thread makes several."""
    tests = math.comb(max_degree - 1, level)
    return min(params["threads"], round_up(tests, 32)), 1


KERNEL = LevelKernel(
    source="gaussian/kernels/baseline_2.cu",
    name="baseline_2",
    grid=lambda p, max_degree, level, params: (p, min(max_degree, MAX_GRID_Y)),
    block=_block,
)


@method(
    "baseline-2",
    family="gaussian",
    source="cuPC, section 5.3, baseline algorithm 2",
    summary="a block an edge, all tests of the edge in parallel",
    params={"threads": Parameter(256, "most threads a block", minimum=32, maximum=1024), **INVERSE},
    tiers=True,
    kernels=KERNEL.kernels,
)
def baseline_2(problem: GaussianProblem, run: Run) -> Skeleton:
    return KERNEL.solve(problem, run)
