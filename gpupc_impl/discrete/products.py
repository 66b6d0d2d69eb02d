"""Level 0's tables of all pairs as one product of bits: the matrix of planes times its transpose (kernels/products.cu).

A block counts a tile of 64 x 64 planes, so that each plane is read once for 64 others. If the tables of all pairs take
little of the memory, one launch makes all tables, which are kept for level 1. Otherwise each launch makes the tables of
a band: as many consecutive variables as have tables that fit into `BAND_BYTES`.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, Filled
from gpupc_impl.backends.launch import MAX_GRID_Y
from gpupc_impl.discrete.declarations import (
    CELL_BYTES,
    DECIDE_PAIRS,
    PAIR_TABLES,
    PLANE_PRODUCTS,
    PRODUCT_STEP,
    PRODUCT_THREADS,
    PRODUCT_TILE,
    PRODUCTS,
)
from gpupc_impl.discrete.device import NO_TESTS, LevelTests, largest_pair_table, logger
from gpupc_impl.discrete.planes import MAX_PLANES, Planes
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.integers import ceil_div

BAND_BYTES = 32 << 20
"""Upper bound on the tables of a band, so that a GPU's L2 cache holds the tables until they are read."""

KEPT_SHARE = 8
"""The tables of all pairs are kept if they take at most 1/`KEPT_SHARE` of the device memory that is left."""

BLOCKS_A_MULTIPROCESSOR = 4
DECIDING_THREADS = 128


class PairProducts:
    """The tests of level 0 of the pairs whose tables are counted as products of planes.

    Attributes:
        kept: the `PAIR_TABLES` of all pairs after `level_zero`; None if they are not kept.
        cells: upper bound on the cells of a table that products count; on a GPU, whose tensor cores count the tables,
            no table of variables with planes is larger.

    Args:
        keeps: whether level 1 may use the tables of all pairs; on a GPU level 1 is faster with tables that it counts.
    """

    def __init__(self, problem: DiscreteProblem, backend: Backend, planes: Planes, keeps: bool):
        self._problem, self._backend, self._planes = problem, backend, planes
        self._keeps = keeps and backend.warp_threads == 1
        self.cells = MAX_PLANES**2 if backend.warp_threads > 1 else planes.cells
        self.kept: Filled | None = None
        counts = planes.counts
        self._row_cells = np.where(counts > 0, (counts + 1) * (counts.sum() - np.cumsum(counts)), 0)
        """(p,) int64: cells of the tables of each variable with all later variables, the sums of columns included."""

    def tables(self) -> dict[str, np.ndarray]:
        """Return the variable of each plane, and the index of the first cell of each variable's tables."""
        variables = np.repeat(np.arange(self._problem.n_variables, dtype=np.int32), self._planes.counts)
        return {"variables": variables, "starts": np.cumsum(self._row_cells) - self._row_cells}

    def device_bytes(self, left: int) -> int:
        """Return the device memory of level 0's tables, given `left` free bytes."""
        return self.kept_bytes(left) or min(BAND_BYTES, CELL_BYTES * int(self._row_cells.sum()), left // 2)

    def kept_bytes(self, left: int) -> int:
        """Return the device memory of the tables of all pairs if these are kept for level 1, given `left` free bytes;
        else 0."""
        needed = CELL_BYTES * int(self._row_cells.sum())
        return needed if self._keeps and needed <= left // KEPT_SHARE else 0

    def level_zero(self, device_tables: dict[str, Any]) -> LevelTests:
        """Return the tests of pairs whose variables have planes and whose tables have up to `cells` cells, if memory
        suffices."""
        backend, row_cells, planes = self._backend, self._row_cells, self._planes
        left = max(backend.memory_limit - backend.memory_used, 0)
        kept = self.kept_bytes(left)
        room = (kept or min(BAND_BYTES, left // 2)) // CELL_BYTES
        if planes.bits is None or row_cells.max() > room or not row_cells.any():
            return NO_TESTS
        bands = list(_bands(np.cumsum(row_cells), room))
        counts = backend.empty(max(int(row_cells[first:last].sum()) for first, last in bands), np.uint32)
        logger.info("level 0: products of planes, with tables of %s bytes at a time", f"{counts.nbytes:,}")
        tables = [
            PAIR_TABLES(
                counts=counts,
                starts=device_tables["starts"],
                categories=device_tables["categories"],
                first_plane=device_tables["first_plane"],
                first=first,
                plane_cells=self.cells,
            )
            for first, _ in bands
        ]
        self.kept = tables[0] if kept else None
        largest = math.prod(self._problem.descending[:2])
        covers_all = (planes.counts > 0).all() and largest <= self.cells

        def launch(arguments: list) -> None:
            for (_, last), pairs in zip(bands, tables, strict=True):
                self._launch_band(last, pairs, device_tables["variables"], arguments[-1])

        return LevelTests(largest_pair_table(self._problem) if covers_all else 0, launch)

    def _launch_band(self, last: int, pairs: Filled, variables: Any, search: Filled) -> None:
        """Count the tables of a band, and decide its pairs; the band ends before variable `last`."""
        backend, planes, p = self._backend, self._planes, self._problem.n_variables
        first, ends = pairs.values["first"], np.cumsum(planes.counts)
        number, first_row = int(ends[-1]), int(ends[first] - planes.counts[first])
        product = PRODUCTS(
            planes=planes.bits,
            variables=variables,
            pairs=pairs,
            p=p,
            number=number,
            words=planes.words,
            last=last,
            first_row=first_row,
        )
        planes_across, planes_down = number - first_row, int(ends[last - 1] - first_row)
        across, down = ceil_div(planes_across, PRODUCT_TILE), ceil_div(planes_down, PRODUCT_TILE)
        splits, block, threads, width = 1, (1,), 1, 1
        if backend.warp_threads > 1:
            backend.fill(pairs.values["counts"], 0)
            tiles = across * down - down * (down - 1) // 2
            most = ceil_div(planes.words, PRODUCT_STEP)
            splits = max(1, min(BLOCKS_A_MULTIPROCESSOR * backend.multiprocessors // tiles, most))
            block, threads, width = (PRODUCT_THREADS,), DECIDING_THREADS, ceil_div(p, DECIDING_THREADS)
        backend.kernel(*PLANE_PRODUCTS)((across, down, splits), block, [product])
        backend.kernel(*DECIDE_PAIRS)((width, min(last - first, MAX_GRID_Y)), (threads,), [search, product])


def _bands(ends: np.ndarray, room: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of variables whose tables together have at most `room` cells; `ends` are cumulative sums of
    cells."""
    first, before = 0, 0
    while first < len(ends):
        last = int(np.searchsorted(ends, before + room, side="right"))
        yield first, last
        first, before = last, int(ends[last - 1])
