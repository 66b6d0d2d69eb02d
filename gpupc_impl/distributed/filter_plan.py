"""The device memory of levels 0 and 1 by products (filter.py): what is held at once, for a budget."""

from __future__ import annotations

import dataclasses

from gpupc_impl.backends import DeviceMemoryError
from gpupc_impl.engine.device_memory import COUNTER_BYTES, allocated_bytes
from gpupc_impl.integers import ceil_div, round_up

COLUMNS_A_WARP = 4096
"""Columns of level 0 that a warp takes (kernels/filter.cu)."""

MOST_CANDIDATES = 4096
"""The most variables of a block of candidates (kernels/filter.cu)."""

STEP = 32
"""The fewest candidates of a block, and what their number is a multiple of."""

MOST_TILE_BYTES = 2 << 30
"""The most bytes of a tile of products: libraries are as fast with larger ones."""

TILE_ROWS = 128
"""Tiles of products have a multiple of so many rows, where they have more: libraries compute as many at once."""

MOST_UPLOAD_BYTES = 1 << 30
"""The most bytes of samples that are standardised at a time."""

EDGE_BYTES = 8
"""An edge: its partner, and its correlation or member."""

CANDIDATE_BYTES = 10
"""A variable's entry of a block of candidates: a correlation, and at worst a neighbour's number and correlation."""


@dataclasses.dataclass(frozen=True)
class FilterPlan:
    """The sizes of what a device holds beside the samples.

    Attributes:
        tile: products of a tile.
        candidates: variables of a block of candidates.
        edges: the edges of a group of rows.
        upload: variables whose samples are standardised at a time.
        device_bytes: the least device memory that the search needs.
    """

    tile: int
    candidates: int
    edges: int
    upload: int
    device_bytes: int


def fixed_bytes(m: int, p: int, tile_bytes: int) -> int:
    """(m, p) samples, a tile, the counts of its edges and their sums, degrees, starts of rows, counters, rounding."""
    tile = tile_bytes // 8
    counts = 16 * (tile // COLUMNS_A_WARP + tile // p + 1)
    return allocated_bytes(8 * m * p) + tile_bytes + counts + 4 * p + 8 * (p + 1) + COUNTER_BYTES + 16 * 512


def candidate_bytes(p: int, candidates: int) -> int:
    """A block of candidates: its panel, and the neighbours of all variables among them."""
    return CANDIDATE_BYTES * p * round_up(candidates, STEP) + 4 * p + 4 * 512


def choose(m: int, p: int, budget: int) -> FilterPlan:
    """The plan for a device on which so many bytes may be taken.

    Raises:
        DeviceMemoryError: it does not hold the samples twice, as levels from 2 on need; or not the smallest tile, the
            smallest block of candidates and the edges of one row.
    """
    least_tile, samples = 8 * p, allocated_bytes(8 * m * p)
    least = max(2 * samples, fixed_bytes(m, p, least_tile) + candidate_bytes(p, STEP) + EDGE_BYTES * p)
    if least > budget:
        raise DeviceMemoryError(
            least,
            0,
            budget,
            f"method 'distributed' needs {least:,} bytes of device memory for {m:,} samples of {p:,} variables on one "
            f"device; it may take {budget:,}: give it more (device_memory_limit), have several workers (workers=2), or "
            "take fewer variables or samples",
        )
    tile_bytes = max(least_tile, min(MOST_TILE_BYTES, budget // 16) // 8 * 8)
    candidates = min(MOST_CANDIDATES, budget // 4 // (CANDIDATE_BYTES * p) // STEP * STEP)
    while candidates > STEP or tile_bytes > least_tile:
        left = budget - fixed_bytes(m, p, tile_bytes) - candidate_bytes(p, max(candidates, STEP))
        if left >= EDGE_BYTES * p:
            break
        tile_bytes, candidates = max(least_tile, tile_bytes // 16 * 8), candidates // 2 // STEP * STEP
    candidates = min(max(candidates, STEP), p, MOST_CANDIDATES)
    left = budget - fixed_bytes(m, p, tile_bytes) - candidate_bytes(p, candidates)
    return FilterPlan(
        tile=tile_bytes // 8,
        candidates=candidates,
        edges=max(1, min(left // EDGE_BYTES, p * (p - 1) // 2)),
        upload=max(1, min(MOST_UPLOAD_BYTES, budget - samples, ceil_div(samples, 8)) // (8 * m)),
        device_bytes=least,
    )
