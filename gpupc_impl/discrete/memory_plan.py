"""The plan of where gpuPC's tables lie, which needs arithmetic alone and no device (gpuPC, section 3.4)."""

import dataclasses
import math

from gpupc_impl.backends import DeviceMemoryError
from gpupc_impl.discrete.declarations import CELL_BYTES, UNIT_BYTES
from gpupc_impl.integers import ceil_div

SHARED_TABLE_CELLS = 12288
"""Upper bound on the cells of a table in shared memory: with more, few blocks fit on a multiprocessor.

The bound is at most 2^16, so that the kernel holds two cell numbers in a register (samples.cuh, count_packed)."""


@dataclasses.dataclass(frozen=True)
class MemoryPlan:
    """Where the tables of a level lie, decided before its kernels are launched.

    Attributes:
        level: the level.
        largest_table: bytes of the largest possible table, with the sums of its columns.
        shared_cells: tables of up to this many cells lie in shared memory.
        shared_bytes: dynamic shared memory of a block.
        dense_cells: tables of up to this many cells are made; tests with larger tables sort the samples.
        scratch_cells: cells of each table in scratch space; 0 if all tables fit into shared memory.
        scratch_grid: blocks in x and y that share the scratch space.
        z: rows that each of these blocks works on, the paper's factor.
        scratch_bytes: size of the scratch space in device memory.
    """

    level: int
    largest_table: int
    shared_cells: int
    shared_bytes: int
    dense_cells: int = 0
    scratch_cells: int = 0
    scratch_grid: tuple[int, int] = (0, 0)
    z: int = 1
    scratch_bytes: int = 0

    def __str__(self) -> str:
        sizes = f"level {self.level}: tables of up to {self.largest_table:,} bytes"
        if not self.scratch_cells:
            return f"{sizes}, all in {self.shared_bytes:,} bytes of shared memory a block"
        shared, dense = (CELL_BYTES * cells for cells in (self.shared_cells, self.dense_cells))
        instead = f"; samples are sorted instead of tables beyond {dense:,} bytes" if self.largest_table > dense else ""
        return (
            f"{sizes}; those beyond {shared:,} bytes in {self.scratch_bytes:,} bytes of device memory, which "
            f"{math.prod(self.scratch_grid):,} blocks share, with {self.z:,} rows for each (z){instead}"
        )


def unit_bytes(level: int, cells: int) -> int:
    """Return the shared memory of a test whose table lies there and has up to this many cells."""
    return UNIT_BYTES + 4 * level + CELL_BYTES * cells


def sorted_cells(samples: int, threads: int, digits: int) -> int:
    """Return the scratch space for a test whose samples are sorted, in cells (sorted.cuh, Sorting)."""
    return 6 * samples + digits * (threads + 1)


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
    running_blocks: int,
    dense_cells: int,
    sorted_cells: int,
    where: str = "shared",
) -> MemoryPlan:
    """Plan a level.

    Args:
        level: the level.
        largest_table: cells of the largest table.
        grid: blocks (x, y) that the launch would have without limits on memory.
        tables: tables that a block makes at a time (gamma * beta).
        row_bytes: shared memory for the row of neighbours.
        max_shared_bytes: shared memory that a block may have.
        memory_used, memory_limit: device memory in use, and its limit.
        resident_blocks: upper bound on the blocks that run at a time, and so on the blocks that need scratch space.
        running_blocks: the blocks that keep the device busy. A table may be only so large that all these blocks have
            room for their tables; for larger tables samples are sorted, unless sorting takes as much memory.
        dense_cells: upper bound on the cells of a table; beyond it samples are sorted even if there is enough memory.
        sorted_cells: scratch space for a test whose samples are sorted, in cells.
        where: ``"shared"``, or ``"global"``: from level 1 on all tables lie in scratch space, as in the paper.

    Raises:
        DeviceMemoryError: the tables of one block do not fit.
    """
    free = max(max_shared_bytes - tables * unit_bytes(level, 0) - row_bytes, 0)
    cells = min(largest_table, SHARED_TABLE_CELLS, free // (tables * CELL_BYTES))
    if level and where == "global":
        cells = 0
    shared_bytes = tables * unit_bytes(level, cells) + row_bytes
    plan = MemoryPlan(level, largest_table * CELL_BYTES, cells, shared_bytes, dense_cells=cells)
    if largest_table <= cells:
        return plan
    room = memory_limit - memory_used
    cells_for_one = room // (2 * tables * CELL_BYTES) * 2  # the cells of each table if a single block runs
    running_blocks = max(min(running_blocks, resident_blocks, math.prod(grid)), 1)
    cells_for_each = max(cells_for_one // running_blocks, sorted_cells)
    dense = max(min(largest_table, dense_cells, cells_for_one, cells_for_each), cells)
    scratch_cells = max(dense, sorted_cells if largest_table > dense else 0)
    scratch_cells += scratch_cells % 2  # the cell numbers that are sorted have 64 bits
    block_bytes = tables * scratch_cells * CELL_BYTES
    blocks = min(room // block_bytes, resident_blocks)
    if blocks < 1:
        raise DeviceMemoryError(block_bytes, memory_used, memory_limit)
    rows, columns = grid
    columns = min(columns, blocks)
    blocks_down = min(rows, blocks // columns)
    return dataclasses.replace(
        plan,
        dense_cells=dense,
        scratch_cells=scratch_cells,
        scratch_grid=(blocks_down, columns),
        z=ceil_div(rows, blocks_down),
        scratch_bytes=blocks_down * columns * block_bytes,
    )
