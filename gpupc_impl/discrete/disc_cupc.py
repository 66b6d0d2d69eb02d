"""disc-cupc: cuPC-E's strategy (cuPC, Algorithms 3 and 4) on discrete data, gpuPC's baseline (gpuPC, section 4.1)."""

import contextlib
import math

import numpy as np

from gpupc_impl.backends import Backend, DeviceMemoryError, Filled
from gpupc_impl.backends.launch import MAX_GRID_Y, Kernel
from gpupc_impl.core.pc_stable import pc_stable
from gpupc_impl.core.registry import Parameter, Run, at_most_threads, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.discrete.declarations import (
    CELL_BYTES,
    MAX_THREADS,
    TABLES,
    allocation,
    disc_cupc_kernels,
    tests_kernel,
)
from gpupc_impl.discrete.discrete_search import DiscreteSearch
from gpupc_impl.discrete.level import Level, largest_pair_table, logger
from gpupc_impl.discrete.planes import COUNTING
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.integers import ceil_div

LEVEL_ZERO_THREADS = 32
THREADS_A_MULTIPROCESSOR = 2048
V100_MULTIPROCESSORS = 80
SHARED_TABLE_CELLS = 111  # of a thread's table, at most: with more, few threads fit on a multiprocessor
HOST_BLOCKS = 4  # blocks that are launched for each core of the host backend, enough to balance the work

LEAST_HEAP_BYTES = 1 << 30
"""Lower bound on the heap of kernels that allocate, as far as there is memory: the first search of a process sets the
size for all later ones, which may have larger tables."""


class DiscCuPC(DiscreteSearch):
    """A search in which each thread makes its own test with its own table, without a plan for the memory. The paper's
    threads allocate their tables inside the kernel, so the tables of all threads that run at the same time exist at
    once, each as large as the level's largest table. ``tables=in-kernel`` does the same. By default tables lie in
    shared memory if the level's largest one fits there, else in device memory that is allocated before the launch, as
    all tables are with ``tables=global``. On the host backend there are as many tables as on the paper's V100, so that
    a search runs out of memory for the same reason, although cores run few blocks at a time and use few of the tables;
    tables that threads allocate count towards the limit as if they had been allocated before the launch."""

    def __init__(self, problem: DiscreteProblem, run: Run):
        on_gpu = run.backend.multiprocessors
        multiprocessors = run.params["multiprocessors"] or on_gpu or V100_MULTIPROCESSORS
        self.resident = THREADS_A_MULTIPROCESSOR * multiprocessors
        self.running = self.resident if on_gpu else HOST_BLOCKS * MAX_THREADS * run.backend.threads
        super().__init__(problem, run)
        self.allocation = allocation(run.params)
        self.heap_bytes = 0  # the size of the heap from which threads allocate, if they do that on a GPU
        self.refused = self.backend.full(1, 0, np.uint64) if self.allocation == "IN_KERNEL" else None
        if self.allocation == "IN_KERNEL" and on_gpu:
            self.heap_bytes = set_heap(self.backend, self._heap_size())

    def launch_level_zero(self, arguments: list) -> None:
        p, cells = self.p, largest_pair_table(self.problem)
        width = ceil_div(p, LEVEL_ZERO_THREADS)
        tables, resident = self._tables(0, width * p, LEVEL_ZERO_THREADS, cells)
        blocks = max(min(resident, self.running // LEVEL_ZERO_THREADS), 1)
        width = min(width, blocks)
        grid = (width, min(p, blocks // width, MAX_GRID_Y))
        shared_bytes = LEVEL_ZERO_THREADS * CELL_BYTES * self._shared_cells(LEVEL_ZERO_THREADS)
        kernel = self._kernel("disc_cupc_level_zero")
        kernel(grid, (LEVEL_ZERO_THREADS,), [*arguments, tables], shared_bytes=shared_bytes)
        self._check_heap()

    def launch_level(self, level: Level, sides: list[list]) -> None:
        beta, gamma = self.run.params["beta"], self.run.params["gamma"]
        threads, backend = beta * gamma, self.backend
        degrees = backend.download(level.degrees).astype(np.int64)
        blocks = np.where(degrees > level.level, ceil_div(degrees, beta), 0)
        first_block = np.concatenate(([0], np.cumsum(blocks)))
        tables, resident = self._tables(level.level, int(first_block[-1]), threads, level.largest_table)
        grid = max(min(resident, self.running // threads), 1)
        members = backend.empty(grid * threads * level.level, np.int32)
        shared_bytes, row_bytes = threads * CELL_BYTES * self._shared_cells(threads), 4 * level.max_degree
        use_shared = row_bytes <= backend.max_shared_bytes // 4
        after = [tables, backend.upload(first_block), members, np.bool_(use_shared)]
        shared_bytes += use_shared * row_bytes
        for arguments in sides:
            self._kernel("disc_cupc_level")((grid,), (beta, gamma), [*arguments, *after], shared_bytes=shared_bytes)
        self._check_heap()

    def _kernel(self, name: str) -> Kernel:
        return self.backend.kernel(*tests_kernel(name, self.problem.codes.dtype.name, self.allocation))

    def _shared_cells(self, threads: int) -> int:
        """Return the cells of each thread's table in shared memory, odd so that equal cells lie in different banks."""
        if self.run.params["tables"] != "shared":
            return 0
        room = self.backend.max_shared_bytes * 3 // 4 // (threads * CELL_BYTES)  # a quarter is left for rows
        return min(SHARED_TABLE_CELLS, room - 1 | 1) if room > 1 else 0

    def _tables(self, level: int, blocks: int, threads: int, cells: int) -> tuple[Filled, int]:
        """Return the tables of the blocks that are resident on the device at once, and the number of those blocks."""
        resident, shared_cells = max(min(blocks, self.resident // threads), 1), self._shared_cells(threads)
        tables, table = resident * threads, cells * CELL_BYTES
        if cells <= shared_cells:
            logger.info("level %d: %s tables of %s bytes in shared memory", level, f"{tables:,}", f"{table:,}")
            return TABLES(first=None, cells=0, shared_cells=shared_cells, refused=None), resident
        where = f" in a heap of {self.heap_bytes:,} bytes" if self.heap_bytes else ""
        logger.info(
            "level %d: %s tables of %s bytes, %s bytes of device memory%s",
            *(level, f"{tables:,}", f"{table:,}", f"{tables * table:,}", where),
        )
        first = None if self.heap_bytes else self.backend.empty(tables * cells, np.uint32)
        return TABLES(first=first, cells=cells, shared_cells=shared_cells, refused=self.refused), resident

    def _heap_size(self) -> int:
        """Return the bytes of the tables of the last level, as far as there is memory. The process keeps the heap until
        it ends, so without a budget the heap has a quarter of the memory at most."""
        last_level = self.p - 2 if self.problem.max_level is None else self.problem.max_level
        cells = math.prod(self.problem.descending[: last_level + 2])
        left = max(self.backend.memory_limit - self.backend.memory_used, 0)
        if self.backend.device_memory_limit is None:
            left //= 4
        return min(max(2 * cells * CELL_BYTES * self.resident, LEAST_HEAP_BYTES), left)

    def _check_heap(self) -> None:
        """Raise `DeviceMemoryError` if the heap had no room for a table, so that tests of the level are missing."""
        if self.refused is not None and (refused := int(self.backend.download(self.refused)[0])):
            message = (
                f"device memory exhausted: a thread found no room for a table of {refused:,} bytes in the heap of "
                f"{self.heap_bytes:,} bytes, whose size the first search with tables=in-kernel in a process sets"
            )
            raise DeviceMemoryError(refused, self.backend.memory_used, self.backend.memory_limit, message)


def set_heap(backend: Backend, size: int) -> int:
    """Set the bytes of the heap from which kernels on a GPU allocate; returns the bytes that it has. CUDA refuses to
    change the size after the first launch of a kernel that allocates in this process. The limit is that of the device's
    primary context, in which the backend loads and launches kernels."""
    with backend.array_library() as cupy:
        runtime = cupy.cuda.runtime
        with contextlib.suppress(runtime.CUDARuntimeError):
            runtime.deviceSetLimit(runtime.cudaLimitMallocHeapSize, size)
        return int(runtime.deviceGetLimit(runtime.cudaLimitMallocHeapSize))


@method(
    "disc-cupc",
    family="discrete",
    source="gpuPC, section 4.1; cuPC, Algorithms 3 and 4",
    summary="cuPC-E's strategy: a thread a test, with a table of its own",
    params={
        "beta": Parameter(2, "edges a block (beta)", minimum=1, maximum=MAX_THREADS),
        "gamma": Parameter(32, "threads an edge (gamma)", minimum=1, maximum=MAX_THREADS),
        "counting": COUNTING,
        "tables": Parameter(
            "shared",
            "where tables lie: shared memory, small ones; global: device memory; in-kernel: device memory that each "
            "thread allocates (the paper's)",
            choices=("shared", "global", "in-kernel"),
        ),
        "multiprocessors": Parameter(
            0,
            "multiprocessors whose resident threads have tables at once, 80 on the paper's V100; 0: the device's",
            minimum=0,
            maximum=1024,
        ),
    },
    check=at_most_threads(MAX_THREADS, "beta", "gamma"),
    tiers=True,
    kernels=disc_cupc_kernels,
)
def disc_cupc(problem: DiscreteProblem, run: Run) -> Skeleton:
    return pc_stable(problem, DiscCuPC(problem, run).in_parts(), facts=dict(run.facts), progress=run.progress)
