"""Level 0 for all pairs as one product of bits: the planes of all categories with themselves (kernels/products.cu).

A block counts a tile of 64 x 64 planes, so that each plane is read once for 64 others. Where the tables of all pairs
take little of the memory, they are made at a time and kept for level 1; else those of a band of variables are, as many
as fit into `BAND_BYTES`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from gpupc_impl.backends import Filled
from gpupc_impl.backends.launch import MAX_GRID_Y
from gpupc_impl.discrete.device import CELL_BYTES, DECIDE_PAIRS, PAIR_TABLES, PLANE_PRODUCTS, PRODUCTS, logger
from gpupc_impl.integers import ceil_div

if TYPE_CHECKING:
    from gpupc_impl.discrete.gpupc import GpuPC

TILE, THREADS, STEP = 64, 256, 16
"""products.cu: planes a side of a tile, threads of a block, and words in shared memory at a time."""

BAND_BYTES = 32 << 20
"""Tables that are made at a time: a GPU's second cache holds them until they are read."""

KEPT_SHARE = 8
"""The tables of all pairs are kept where they take at most one part in so many of the device memory that is left."""

BLOCKS_A_MULTIPROCESSOR = 4
DECIDING_THREADS = 128


class Made(enum.Enum):
    """Which pairs have been tested."""

    NONE, SOME, ALL = range(3)


def make_tests(search: GpuPC, argument: Filled) -> tuple[Made, Filled | None]:
    """Launch the tests of level 0 of the pairs whose tables are counted by planes, where there is memory for that.

    Args:
        search: the search, with its planes.
        argument: the `SEARCH` that kernels take.

    Returns:
        which pairs have been tested, and the `PAIR_TABLES` of all of them where they are kept for level 1.
    """
    backend, p = search.backend, search.p
    if search.planes is None:
        return Made.NONE, None
    planes = search.plane_counts
    cells, ends = search.pair_cells, np.cumsum(planes)
    left = max(backend.memory_limit - backend.memory_used, 0)
    kept = kept_bytes(search, left)
    room = (kept or min(BAND_BYTES, left // 2)) // CELL_BYTES
    if cells.max() > room or not cells.any():
        return Made.NONE, None
    number, bands = int(ends[-1]), list(_bands(np.cumsum(cells), room))
    counts = backend.empty(max(int(cells[first:last].sum()) for first, last in bands), np.uint32)
    logger.info("level 0: products of planes, with tables of %s bytes at a time", f"{counts.nbytes:,}")
    variables, starts, gpu = search.given["variables"], search.given["starts"], backend.warp_threads > 1
    for first, last in bands:
        first_row = int(ends[first] - planes[first])
        pairs = PAIR_TABLES(
            counts=counts,
            starts=starts,
            categories=search.categories,
            first_plane=search.first_plane,
            first=first,
            plane_cells=search.product_cells,
        )
        product = PRODUCTS(
            planes=search.planes,
            variables=variables,
            pairs=pairs,
            p=p,
            number=number,
            words=search.plane_words,
            last=last,
            first_row=first_row,
        )
        across, down = ceil_div(number - first_row, TILE), ceil_div(int(ends[last - 1] - first_row), TILE)
        splits, block, threads, width = 1, (1,), 1, 1
        if gpu:
            backend.fill(counts, 0)
            tiles = across * down - down * (down - 1) // 2
            most = ceil_div(search.plane_words, STEP)
            splits = max(1, min(BLOCKS_A_MULTIPROCESSOR * backend.multiprocessors // tiles, most))
            block, threads, width = (THREADS,), DECIDING_THREADS, ceil_div(p, DECIDING_THREADS)
        backend.kernel(*PLANE_PRODUCTS)((across, down, splits), block, [product])
        backend.kernel(*DECIDE_PAIRS)((width, min(last - first, MAX_GRID_Y)), (threads,), [argument, product])
    largest = math.prod(search.problem.descending[:2])
    made = Made.ALL if (planes > 0).all() and largest <= search.product_cells else Made.SOME
    return made, pairs if kept else None


def tables(search: GpuPC) -> dict[str, np.ndarray]:
    """What the kernels take of each plane, and of each variable: it goes up with `DiscreteSearch.tables`."""
    cells = search.pair_cells
    variables = np.repeat(np.arange(search.p, dtype=np.int32), search.plane_counts)
    return {"variables": variables, "starts": np.cumsum(cells) - cells}


def device_bytes(search: GpuPC, left: int) -> int:
    """What `make_tests` takes, of `left` bytes."""
    return kept_bytes(search, left) or min(BAND_BYTES, CELL_BYTES * int(search.pair_cells.sum()), left // 2)


def kept_bytes(search: GpuPC, left: int) -> int:
    """What the tables of all pairs take of `left` bytes, if they are kept for level 1; else 0."""
    if search.batched or search.backend.warp_threads > 1:
        return 0
    needed = CELL_BYTES * int(search.pair_cells.sum())
    return needed if search.last_level > 0 and needed <= left // KEPT_SHARE else 0


def _bands(ends: np.ndarray, room: int) -> Iterator[tuple[int, int]]:
    """Ranges of variables whose tables have at most `room` cells together; `ends`: cells up to each variable's last."""
    first, before = 0, 0
    while first < len(ends):
        last = int(np.searchsorted(ends, before + room, side="right"))
        yield first, last
        first, before = last, int(ends[last - 1])
