"""A block's threads make tables together, by a plan where they lie (gpuPC, sections 3.3, 3.4, Algorithms 2 and 3)."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from gpupc_impl.backends import DeviceMemoryError, Filled
from gpupc_impl.backends.launch import MAX_GRID_Y
from gpupc_impl.core.registry import Run
from gpupc_impl.discrete.declarations import (
    ALL_WAYS,
    CELL_BYTES,
    DIGITS,
    FEW_WAYS,
    MAX_THREADS,
    PLACES,
    UNIT_BYTES,
    tests_kernel,
)
from gpupc_impl.discrete.level import Level, LevelTests, is_worth_waiting_for, largest_pair_table, logger
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.integers import ceil_div

EVERY_SIZE = 2**64 - 1
TERM_BYTES = 8

SHARED_TABLE_CELLS = 12288
"""Upper bound on the cells of a table in shared memory: with more, few blocks fit on a multiprocessor. It is at most
2^16, so that the kernel holds two cell numbers in a register (samples.cuh, count_packed)."""

SORTED_FROM = {"cuda": 40, "host": 4}  # cells per sample from which sorting the samples beats a table

DEFAULTS = {"cuda": {"delta": 64, "gamma": 2, "beta": 1}, "host": {"delta": 1, "gamma": 1, "beta": 1}}
"""delta, gamma and beta by backend: the paper's values on a GPU (section 4.1); on CPU cores one thread is faster."""

MAX_DELTA, PAIR_DELTA = 256, 32  # the most threads of a table if too few edges fill a GPU; those at level 0

TERMS_FROM, MAX_TERMS = 32, 1024
"""The threads of a table from which they compute the terms of its statistic in parallel; and the upper bound on the
cells of such a table, since terms take at most a quarter of the shared memory."""

SMALL_CELLS, SMALL_GAMMA, SMALL_DELTAS = 1280, 4, (32, 64)
"""Upper bound on the cells of small tables, which a busy GPU makes in their own launch, with more resident blocks; the
tests of an edge that such a block makes at a time; and the threads of a small table at level 1 and at later levels."""

THREADS_A_MULTIPROCESSOR = 512  # threads of gpupc.cu that a multiprocessor holds, as its registers permit

SAMPLES_A_THREAD = {"shared": 256, "scratch": 64}
"""Lower bound on the samples of each thread of a table, by where the table lies: device memory has a longer latency to
hide, and sorting does more work for each sample."""

QUEUED, MAX_BLOCKS = 4, 1 << 15
"""Launched blocks for each resident block where several blocks share an edge, so that queued ones take the places of
those that end early; and the upper bound on these blocks, since blocks without a test take time as well."""

BLOCKS_A_MULTIPROCESSOR, BLOCKS_A_CORE = 32, 4  # blocks with scratch space at most: the resident ones, and successors


@dataclasses.dataclass(frozen=True)
class MemoryPlan:
    """Where the tables of a level lie, decided before its kernels are launched."""

    level: int
    largest_table: int  # bytes of the largest possible table, with the sums of its columns
    shared_cells: int  # tables of up to this many cells lie in shared memory
    shared_bytes: int  # dynamic shared memory of a block
    dense_cells: int = 0  # tables of up to this many cells are made; tests with larger tables sort the samples
    scratch_cells: int = 0  # cells of each table in scratch space; 0 if all tables fit into shared memory
    scratch_grid: tuple[int, int] = (0, 0)  # blocks in x and y that share the scratch space
    z: int = 1  # rows that each of these blocks works on, the paper's factor
    scratch_bytes: int = 0  # size of the scratch space in device memory

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


def block_shape(params: Mapping[str, Any], backend: str) -> dict[str, int]:
    """Return delta, gamma and beta: `params`, where 0 stands for the backend's, halved until a block fits."""
    shape = {name: params[name] or 1 for name in DEFAULTS[backend]}
    for name in ("gamma", "delta", "beta"):
        size = 1 if params[name] else DEFAULTS[backend][name]
        while size * math.prod(shape.values()) > MAX_THREADS:
            size //= 2
        shape[name] *= size
    return shape


class BlockTables:
    """Tests by tables that delta threads make together; a block takes beta edges, and gamma tests of each edge at a
    time. A small table lies in shared memory and a larger one in scratch space in device memory. A test with a still
    larger one sorts the samples in scratch space. Each of the three cases has a launch of its own."""

    def __init__(self, problem: DiscreteProblem, run: Run):
        self._problem, self._backend, self._params = problem, run.backend, run.params
        backend, params = run.backend, run.params
        self.plans: list[MemoryPlan] = []  # of the levels so far
        self.shape = block_shape(params, backend.name)  # delta, gamma and beta
        multiprocessors = backend.multiprocessors
        self.threads_at_once = THREADS_A_MULTIPROCESSOR * multiprocessors  # that a GPU runs at once; 0 on the host
        # Whether the shape of blocks is chosen by the level's edges: on a GPU, unless one is requested.
        self.chooses = bool(multiprocessors) and not any(params[name] for name in ("delta", "gamma", "beta"))
        self._resident_blocks = (
            BLOCKS_A_MULTIPROCESSOR * multiprocessors if multiprocessors else BLOCKS_A_CORE * backend.threads
        )
        most = SORTED_FROM[backend.name] * problem.n_samples
        self._dense_cells = EVERY_SIZE if params["tables"] == "global" else max(most, SHARED_TABLE_CELLS)
        self._digits = DIGITS[backend.name]

    def level_zero(self, product_cells: int) -> LevelTests:
        """Return level 0's tests of pairs, except of variables with planes and tables of up to `product_cells`."""
        p = self._problem.n_variables
        grid = (p, min(p, MAX_GRID_Y)) if self._backend.name == "cuda" else (1, p)
        delta = self.threads_a_table(p * (p - 1) // 2, PAIR_DELTA)
        plan = self._plan(0, largest_pair_table(self._problem), grid, delta, tables=1, row_bytes=0)
        blocks = dict.fromkeys(SAMPLES_A_THREAD, (delta,))
        return self._tests("SHARED", plan, grid, blocks, [np.uint32(product_cells)], splits=1, above=0)

    def level(self, level: Level, pair_tables: Filled, batches: Filled, above: int) -> LevelTests:
        """Return the tests of a level from 1 on with tables of more than `above` cells, which read the tables of all
        pairs if level 0 kept them (`PAIR_TABLES`), without the tests made in batches (`BATCHES`)."""
        backend, n = self._backend, self._problem.n_samples
        gamma, beta = self.shape["gamma"], self.shape["beta"]
        tables = gamma * beta
        edges, most = level.edges_with_tests, min(MAX_DELTA, MAX_THREADS // tables)
        deltas = {
            where: self.threads_a_table(edges * gamma, self.shape["delta"], min(most, n // samples))
            for where, samples in SAMPLES_A_THREAD.items()
        }
        grid = (max(level.busy, 1), min(ceil_div(level.max_degree, beta), MAX_GRID_Y))
        splits = self.blocks_an_edge(edges, deltas["shared"], level.most_sets, grid)
        row_bytes = 4 * level.max_degree
        use_shared = backend.name == "cuda" and row_bytes <= backend.max_shared_bytes // 4
        row_shared = row_bytes if use_shared else 0
        plan = self._plan(level.level, level.largest_table, grid, deltas["scratch"], tables, row_shared)
        after = [pair_tables, batches, level.row_cells, level.busy_rows, np.int32(level.busy), np.bool_(use_shared)]
        blocks = {where: (delta, gamma, beta) for where, delta in deltas.items()}
        small_bytes = row_shared + SMALL_GAMMA * beta * unit_bytes(level.level, min(plan.shared_cells, SMALL_CELLS))
        fits = small_bytes <= backend.max_shared_bytes
        if fits and self.chooses and deltas["shared"] == self.shape["delta"]:
            fewer, more = SMALL_DELTAS
            delta = fewer if level.level == 1 or n < more * SAMPLES_A_THREAD["shared"] else more
            blocks["small"] = (delta, SMALL_GAMMA, beta)
        best = tests_kernel("gpupc_level", self._problem.codes.dtype.name, ALL_WAYS)
        in_shared = ALL_WAYS if is_worth_waiting_for(best, backend, self._problem, level) else FEW_WAYS
        return self._tests(in_shared, plan, grid, blocks, after, splits, above)

    def threads_a_table(self, tables: int, fewest: int, most: int = MAX_DELTA) -> int:
        """Return the number of threads that make a table: the requested delta, or without a request on a GPU, as many
        as let this number of tables keep the GPU busy."""
        if self._params["delta"] or not self.threads_at_once:
            return self.shape["delta"]
        delta = fewest
        while 2 * delta <= most and 2 * delta * tables <= self.threads_at_once:
            delta *= 2
        return delta

    def blocks_an_edge(self, edges: int, delta: int, sets: int, grid: tuple[int, int]) -> int:
        """Return the number of blocks that share the sets of each edge, up to `sets`: as many as keep a GPU busy. At
        late levels few variables have enough neighbours, but each of their edges has hundreds of sets."""
        rows, columns = grid
        if self._params["delta"] or not self.threads_at_once:
            return 1
        gamma, beta = self.shape["gamma"], self.shape["beta"]
        blocks, edge_blocks = QUEUED * self.threads_at_once // (delta * gamma * beta), ceil_div(edges, beta)
        most = min(MAX_GRID_Y // columns, MAX_BLOCKS // (rows * columns))
        return max(1, min(blocks // max(edge_blocks, 1), ceil_div(sets, gamma), most))

    def _tests(
        self,
        in_shared: str,
        plan: MemoryPlan,
        grid: tuple[int, int],
        blocks: Mapping[str, tuple[int, ...]],
        after: list,
        splits: int,
        above: int,
    ) -> LevelTests:
        """Return the launches of a plan: for tables in shared memory, tables in scratch space, and sorted samples.

        Args:
            in_shared: the template arguments of the kernel for tables in shared memory, after the type of codes.
            blocks: the shape of a block, by where its tables lie; ``"small"`` is for small tables in shared memory.
            after: arguments of the kernel after its `PLACES`.
            splits: number of blocks that share the sets of an edge if tables lie in shared memory.
            above: all tables with up to this many cells are made in another way.
        """
        cells, dense, largest = plan.shared_cells, plan.dense_cells, plan.largest_table // CELL_BYTES
        tables, smallest = math.prod(blocks["shared"][1:]), self._smallest_table(plan.level)
        row_bytes = plan.shared_bytes - tables * unit_bytes(plan.level, cells)
        launches, small = [], min(cells, SMALL_CELLS) if "small" in blocks else 0
        for lower, upper, where in ((above, small, "small"), (max(above, small), cells, "shared")):
            if upper > lower:
                places = PLACES(above=lower, up_to=upper, scratch=None, scratch_cells=upper, bits=0, splits=splits)
                block_tables = math.prod(blocks[where][1:])
                shared_bytes = row_bytes + block_tables * unit_bytes(plan.level, upper)
                terms = self._terms(max(lower, smallest), upper, block_tables, shared_bytes) if plan.level else 0
                shared_bytes += block_tables * TERM_BYTES * terms
                launches.append((places, (grid[0], grid[1] * splits), blocks[where], shared_bytes, in_shared, terms))
        scratch = self._backend.empty(plan.scratch_bytes // CELL_BYTES, np.uint32) if plan.scratch_bytes else None
        shared_bytes = row_bytes + tables * unit_bytes(plan.level, 0)
        ways = ", ALL_WAYS" if plan.level else ""  # Tables in scratch space have one kernel.
        for lower, upper, where in ((cells, dense, "SCRATCH"), (dense, EVERY_SIZE, "SORTED")):
            if min(upper, largest) > lower:
                places = PLACES(
                    above=max(above, lower),
                    up_to=upper,
                    scratch=scratch,
                    scratch_cells=plan.scratch_cells,
                    bits=(largest - 1).bit_length(),
                    splits=1,
                )
                launches.append((places, plan.scratch_grid, blocks["scratch"], shared_bytes, where + ways, 0))

        name, code = "gpupc_level" if plan.level else "gpupc_level_zero", self._problem.codes.dtype.name

        def launch(arguments: list) -> None:
            for places, launch_grid, block, block_bytes, option, terms in launches:
                if places.values["up_to"] < smallest:
                    continue
                last = [np.int32(terms)] if plan.level else []
                kernel = self._backend.kernel(*tests_kernel(name, code, option))
                kernel(launch_grid, block, [*arguments, places, *after, *last], shared_bytes=block_bytes)

        return LevelTests(EVERY_SIZE, launch)

    def _terms(self, smallest: int, largest: int, tables: int, shared_bytes: int) -> int:
        """Return the terms of the statistic for which each table has room; 0 if none has so few cells. The tables have
        from `smallest` to `largest` cells; `shared_bytes` is the shared memory of the block for everything else."""
        if self.shape["delta"] < TERMS_FROM or smallest > MAX_TERMS:
            return 0
        most = self._backend.max_shared_bytes
        return min(largest, MAX_TERMS, min(most // 4, most - shared_bytes) // (tables * TERM_BYTES))

    def _smallest_table(self, level: int) -> int:
        return math.prod(self._problem.descending[-(level + 2) :])

    def _plan(
        self, level: int, largest_table: int, grid: tuple[int, int], delta: int, tables: int, row_bytes: int
    ) -> MemoryPlan:
        """Plan where the tables of a level lie, given the largest table's cells, the blocks (x, y) of the launch
        without limits on memory, the threads of a table (`delta`), the tables that a block makes at a time, and the
        shared memory for the row of neighbours. DeviceMemoryError is raised if the tables of one block do not fit."""
        backend = self._backend
        free = max(backend.max_shared_bytes - tables * unit_bytes(level, 0) - row_bytes, 0)
        cells = min(largest_table, SHARED_TABLE_CELLS, free // (tables * CELL_BYTES))
        if level and self._params["tables"] == "global":
            cells = 0
        shared_bytes = tables * unit_bytes(level, cells) + row_bytes
        plan = MemoryPlan(level, largest_table * CELL_BYTES, cells, shared_bytes, dense_cells=cells)
        if largest_table > cells:
            plan = self._with_scratch(plan, largest_table, grid, delta, tables)
        logger.info("%s", plan)
        self.plans.append(plan)
        return plan

    def _with_scratch(
        self, plan: MemoryPlan, largest_table: int, grid: tuple[int, int], delta: int, tables: int
    ) -> MemoryPlan:
        """Return a plan with scratch space for the tables that do not fit in shared memory. A table may be only so
        large that as many blocks as keep the device busy have room for their tables. For larger tables samples are
        sorted, unless sorting takes as much memory."""
        used, limit = self._backend.memory_used, self._backend.memory_limit
        room, cells = limit - used, plan.shared_cells
        cells_for_one = room // (2 * tables * CELL_BYTES) * 2  # the cells of each table if a single block runs
        sorting = sorted_cells(self._problem.n_samples, delta, self._digits)
        running = 1 if self._dense_cells == EVERY_SIZE else self.threads_at_once // (delta * tables)
        running = max(min(running, self._resident_blocks, math.prod(grid)), 1)
        most = self._dense_cells if self._smallest_table(plan.level) <= self._dense_cells else 0
        dense = max(min(largest_table, most, cells_for_one, max(cells_for_one // running, sorting)), cells)
        scratch_cells = max(dense, sorting if largest_table > dense else 0)
        scratch_cells += scratch_cells % 2  # the cell numbers that are sorted have 64 bits
        block_bytes = tables * scratch_cells * CELL_BYTES
        blocks = min(room // block_bytes, self._resident_blocks)
        if blocks < 1:
            raise DeviceMemoryError(block_bytes, used, limit)
        rows, columns = grid[0], min(grid[1], blocks)
        blocks_down = min(rows, blocks // columns)
        return dataclasses.replace(
            plan,
            dense_cells=dense,
            scratch_cells=scratch_cells,
            scratch_grid=(blocks_down, columns),
            z=ceil_div(rows, blocks_down),
            scratch_bytes=blocks_down * columns * block_bytes,
        )
