"""The device memory of levels 0 and 1 by products (filter.py): what is held at once, for a budget."""

from __future__ import annotations

import dataclasses

from gpupc_impl.engine.device_memory import COUNTER_BYTES, allocated_bytes
from gpupc_impl.integers import ceil_div, round_up

COLUMNS_A_WARP = 4096
"""Columns of level 0 that a warp takes (kernels/filter.cu)."""

MOST_CANDIDATES = 4096
"""The most variables of a block of candidates (kernels/filter.cu)."""

STEP = 32
"""The fewest candidates of a block, and what their number is a multiple of."""

MOST_TILE_BYTES = 1 << 30
"""The most bytes of a tile of products: libraries are as fast with larger ones."""

TILE_ROWS = 128
"""Tiles of products have a multiple of so many rows, where they have more: libraries compute as many at once."""

MOST_UPLOAD_BYTES = 1 << 30
"""The most bytes of samples that are standardised at a time."""

EDGE_BYTES = 8
"""An edge: its partner, and its correlation or member."""

CANDIDATE_BYTES = 4
"""A correlation of the panel of a block of candidates."""

NEIGHBOUR_BYTES = 6
"""An entry of a list of neighbours: the neighbour's number, and the correlation with it."""

RESULT_BYTES = 32
"""An edge whose result is read: its partner and member, whether it is separated, and the list of those that are not."""

MOST_READ = 1 << 24
"""The most edges whose results are read at a time."""

OPEN_BYTES = 20
"""A copy of an open edge: its partner, its correlation, its place, and the member of a set."""


@dataclasses.dataclass(frozen=True)
class FilterPlan:
    """The sizes of what a device holds beside the samples.

    Attributes:
        tile: products of a tile.
        candidates: variables of a block of candidates.
        neighbours: the entries of the lists of neighbours among a block of candidates.
        edges: the edges of a group of rows.
        open_edges: how few edges are copied once they are the only ones that are open.
        read: the edges whose results are read at a time, at least those of a row.
        upload: variables whose samples are standardised at a time.
        device_bytes: the least device memory that the search needs.
    """

    tile: int
    candidates: int
    neighbours: int
    edges: int
    open_edges: int
    read: int
    upload: int
    device_bytes: int


def fixed_bytes(m: int, p: int, tile_bytes: int) -> int:
    """(m, p) samples, a tile, counts and sums of its edges, or of open ones, degrees, starts of rows, counters."""
    tile = tile_bytes // 8
    counts = 32 * max(tile // COLUMNS_A_WARP + tile // p + 1, p)
    return allocated_bytes(8 * m * p) + tile_bytes + counts + 4 * p + 16 * (p + 1) + COUNTER_BYTES + 32 * 512


def candidate_bytes(p: int, candidates: int, neighbours: int) -> int:
    """A block of candidates: its panel, the lists of neighbours, and where they begin and how long they are."""
    return CANDIDATE_BYTES * p * round_up(candidates, STEP) + NEIGHBOUR_BYTES * neighbours + 12 * p + 8 * 512


def least_device_bytes(m: int, p: int) -> int:
    """The samples twice, as levels from 2 on need them; or the smallest tile and block, and the edges of one row."""
    smallest = (
        fixed_bytes(m, p, 8 * p) + candidate_bytes(p, STEP, STEP * p) + (EDGE_BYTES + OPEN_BYTES + RESULT_BYTES) * p
    )
    return max(2 * allocated_bytes(8 * m * p), smallest)


def choose(m: int, p: int, budget: int) -> FilterPlan:
    """The plan for a device on which so many bytes may be taken, at least `least_device_bytes`."""
    least, least_tile, samples = least_device_bytes(m, p), 8 * p, allocated_bytes(8 * m * p)
    spare = budget - least  # some of it is for larger tiles, blocks and lists, and the rest for edges
    tile_bytes = least_tile + min(max(0, MOST_TILE_BYTES - least_tile), spare // 16) // 8 * 8
    candidates = STEP + min(MOST_CANDIDATES - STEP, spare // 4 // (CANDIDATE_BYTES * p) // STEP * STEP)
    neighbours = min(p * candidates, max(STEP * p, p * candidates // 16, spare // 16 // NEIGHBOUR_BYTES))
    open_edges = p + spare // 16 // OPEN_BYTES
    read = p + min(MOST_READ, spare // 32 // RESULT_BYTES)
    candidates = min(candidates, p)
    taken = fixed_bytes(m, p, tile_bytes) + candidate_bytes(p, candidates, neighbours)
    left = budget - taken - OPEN_BYTES * open_edges - RESULT_BYTES * read
    return FilterPlan(
        tile=tile_bytes // 8,
        candidates=candidates,
        neighbours=neighbours,
        edges=max(1, min(left // EDGE_BYTES, p * (p - 1) // 2)),
        open_edges=max(1, min(open_edges, p * (p - 1) // 2)),
        read=read,
        upload=max(1, min(MOST_UPLOAD_BYTES, budget - samples, ceil_div(samples, 8)) // (8 * m)),
        device_bytes=least,
    )
