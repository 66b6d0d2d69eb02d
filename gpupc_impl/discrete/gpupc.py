"""gpuPC: threads that make a table together, and explicit memory management (sections 3.3 and 3.4, Algorithms 2 and 3).
A test is made in one of three ways, which compute the same statistic to the bit: at level 0 from a product of all bit
planes (`planes`), from level 1 on in batches of the same edge (`batches`), and otherwise by blocks of threads as in the
paper (`block_tables`). Each way returns its part of a level as a `LevelTests`."""

import functools

from gpupc_impl.core.pc_stable import pc_stable
from gpupc_impl.core.registry import Parameter, Run, at_most_threads, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.discrete.batches import BatchedTests
from gpupc_impl.discrete.block_tables import BlockTables
from gpupc_impl.discrete.declarations import MAX_THREADS, search_kernels
from gpupc_impl.discrete.discrete_search import DiscreteSearch
from gpupc_impl.discrete.level import NO_TESTS, Level, largest_pair_table
from gpupc_impl.discrete.planes import COUNTING
from gpupc_impl.discrete.problem import DiscreteProblem


class GpuPC(DiscreteSearch):
    """A search by Algorithms 2 and 3, in which the tests of each level are divided among the three ways of testing."""

    @functools.cached_property
    def block_tables(self) -> BlockTables:
        return BlockTables(self.problem, self.run)

    @functools.cached_property
    def batches(self) -> BatchedTests:
        return BatchedTests(self.problem, self.backend, self.planes, self.block_tables.chooses)

    def launch_level_zero(self, arguments: list) -> None:
        largest, product_cells = largest_pair_table(self.problem), 0
        products = self.planes.level_zero()
        products.launch(arguments)
        if products.covered >= largest:
            return
        if products is not NO_TESTS:
            product_cells = self.planes.product_cells
        del products  # frees the tables of products, unless these are kept, before the next tables are planned
        self.block_tables.level_zero(product_cells).launch(arguments)

    def launch_level(self, level: Level, sides: list[list]) -> None:
        batches, batched = self.batches.level(level)
        parts = [batched]
        if batched.covered < level.largest_table:
            pairs = self.planes.kept or self.planes.pair_tables()
            parts.append(self.block_tables.level(level, pairs, batches, batched.covered))
        for arguments in sides:
            for part in parts:
                part.launch(arguments)
        self.planes.kept = None


@method(
    "gpupc",
    family="discrete",
    source="gpuPC, sections 3.3 and 3.4, Algorithms 2 and 3",
    summary="delta threads a table, gamma tests at a time, beta edges a block",
    params={
        "delta": Parameter(
            0,
            "threads a table (delta); 0: on a GPU 64, more where there are few edges; 1 on cores",
            minimum=0,
            maximum=MAX_THREADS,
        ),
        "gamma": Parameter(0, "tests at a time (gamma); 0: 2 on a GPU, 1 on cores", minimum=0, maximum=MAX_THREADS),
        "beta": Parameter(0, "edges a block (beta); 0: 1", minimum=0, maximum=64),
        "counting": COUNTING,
        "tables": Parameter(
            "shared",
            "where tables lie: global (the paper's, from level 1 on), or shared memory as far as they fit there",
            choices=("shared", "global"),
        ),
    },
    check=at_most_threads(MAX_THREADS, "delta", "gamma", "beta"),
    tiers=True,
    kernels=search_kernels,
)
def gpupc(problem: DiscreteProblem, run: Run) -> Skeleton:
    search, facts = GpuPC(problem, run), dict(run.facts)
    skeleton = pc_stable(problem, search.in_parts(), facts=facts, progress=run.progress)
    facts["memory_plans"] = [dict(vars(plan)) for plan in search.block_tables.plans]
    return skeleton
