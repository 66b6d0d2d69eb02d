"""The device memory of each layout of a level, and the layout that transfers the fewest bytes under a budget.

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
"""Upper bound on the bytes of a staging area, unless a single piece is larger."""

GATHER_FACTOR = 4
"""The time for gathering a byte entry by entry on the host, relative to the time for a byte of a whole row."""


def words(bits: int) -> int:
    return ceil_div(bits, 32)


@dataclasses.dataclass(frozen=True)
class MemoryPlan:
    """The layout of a level, its memory and its transfers.

    Attributes:
        layout: ``core`` (everything on the device), ``blocks`` (Out-of-Core, Algorithm 2), ``panels`` (whole
            rows) or ``gather`` (sub-matrices).
        device_bytes: device memory.
        rows, columns: variables of a block of pairs, on either side.
        width: variables of a separation-set block.
        bytes_up, bytes_down: bytes that are transferred to the device and back if every block has an edge; estimates
            for ``core`` and ``gather``.
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
    """cuPC-S on managed memory: an upper bound over all levels up to `max_level`, as if no edge were removed before.

    The arrays are the correlation matrix, the graph and the best keys, and from level 1 on the compacted rows, the
    binomials, and the list of removed edges with their sets. The list of removed edges grows with the level, up to the
    level at which a row of p - 1 neighbours has more sets than keys can number.
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
    # The small terms are degrees, counts and starts of lists of removed edges, rounding, and counters.
    device_bytes = 17 * pairs + 16 * (p + 1) + level_bytes + 16 * 512 + COUNTER_BYTES
    return MemoryPlan("core", device_bytes, p, p, p, 4 * p * (p + 1))


def pair_bytes(p: int) -> int:
    """Bytes that `core` omits of a level 1 that tests each pair once on the whole matrix: 32-bit keys, and bits."""
    return allocated_bytes(4 * p * p) + allocated_bytes(4 * p * words(p))


# --- level 0 -----------------------------------------------------------------------------------------------------


def _square_bytes(side: int) -> int:
    """Bytes of a square block of the matrix and of its bits."""
    return allocated_bytes(8 * side * side) + allocated_bytes(4 * side * words(side))


def _level_zero_bytes(side: int) -> int:
    return 2 * _square_bytes(side) + COUNTER_BYTES


def level_zero(p: int, budget: int, block_size: int) -> MemoryPlan | None:
    """The plan of level 0 with the largest square blocks that fit; None if not even the smallest blocks fit."""
    high = min(block_size, p)
    low = min(SMALLEST_BLOCK, high)
    side = largest_fitting(low, high, lambda side: _level_zero_bytes(side) <= budget)
    if side < low:
        return None
    pairs, bits = _upper_totals(p, side)
    return MemoryPlan("blocks", _level_zero_bytes(side), side, side, 0, 8 * pairs, bits, _square_bytes(side))


def _upper_totals(p: int, side: int) -> tuple[int, int]:
    """The entries of the blocks (I, J), J >= I, of a p x p matrix; and the bytes of their bits, in words row by row."""
    ends = np.minimum(np.arange(side, p + side, side), p)
    sizes = np.diff(ends, prepend=0)
    return int((sizes * ends).sum()), int((4 * words(sizes) * ends).sum())


# --- level 1 -----------------------------------------------------------------------------------------------------


def _rows_bytes(p: int, rows: int) -> int:
    """Bytes of whole rows with their bits and their flags of twins."""
    return allocated_bytes(8 * p * rows) + allocated_bytes(4 * row_words(p) * rows) + allocated_bytes(rows)


def _result_bytes(pairs: int, pair_bytes: int) -> int:
    """Bytes of the keys of pairs and, if p-values are recorded, of the smallest r^2 of each pair."""
    return allocated_bytes(4 * pairs) + (allocated_bytes(8 * pairs) if pair_bytes > 4 else 0)


def _panel_bytes(p: int, rows: int, columns: int, pair_bytes: int) -> int:
    """Bytes of a panel of whole rows, and of two chunks of columns with their rows and keys."""
    chunk = 0 if rows == p else _rows_bytes(p, columns)
    return _rows_bytes(p, rows) + 2 * (chunk + _result_bytes(rows * columns, pair_bytes)) + COUNTER_BYTES


def panels(p: int, budget: int, block_size: int, pmax: bool = False) -> MemoryPlan | None:
    """The plan of level 1 with panels of whole rows, to which the rows of all later variables are transferred in
    turn."""
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
    """Bytes of a block of pairs with its keys, and of two pairs of separation-set blocks."""
    return 5 * _square_bytes(side) + _result_bytes(side * side, pair_bytes) + COUNTER_BYTES


def blocks(p: int, budget: int, block_size: int, pmax: bool = False) -> MemoryPlan | None:
    """The plan of level 1 by Out-of-Core, Algorithm 2: square blocks of pairs, each with the separation-set blocks of
    both sides."""
    pair_bytes = 12 if pmax else 4
    high = min(block_size, p)
    low = min(SMALLEST_BLOCK, high)
    side = largest_fitting(low, high, lambda side: _block_bytes(side, pair_bytes) <= budget)
    if side < low:
        return None
    pairs, bits = _upper_totals(p, side)
    sides = ceil_div(p, side)
    # Each variable belongs to ceil(p / side) blocks of pairs, and each block reads the variable's whole row of
    # correlations and bits.
    row_bytes = 8 * p + 4 * (p // side * words(side) + words(p % side))
    up = 8 * pairs + bits + sides * p * row_bytes
    down, staging = pair_bytes * pairs, 2 * _square_bytes(side)
    return MemoryPlan("blocks", _block_bytes(side, pair_bytes), side, side, side, up, down, staging)


def level_one(
    p: int, budget: int, block_size: int, layout: str, pmax: bool, gathered_bytes: int | None = None
) -> MemoryPlan | None:
    """The plan of the requested layout, if it fits; for ``auto``, the plan that transfers the fewest bytes.

    Args:
        gathered_bytes: bytes that gathering would transfer; None if the graph is unknown.
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
    """Bytes that a sub-matrix with its rows takes in a pipeline."""
    return 8 * members * members + 24 * rows + (24 if pmax else 16) * slots + 8


BATCH_SLACK = 512
"""Alignment of the parts of a batch."""


def split_bytes(level: int, length: int) -> int:
    """Bytes that the launch of a split row takes in a pipeline if the row's blocks have this many neighbours."""
    members = 1 + (level + 1) * length
    return 8 * members * members + 16 * (level + 1)


def largest_arena(budget: int, level: int, max_degree: int, longest_split: int, pmax: bool) -> int:
    """Upper bound on the bytes of each pipeline, a multiple of 512."""
    return (budget - gather_fixed_bytes(level, max_degree, longest_split, pmax)) // 1024 * 512


def longest_piece(level: int, arena: int, degree: int) -> int:
    """Upper bound on the neighbours in a block of a split row; 0 when not even one neighbour fits."""
    return largest_fitting(1, degree, lambda length: split_bytes(level, length) <= arena)


def largest_degree(p: int, level: int) -> int:
    """Upper bound on the neighbours of a row at a level, since keys numbered the row's sets at all lower levels."""
    return largest_fitting(level + 1, p - 1, lambda degree: math.comb(degree, min(level, degree // 2)) < MAX_SETS)


def least_budget(p: int, max_level: int | None, degrees_of_freedom: Callable[[int], int], pmax: bool) -> int:
    """The least device memory that suffices for a plan of every level of any graph."""
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
