"""gpuPC: threads that make each contingency table together, and explicit memory management (gpuPC, section 3)."""

from __future__ import annotations

import dataclasses
import logging

import numpy as np

from gpupc_impl.backends import DeviceMemoryError
from gpupc_impl.backends.launch import MAX_GRID_Y
from gpupc_impl.core.pc_stable import pc_stable
from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.discrete.device import CELL_BYTES, COUNTING, PLACES, DiscreteSearch, Level, largest_pair_table
from gpupc_impl.discrete.problem import DiscreteProblem

logger = logging.getLogger("gpupc_impl.discrete")

MAX_THREADS = 512  # gpupc.cu: launch bounds, which leave 128 registers for the counts of a tile
UNIT_BYTES = 48  # gpupc.cu: sizeof(Unit)

SHARED_TABLE_CELLS = 4096
"""Cells that a table may have in shared memory: more would leave room for few blocks on a multiprocessor."""

DEFAULTS = {"cuda": {"delta": 64, "gamma": 2, "beta": 1}, "host": {"delta": 1, "gamma": 1, "beta": 1}}
"""The paper's on a GPU (section 4.1). A CPU core counts a table faster alone than as a block of threads."""

BLOCKS_A_MULTIPROCESSOR, BLOCKS_A_CORE = 32, 4
"""Blocks that run at a time, and a few more to fill gaps; scratch space for more would not be used."""


@dataclasses.dataclass(frozen=True)
class MemoryPlan:
    """Where the tables of a level lie, decided before its kernels are launched (gpuPC, section 3.4).

    Attributes:
        level: the level.
        largest_table: bytes of the largest table possible, with the sums of its columns.
        shared_cells: tables up to this size lie in shared memory.
        shared_bytes: dynamic shared memory of a block.
        scratch_cells: cells of each table in scratch space; 0 when all fit into shared memory.
        scratch_grid: blocks in x and y that share the scratch space.
        z: rows that each of these blocks works on, the paper's factor.
        scratch_bytes: the scratch space.
    """

    level: int
    largest_table: int
    shared_cells: int
    shared_bytes: int
    scratch_cells: int = 0
    scratch_grid: tuple[int, int] = (0, 0)
    z: int = 1
    scratch_bytes: int = 0

    def __str__(self) -> str:
        said = f"level {self.level}: tables of up to {self.largest_table:,} bytes"
        if not self.scratch_cells:
            return f"{said}, all in {self.shared_bytes:,} bytes of shared memory a block"
        which = f"; those beyond {self.shared_cells * CELL_BYTES:,} bytes" if self.shared_cells else ", all"
        rows, columns = self.scratch_grid
        return (
            f"{said}{which} in {self.scratch_bytes:,} bytes of device memory, which {rows * columns:,} blocks share, "
            f"with {self.z:,} rows for each (z)"
        )


def shared_cells(
    level: int, largest_table: int, tables: int, row_bytes: int, max_shared_bytes: int, where: str = "shared"
) -> int:
    """The most cells of a table in shared memory; see `plan_memory` for the arguments."""
    if level and where == "global":
        return 0
    free = max_shared_bytes - tables * (UNIT_BYTES + 4 * level) - row_bytes
    return min(largest_table, SHARED_TABLE_CELLS, max(free, 0) // (tables * CELL_BYTES))


def plan_memory(
    level: int,
    largest_table: int,
    *,
    grid: tuple[int, int],
    tables: int,
    row_bytes: int,
    max_shared_bytes: int,
    memory_used: int,
    memory_limit: int,
    resident_blocks: int,
    where: str = "shared",
) -> MemoryPlan:
    """Plan a level.

    Args:
        level: the level.
        largest_table: cells of the largest table.
        grid: blocks (x, y) of the launch without limits.
        tables: tables that a block makes at a time (gamma * beta).
        row_bytes: shared memory for the row of neighbours.
        max_shared_bytes: shared memory that a block may have.
        memory_used, memory_limit: device memory in use, and its limit.
        resident_blocks: blocks that run at a time; more would not use more scratch space at a time.
        where: ``"shared"``, or ``"global"``: from level 1 on all tables lie in scratch space, as in the paper.

    Raises:
        DeviceMemoryError: the tables of one block do not fit.
    """
    cells = shared_cells(level, largest_table, tables, row_bytes, max_shared_bytes, where)
    shared_bytes = tables * (UNIT_BYTES + 4 * level + CELL_BYTES * cells) + row_bytes
    plan = MemoryPlan(level, largest_table * CELL_BYTES, cells, shared_bytes)
    if largest_table <= cells:
        return plan
    block_bytes = tables * largest_table * CELL_BYTES
    room = min((memory_limit - memory_used) // block_bytes, resident_blocks)
    if room < 1:
        raise DeviceMemoryError(block_bytes, memory_used, memory_limit)
    rows, columns = grid
    columns = min(columns, room)
    blocks = min(rows, room // columns)
    return dataclasses.replace(
        plan,
        scratch_cells=largest_table,
        scratch_grid=(blocks, columns),
        z=-(-rows // blocks),
        scratch_bytes=blocks * columns * block_bytes,
    )


class GpuPC(DiscreteSearch):
    """Algorithms 2 and 3."""

    name = "gpupc"

    def __init__(self, problem: DiscreteProblem, run: Run):
        defaults = DEFAULTS[run.backend.name]
        self.shape = {name: run.params[name] or default for name, default in defaults.items()}
        self.plans: list[MemoryPlan] = []
        multiprocessors = run.backend.describe().get("multiprocessors")
        self.resident_blocks = (
            BLOCKS_A_MULTIPROCESSOR * multiprocessors if multiprocessors else BLOCKS_A_CORE * run.backend.threads
        )
        super().__init__(problem, run)

    def table_bytes(self, level: int, cells: int, left: int) -> int:
        row_bytes, tables, columns = 0, 1, min(self.p, MAX_GRID_Y)
        if level:
            row_bytes = min(4 * (self.p - 1), self.backend.max_shared_bytes // 4)
            tables = self.shape["gamma"] * self.shape["beta"]
            columns = -(-self.p // self.shape["beta"])
        where = self.run.params["tables"]
        if cells <= shared_cells(level, cells, tables, row_bytes, self.backend.max_shared_bytes, where):
            return 0
        return min(min(self.resident_blocks, self.p * columns) * tables * cells * CELL_BYTES, left)

    def make_level_zero(self, arguments: list) -> None:
        grid = (self.p, min(self.p, MAX_GRID_Y)) if self.backend.name == "cuda" else (1, self.p)
        plan = self._plan(0, largest_pair_table(self.problem), grid, tables=1, row_bytes=0)
        self._launch_tests("level_zero", plan, grid, (self.shape["delta"],), arguments, [])

    def make_level(self, level: Level, arguments: list) -> None:
        delta, gamma, beta = (self.shape[name] for name in ("delta", "gamma", "beta"))
        tables = gamma * beta
        grid = (self.p, min(-(-level.max_degree // beta), MAX_GRID_Y))
        row_bytes = 4 * level.max_degree
        use_shared = self.backend.name == "cuda" and row_bytes <= self.backend.max_shared_bytes // 4
        plan = self._plan(level.level, level.largest_table, grid, tables, row_bytes if use_shared else 0)
        self._launch_tests(
            "level", plan, grid, (delta, gamma, beta), arguments, [level.row_cells, np.bool_(use_shared)]
        )

    def _launch_tests(
        self, part: str, plan: MemoryPlan, grid: tuple[int, int], block: tuple[int, ...], before: list, after: list
    ) -> None:
        """A level's tests: those with tables in shared memory, then those with tables in scratch space."""
        if plan.shared_cells:
            places = PLACES(shared_cells=plan.shared_cells, scratch=None, scratch_cells=0)
            self.kernel(part)(grid, block, [*before, places, *after], shared_bytes=plan.shared_bytes)
        if plan.scratch_cells:
            scratch = self.backend.empty(plan.scratch_bytes // CELL_BYTES, np.uint32)
            places = PLACES(shared_cells=plan.shared_cells, scratch=scratch, scratch_cells=plan.scratch_cells)
            self.kernel(part)(plan.scratch_grid, block, [*before, places, *after], shared_bytes=plan.shared_bytes)

    def _plan(self, level: int, largest_table: int, grid: tuple[int, int], tables: int, row_bytes: int) -> MemoryPlan:
        backend = self.backend
        plan = plan_memory(
            level,
            largest_table,
            grid=grid,
            tables=tables,
            row_bytes=row_bytes,
            max_shared_bytes=backend.max_shared_bytes,
            memory_used=backend.memory_used,
            memory_limit=backend.memory_limit,
            resident_blocks=self.resident_blocks,
            where=self.run.params["tables"],
        )
        logger.info("%s", plan)
        self.plans.append(plan)
        return plan


def _check_block(params: dict) -> str | None:
    threads = max(params["delta"], 1) * max(params["gamma"], 1) * max(params["beta"], 1)
    if threads > MAX_THREADS:
        return f"delta * gamma * beta is {threads}; a block holds at most {MAX_THREADS} threads"
    return None


@method(
    "gpupc",
    family="discrete",
    source="gpuPC, section 3, Algorithms 2 and 3",
    summary="delta threads a table, gamma tests at a time, beta edges a block",
    params={
        "delta": Parameter(0, "threads a table (delta); 0: 64 on a GPU, 1 on cores", minimum=0, maximum=MAX_THREADS),
        "gamma": Parameter(0, "tests at a time (gamma); 0: 2 on a GPU, 1 on cores", minimum=0, maximum=MAX_THREADS),
        "beta": Parameter(0, "edges a block (beta); 0: 1", minimum=0, maximum=64),
        "counting": COUNTING,
        "tables": Parameter(
            "shared",
            "where tables lie: global (the paper's, from level 1 on), or shared memory as far as they fit there",
            choices=("shared", "global"),
        ),
    },
    check=_check_block,
)
def gpupc(problem: DiscreteProblem, run: Run) -> Skeleton:
    search = GpuPC(problem, run)
    facts = {**run.facts, "forecast": search.forecast.facts()}
    skeleton = pc_stable(problem, search, facts=facts, progress=run.progress)
    facts["memory_plans"] = [dataclasses.asdict(plan) for plan in search.plans]
    return skeleton
