"""Sizes of panels, and the memory that a worker needs for them (docs/distributed.md has the formulas).

Sizes are upper bounds: every device array is counted as the device's allocator rounds it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from gpupc_impl.backends import DeviceMemoryError
from gpupc_impl.engine.bit_graph import row_words
from gpupc_impl.engine.device_memory import COUNTER_BYTES, allocated_bytes, largest_fitting
from gpupc_impl.integers import ceil_div, round_up

STEP = 32
"""Panels begin at a multiple of this number of variables, where a 32-bit word of the graph's rows begins."""

MOST_ROWS = 2048
"""Upper bound on the variables of a panel: a block of two such panels fills a GPU, and larger blocks would leave fewer
blocks to share among workers."""

LEAST_PANELS = 16
"""Target for the number of panels with few workers, so that no worker waits long while others finish the last
blocks."""

BLOCKS_A_WORKER = 16
"""Target for the number of blocks of each worker."""

THREADS = 3
"""Tasks that a worker runs at once: one computes while the others write their results."""


@dataclasses.dataclass(frozen=True)
class PanelPlan:
    """How the pairs of levels 0 and 1 are divided, and the memory that a worker needs for that.

    Attributes:
        rows: variables of a panel, a multiple of `STEP`; the last panel has fewer.
        panels: the number of panels.
        held: the number of panels that a worker can keep, at least two.
        device_bytes: the least device memory of a worker: for two panels and a block of pairs.
        host_bytes: the memory of a worker's process for results that are being written.
        budget: the device memory that a worker may take.
    """

    p: int
    rows: int
    panels: int
    held: int
    device_bytes: int
    host_bytes: int
    budget: int

    def panel(self, number: int) -> slice:
        """Return the variables of a panel."""
        return slice(number * self.rows, min((number + 1) * self.rows, self.p))

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yield the blocks (I, J), J >= I, in an order that reuses the panels which a worker keeps.

        All but two of the panels kept stay as I, while J runs back and forth over the other panels.
        """
        height = max(1, self.held - 2)
        for number, first in enumerate(range(0, self.panels, height)):
            own, partners = range(first, min(first + height, self.panels)), range(first, self.panels)
            for j in partners if number % 2 == 0 else reversed(partners):
                yield from ((i, j) for i in own if i <= j)

    def shares(self, workers: int) -> dict[tuple[int, int], int]:
        """Return the number of the worker that each block is for.

        All workers get equally many blocks. The blocks of a worker need few panels, since the worker computes each
        panel.
        """
        panels = range(self.panels)
        blocks = list(_clustered(panels, panels))
        return {block: at * workers // len(blocks) for at, block in enumerate(blocks)}

    def pairs(self, i: int, j: int, bits: np.ndarray) -> np.ndarray:
        """Return (k, 2) int32, row by row: the pairs whose bits are set in the (rows, words) uint32 bits of block (i,
        j)."""
        at = np.flatnonzero(bits.reshape(-1))
        word, bit = np.nonzero(bits.reshape(-1)[at, None] >> np.arange(STEP, dtype=np.uint32) & np.uint32(1))
        row, column = np.divmod(at[word], bits.shape[1])
        first = np.array([i, j]) * self.rows
        return (np.stack([row, STEP * column + bit], axis=1) + first).astype(np.int32)


def _clustered(rows: range, columns: range) -> Iterator[tuple[int, int]]:
    """Yield the blocks (I, J), J >= I, of two ranges of panels, equal or disjoint, by recursive halving.

    Blocks that follow one another therefore have few distinct panels.
    """
    if len(rows) == len(columns) == 1:
        yield rows[0], columns[0]
    elif rows == columns:
        low, high = _halves(rows)
        for part in ((low, low), (low, high), (high, high)):
            yield from _clustered(*part)
    elif len(rows) > len(columns):
        for half in _halves(rows):
            yield from _clustered(half, columns)
    else:
        for half in _halves(columns):
            yield from _clustered(rows, half)


def _halves(panels: range) -> tuple[range, range]:
    middle = len(panels) // 2
    return panels[:middle], panels[middle:]


def count_bits(words: np.ndarray) -> int:
    return int(np.count_nonzero(np.unpackbits(np.ascontiguousarray(words).view(np.uint8))))


def fixed_bytes(m: int, p: int) -> int:
    """Return the bytes that a worker always holds: (m, p) samples (m = 0 if it reads a matrix), variables, counters,
    rounding."""
    return allocated_bytes(8 * m * p) + allocated_bytes(4 * p) + COUNTER_BYTES + 16 * 512


def panel_bytes(p: int, rows: int, knowledge: bool) -> int:
    """Return the bytes of a panel: correlations, rows of the graph, flags of twins, degrees, and with knowledge rows of
    fixed edges."""
    graphs = 3 if knowledge else 1
    return (
        allocated_bytes(8 * p * rows)
        + graphs * allocated_bytes(4 * row_words(p) * rows)
        + allocated_bytes(rows)
        + allocated_bytes(4 * rows)
    )


def block_bytes(rows: int) -> int:
    """Return the bytes of a block of pairs: members of sets (as a matrix and as a list), edges before and after,
    counts, starts."""
    sizes = 4 * rows * rows, 4 * rows * (rows // 32), 8 * rows
    return 2 * sum(map(allocated_bytes, sizes))


def host_bytes(rows: int) -> int:
    """Return the bytes of the results of a worker's tasks that are being written: members, and edges before and after
    level 1."""
    return THREADS * (4 * rows * rows + 8 * rows * (rows // 32))


def row_bytes(degrees: np.ndarray) -> np.ndarray:
    """Return the bytes that rows with these degrees take at a level from 2 on: matrices and the list of their tiles,
    keys, indexes of slots, and rounding."""
    sizes = degrees.astype(np.int64) + 1
    return 8 * sizes**2 + 12 * (sizes // 64 + 1) ** 2 + 20 * sizes + 512


def least_device_bytes(m: int, p: int, rows: int, knowledge: bool) -> int:
    """Return the bytes of two panels and a block of pairs."""
    return fixed_bytes(m, p) + 2 * panel_bytes(p, rows, knowledge) + block_bytes(rows)


def held_panels(m: int, p: int, rows: int, knowledge: bool, device_memory: int) -> int:
    """Return the number of panels that fit into a worker's device memory."""
    free = device_memory - fixed_bytes(m, p) - block_bytes(rows)
    return min(free // panel_bytes(p, rows, knowledge), ceil_div(p, rows))


def bytes_for_rows(m: int, p: int, level: int, widest: int, device_memory: int) -> int:
    """Return the bytes that are left for the rows of a task from level 2 on, after binomials for degrees up to
    `widest`."""
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
) -> PanelPlan:
    """Return the plan for workers with the given memory.

    Args:
        m: number of samples that workers hold; 0 if workers read a matrix of correlations.
        device_memory, host_memory: bytes of the worker with the least memory.
        rows: variables of a panel; 0 lets the plan choose.

    Raises:
        DeviceMemoryError: the smallest panels, or panels of the requested size, do not fit.
    """
    whole = round_up(p, STEP)

    def fits(steps: int) -> bool:
        height = steps * STEP
        return least_device_bytes(m, p, height, knowledge) <= device_memory and host_bytes(height) <= host_memory

    if not rows:
        wanted = max(LEAST_PANELS, math.isqrt(2 * BLOCKS_A_WORKER * workers))
        most = min(MOST_ROWS, whole, max(STEP, ceil_div(p, wanted * STEP) * STEP))
        rows = STEP * largest_fitting(1, most // STEP, fits)
    rows = min(rows, whole)
    if not rows or not fits(rows // STEP):
        least = least_device_bytes(m, p, rows or STEP, knowledge)
        raise DeviceMemoryError(
            least,
            0,
            device_memory,
            f"method 'distributed' needs {least:,} bytes of device memory and {host_bytes(rows or STEP):,} of host "
            f"memory a worker for {p:,} variables in panels of {rows or STEP}; its workers have {device_memory:,} and "
            f"{host_memory:,}: give them more (device_memory_limit, host_memory_limit), have fewer workers a machine, "
            "or fewer variables",
        )
    return PanelPlan(
        p=p,
        rows=rows,
        panels=ceil_div(p, rows),
        held=held_panels(m, p, rows, knowledge, device_memory),
        device_bytes=least_device_bytes(m, p, rows, knowledge),
        host_bytes=host_bytes(rows),
        budget=device_memory,
    )


def share_out(work: np.ndarray, sizes: np.ndarray, limit: int, least_work: float, tasks: int) -> Iterator[slice]:
    """Divide consecutive items into slices of about the same work, each within a limit of bytes.

    Args:
        work, sizes: (k,) float64 work and (k,) int64 bytes of the items.
        least_work: the least work of a slice, so that its task is worth the overhead.
        tasks: the target for the number of slices; the limit may make more necessary.
    """
    aim = max(least_work, float(work.sum()) / tasks)
    start, slice_work, slice_bytes = 0, 0.0, 0
    if len(work) and sizes.sum() <= limit and work.sum() <= aim:
        yield slice(0, len(work))
        return
    for k, (item_work, size) in enumerate(zip(work.tolist(), sizes.tolist(), strict=True)):
        if k > start and (slice_bytes + size > limit or slice_work + item_work > aim):
            yield slice(start, k)
            start, slice_work, slice_bytes = k, 0.0, 0
        slice_work, slice_bytes = slice_work + item_work, slice_bytes + size
    if len(work):
        yield slice(start, len(work))
