"""Bit planes, and level 0's tables of all pairs as one product of all planes (kernels/products.cu). Each category of a
variable has a plane of n bits, of which bit k tells whether sample k has that category. The count in a table's cell is
the number of bits that are set in the planes of all its categories. A plane takes an eighth of the memory of 8-bit
codes, and one popcount instruction counts 64 samples. In the product of the matrix of planes with its transpose, a
block counts a tile of 64 x 64 planes, so that each plane is read once for 64 others. If the tables of all pairs take
little of the memory, one launch makes all tables, which are kept for level 1. Otherwise each launch makes the tables of
a band: as many consecutive variables as have tables that fit into `BAND_BYTES`."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, Filled
from gpupc_impl.backends.launch import MAX_GRID_Y
from gpupc_impl.core.registry import Parameter
from gpupc_impl.discrete.declarations import (
    CELL_BYTES,
    DATA,
    DECIDE_PAIRS,
    PACK_PLANES,
    PAIR_TABLES,
    PLANE_PRODUCTS,
    PRODUCT_STEP,
    PRODUCT_THREADS,
    PRODUCT_TILE,
    PRODUCTS,
    VARIABLES,
)
from gpupc_impl.discrete.level import NO_TESTS, LevelTests, largest_pair_table, logger
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.engine import bit_graph
from gpupc_impl.integers import ceil_div, round_up

COUNTING = Parameter(
    "bit-planes",
    "how tables are counted: samples (the paper's), or bit-planes, small ones by bits that categories have in common",
    choices=("bit-planes", "samples"),
)

MAX_PLANES = 32  # upper bound on the categories of a variable that has planes
PLANE_CELLS = {"cuda": 64, "host": 2048}  # of a table: larger ones are counted faster by samples
ROW_ALIGNMENT = 1024  # in samples, so that kernels may read many of a variable's codes at a time
BAND_BYTES = 32 << 20  # of a band's tables, so that a GPU's L2 cache holds them until they are read
KEPT_SHARE = 8  # the tables of all pairs are kept if they take at most 1/`KEPT_SHARE` of the device memory that is left
BLOCKS_A_MULTIPROCESSOR = 4
DECIDING_THREADS = 128


def padded_length(n: int) -> int:
    return round_up(n, ROW_ALIGNMENT)


class Planes:
    """The planes of a problem's variables, and the tests of level 0 that are made as products of planes.

    Attributes:
        cells: upper bound on the cells of a table that is counted by planes; 0 if all are counted by samples.
        product_cells: upper bound on the cells of a table that products count; on a GPU, whose tensor cores count the
            tables, no table of variables with planes is larger.
        counts: (p,) int64: the number of planes of each variable, if there is memory for planes.
        first: (p,) int32: the number of each variable's first plane, -1 without planes.
        row_cells: (p,) int64: cells of each variable's tables with later variables, with sums of columns.
        words: 64-bit words of a plane.
        bits: (planes, words) uint64 on the device; None before `data`, and where there is no memory for planes.
        variables: the `VARIABLES` that kernels take, after `data`.
        kept: the `PAIR_TABLES` of all pairs after `level_zero`; None if they are not kept.
    """

    def __init__(self, problem: DiscreteProblem, backend: Backend, counting: str):
        self.cells = PLANE_CELLS[backend.name] if counting == "bit-planes" else 0
        self.product_cells = MAX_PLANES**2 if backend.warp_threads > 1 else self.cells
        categories = problem.categories.astype(np.int64)
        counts = self.counts = np.where((categories <= MAX_PLANES) & (self.cells > 0), categories, 0)
        self.first = np.where(counts > 0, np.cumsum(counts) - counts, -1).astype(np.int32)
        self.row_cells = np.where(counts > 0, (counts + 1) * (counts.sum() - np.cumsum(counts)), 0)
        self.words = padded_length(problem.n_samples) // 64
        self.bits: Any = None
        self.kept: Filled | None = None
        self._keeps = problem.max_level != 0 and backend.warp_threads == 1  # on a GPU counting again is faster
        self._backend, self._problem = backend, problem

    def tables(self) -> dict[str, np.ndarray]:
        """Return kernels' arrays: variables' first planes, planes' variables, and the first cells of `row_cells`."""
        owners = np.repeat(np.arange(len(self.counts), dtype=np.int32), self.counts)
        return {"first_plane": self.first, "owners": owners, "starts": np.cumsum(self.row_cells) - self.row_cells}

    def data(self, codes: Any, device_tables: dict[str, Any]) -> Filled:
        """Make the codes' planes on the device if they take at most half of its free memory; returns the `DATA`."""
        backend, problem = self._backend, self._problem
        self._device_tables = device_tables
        p, n = problem.codes.shape
        planes = int(self.counts.sum())
        if has_planes := 0 < 8 * planes * self.words <= (backend.memory_limit - backend.memory_used) // 2:
            self.bits = backend.empty((planes, self.words), np.uint64)
        self.variables = VARIABLES(
            categories=device_tables["categories"],
            planes=self.bits,
            first_plane=device_tables["first_plane"],
            words=self.words,
            plane_cells=self.cells,
        )
        code = problem.codes.dtype.name
        data = DATA[code](codes=codes, stride=padded_length(n), n=n, variables=self.variables)
        if has_planes:
            gpu = backend.warp_threads > 1
            block = bit_graph.WARPS * backend.warp_threads if gpu else 1
            width = ceil_div(self.words, bit_graph.WARPS) if gpu else 1
            kernel = backend.kernel(*PACK_PLANES[code])
            kernel((width, min(p, MAX_GRID_Y)), (block,), [data, np.int32(p), self.bits])
        return data

    def pair_tables(self, counts: Any = None, first: int = 0) -> Filled:
        """Return the `PAIR_TABLES` of the variables from `first` on; without `counts`, there are none."""
        variables = VARIABLES(**self.variables.values | {"plane_cells": self.product_cells})
        return PAIR_TABLES(variables=variables, counts=counts, starts=self._device_tables["starts"], first=first)

    def level_zero(self) -> LevelTests:
        """Return the tests of pairs with planes and tables of up to `product_cells`, if memory suffices."""
        backend, row_cells = self._backend, self.row_cells
        left = max(backend.memory_limit - backend.memory_used, 0)
        needed = CELL_BYTES * int(row_cells.sum())
        kept = self._keeps and needed <= left // KEPT_SHARE
        room = (needed if kept else min(BAND_BYTES, left // 2)) // CELL_BYTES
        if self.bits is None or row_cells.max() > room or not row_cells.any():
            return NO_TESTS
        bands = list(_bands(np.cumsum(row_cells), room))
        counts = backend.empty(max(int(row_cells[first:last].sum()) for first, last in bands), np.uint32)
        logger.info("level 0: products of planes, with tables of %s bytes at a time", f"{counts.nbytes:,}")
        tables = [self.pair_tables(counts, first) for first, _ in bands]
        self.kept = tables[0] if kept else None
        largest = math.prod(self._problem.descending[:2])
        covers_all = (self.counts > 0).all() and largest <= self.product_cells

        def launch(arguments: list) -> None:
            for (_, last), pairs in zip(bands, tables, strict=True):
                self._launch_band(last, pairs, arguments[-1])

        return LevelTests(largest_pair_table(self._problem) if covers_all else 0, launch)

    def _launch_band(self, last: int, pairs: Filled, search: Filled) -> None:
        """Count the tables of a band, and decide its pairs; the band ends before variable `last`."""
        backend, p = self._backend, self._problem.n_variables
        first, ends = pairs.values["first"], np.cumsum(self.counts)
        number, first_row = int(ends[-1]), int(ends[first] - self.counts[first])
        product = PRODUCTS(
            pairs=pairs, owners=self._device_tables["owners"], p=p, number=number, last=last, first_row=first_row
        )
        planes_across, planes_down = number - first_row, int(ends[last - 1] - first_row)
        across, down = ceil_div(planes_across, PRODUCT_TILE), ceil_div(planes_down, PRODUCT_TILE)
        splits, block, threads, width = 1, (1,), 1, 1
        if backend.warp_threads > 1:
            backend.fill(pairs.values["counts"], 0)
            tiles = across * down - down * (down - 1) // 2
            most = ceil_div(self.words, PRODUCT_STEP)
            splits = max(1, min(BLOCKS_A_MULTIPROCESSOR * backend.multiprocessors // tiles, most))
            block, threads, width = (PRODUCT_THREADS,), DECIDING_THREADS, ceil_div(p, DECIDING_THREADS)
        backend.kernel(*PLANE_PRODUCTS)((across, down, splits), block, [product])
        backend.kernel(*DECIDE_PAIRS)((width, min(last - first, MAX_GRID_Y)), (threads,), [search, product])


def _bands(ends: np.ndarray, room: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of variables whose tables have at most `room` cells; `ends` are cumulative sums of cells."""
    first, before = 0, 0
    while first < len(ends):
        last = int(np.searchsorted(ends, before + room, side="right"))
        yield first, last
        first, before = last, int(ends[last - 1])
