"""Out-of-core by blocks that the program transfers explicitly (Out-of-Core, section 4.2, Algorithm 2)."""

from gpupc_impl.core.pc_stable import pc_stable
from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.gaussian import cupc_s
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.out_of_core.search import BlockSearch


@method(
    "out-of-core-block",
    family="gaussian",
    source="Out-of-Core, section 4.2, Algorithm 2",
    summary="blocks that fit a budget of device memory, transferred while others are computed",
    tiers=True,
    params={
        "block_size": Parameter(2560, "the most variables on a side of a block (bs)", minimum=1, maximum=32768),
        "layout": Parameter(
            "auto",
            "level 1 in the paper's square blocks, in panels of whole rows, or in gathered sub-matrices",
            choices=("auto", "blocks", "panels", "gather"),
        ),
        **cupc_s.PARAMETERS,
        "checkpoint": Parameter("", "file from which a killed search is resumed; none by default"),
        "timeline": Parameter("", "CSV file for the start and end of each step of each block; none by default"),
    },
)
def out_of_core_block(problem: GaussianProblem, run: Run) -> Skeleton:
    search = BlockSearch(problem, run)
    skeleton = pc_stable(problem, search, facts={**run.facts, "out_of_core": search.report}, progress=run.progress)
    search.close()
    return skeleton
