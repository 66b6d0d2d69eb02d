"""cuPC-S (cuPC, section 3.4, Algorithm 5), which takes sets in parallel and tests all edges of a row with each."""

from gpupc_impl.backends.launch import MAX_GRID_Y
from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.gaussian.level_search import INVERSE, MOST_THREADS, LevelKernel
from gpupc_impl.gaussian.problem import GaussianProblem

KERNEL = LevelKernel(
    source="gaussian/kernels/cupc_s.cu",
    name="cupc_s",
    grid=lambda p, max_degree, level, params: (p, params["delta"]),
    block=lambda p, max_degree, level, params: (params["theta"], 1),
    ranks_whole_row=True,
)
PARAMETERS = {
    "theta": Parameter(64, "threads a block (theta)", minimum=1, maximum=MOST_THREADS),
    "delta": Parameter(2, "blocks a row (delta)", minimum=1, maximum=MAX_GRID_Y),
}


@method(
    "cupc-s",
    family="gaussian",
    source="cuPC, section 3.4, Algorithm 5",
    summary="a thread a conditioning set, shared by the edges of its row",
    params={**PARAMETERS, **INVERSE},
    tiers=True,
    kernels=KERNEL.kernels,
)
def cupc_s(problem: GaussianProblem, run: Run) -> Skeleton:
    return KERNEL.solve(problem, run)
