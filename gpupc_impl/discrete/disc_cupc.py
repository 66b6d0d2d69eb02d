"""disc-cupc: cuPC-E's strategy on discrete data, the paper's baseline (gpuPC, section 4.1)."""

from __future__ import annotations

import numpy as np

from gpupc_impl.backends.launch import MAX_GRID_Y
from gpupc_impl.core.pc_stable import pc_stable
from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.discrete.device import CELL_BYTES, TABLES, DiscreteSearch, Level, largest_pair_table, logger
from gpupc_impl.discrete.problem import DiscreteProblem

MAX_THREADS = 512  # disc_cupc.cu: launch bounds
LEVEL_ZERO_THREADS = 32

THREADS_A_MULTIPROCESSOR = 2048
V100_MULTIPROCESSORS = 80

HOST_BLOCKS = 4
"""Blocks launched for each core of the host backend: enough to share out the work."""


class DiscCuPC(DiscreteSearch):
    """A thread a test, each with a table of its own in device memory, and no plan for that memory.

    The paper's threads allocate their tables inside the kernel, so the tables of all threads that run at the same time
    exist together. Each is as large as the level's
    largest. On the host backend the device is the paper's V100, so that a search runs out of memory there for the same
    reason; its cores run few blocks at a time, and use few of the tables.
    """

    name = "disc_cupc"

    def __init__(self, problem: DiscreteProblem, run: Run):
        multiprocessors = run.backend.describe().get("multiprocessors")
        self.resident = THREADS_A_MULTIPROCESSOR * (multiprocessors or V100_MULTIPROCESSORS)
        self.running = self.resident if multiprocessors else HOST_BLOCKS * MAX_THREADS * run.backend.threads
        super().__init__(problem, run)

    def make_level_zero(self, arguments: list) -> None:
        p, cells = self.p, largest_pair_table(self.problem)
        width = -(-p // LEVEL_ZERO_THREADS)
        tables, held = self._tables(0, width * p, LEVEL_ZERO_THREADS, cells)
        blocks = max(min(held, self.running // LEVEL_ZERO_THREADS), 1)
        width = min(width, blocks)
        grid = (width, min(p, blocks // width, MAX_GRID_Y))
        self.kernel("level_zero")(grid, (LEVEL_ZERO_THREADS,), [*arguments, TABLES(first=tables, cells=cells)])

    def make_level(self, level: Level, arguments: list) -> None:
        beta, gamma = self.run.params["beta"], self.run.params["gamma"]
        blocks = np.where(level.degrees > level.level, -(-level.degrees.astype(np.int64) // beta), 0)
        first_block = np.concatenate(([0], np.cumsum(blocks)))
        tables, held = self._tables(level.level, int(first_block[-1]), beta * gamma, level.largest_table)
        grid = max(min(held, self.running // (beta * gamma)), 1)
        members = self.backend.empty(grid * beta * gamma * level.level, np.int32)
        own = [TABLES(first=tables, cells=level.largest_table), self.backend.upload(first_block), members]
        self.kernel("level")((grid,), (beta, gamma), [*arguments, *own])

    def table_bytes(self, level: int, cells: int, left: int) -> int:
        p, params = self.p, self.run.params
        if level:
            held = self._held(p * -(-p // params["beta"]), params["beta"] * params["gamma"])
            tables = held * params["beta"] * params["gamma"]
        else:
            tables = self._held(p * -(-p // LEVEL_ZERO_THREADS), LEVEL_ZERO_THREADS) * LEVEL_ZERO_THREADS
        return min(tables * (cells * CELL_BYTES + 4 * level), left)

    def _held(self, blocks: int, threads: int) -> int:
        """Blocks that the device holds at once."""
        return max(min(blocks, self.resident // threads), 1)

    def _tables(self, level: int, blocks: int, threads: int, cells: int) -> tuple[np.ndarray, int]:
        """The tables of the blocks that the device holds at once, and how many blocks those are.

        Raises:
            DeviceMemoryError: they do not fit.
        """
        held = self._held(blocks, threads)
        tables, table = held * threads, cells * CELL_BYTES
        logger.info(
            "level %d: %s tables of %s bytes, %s bytes of device memory",
            *(level, f"{tables:,}", f"{table:,}", f"{tables * table:,}"),
        )
        return self.backend.empty(tables * cells, np.uint32), held


def _check_block(params: dict) -> str | None:
    threads = params["beta"] * params["gamma"]
    if threads > MAX_THREADS:
        return f"beta * gamma is {threads}; a block holds at most {MAX_THREADS} threads"
    return None


@method(
    "disc-cupc",
    family="discrete",
    source="gpuPC, section 4.1",
    summary="cuPC-E's strategy: a thread a test, its table in device memory",
    params={
        "beta": Parameter(2, "edges a block (beta)", minimum=1, maximum=MAX_THREADS),
        "gamma": Parameter(32, "threads an edge (gamma)", minimum=1, maximum=MAX_THREADS),
    },
    check=_check_block,
)
def disc_cupc(problem: DiscreteProblem, run: Run) -> Skeleton:
    search = DiscCuPC(problem, run)
    facts = {**run.facts, "forecast": search.forecast.facts()}
    return pc_stable(problem, search, facts=facts, progress=run.progress)
