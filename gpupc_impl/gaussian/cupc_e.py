"""cuPC-E (cuPC, section 3.3, Algorithm 4), which tests edges in parallel, and a few of the sets of each edge in
parallel; and the paper's baselines (section 5.3), which do only one of the two. Baseline 1 is Parallel-PC ported to a
GPU: a thread makes all tests of an edge in sequence. In baseline 2 the threads of a block make them in parallel."""

import math

from gpupc_impl.backends.launch import MAX_GRID_Y
from gpupc_impl.core.registry import Parameter, Run, at_most_threads, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.gaussian.level_search import INVERSE, MOST_THREADS, LevelKernel
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import ceil_div, round_up

SOURCE = "gaussian/kernels/cupc_e.cu"

CUPC_E = LevelKernel(
    SOURCE,
    name="cupc_e",
    grid=lambda p, max_degree, level, params: (p, min(ceil_div(max_degree, params["beta"]), MAX_GRID_Y)),
    block=lambda p, max_degree, level, params: (params["beta"], params["gamma"]),
)
BASELINE_1 = LevelKernel(
    SOURCE,
    name="cupc_e",
    grid=lambda p, max_degree, level, params: (p, 1),
    block=lambda p, max_degree, level, params: (min(params["threads"], round_up(max_degree, 32)), 1),
)


def _threads_of_tests(p: int, max_degree: int, level: int, params: dict) -> tuple[int, int]:
    """Return the block with a thread for each test, up to the largest; of more tests each thread makes several."""
    tests = math.comb(max_degree - 1, level)
    return min(params["threads"], round_up(tests, 32)), 1


BASELINE_2 = LevelKernel(
    SOURCE,
    name="baseline_2",
    grid=lambda p, max_degree, level, params: (p, min(max_degree, MAX_GRID_Y)),
    block=_threads_of_tests,
)


@method(
    "cupc-e",
    family="gaussian",
    source="cuPC, section 3.3, Algorithm 4",
    summary="beta edges a block, gamma threads an edge",
    params={
        "beta": Parameter(2, "edges a block (beta)", minimum=1, maximum=MOST_THREADS),
        "gamma": Parameter(32, "threads an edge (gamma)", minimum=1, maximum=MOST_THREADS),
        **INVERSE,
    },
    check=at_most_threads(MOST_THREADS, "beta", "gamma"),
    tiers=True,
    kernels=CUPC_E.kernels,
)
def cupc_e(problem: GaussianProblem, run: Run) -> Skeleton:
    return CUPC_E.solve(problem, run)


@method(
    "baseline-1",
    family="gaussian",
    source="cuPC, section 5.3, baseline algorithm 1",
    summary="a block a row, a thread an edge, an edge's tests in sequence",
    params={"threads": Parameter(256, "most threads a block", minimum=32, maximum=MOST_THREADS), **INVERSE},
    tiers=True,
    kernels=BASELINE_1.kernels,
)
def baseline_1(problem: GaussianProblem, run: Run) -> Skeleton:
    return BASELINE_1.solve(problem, run)


@method(
    "baseline-2",
    family="gaussian",
    source="cuPC, section 5.3, baseline algorithm 2",
    summary="a block an edge, all tests of the edge in parallel",
    params={"threads": Parameter(256, "most threads a block", minimum=32, maximum=1024), **INVERSE},
    tiers=True,
    kernels=BASELINE_2.kernels,
)
def baseline_2(problem: GaussianProblem, run: Run) -> Skeleton:
    return BASELINE_2.solve(problem, run)
