"""gpuPC: threads that make each contingency table together, and explicit memory management (gpuPC, section 3)."""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gpupc_impl.backends import DeviceMemoryError, Filled
from gpupc_impl.backends.launch import MAX_GRID_Y
from gpupc_impl.core.pc_stable import pc_stable
from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.discrete import products
from gpupc_impl.discrete.device import (
    BATCHES,
    CELL_BYTES,
    COUNTING,
    MAX_PLANES,
    PAIR_TABLES,
    PLACES,
    DiscreteSearch,
    Level,
    batches_kernel,
    largest_pair_table,
)
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.integers import ceil_div

logger = logging.getLogger("gpupc_impl.discrete")

DIGITS = {"cuda": 16, "host": 256}  # sorted.cuh
EVERY_SIZE = 2**64 - 1
MAX_THREADS = 512  # gpupc.cu: launch bounds, which leave 128 registers for the counts of a tile
UNIT_BYTES = 48  # sorted.cuh: sizeof(Unit)
TERM_BYTES = 8

SHARED_TABLE_CELLS = 12288
"""Cells that a table may have in shared memory: more would leave room for few blocks on a multiprocessor.

At most 2^16 (tables.cuh, count_packed)."""

SORTED_FROM = {"cuda": 40, "host": 4}
"""Tables of more cells than so many a sample are not made: sorting the samples is faster (docs/log.md)."""

DEFAULTS = {"cuda": {"delta": 64, "gamma": 2, "beta": 1}, "host": {"delta": 1, "gamma": 1, "beta": 1}}
"""The paper's on a GPU (section 4.1). A CPU core counts a table faster alone than as a block of threads."""

MOST_DELTA, PAIR_DELTA = 256, 32
"""Threads a table at most, where a level has too few edges to fill a GPU otherwise; and at level 0, with all pairs."""

TERMS_FROM, MOST_TERMS = 32, 1024
"""Threads a table from which they work out the terms of its statistic side by side; and cells of a table that has room
for them in shared memory, of which they take a quarter at most."""

SMALL_CELLS, SMALL_GAMMA, SMALL_DELTAS = 1280, 4, (32, 64)
"""On a GPU that has work enough, tables of up to so many cells are made by blocks of their own: more of them fit on a
multiprocessor than with room for the largest. So many tests of an edge at a time read its planes from the first cache
together, by so few threads a table: the least at level 1, whose tables are counted by few planes."""

BATCH_CELLS, BATCH_CELLS_IN_COMMON = 512, 256
"""Cells of tables that are made many at a time; of those whose sets have members in common, that is from level 2 on."""

BATCH_WORDS, BATCH_PARTS = 3584, 1024
"""batches.cuh: a warp's room, which 12 warps of a multiprocessor find in shared memory."""

BATCH_COLUMNS, BATCH_STRATA, BATCH_SETS = 64, 4, 32
"""batches.cu: columns of a batch and strata of it at a time, at most; and sets that blocks of an edge take in turn."""

BATCH_WARPS, BATCH_WARPS_A_MULTIPROCESSOR = 4, 12
"""Warps of a block, which read the same planes where their edges have an end in common, and those that run at once."""

BATCH_BLOCKS = 1 << 15
"""Blocks of a launch in which edges have several."""

BATCH_RUN = 4
"""Sets that follow one another with all members but the last in common, as a row of mean length has them, from which on
batches are made: with fewer, beginning them takes longer than they save."""

MOST_PLANE_WORDS = 1 << 33
"""Words of all planes that batches.cu has numbers for."""

THREADS_A_MULTIPROCESSOR = 512
"""Threads of gpupc.cu that a multiprocessor has registers for."""

SAMPLES_A_THREAD = {"shared": 256, "scratch": 64}
"""Samples that each thread of a table has at least, where the method chooses how many threads there are: cells in
device memory are waited for longer, and sorting has more to do for each sample."""

QUEUED = 4
"""Blocks with tests that are launched where edges have several, for each that runs at a time: chains of tests differ in
length, and those still waiting fill the places of those that are done."""

MOST_BLOCKS = 1 << 15
"""Blocks of a launch in which edges have several: those without a test take their time as well."""

BLOCKS_A_MULTIPROCESSOR, BLOCKS_A_CORE = 32, 4
"""Blocks that run at a time, and a few more to fill gaps; scratch space for more would not be used."""


def block_shape(params: Mapping[str, Any], backend: str) -> dict[str, int]:
    """delta, gamma and beta: those asked for, and for the others the backend's defaults, halved until a block fits.

    Args:
        params: the three, 0 for those not asked for; their product is at most `MAX_THREADS`.
        backend: its name.
    """
    shape = {name: params[name] or 1 for name in DEFAULTS[backend]}
    for name in ("gamma", "delta", "beta"):
        size = 1 if params[name] else DEFAULTS[backend][name]
        while size * math.prod(shape.values()) > MAX_THREADS:
            size //= 2
        shape[name] *= size
    return shape


@dataclasses.dataclass(frozen=True)
class MemoryPlan:
    """Where the tables of a level lie, decided before its kernels are launched (gpuPC, section 3.4).

    Attributes:
        level: the level.
        largest_table: bytes of the largest table possible, with the sums of its columns.
        shared_cells: tables up to this size lie in shared memory.
        shared_bytes: dynamic shared memory of a block.
        dense_cells: tables up to this size are made; of larger ones the samples are sorted.
        scratch_cells: cells of each table in scratch space; 0 when all fit into shared memory.
        scratch_grid: blocks in x and y that share the scratch space.
        z: rows that each of these blocks works on, the paper's factor.
        scratch_bytes: the scratch space.
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
        said = f"level {self.level}: tables of up to {self.largest_table:,} bytes"
        if not self.scratch_cells:
            return f"{said}, all in {self.shared_bytes:,} bytes of shared memory a block"
        which = f"; those beyond {self.shared_cells * CELL_BYTES:,} bytes" if self.shared_cells else ", all"
        rows, columns = self.scratch_grid
        instead = ""
        if self.largest_table > self.dense_cells * CELL_BYTES:
            instead = f"; samples are sorted instead of tables beyond {self.dense_cells * CELL_BYTES:,} bytes"
        return (
            f"{said}{which} in {self.scratch_bytes:,} bytes of device memory, which {rows * columns:,} blocks share, "
            f"with {self.z:,} rows for each (z){instead}"
        )


def shared_cells(
    level: int, largest_table: int, tables: int, row_bytes: int, max_shared_bytes: int, where: str = "shared"
) -> int:
    """The most cells of a table in shared memory; see `plan_memory` for the arguments."""
    if level and where == "global":
        return 0
    free = max_shared_bytes - tables * (UNIT_BYTES + 4 * level) - row_bytes
    return min(largest_table, SHARED_TABLE_CELLS, max(free, 0) // (tables * CELL_BYTES))


def batch_doubles(level: int, words: int, parts: int) -> int:
    """Shared memory of a warp that makes many tests at a time (batches.cu, Room), in units of 8 bytes."""
    ints = 2 * BATCH_COLUMNS + level + 1 + BATCH_STRATA * (level - 1) + words
    return parts + 32 + ceil_div(ints, 2)


def _test_bytes(level: int, cells: int) -> int:
    """Shared memory of a test whose table of up to so many cells lies there."""
    return UNIT_BYTES + 4 * level + CELL_BYTES * cells


def sorted_cells(samples: int, threads: int, digits: int) -> int:
    """Scratch space in the place of a table whose samples are sorted, in cells (sorted.cuh, Sorting)."""
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
        grid: blocks (x, y) of the launch without limits.
        tables: tables that a block makes at a time (gamma * beta).
        row_bytes: shared memory for the row of neighbours.
        max_shared_bytes: shared memory that a block may have.
        memory_used, memory_limit: device memory in use, and its limit.
        resident_blocks: blocks that run at a time; more would not use more scratch space at a time.
        running_blocks: blocks of which each must have room for its tables, unless sorting would take as much: fewer
            would leave a GPU idle, and samples are sorted instead.
        dense_cells: the most cells of a table that is made where there is memory for it.
        sorted_cells: what takes the place of a larger table.
        where: ``"shared"``, or ``"global"``: from level 1 on all tables lie in scratch space, as in the paper.

    Raises:
        DeviceMemoryError: the tables of one block do not fit.
    """
    cells = shared_cells(level, largest_table, tables, row_bytes, max_shared_bytes, where)
    shared_bytes = tables * _test_bytes(level, cells) + row_bytes
    plan = MemoryPlan(level, largest_table * CELL_BYTES, cells, shared_bytes, dense_cells=cells)
    if largest_table <= cells:
        return plan
    room = memory_limit - memory_used
    of_one = room // (2 * tables * CELL_BYTES) * 2
    running_blocks = max(min(running_blocks, resident_blocks, math.prod(grid)), 1)
    of_each = max(of_one // running_blocks, sorted_cells)
    dense = max(min(largest_table, dense_cells, of_one, of_each), cells)
    scratch_cells = max(dense, sorted_cells if largest_table > dense else 0)
    scratch_cells += scratch_cells % 2  # sorted numbers have 64 bits
    block_bytes = tables * scratch_cells * CELL_BYTES
    room = min(room // block_bytes, resident_blocks)
    if room < 1:
        raise DeviceMemoryError(block_bytes, memory_used, memory_limit)
    rows, columns = grid
    columns = min(columns, room)
    blocks = min(rows, room // columns)
    return dataclasses.replace(
        plan,
        dense_cells=dense,
        scratch_cells=scratch_cells,
        scratch_grid=(blocks, columns),
        z=ceil_div(rows, blocks),
        scratch_bytes=blocks * columns * block_bytes,
    )


class GpuPC(DiscreteSearch):
    """Algorithms 2 and 3."""

    name = "gpupc"

    def __init__(self, problem: DiscreteProblem, run: Run):
        self.shape = block_shape(run.params, run.backend.name)
        self.plans: list[MemoryPlan] = []
        multiprocessors = run.backend.multiprocessors
        self.resident_blocks = (
            BLOCKS_A_MULTIPROCESSOR * multiprocessors if multiprocessors else BLOCKS_A_CORE * run.backend.threads
        )
        n, everything = problem.n_samples, run.params["tables"] == "global"
        most = SORTED_FROM[run.backend.name] * n
        self.dense_cells = EVERY_SIZE if everything else max(most, SHARED_TABLE_CELLS)
        self.digits = DIGITS[run.backend.name]
        self.threads_at_once = THREADS_A_MULTIPROCESSOR * multiprocessors
        self.chooses = bool(multiprocessors) and not any(run.params[name] for name in ("delta", "gamma", "beta"))
        self.batched = run.params["batches"] == "yes" or (run.params["batches"] == "auto" and self.chooses)
        self.pair_tables: Filled | None = None  # between levels 0 and 1
        super().__init__(problem, run)

    @functools.cached_property
    def pair_cells(self) -> np.ndarray:
        """(p,) int64: cells of the tables of each variable with those behind it that are counted as products of planes,
        sums of columns included."""
        planes = self.plane_counts
        return np.where(planes > 0, (planes + 1) * (planes.sum() - np.cumsum(planes)), 0)

    @property
    def product_cells(self) -> int:
        """Cells of a table that level 0 counts by a product of planes, at most; on a GPU, by its tensor cores, any."""
        return MAX_PLANES**2 if self.backend.warp_threads > 1 else self.plane_cells

    def tables(self) -> dict[str, np.ndarray]:
        return {**super().tables(), **products.tables(self)}

    def table_bytes(self, level: int, cells: int, left: int) -> int:
        row_bytes, tables, columns = 0, 1, min(self.p, MAX_GRID_Y)
        if level:
            row_bytes = min(4 * (self.p - 1), self.backend.max_shared_bytes // 4)
            tables = self.shape["gamma"] * self.shape["beta"]
            columns = ceil_div(self.p, self.shape["beta"])
        where = self.run.params["tables"]
        in_products = products.kept_bytes(self, left) if level else products.device_bytes(self, left)
        if cells <= shared_cells(level, cells, tables, row_bytes, self.backend.max_shared_bytes, where):
            return in_products
        if cells > self.dense_cells:
            cells = max(self.dense_cells, sorted_cells(self.n, MAX_THREADS, self.digits))
        elif cells * tables * CELL_BYTES > left:
            cells = max(cells, sorted_cells(self.n, MAX_THREADS, self.digits))
        in_scratch = min(self.resident_blocks, self.p * columns) * tables * (cells + 1) * CELL_BYTES
        return min(in_scratch + in_products if level else max(in_scratch, in_products), left)

    def make_level_zero(self, arguments: list) -> None:
        made, self.pair_tables = products.make_tests(self, arguments[-1])
        if made is products.Made.ALL:
            return
        grid = (self.p, min(self.p, MAX_GRID_Y)) if self.backend.name == "cuda" else (1, self.p)
        delta = self._delta(self.p * (self.p - 1) // 2, PAIR_DELTA)
        plan = self._plan(0, largest_pair_table(self.problem), grid, delta, tables=1, row_bytes=0)
        product_cells = np.uint32(self.product_cells if made is products.Made.SOME else 0)
        blocks = dict.fromkeys(SAMPLES_A_THREAD, (delta,))
        self._launch_tests("level_zero", plan, grid, blocks, [arguments], [product_cells], splits=1)

    def make_level(self, level: Level, sides: list[list]) -> None:
        batches, above = self._batches(level)
        first = self._launch_of_batches(level, batches)
        if above >= level.largest_table:
            for arguments in sides:
                first(arguments)
            return
        gamma, beta = self.shape["gamma"], self.shape["beta"]
        tables = gamma * beta
        units = _edges_with_tests(level)
        most = min(MOST_DELTA, MAX_THREADS // tables)
        deltas = {
            where: self._delta(units * gamma, self.shape["delta"], min(most, self.n // samples))
            for where, samples in SAMPLES_A_THREAD.items()
        }
        grid = (max(level.busy, 1), min(ceil_div(level.max_degree, beta), MAX_GRID_Y))
        splits = self._splits(units, deltas["shared"], _sets_of_an_edge(level), grid)
        row_bytes = 4 * level.max_degree
        use_shared = self.backend.name == "cuda" and row_bytes <= self.backend.max_shared_bytes // 4
        row_shared = row_bytes if use_shared else 0
        plan = self._plan(level.level, level.largest_table, grid, deltas["scratch"], tables, row_shared)
        pairs = self.pair_tables or PAIR_TABLES(
            **dict.fromkeys(("counts", "starts", "categories", "first_plane")), first=0, plane_cells=0
        )
        after = [pairs, batches, level.row_cells, level.busy_rows, np.int32(level.busy), np.bool_(use_shared)]
        blocks = {where: (delta, gamma, beta) for where, delta in deltas.items()}
        small_bytes = row_shared + SMALL_GAMMA * beta * _test_bytes(level.level, min(plan.shared_cells, SMALL_CELLS))
        room = small_bytes <= self.backend.max_shared_bytes
        if room and self.chooses and deltas["shared"] == self.shape["delta"]:
            least, most = SMALL_DELTAS
            delta = least if level.level == 1 or self.n < most * SAMPLES_A_THREAD["shared"] else most
            blocks["small"] = (delta, SMALL_GAMMA, beta)
        self._launch_tests("level", plan, grid, blocks, sides, after, splits, first, above)
        self.pair_tables = None

    def _batches(self, level: Level) -> tuple[Filled, int]:
        """Which tests of a level are made many at a time (batches.cuh), and the cells that each other test has more of,
        sums of columns included."""
        long = level.busy_ends - level.busy >= BATCH_RUN * level.level * level.busy
        wanted = self.batched and (long or self.run.params["batches"] == "yes")
        if not wanted or self.planes is None or self.planes.size >= MOST_PLANE_WORDS:
            return BATCHES(cells=0, words=0, parts=0, splits=1), 0
        first, second, *_ = descending = [*self.problem.descending, 1]
        strata, stride = math.prod(descending[: level.level]), first * second + first | 1
        words = min(2 * BATCH_COLUMNS * stride, BATCH_WORDS)
        parts = min(max(BATCH_COLUMNS // 2 * (strata // first), BATCH_COLUMNS), BATCH_PARTS)
        cells = BATCH_CELLS if level.level == 1 else BATCH_CELLS_IN_COMMON
        limits = [cells]
        if strata > parts:
            limits.append(2 * parts)
        if stride * first > words:
            limits.append(2 * words // 3)
        filled = BATCHES(cells=cells, words=words, parts=parts, splits=self._splits_of_batches(level))
        return filled, min(limits) if (self.plane_counts > 0).all() else 0

    def _splits_of_batches(self, level: Level) -> int:
        """Blocks for the sets of each edge: one that lasts may have hundreds, where others are settled at once."""
        most = max(1, MAX_GRID_Y // level.max_degree)
        if asked := self.run.params["splits"]:
            return min(asked, most)
        if not self.threads_at_once:
            return 1
        blocks = max(level.busy, 1) * ceil_div(level.max_degree, BATCH_WARPS)
        return max(1, min(BATCH_BLOCKS // blocks, ceil_div(_sets_of_an_edge(level), BATCH_SETS), most))

    @property
    def _warps_at_once(self) -> int:
        return BATCH_WARPS_A_MULTIPROCESSOR * self.backend.multiprocessors

    def _launch_of_batches(self, level: Level, batches: Filled) -> Callable[[list], None]:
        """What launches the tests that are made many at a time, with the arguments of a side."""
        if not batches.values["cells"]:
            return lambda arguments: None
        doubles = batch_doubles(level.level, batches.values["words"], batches.values["parts"])
        splits = batches.values["splits"]
        together = _edges_with_tests(level) * splits * BATCH_WARPS <= self._warps_at_once
        edges = 1 if together else min(BATCH_WARPS, max(1, self.backend.max_shared_bytes // (8 * doubles)))
        grid = max(level.busy, 1), min(ceil_div(level.max_degree, edges) * splits, MAX_GRID_Y)
        after = [batches, level.busy_rows, np.int32(level.busy), np.int32(doubles)]
        kernel = self.backend.kernel(*batches_kernel(self.code, together))
        warps, shared_bytes = BATCH_WARPS if together else edges, 8 * edges * doubles
        block = (warps * self.backend.warp_threads,)
        return lambda arguments: kernel(grid, block, [*arguments, *after], shared_bytes=shared_bytes)

    def _most_terms(self, smallest: int, largest: int, tables: int, shared_bytes: int) -> int:
        """Terms of the statistic that each of a block's tables has room for, if they have so many cells.

        Args:
            shared_bytes: what the block takes beside.
        """
        if self.shape["delta"] < TERMS_FROM or smallest > MOST_TERMS:
            return 0
        most = self.backend.max_shared_bytes
        return min(largest, MOST_TERMS, min(most // 4, most - shared_bytes) // (tables * TERM_BYTES))

    def _delta(self, tables: int, least: int, most: int = MOST_DELTA) -> int:
        """Threads a table: those asked for or, on a GPU, as many as keep it busy with so many tables."""
        if self.run.params["delta"] or not self.threads_at_once:
            return self.shape["delta"]
        delta = least
        while 2 * delta <= most and 2 * delta * tables <= self.threads_at_once:
            delta *= 2
        return delta

    def _splits(self, units: int, delta: int, sets: int, grid: tuple[int, int]) -> int:
        """Blocks for the sets of each of `units` edges: as many as keep a GPU busy, where an edge has up to `sets`.

        In late levels few variables have neighbours enough, and an edge of theirs has hundreds of sets.
        """
        rows, columns = grid
        if asked := self.run.params["splits"]:
            return min(asked, MAX_GRID_Y // columns)
        if self.run.params["delta"] or not self.threads_at_once:
            return 1
        gamma, beta = self.shape["gamma"], self.shape["beta"]
        blocks, edge_blocks = QUEUED * self.threads_at_once // (delta * gamma * beta), ceil_div(units, beta)
        most = min(MAX_GRID_Y // columns, MOST_BLOCKS // (rows * columns))
        return max(1, min(blocks // max(edge_blocks, 1), ceil_div(sets, gamma), most))

    def _launch_tests(
        self,
        part: str,
        plan: MemoryPlan,
        grid: tuple[int, int],
        blocks: Mapping[str, tuple[int, ...]],
        sides: list[list],
        after: list,
        splits: int,
        first: Callable[[list], None] | None = None,
        above: int = 0,
    ) -> None:
        """A level's tests: those with tables in shared memory, in scratch space, and with sorted samples.

        Args:
            blocks: threads of a block, by where its tables lie; as many tables in either, but for small ones in shared
                memory, which have blocks of their own if there is an entry for them.
            first: launches other tests of a side.
            above: tables of more cells than this are made here.
        """
        cells, dense, largest = plan.shared_cells, plan.dense_cells, plan.largest_table // CELL_BYTES
        tables = math.prod(blocks["shared"][1:])
        scratch = None
        if plan.scratch_bytes:
            scratch = self.backend.empty(plan.scratch_bytes // CELL_BYTES, np.uint32)
        bits = (largest - 1).bit_length()
        in_scratch = {"scratch": scratch, "scratch_cells": plan.scratch_cells, "bits": bits, "splits": 1}
        smallest, of_row = self._smallest_table(plan.level), plan.shared_bytes - tables * _test_bytes(plan.level, cells)
        launches, small = [], min(cells, SMALL_CELLS) if "small" in blocks else 0
        for least, up_to, where in ((above, small, "small"), (max(above, small), cells, "shared")):
            if up_to > least:
                places = PLACES(above=least, up_to=up_to, scratch=None, scratch_cells=up_to, bits=0, splits=splits)
                here = math.prod(blocks[where][1:])
                shared_bytes = of_row + here * _test_bytes(plan.level, up_to)
                terms = self._most_terms(max(least, smallest), up_to, here, shared_bytes) if plan.level else 0
                shared_bytes += here * TERM_BYTES * terms
                launches.append((places, (grid[0], grid[1] * splits), blocks[where], shared_bytes, "SHARED", terms))
        shared_bytes = of_row + tables * _test_bytes(plan.level, 0)
        if dense > cells:
            made = PLACES(above=max(above, cells), up_to=dense, **in_scratch)
            launches.append((made, plan.scratch_grid, blocks["scratch"], shared_bytes, "SCRATCH", 0))
        if largest > dense:
            larger = PLACES(above=max(above, dense), up_to=EVERY_SIZE, **in_scratch)
            launches.append((larger, plan.scratch_grid, blocks["scratch"], shared_bytes, "SORTED", 0))
        launches = [launch for launch in launches if launch[0].values["up_to"] >= smallest]
        for arguments in sides:
            if first is not None:
                first(arguments)
            for places, of_grid, block, of_block, where, terms in launches:
                last = [np.int32(terms)] if plan.level else []
                self.kernel(part, where)(of_grid, block, [*arguments, places, *after, *last], shared_bytes=of_block)

    def _smallest_table(self, level: int) -> int:
        """Every table of a level has more cells than this, or as many."""
        return math.prod(self.problem.descending[-(level + 2) :])

    def _plan(
        self, level: int, largest_table: int, grid: tuple[int, int], delta: int, tables: int, row_bytes: int
    ) -> MemoryPlan:
        backend = self.backend
        all_made = self.dense_cells == EVERY_SIZE
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
            running_blocks=1 if all_made else self.threads_at_once // (delta * tables),
            dense_cells=self.dense_cells if self._smallest_table(level) <= self.dense_cells else 0,
            sorted_cells=sorted_cells(self.n, delta, self.digits),
            where=self.run.params["tables"],
        )
        logger.info("%s", plan)
        self.plans.append(plan)
        return plan


def _edges_with_tests(level: Level) -> int:
    """How many edges have tests on one side."""
    return max(1, ceil_div(level.busy_ends, 2))


def _sets_of_an_edge(level: Level) -> int:
    """The most sets of one side."""
    return math.comb(level.max_degree - 1, level.level)


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
        "delta": Parameter(
            0,
            "threads a table (delta); 0: on a GPU 64, more where edges are few; 1 on cores",
            minimum=0,
            maximum=MAX_THREADS,
        ),
        "gamma": Parameter(0, "tests at a time (gamma); 0: 2 on a GPU, 1 on cores", minimum=0, maximum=MAX_THREADS),
        "beta": Parameter(0, "edges a block (beta); 0: 1", minimum=0, maximum=64),
        "splits": Parameter(
            0,
            "blocks that share out an edge's sets, where tables lie in shared memory; 0: 1, more on a GPU where few "
            "edges have tests and no delta is asked for",
            minimum=0,
            maximum=1024,
        ),
        "counting": COUNTING,
        "batches": Parameter(
            "auto",
            "whether a warp makes many tests of an edge at a time, as a product of bits, where tables are small; auto: "
            "on a GPU where rows are long, if neither delta, gamma nor beta is asked for",
            choices=("auto", "yes", "no"),
        ),
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
    facts["memory_plans"] = [dict(vars(plan)) for plan in search.plans]
    return skeleton
