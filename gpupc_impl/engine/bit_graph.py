"""A graph on a device as a matrix of bits (kernels/bit_graph.cuh), with what a search needs of it between levels."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpupc_impl.backends import Backend

SOURCE = "engine/kernels/bit_graph.cu"
KERNELS = ("count_degrees", "count_removed", "sum_up", "list_neighbours", "expand")
WARPS = 8
"""Warps of a block that take rows."""


def words_per_row(p: int) -> int:
    """32-bit words of a row of p bits: a multiple of 4, so that kernels may read four at a time."""
    return -(-p // 128) * 4


class BitGraphs:
    """The graphs of one search: matrices of bits over the same p variables, and kernels that take a warp a row.

    Attributes:
        p: number of variables.
        words: 32-bit words of a row.
    """

    def __init__(self, backend: Backend, p: int):
        self.backend, self.p, self.words = backend, p, words_per_row(p)

    def empty(self) -> Any:
        """(p, words) uint32 on the device: a graph without edges."""
        return self.backend.full((self.p, self.words), 0, np.uint32)

    def launch_rows(self, source: str, kernel: str, arguments: list) -> None:
        """Launch a kernel whose warps stride over the rows."""
        block = WARPS * self.backend.warp_threads
        self.backend.kernel(source, kernel)((max(1, -(-self.p // WARPS)),), (block,), arguments)

    def count(self, graph: Any, totals: Any) -> Any:
        """(p,) int32 degrees on the device; their sum and largest go to ``totals``, two uint64 that are zero before."""
        degrees = self.backend.empty(self.p, np.int32)
        self.launch_rows(SOURCE, "count_degrees", [graph, *self._shape, degrees, totals])
        return degrees

    def rows(self, graph: Any, degrees: Any, doubled_edges: int) -> tuple[Any, Any]:
        """Rows of neighbours: (p + 1,) int64 where each begins, and (2 edges,) int32 variables, ascending in a row."""
        starts = self.sum_up(degrees)
        neighbours = self.backend.empty(doubled_edges, np.int32)
        self.launch_rows(SOURCE, "list_neighbours", [graph, *self._shape, starts, neighbours])
        return starts, neighbours

    def removed_starts(self, before: Any, after: Any) -> Any:
        """(p + 1,) int64: in a list of the pairs that went, ascending, where those of each row begin."""
        counts = self.backend.empty(self.p, np.int32)
        self.launch_rows(SOURCE, "count_removed", [before, after, *self._shape, counts])
        return self.sum_up(counts)

    def sum_up(self, values: Any) -> Any:
        """(p + 1,) int64 sums of the (p,) int32 values before each place."""
        starts = self.backend.empty(self.p + 1, np.int64)
        threads = 1 if self.backend.warp_threads == 1 else 1024
        self.backend.kernel(SOURCE, "sum_up")((1,), (threads,), [values, np.int32(self.p), starts])
        return starts

    def adjacency(self, graph: Any) -> np.ndarray:
        """(p, p) bool in host memory."""
        entries = self.backend.empty((self.p, self.p), np.uint8)
        self.launch_rows(SOURCE, "expand", [graph, *self._shape, entries])
        return self.backend.download(entries).view(bool)

    @property
    def _shape(self) -> tuple[np.int32, np.int32]:
        return np.int32(self.words), np.int32(self.p)
