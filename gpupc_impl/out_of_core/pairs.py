"""Level 1 on blocks of pairs (Out-of-Core, section 4.2, Algorithm 2): the results of a block, and the kernels of square
blocks (kernels/pair_blocks.cu)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpupc_impl.backends import KernelSource
from gpupc_impl.engine.graph import NO_KEY, ROWS
from gpupc_impl.gaussian import pair_block
from gpupc_impl.gaussian.pair_block import PAIR_BLOCK, tile_launch
from gpupc_impl.integers import ceil_div
from gpupc_impl.out_of_core import separations
from gpupc_impl.out_of_core.host_blocks import length
from gpupc_impl.out_of_core.layout import Layout
from gpupc_impl.out_of_core.pipelines import Pipeline

SOURCE = "out_of_core/kernels/pair_blocks.cu"
ZERO = KernelSource(SOURCE, "level_zero_block")
RANKS = KernelSource(SOURCE, "rank_members", (ROWS,))
EDGES = KernelSource(SOURCE, "level_one_edges", (PAIR_BLOCK,))

ZERO_THREADS = 128
EDGE_THREADS = {"cuda": (32, 8), "host": (1, 32)}
"""The thread block of `level_one_edges`, (threads per edge, edges): on a GPU a warp reads a row, and on a core a loop
does."""


def result_areas(layout: Layout, pairs: int) -> dict[str, int]:
    """Bytes of a pipeline's areas for the results of a number of pairs, by name."""
    return {"keys": 4 * pairs} | ({} if layout.context.largest_p is None else {"smallest": 8 * pairs})


def level_zero_launch(c: Any, i0: int, j0: int, critical_r_squared: float, edges: Any) -> tuple[Any, ...]:
    """The launch that decides the pairs of a block: kernel, grid, thread block, arguments.

    Args:
        c: (n_i, n_j) float64 correlations on the device, of the variables from `i0` and from `j0` on.
        edges: (n_i, words) uint32 on the device, which receives a bit for each pair.
    """
    numbers = map(np.int32, (*c.shape, i0, j0))
    arguments = [c, *numbers, np.float64(critical_r_squared), edges, np.int32(edges.shape[1])]
    return ZERO, (ceil_div(edges.size, ZERO_THREADS),), (ZERO_THREADS,), arguments


def level_one_launch(
    backend: str, n_i: int, n_j: int, dense: bool, residual_tolerance: float
) -> tuple[KernelSource, tuple[int, ...], tuple[int, ...]]:
    """The kernel of level 1 for a block of n_i x n_j pairs, its grid and its thread block."""
    if dense:
        return tile_launch(n_i, n_j, residual_tolerance)
    return EDGES, (n_i,), EDGE_THREADS[backend]


class PairResults:
    """The results of a block of pairs in a pipeline, which are merged into the layout after `fetch`.

    Attributes:
        pairs: the number of edges i < j in the block.
        share: `pairs` divided by the number of cells i < j.
        members: (rows, columns) uint32 on the device: the member of each pair's set, or `NO_MEMBER`. The bits in
            `MEMBER` are the member's number; kernels may use the other bits.
        smallest: (rows, columns) uint64 on the device: bits of the smallest r^2 of each pair, or None.
    """

    def __init__(self, layout: Layout, pipeline: Pipeline, rows: slice, columns: slice):
        self.layout, self.pipeline, self.rows, self.columns = layout, pipeline, rows, columns
        shape = length(rows), length(columns)
        self._areas = {"keys": pipeline.area("keys", shape, np.uint32)}
        if layout.context.largest_p is not None:
            self._areas["smallest"] = pipeline.area("smallest", shape, np.uint64)
        for _, device in self._areas.values():
            pipeline.stream.fill_bytes(device, 0xFF)
        _, self.members = self._areas["keys"]
        _, self.smallest = self._areas.get("smallest", (None, None))
        graph = layout.context.adjacency
        # The columns are a part of the rows, or follow the rows.
        before = slice(rows.start, min(rows.stop, columns.start))
        self.pairs, cells = int(np.count_nonzero(graph[before, columns])), length(before) * length(columns)
        if columns.start < rows.stop:
            self.pairs += int(np.count_nonzero(graph[columns, columns])) // 2
            cells += length(columns) * (length(columns) - 1) // 2
        self.share = self.pairs / max(cells, 1)

    @property
    def dense(self) -> bool:
        """Whether so many cells are edges that testing all cells is faster than testing edge by edge."""
        return self.smallest is None and self.share >= pair_block.DENSE

    def test(self, pipeline: Pipeline, members: slice, *, in_tiles: bool, **fields: Any) -> None:
        """Queue the tests with a separation-set block.

        Args:
            pipeline: the pipeline in which tests are queued.
            members: the variables of the separation-set block.
            in_tiles: whether all cells are tested, in tiles.
            fields: the fields of `PAIR_BLOCK` for the correlations and bits of the pairs and of the separation-set
                block.
        """
        context, n_i, n_j = self.layout.context, length(self.rows), length(self.columns)
        tolerance = context.problem.residual_tolerance
        argument = PAIR_BLOCK(
            **fields,
            keys=self.members,
            min_r_squared=self.smallest,
            counters=context.counters,
            width=length(members),
            n_i=n_i,
            n_j=n_j,
            i0=self.rows.start,
            j0=self.columns.start,
            s0=members.start,
            critical_r_squared=context.critical_r_squared,
            residual_tolerance=tolerance,
            first_come=context.first_come,
        )
        kernel, grid, block = level_one_launch(context.run.backend.name, n_i, n_j, in_tiles, tolerance)
        pipeline.launch(kernel, grid, block, [argument])

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
        self.layout.separations += separations.find(keys, self.rows, self.columns)
