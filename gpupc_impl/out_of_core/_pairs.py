"""Level 1 on blocks of pairs: what panels and square blocks share, and kernels of square ones (pair_blocks.cu)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpupc_impl.backends import KernelSource
from gpupc_impl.engine.graph import NO_KEY, ROWS
from gpupc_impl.gaussian import pair_block
from gpupc_impl.gaussian.pair_block import MEMBER, NO_MEMBER, PAIR_BLOCK, tile_launch
from gpupc_impl.out_of_core import _removed
from gpupc_impl.out_of_core._layout import Layout, length
from gpupc_impl.out_of_core._pipelines import Pipeline

SOURCE = "out_of_core/kernels/pair_blocks.cu"
ZERO = KernelSource(SOURCE, "level_zero_block")
RANKS = KernelSource(SOURCE, "rank_members", (ROWS,))
EDGES = KernelSource(SOURCE, "level_one_edges", (PAIR_BLOCK,))

EDGE_THREADS = {"cuda": (32, 8), "host": (1, 32)}
"""Threads of an edge and edges of a block in `level_one_edges`: a GPU reads a row with a warp, a core with a loop."""


def result_bytes(layout: Layout, pairs: int) -> dict[str, int]:
    """Areas of a pipeline for what is found of so many pairs."""
    return {"keys": 4 * pairs} | ({} if layout.largest_p is None else {"smallest": 8 * pairs})


def level_one_launch(
    backend: str, n_i: int, n_j: int, dense: bool, residual_tolerance: float
) -> tuple[KernelSource, tuple[int, ...], tuple[int, ...]]:
    """The kernel of level 1 for a block of n_i x n_j pairs, its grid and its block."""
    if dense:
        return tile_launch(n_i, n_j, residual_tolerance)
    return EDGES, (n_i,), EDGE_THREADS[backend]


class PairResults:
    """What is found of a block of pairs, in a pipeline: emptied when this is made, merged some time after `fetch`.

    Attributes:
        pairs: how many there are, edges i < j.
        share: of the cells that could be pairs, those that are.
        members: (rows, columns) uint32 on the device: a member of each pair's set, with `NO_MEMBER` for none, and what
            is not in `MEMBER` of no meaning here.
        smallest: (rows, columns) uint64 on the device: bits of the smallest r^2 met, or None.
    """

    def __init__(self, layout: Layout, pipeline: Pipeline, rows: slice, columns: slice):
        self.layout, self.pipeline, self.rows, self.columns = layout, pipeline, rows, columns
        shape = length(rows), length(columns)
        self._areas = {"keys": pipeline.area("keys", shape, np.uint32)}
        if layout.largest_p is not None:
            self._areas["smallest"] = pipeline.area("smallest", shape, np.uint64)
        for _, device in self._areas.values():
            pipeline.stream.fill_bytes(device, 0xFF)
        _, self.members = self._areas["keys"]
        _, self.smallest = self._areas.get("smallest", (None, None))
        before = slice(rows.start, min(rows.stop, columns.start))  # the columns are among the rows, or behind them
        self.pairs, cells = int(np.count_nonzero(layout.adjacency[before, columns])), length(before) * length(columns)
        if columns.start < rows.stop:
            self.pairs += int(np.count_nonzero(layout.adjacency[columns, columns])) // 2
            cells += length(columns) * (length(columns) - 1) // 2
        self.share = self.pairs / max(cells, 1)

    @property
    def dense(self) -> bool:
        """Whether so many cells are pairs that testing all at once is faster than the neighbours of each."""
        return self.smallest is None and self.share >= pair_block.DENSE

    def test(self, pipeline: Pipeline, members: slice, *, in_tiles: bool, **fields: Any) -> None:
        """Queue the tests with a separation-set block by kernels that find keys.

        Args:
            pipeline: where they are queued.
            in_tiles: whether all pairs are tested at once.
            fields: of a `PAIR_BLOCK`, those that tell of the pairs and of the separation-set block.
        """
        layout, n_i, n_j = self.layout, length(self.rows), length(self.columns)
        argument = PAIR_BLOCK(
            **fields,
            keys=self.members,
            min_r_squared=self.smallest,
            counters=layout.counters,
            width=length(members),
            n_i=n_i,
            n_j=n_j,
            i0=self.rows.start,
            j0=self.columns.start,
            s0=members.start,
            critical_r_squared=layout.critical,
            residual_tolerance=layout.problem.residual_tolerance,
            first_come=layout.first_come,
        )
        tolerance = layout.problem.residual_tolerance
        kernel, grid, block = level_one_launch(layout.backend.name, n_i, n_j, in_tiles, tolerance)
        pipeline.launch(layout.backend.kernel(*kernel), grid, block, [argument])

    def fetch(self) -> None:
        """Queue the transfer of the results to the host."""
        self.pipeline.download(*self._areas.values())
        self.pipeline.merge_with(self._merge)

    def _merge(self) -> None:
        if "smallest" in self._areas:
            smallest, _ = self._areas["smallest"]
            i, j = np.nonzero(smallest != NO_KEY)
            self.layout.record_p_values(i + self.rows.start, j + self.columns.start, smallest[i, j])
        self.layout.tested += self.pairs
        keys, _ = self._areas["keys"]
        self.layout.found += _removed.find(keys, NO_MEMBER, MEMBER, self.rows, self.columns)
