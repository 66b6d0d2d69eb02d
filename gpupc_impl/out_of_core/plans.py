"""The device arrays of each level, and the largest blocks and panels with which they keep within a budget."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from gpupc_impl.core.pc_stable import MAX_SETS
from gpupc_impl.engine.bit_graph import row_words
from gpupc_impl.engine.budget import COUNTER_BYTES, Arrays, allocated_bytes, device_bytes, largest_fitting
from gpupc_impl.integers import ceil_div

SMALLEST_BLOCK = 32
STAGING_BYTES = 1 << 28  # upper bound on the bytes of a staging area, unless a single piece is larger


def words(bits: int) -> int:
    return ceil_div(bits, 32)


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a level is cut: into ``blocks`` (Out-of-Core, Algorithm 2), ``panels`` of whole rows, or ``gathered``
    sub-matrices. A block or a panel has `rows` variables, and the rows or separation-set blocks of `columns` variables
    pass by at a time; `device_bytes` is an upper bound on the device memory."""

    layout: str
    device_bytes: int
    rows: int = 0
    columns: int = 0

    def __str__(self) -> str:
        return f"{self.layout} of {self.rows:,} x {self.columns:,} ({self.device_bytes:,} bytes of device memory)"


# --- arrays ------------------------------------------------------------------------------------------------------
def block_arrays(side: int) -> Arrays:
    """A square block of the correlation matrix and of the graph."""
    return {"c": ((side, side), np.float64), "edges": ((side, words(side)), np.uint32)}


def set_block_arrays(side: int) -> Arrays:
    """The separation-set blocks of both sides of a block of pairs."""
    matrices = dict.fromkeys(("c_i", "c_j"), ((side, side), np.float64))
    return {**matrices, **dict.fromkeys(("bits_i", "bits_j"), ((side, words(side)), np.uint32))}


def row_arrays(p: int, rows: int) -> Arrays:
    """Whole rows of the matrix and of the graph, and whether each variable has a twin."""
    near = (rows, row_words(p)), np.uint32
    return {"c": ((rows, p), np.float64), "near": near, "has_twin": (rows, np.uint8)}


def result_arrays(rows: int, columns: int, pmax: bool) -> Arrays:
    """The keys of pairs and, if p-values are recorded, the smallest r^2 of each pair."""
    keys = {"keys": ((rows, columns), np.uint32)}
    return {**keys, "smallest": ((rows, columns), np.uint64)} if pmax else keys


# --- levels 0 and 1 ----------------------------------------------------------------------------------------------
def _zero_bytes(side: int) -> int:
    return 2 * device_bytes(block_arrays(side)) + COUNTER_BYTES


def _square_bytes(side: int, pmax: bool) -> int:
    pairs = device_bytes(block_arrays(side)) + device_bytes(result_arrays(side, side, pmax))
    return pairs + 2 * device_bytes(set_block_arrays(side)) + COUNTER_BYTES


def _panel_bytes(p: int, rows: int, columns: int, pmax: bool) -> int:
    passing = device_bytes(row_arrays(p, columns)) + device_bytes(result_arrays(rows, columns, pmax))
    return device_bytes(row_arrays(p, rows)) + 2 * passing + COUNTER_BYTES


def _largest_squares(p: int, budget: int, block_size: int, needed: Callable[[int], int]) -> Plan | None:
    """The largest square blocks that fit, given the bytes needed for a side; None if not even the smallest ones fit."""
    high = min(block_size, p)
    low = min(SMALLEST_BLOCK, high)
    side = largest_fitting(low, high, lambda side: needed(side) <= budget)
    return None if side < low else Plan("blocks", needed(side), side, side)


def level_zero(p: int, budget: int, block_size: int) -> Plan | None:
    return _largest_squares(p, budget, block_size, _zero_bytes)


def _panels(p: int, budget: int, block_size: int, pmax: bool) -> Plan | None:
    """Level 1 in panels of equal height, past which the rows of later variables move in chunks."""
    columns = max(1, min(block_size, p, max(SMALLEST_BLOCK, STAGING_BYTES // (8 * p))))
    while columns > 1 and _panel_bytes(p, columns, columns, pmax) > budget // 2:
        columns = (columns + 1) // 2
    rows = largest_fitting(1, p, lambda rows: _panel_bytes(p, rows, columns, pmax) <= budget)
    if rows < 1:
        return None
    rows = ceil_div(p, ceil_div(p, rows))
    return Plan("panels", _panel_bytes(p, rows, columns, pmax), rows, columns)


def level_one(p: int, budget: int, block_size: int, layout: str, pmax: bool) -> Plan | None:
    """Plan level 1 in the paper's square blocks if they are requested, or if panels of whole rows move more bytes.
    Panels of B rows move about 4 p^3 / B bytes, and blocks of S variables about 8 p^3 / S."""
    squares = _largest_squares(p, budget, block_size, lambda side: _square_bytes(side, pmax))
    whole_rows = _panels(p, budget, block_size, pmax)
    if layout == "blocks" or whole_rows is None:
        return squares
    return squares if squares is not None and 2 * whole_rows.rows < squares.rows else whole_rows


def panel_transfers(p: int, rows: int) -> int:
    """The bytes that panels of some rows move to the device if every chunk has an edge."""
    return sum(p - start for start in range(0, p, rows)) * (8 * p + 4 * row_words(p))


def least_budget(p: int, with_level_one: bool, pmax: bool) -> int:
    """The least device memory in which level 0, and level 1 of any graph, can run."""
    small = min(SMALLEST_BLOCK, p)
    return max(_zero_bytes(small), _square_bytes(small, pmax) if with_level_one else 0)


# --- gathered rows -----------------------------------------------------------------------------------------------
BATCH_SLACK = 512  # alignment of the parts of a batch


def group_bytes(members: int, rows: int, slots: int, pmax: bool) -> int:
    """Bytes that a sub-matrix of `members` variables takes in a batch, with `slots` neighbours of `rows` rows."""
    return 8 * members * members + 24 * rows + (24 if pmax else 16) * slots + 8


def gathered_bytes(level: int, max_degree: int, batch: int) -> int:
    """Device memory of two batches of this many bytes each, the binomials and the counters."""
    return allocated_bytes(8 * (level + 1) * (max_degree + 1)) + COUNTER_BYTES + 2 * allocated_bytes(batch)


# --- managed memory ----------------------------------------------------------------------------------------------
def largest_degree(p: int, level: int) -> int:
    """Upper bound on the neighbours of a row at a level, since keys numbered the row's sets at all lower levels."""
    return largest_fitting(level + 1, p - 1, lambda degree: math.comb(degree, min(level, degree // 2)) < MAX_SETS)


def managed_bytes(p: int, max_level: int | None, pmax: bool) -> int:
    """Managed memory of cuPC-S: an upper bound over all levels up to `max_level`, as if no edge were removed before.
    The arrays are the correlation matrix, the graph and the best keys, and from level 1 on the compacted rows, the
    binomials, and the list of removed edges with their sets, which grows as long as keys can number the sets."""
    level_bytes, level = 0, 1
    while level <= p - 2 and (max_level is None or level <= max_level):
        degree = largest_degree(p, level)
        if degree < level + 1:
            break
        lists = 4 * p * degree + (8 + 4 * level) * (p * degree // 2) + 8 * (level + 1) * (degree + 1)
        level_bytes = max(level_bytes, lists + (8 * p * p if pmax else 0))
        level += 1
    return 17 * p * p + 16 * (p + 1) + level_bytes + 16 * 512 + COUNTER_BYTES


def pair_bytes(p: int) -> int:
    """Bytes of a level 1 that tests each pair once on the whole matrix, beside `managed_bytes`: keys and bits."""
    return device_bytes({"keys": ((p, p), np.uint32), "bits": ((p, words(p)), np.uint32)})
