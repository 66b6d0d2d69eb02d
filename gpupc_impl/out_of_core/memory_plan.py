"""How much device memory each way of running a level takes, and which way moves the fewest bytes under a budget.

Sizes are upper bounds: every device array is counted as the device's allocator rounds it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from gpupc_impl.core.pc_stable import MAX_SETS
from gpupc_impl.engine.bit_graph import row_words
from gpupc_impl.engine.device_memory import COUNTER_BYTES, allocated_bytes, largest_fitting
from gpupc_impl.gaussian.pair_scan import PairScan
from gpupc_impl.integers import ceil_div

SMALLEST_BLOCK = 32
STAGING_BYTES = 1 << 28
"""A staging area holds at most this many bytes, unless a single piece is larger."""

GATHER_FACTOR = 4
"""Gathering a byte entry by entry takes the host as long as copying this many bytes of whole rows."""


def words(bits: int) -> int:
    return ceil_div(bits, 32)


@dataclasses.dataclass(frozen=True)
class MemoryPlan:
    """How a level is run, and what that takes.

    Attributes:
        layout: ``core`` (everything on the device), ``blocks`` (Algorithm 2), ``panels`` (whole rows) or ``gather``
            (sub-matrices).
        device_bytes: device memory.
        rows, columns: variables of a block of pairs, on either side.
        width: variables of a separation-set block.
        bytes_up, bytes_down: what goes to the device and back if every block has an edge; estimates for ``core`` and
            ``gather``.
        staging_bytes: pinned host memory of each of the two pipelines.
    """

    layout: str
    device_bytes: int
    rows: int = 0
    columns: int = 0
    width: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    staging_bytes: int = 0

    def __str__(self) -> str:
        return (
            f"{self.layout} of {self.rows:,} x {self.columns:,} (at most {self.device_bytes:,} bytes of device memory, "
            f"{self.bytes_up:,} to move)"
        )


# --- in core ---------------------------------------------------------------------------------------------------------


def pair_scan(p: int, max_level: int | None, pmax: bool) -> MemoryPlan:
    """The search of `pair-scan` up to level 1; the memory of later levels depends on the graph."""
    return MemoryPlan("core", PairScan.first_bytes(p, max_level, pmax), p, p, p, 4 * p * (p + 1))  # half the matrix


def core(p: int, max_level: int | None, pmax: bool) -> MemoryPlan:
    """cuPC-S on managed memory: the most that any level up to `max_level` takes when no edge was removed before it.

    The arrays are the correlation matrix, the graph and the best keys, and from level 1 on the compacted rows, the
    binomials, and the list of removed edges with their sets. That list grows with the level, until a row of p - 1
    neighbours has more sets than can be numbered.
    """
    pairs = p * p
    level_bytes, level = 0, 1
    while level <= p - 2 and (max_level is None or level <= max_level):
        degree = largest_degree(p, level)
        if degree < level + 1:
            break
        lists = 4 * p * degree + (8 + 4 * level) * (p * degree // 2) + 8 * (level + 1) * (degree + 1)
        level_bytes = max(level_bytes, lists + (8 * pairs if pmax else 0))
        level += 1
    # The smaller terms are degrees, counts of removed edges and the starts of their lists; rounding; counters.
    device_bytes = 17 * pairs + 16 * (p + 1) + level_bytes + 16 * 512 + COUNTER_BYTES
    return MemoryPlan("core", device_bytes, p, p, p, 4 * p * (p + 1))


def pair_bytes(p: int) -> int:
    """What `core` does not count of a level 1 that tests each pair once, on the whole matrix: 32-bit keys, and bits."""
    return allocated_bytes(4 * p * p) + allocated_bytes(4 * p * words(p))


# --- level 0 -----------------------------------------------------------------------------------------------------


def _square_bytes(side: int) -> int:
    """A square block of the matrix, with its bits."""
    return allocated_bytes(8 * side * side) + allocated_bytes(4 * side * words(side))


def _level_zero_bytes(side: int) -> int:
    return 2 * _square_bytes(side) + COUNTER_BYTES


def level_zero(p: int, budget: int, block_size: int) -> MemoryPlan | None:
    """The largest square blocks of the upper triangle that fit; None if not even the smallest do."""
    high = min(block_size, p)
    low = min(SMALLEST_BLOCK, high)
    side = largest_fitting(low, high, lambda side: _level_zero_bytes(side) <= budget)
    if side < low:
        return None
    pairs, bits = _upper_totals(p, side)
    return MemoryPlan("blocks", _level_zero_bytes(side), side, side, 0, 8 * pairs, bits, _square_bytes(side))


def _upper_totals(p: int, side: int) -> tuple[int, int]:
    """Entries of the blocks (I, J), J >= I, of a p x p matrix; and bytes of their bits, in words row by row."""
    ends = np.minimum(np.arange(side, p + side, side), p)
    sizes = np.diff(ends, prepend=0)
    return int((sizes * ends).sum()), int((4 * words(sizes) * ends).sum())


# --- level 1 -----------------------------------------------------------------------------------------------------


def _rows_bytes(p: int, rows: int) -> int:
    """Whole rows with their bits, and for each the flag whether it has a twin."""
    return allocated_bytes(8 * p * rows) + allocated_bytes(4 * row_words(p) * rows) + allocated_bytes(rows)


def _result_bytes(pairs: int, pair_bytes: int) -> int:
    """Keys of pairs, and the smallest r^2 of each pair where that is recorded."""
    return allocated_bytes(4 * pairs) + (allocated_bytes(8 * pairs) if pair_bytes > 4 else 0)


def _panel_bytes(p: int, rows: int, columns: int, pair_bytes: int) -> int:
    """A panel of whole rows, and two chunks of columns with their rows and keys."""
    chunk = 0 if rows == p else _rows_bytes(p, columns)
    return _rows_bytes(p, rows) + 2 * (chunk + _result_bytes(rows * columns, pair_bytes)) + COUNTER_BYTES


def panels(p: int, budget: int, block_size: int, pmax: bool = False) -> MemoryPlan | None:
    """Panels of whole rows, which stay on the device while the rows of all later variables pass by."""
    pair_bytes = 12 if pmax else 4
    columns = max(1, min(block_size, p, max(SMALLEST_BLOCK, STAGING_BYTES // (8 * p))))
    while columns > 1 and _panel_bytes(p, min(columns, p), columns, pair_bytes) > budget // 2:
        columns = (columns + 1) // 2
    rows = largest_fitting(1, p, lambda rows: _panel_bytes(p, rows, columns, pair_bytes) <= budget)
    if rows < 1:
        return None
    rows = ceil_div(p, ceil_div(p, rows))  # panels of equal height
    row_bytes = 8 * p + 4 * row_words(p)
    starts = np.arange(0, p, rows)
    heights = np.minimum(rows, p - starts)
    up, down = int((p - starts).sum()) * row_bytes, int((heights * (p - starts)).sum()) * pair_bytes
    staging = _rows_bytes(p, columns) + _result_bytes(rows * columns, pair_bytes)
    return MemoryPlan("panels", _panel_bytes(p, rows, columns, pair_bytes), rows, columns, p, up, down, staging)


def _block_bytes(side: int, pair_bytes: int) -> int:
    """A block of pairs with its keys, and two pairs of separation-set blocks."""
    return 5 * _square_bytes(side) + _result_bytes(side * side, pair_bytes) + COUNTER_BYTES


def blocks(p: int, budget: int, block_size: int, pmax: bool = False) -> MemoryPlan | None:
    """Algorithm 2: square blocks of pairs, and for each the separation-set blocks of both its sides."""
    pair_bytes = 12 if pmax else 4
    high = min(block_size, p)
    low = min(SMALLEST_BLOCK, high)
    side = largest_fitting(low, high, lambda side: _block_bytes(side, pair_bytes) <= budget)
    if side < low:
        return None
    pairs, bits = _upper_totals(p, side)
    sides = ceil_div(p, side)
    # Each variable belongs to as many blocks of pairs as there are sides, and each of these takes the variable's whole
    # row of correlations and bits.
    row_bytes = 8 * p + 4 * (p // side * words(side) + words(p % side))
    up = 8 * pairs + bits + sides * p * row_bytes
    down, staging = pair_bytes * pairs, 2 * _square_bytes(side)
    return MemoryPlan("blocks", _block_bytes(side, pair_bytes), side, side, side, up, down, staging)


def level_one(
    p: int, budget: int, block_size: int, layout: str, pmax: bool, gathered_bytes: int | None = None
) -> MemoryPlan | None:
    """The requested layout, where it fits; for ``auto``, the one that moves the fewest bytes.

    Args:
        gathered_bytes: what gathering would move; None if nothing is known of the graph.
    """
    plans = {plan.layout: plan for plan in (make(p, budget, block_size, pmax) for make in (panels, blocks)) if plan}
    if gathered_bytes is not None:
        plans["gather"] = MemoryPlan("gather", budget, bytes_up=gathered_bytes)
    if layout in plans:
        return plans[layout]

    def cost(plan: MemoryPlan) -> int:
        return (plan.bytes_up + plan.bytes_down) * (GATHER_FACTOR if plan.layout == "gather" else 1)

    return min(plans.values(), key=cost, default=None)


# --- any level, gathered ---------------------------------------------------------------------------------------------


def gather_fixed_bytes(level: int, max_degree: int, longest_split: int, pmax: bool) -> int:
    """Device memory outside the two pipelines: binomials, counters, and the keys of a row that is split."""
    keys = (2 if pmax else 1) * allocated_bytes(8 * longest_split)
    return allocated_bytes(8 * (level + 1) * (max_degree + 1)) + COUNTER_BYTES + keys


def cluster_bytes(members: int, rows: int, slots: int, pmax: bool) -> int:
    """What a sub-matrix with its rows takes of a pipeline."""
    return 8 * members * members + 24 * rows + (24 if pmax else 16) * slots + 8


BATCH_SLACK = 512
"""Alignment of the parts of a batch."""


def split_bytes(level: int, length: int) -> int:
    """What the launch of a split row takes of a pipeline when its blocks have this many neighbours."""
    members = 1 + (level + 1) * length
    return 8 * members * members + 16 * (level + 1)


def largest_arena(budget: int, level: int, max_degree: int, longest_split: int, pmax: bool) -> int:
    """Bytes that each pipeline may hold, a multiple of 512."""
    return (budget - gather_fixed_bytes(level, max_degree, longest_split, pmax)) // 1024 * 512


def longest_piece(level: int, arena: int, degree: int) -> int:
    """Neighbours in a block of a split row; 0 when not even one fits."""
    return largest_fitting(1, degree, lambda length: split_bytes(level, length) <= arena)


def largest_degree(p: int, level: int) -> int:
    """The most neighbours that a row can have at a level, given that its sets could be numbered at all levels below."""
    return largest_fitting(level + 1, p - 1, lambda degree: math.comb(degree, min(level, degree // 2)) < MAX_SETS)


def least_budget(p: int, max_level: int | None, degrees_of_freedom: Callable[[int], int], pmax: bool) -> int:
    """The least device memory that holds a plan for every level, whatever the graph."""
    small = min(SMALLEST_BLOCK, p)
    least = _level_zero_bytes(small)
    level = 1
    while level <= p - 2 and (max_level is None or level <= max_level) and degrees_of_freedom(level) > 0:
        if level == 1:
            least = max(least, _block_bytes(small, 12 if pmax else 4))
        degree = largest_degree(p, level)
        if degree < level + 1:
            break
        fixed = gather_fixed_bytes(level, degree, degree, pmax)
        least = max(least, fixed + 2 * allocated_bytes(max(split_bytes(level, 1), BATCH_SLACK)))
        level += 1
    return least
