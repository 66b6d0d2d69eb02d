"""Baseline 1 (cuPC, section 5.3): Parallel-PC ported to a GPU; one thread makes all tests of an edge in sequence."""

from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.gaussian.level_search import INVERSE, MOST_THREADS, LevelKernel
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import round_up

KERNEL = LevelKernel(
    source="gaussian/kernels/baseline_1.cu",
    name="baseline_1",
    grid=lambda p, max_degree, level, params: (p, 1),
    block=lambda p, max_degree, level, params: (min(params["threads"], round_up(max_degree, 32)), 1),
)


@method(
    "baseline-1",
    family="gaussian",
    source="cuPC, section 5.3, baseline algorithm 1",
    summary="a block a row, a thread an edge, an edge's tests in sequence",
    params={"threads": Parameter(256, "most threads a block", minimum=32, maximum=MOST_THREADS), **INVERSE},
    tiers=True,
    kernels=KERNEL.kernels,
)
def baseline_1(problem: GaussianProblem, run: Run) -> Skeleton:
    return KERNEL.solve(problem, run)
