"""A graph on a device as a matrix of bits (kernels/bit_graph.cuh), and what a search needs of it between levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend
from gpupc_impl.backends.arguments import Struct

SOURCE = "engine/kernels/bit_graph.cu"
KERNELS = ("count_rows", "begin_level", "expand")
WARPS = 8
"""Warps of a block that take rows."""

HOST_BLOCKS = 64
"""Blocks on CPU cores, each with a range of rows; a GPU has a warp for every row."""


COUNTERS = ("tests", "undefined", "singular", "degree_sum", "most_degree")
"""What the kernels of a level count; kernels/bit_graph.cuh: the same."""


class BitGraphs:
    """Matrices of bits over the same p variables, and kernels whose warps have a range of rows each.

    Attributes:
        p: number of variables.
        words: 32-bit words of a row: a multiple of 4, so that kernels may read four at a time.
    """

    def __init__(self, backend: Backend, p: int):
        self.backend, self.p, self.words = backend, p, -(-p // 128) * 4
        gpu = backend.warp_threads > 1
        self._grid = (-(-p // WARPS) if gpu else min(p, HOST_BLOCKS),)
        self._block = (WARPS * backend.warp_threads if gpu else 1,)

    @property
    def shape(self) -> tuple[np.int32, np.int32]:
        """What kernels take: words, p."""
        return np.int32(self.words), np.int32(self.p)

    def empty(self) -> Any:
        """(p, words) uint32 on the device, contents undefined."""
        return self.backend.empty((self.p, self.words), np.uint32)

    def launch(self, source: str, kernel: str, structs: Sequence[Struct], *arguments: Any) -> None:
        self.backend.kernel(source, kernel, structs)(self._grid, self._block, arguments)

    def adjacency(self, graph: Any) -> np.ndarray:
        """(p, p) bool in host memory."""
        entries = self.backend.empty((self.p, self.p), np.uint8)
        self.launch(SOURCE, "expand", (), graph, *self.shape, entries)
        return self.backend.download(entries).view(bool)
