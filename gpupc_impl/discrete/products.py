"""Level 0 for all pairs as one product of bits: the planes of all categories with themselves (kernels/products.cu).

A block counts a tile of 64 x 64 planes, so that each plane is read once for 64 others. The tables of a band of
variables are made at a time, as many as fit into `BAND_BYTES`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from gpupc_impl.backends import Filled
from gpupc_impl.backends.launch import MAX_GRID_Y
from gpupc_impl.discrete.device import CELL_BYTES, DECIDE_PAIRS, PLANE_PRODUCTS, PRODUCTS, logger

if TYPE_CHECKING:
    from gpupc_impl.discrete.gpupc import GpuPC

TILE, SIDE, STEP = 64, 16, 16
"""products.cu: planes a side of a tile, threads a side of a block, and words in shared memory at a time."""

BAND_BYTES = 32 << 20
"""Tables that are made at a time: a GPU's second cache holds them until they are read."""

BLOCKS_A_MULTIPROCESSOR = 4
DECIDING_THREADS = 128


class Made(enum.Enum):
    """Which pairs have been tested."""

    NONE, SOME, ALL = range(3)


def make_tests(search: GpuPC, argument: Filled) -> Made:
    """Launch the tests of level 0 of the pairs whose tables are counted by planes, where there is memory for that.

    Args:
        search: the search, with its planes.
        argument: the `SEARCH` that kernels take.
    """
    backend, p = search.backend, search.p
    if search.planes is None:
        return Made.NONE
    planes = search.plane_counts
    cells, ends = search.pair_cells, np.cumsum(planes)
    room = min(BAND_BYTES, max(backend.memory_limit - backend.memory_used, 0) // 2) // CELL_BYTES
    if cells.max() > room or not cells.any():
        return Made.NONE
    number, bands = int(ends[-1]), list(_bands(np.cumsum(cells), room))
    counts = backend.empty(max(int(cells[first:last].sum()) for first, last in bands), np.uint32)
    logger.info("level 0: products of planes, with tables of %s bytes at a time", f"{counts.nbytes:,}")
    variables, starts, gpu = search.given["variables"], search.given["starts"], backend.warp_threads > 1
    for first, last in bands:
        first_row = int(ends[first] - planes[first])
        product = PRODUCTS(
            planes=search.planes,
            variables=variables,
            categories=search.categories,
            first_plane=search.first_plane,
            starts=starts,
            counts=counts,
            p=p,
            number=number,
            words=search.plane_words,
            first=first,
            last=last,
            first_row=first_row,
            plane_cells=search.plane_cells,
        )
        across, down = -(-(number - first_row) // TILE), -(-int(ends[last - 1] - first_row) // TILE)
        splits, block, threads, width = 1, (1,), 1, 1
        if gpu:
            backend.fill(counts, 0)
            tiles = across * down - down * (down - 1) // 2
            most = -(-search.plane_words // STEP)
            splits = max(1, min(BLOCKS_A_MULTIPROCESSOR * backend.multiprocessors // tiles, most))
            block, threads, width = (SIDE, SIDE), DECIDING_THREADS, -(-p // DECIDING_THREADS)
        backend.kernel(*PLANE_PRODUCTS)((across, down, splits), block, [product])
        backend.kernel(*DECIDE_PAIRS)((width, min(last - first, MAX_GRID_Y)), (threads,), [argument, product])
    largest = math.prod(search.problem.descending[:2])
    return Made.ALL if (planes > 0).all() and largest <= search.plane_cells else Made.SOME


def tables(search: GpuPC) -> dict[str, np.ndarray]:
    """What the kernels take of each plane, and of each variable: it goes up with `DiscreteSearch.tables`."""
    cells = search.pair_cells
    variables = np.repeat(np.arange(search.p, dtype=np.int32), search.plane_counts)
    return {"variables": variables, "starts": np.cumsum(cells) - cells}


def device_bytes(search: GpuPC, left: int) -> int:
    """What `make_tests` takes, of `left` bytes."""
    return min(BAND_BYTES, CELL_BYTES * int(search.pair_cells.sum()), left // 2)


def _bands(ends: np.ndarray, room: int) -> Iterator[tuple[int, int]]:
    """Ranges of variables whose tables have at most `room` cells together; `ends`: cells up to each variable's last."""
    first, before = 0, 0
    while first < len(ends):
        last = int(np.searchsorted(ends, before + room, side="right"))
        yield first, last
        first, before = last, int(ends[last - 1])
