"""cuPC-E (cuPC, section 3.3, Algorithm 4), which tests edges in parallel, and a few of the sets of each edge in
parallel."""

from gpupc_impl.backends.launch import MAX_GRID_Y
from gpupc_impl.core.registry import Parameter, Run, at_most_threads, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.gaussian.level_search import INVERSE, MOST_THREADS, LevelKernel
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.integers import ceil_div

KERNEL = LevelKernel(
    source="gaussian/kernels/cupc_e.cu",
    name="cupc_e",
    grid=lambda p, max_degree, level, params: (p, min(ceil_div(max_degree, params["beta"]), MAX_GRID_Y)),
    block=lambda p, max_degree, level, params: (params["beta"], params["gamma"]),
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
    kernels=KERNEL.kernels,
)
def cupc_e(problem: GaussianProblem, run: Run) -> Skeleton:
    return KERNEL.solve(problem, run)
