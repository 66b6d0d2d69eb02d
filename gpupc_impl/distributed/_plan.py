"""Panel sizes, and the memory that a worker takes for them (docs/distributed.md has the formulas).

Sizes are upper bounds: every device array is counted as the device's allocator rounds it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from gpupc_impl.backends import DeviceMemoryError
from gpupc_impl.engine.bit_graph import row_words
from gpupc_impl.integers import ceil_div, round_up
from gpupc_impl.out_of_core._plan import COUNTER_BYTES, largest, rounded

STEP = 32
"""Panels begin at a word of the graph's rows."""

MOST_ROWS = 2048
"""Of a panel: its blocks keep a GPU busy, and are many enough to be shared out."""

LEAST_PANELS = 16
"""Panels to be had where there are few workers, so that the last blocks keep none of them waiting for long."""

BLOCKS_A_WORKER = 16

THREADS = 3
"""Tasks that a worker may have in hand: while one computes, the others write."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """How levels 0 and 1 are cut, and what that takes of a worker.

    Attributes:
        rows: variables of a panel, a multiple of `STEP`; the last panel has fewer.
        panels: how many there are.
        held: panels that a worker can keep, at least two.
        device_bytes: what a worker needs at least on its device: two panels and a block of pairs.
        host_bytes: what it needs beside that in its process for results on their way to a shard.
        budget: device memory that it may take.
    """

    p: int
    rows: int
    panels: int
    held: int
    device_bytes: int
    host_bytes: int
    budget: int

    def panel(self, number: int) -> slice:
        return slice(number * self.rows, min((number + 1) * self.rows, self.p))

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Blocks (I, J), J >= I, in an order in which panels are soon needed again: as many I as are kept beside two
        others stay, while J goes to and fro."""
        height = max(1, self.held - 2)
        for number, first in enumerate(range(0, self.panels, height)):
            own, partners = range(first, min(first + height, self.panels)), range(first, self.panels)
            for j in partners if number % 2 == 0 else reversed(partners):
                yield from ((i, j) for i in own if i <= j)

    def shares(self, workers: int) -> dict[tuple[int, int], int]:
        """The worker of each block, by number: as many blocks for each, of few panels, since it has to make these."""
        everything = range(self.panels)
        blocks = list(_near_one_another(everything, everything))
        return {block: at * workers // len(blocks) for at, block in enumerate(blocks)}

    def pairs(self, i: int, j: int, bits: np.ndarray) -> np.ndarray:
        """(k, 2) int32, row by row: the pairs of a block that are set in its (rows, words) uint32 bits."""
        at = np.flatnonzero(bits.reshape(-1))
        word, bit = np.nonzero(bits.reshape(-1)[at, None] >> np.arange(STEP, dtype=np.uint32) & np.uint32(1))
        row, column = np.divmod(at[word], bits.shape[1])
        first = np.array([i, j]) * self.rows
        return (np.stack([row, STEP * column + bit], axis=1) + first).astype(np.int32)

    def facts(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def _near_one_another(rows: range, columns: range) -> Iterator[tuple[int, int]]:
    """The blocks (I, J), J >= I, of ranges of panels, the same or disjoint; any few in a row have few panels."""
    if len(rows) == len(columns) == 1:
        yield rows[0], columns[0]
    elif rows == columns:
        low, high = _halves(rows)
        for part in ((low, low), (low, high), (high, high)):
            yield from _near_one_another(*part)
    elif len(rows) > len(columns):
        for half in _halves(rows):
            yield from _near_one_another(half, columns)
    else:
        for half in _halves(columns):
            yield from _near_one_another(rows, half)


def _halves(panels: range) -> tuple[range, range]:
    middle = len(panels) // 2
    return panels[:middle], panels[middle:]


def count_bits(words: np.ndarray) -> int:
    return int(np.count_nonzero(np.unpackbits(np.ascontiguousarray(words).view(np.uint8))))


def fixed_bytes(m: int, p: int) -> int:
    """What a worker holds all the time: the samples (none of a given matrix: m = 0), the variables, counters."""
    return rounded(8 * m * p) + rounded(4 * p) + COUNTER_BYTES + 16 * 512


def panel_bytes(p: int, rows: int, knowledge: bool) -> int:
    """A panel's correlations and rows of the graph, whether its variables have twins, and its part of fixed edges."""
    graphs = 3 if knowledge else 1
    return rounded(8 * p * rows) + graphs * rounded(4 * row_words(p) * rows) + rounded(rows) + rounded(4 * rows)


def block_bytes(rows: int) -> int:
    """A block of pairs: members of sets, as found and one after the other, and its edges before and after."""
    return 2 * rounded(4 * rows * rows) + 2 * rounded(4 * rows * (rows // 32)) + 2 * rounded(8 * rows)


def host_bytes(rows: int) -> int:
    return THREADS * (4 * rows * rows + 8 * rows * (rows // 32))


def row_bytes(degrees: np.ndarray) -> np.ndarray:
    """What rows of so many neighbours take at a level from 2 on: their matrices with the tiles that these are made in,
    keys and places of slots, and what a device's allocator may round up."""
    sizes = degrees.astype(np.int64) + 1
    return 8 * sizes**2 + 12 * (sizes // 64 + 1) ** 2 + 20 * sizes + 512


def least_device_bytes(m: int, p: int, rows: int, knowledge: bool) -> int:
    return fixed_bytes(m, p) + 2 * panel_bytes(p, rows, knowledge) + block_bytes(rows)


def held_panels(m: int, p: int, rows: int, knowledge: bool, device_memory: int) -> int:
    """Panels that can be kept in so much memory."""
    free = device_memory - fixed_bytes(m, p) - block_bytes(rows)
    return min(free // panel_bytes(p, rows, knowledge), ceil_div(p, rows))


def bytes_for_rows(m: int, p: int, level: int, widest: int, device_memory: int) -> int:
    """What is left for the rows of a task from level 2 on: beside them there are binomials, up to `widest`."""
    return device_memory - fixed_bytes(m, p) - 8 * (level + 1) * (widest + 1)


def choose(
    m: int,
    p: int,
    *,
    device_memory: int,
    host_memory: int,
    workers: int,
    rows: int = 0,
    knowledge: bool = False,
) -> Plan:
    """The plan for workers of which each has so much memory.

    Args:
        m: samples that workers hold; 0 where they read a given matrix.
        device_memory, host_memory: bytes of the worker that has the least.
        rows: of a panel, where these are given.

    Raises:
        DeviceMemoryError: the smallest panels, or those that are asked for, do not fit.
    """
    whole = round_up(p, STEP)

    def fits(steps: int) -> bool:
        height = steps * STEP
        return least_device_bytes(m, p, height, knowledge) <= device_memory and host_bytes(height) <= host_memory

    if not rows:
        wanted = max(LEAST_PANELS, math.isqrt(2 * BLOCKS_A_WORKER * workers))
        most = min(MOST_ROWS, whole, max(STEP, ceil_div(p, wanted * STEP) * STEP))
        rows = STEP * largest(1, most // STEP, fits)
    rows = min(rows, whole)
    if not rows or not fits(rows // STEP):
        least = least_device_bytes(m, p, rows or STEP, knowledge)
        beside = host_bytes(rows or STEP)
        raise DeviceMemoryError(
            least,
            0,
            device_memory,
            f"method 'distributed' needs {least:,} bytes of device memory and {beside:,} of host memory a worker for "
            f"{p:,} variables in panels of {rows or STEP}; its workers have {device_memory:,} and {host_memory:,}: "
            "give them more (device_memory_limit, host_memory_limit), have fewer workers a machine, or fewer variables",
        )
    return Plan(
        p=p,
        rows=rows,
        panels=ceil_div(p, rows),
        held=held_panels(m, p, rows, knowledge, device_memory),
        device_bytes=least_device_bytes(m, p, rows, knowledge),
        host_bytes=host_bytes(rows),
        budget=device_memory,
    )


def share_out(work: np.ndarray, sizes: np.ndarray, limit: int, least_work: float, tasks: int) -> Iterator[slice]:
    """Consecutive items in slices, each of about the same work and within a limit of bytes.

    Args:
        work, sizes: (k,) float64 work and int64 bytes of the items.
        least_work: of a slice, so that a task is worth its while.
        tasks: how many slices to have of much work; more where the limit asks for it.
    """
    aim = max(least_work, float(work.sum()) / tasks)
    start, done, used = 0, 0.0, 0
    for k, (one, size) in enumerate(zip(work.tolist(), sizes.tolist(), strict=True)):
        if k > start and (used + size > limit or done + one > aim):
            yield slice(start, k)
            start, done, used = k, 0.0, 0
        done, used = done + one, used + size
    if len(work):
        yield slice(start, len(work))
