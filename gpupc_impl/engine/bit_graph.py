"""Graphs on a device as matrices of bits (kernels/bit_graph.cuh), and what a search needs of them between levels."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from gpupc_impl.backends import Backend, KernelSource
from gpupc_impl.backends.arguments import Filled, Pointer, Struct
from gpupc_impl.core.fixed import FixedPairs
from gpupc_impl.integers import ceil_div

SOURCE = "engine/kernels/bit_graph.cu"
KERNELS = ("count_rows", "expand")
WARPS = 8
"""Warps of a block that take rows."""

HOST_BLOCKS = 64
"""Blocks on CPU cores, each with a range of rows; a GPU has a warp for every row."""


class Counted(NamedTuple):
    """What the kernels of a level count (kernels/bit_graph.cuh: the same)."""

    tests: int
    undefined: int
    singular: int
    degree_sum: int
    most_degree: int
    ended: int  # when the level did, in nanoseconds, where a launch of several levels asks for it; else 0
    arrived: int
    turns: int
    turns_of_side_1: int


COUNTERS = Counted._fields

MOST_LEVELS = 64
"""Levels that are counted; nobody has seen 20."""

GRAPHS = Struct(
    "BitGraphs",
    bits=Pointer(np.uint32),
    p=np.int32,
    words=np.int32,
    degrees=Pointer(np.int32),
    removed=Pointer(np.int32),
    counters=Pointer(np.uint64),
)


def pack_pairs(pairs: np.ndarray, p: int) -> np.ndarray:
    """(p, words) uint32: the graph of p variables whose edges are (k, 2) pairs."""
    bits = np.zeros((p, row_words(p)), np.uint32)
    for i, j in (pairs.T, pairs.T[::-1]):
        np.bitwise_or.at(bits, (i, j // 32), np.uint32(1) << (j % 32).astype(np.uint32))
    return bits


def row_words(p: int) -> int:
    """32-bit words of a row of p variables: a multiple of 4, so that kernels may read four at a time."""
    return ceil_div(p, 128) * 4


class BitGraphs:
    """The graphs of a search over p variables, by number, and kernels whose warps have a range of rows each.

    Attributes:
        p: number of variables.
        words: 32-bit words of a row.
        struct: what kernels take.
        edges, most_degree: of the graph after the level that was read last.

    Args:
        graphs: how many.
        memory: arrays for them, of the shapes of `arrays`; None: they are made.
    """

    def __init__(self, backend: Backend, p: int, graphs: int, memory: Mapping[str, Any] | None = None):
        self.backend, self.p, self.words = backend, p, row_words(p)
        self.edges, self.most_degree = p * (p - 1) // 2, p - 1
        gpu = backend.warp_threads > 1
        self._grid = (ceil_div(p, WARPS) if gpu else min(p, HOST_BLOCKS),)
        self._block = (WARPS * backend.warp_threads if gpu else 1,)
        shapes = self.arrays(p, graphs)
        arrays = backend.empty_all(**shapes) if memory is None else {name: memory[name] for name in shapes}
        self._bits, self._counters = arrays["bits"], arrays["counters"]
        self._counted = backend.host_empty((MOST_LEVELS, len(COUNTERS)), np.uint64)
        backend.fill(self._counters, 0)
        self.struct = GRAPHS(p=p, words=self.words, **arrays)

    @staticmethod
    def arrays(p: int, graphs: int) -> dict[str, tuple[Any, Any]]:
        """What they need on a device: shapes and types, by name (`Backend.empty_all`)."""
        return {
            "bits": ((graphs, p, row_words(p)), np.uint32),
            "degrees": (p, np.int32),
            "removed": (p, np.int32),
            "counters": ((MOST_LEVELS, len(COUNTERS)), np.uint64),
        }

    @staticmethod
    def device_bytes(p: int, graphs: int) -> int:
        """What they take on a device."""
        return 4 * graphs * p * row_words(p) + 8 * p + 8 * MOST_LEVELS * len(COUNTERS)

    def launch(self, source: str, kernel: str, *arguments: Any) -> None:
        """Launch a kernel of rows."""
        structs = tuple(argument.struct for argument in arguments if isinstance(argument, Filled))
        self.launch_kernel(KernelSource(source, kernel, structs), *arguments)

    def launch_kernel(self, kernel: KernelSource, *arguments: Any) -> None:
        """The same for a kernel with constants."""
        self.backend.kernel(*kernel)(self._grid, self._block, arguments)

    def count(self, before: int, after: int, level: int) -> None:
        """Queue the counting of what is left after a level."""
        self.launch(SOURCE, "count_rows", self.struct, np.int32(before), np.int32(after), np.int32(level))

    def read(self, level: int) -> Counted:
        """What a level counted."""
        (counted,) = self._read(level, level)
        return self._left(counted)

    def read_together(self, first: int, last: int) -> list[Counted]:
        """What the level before `first` counted, and those from there to `last` that ran in one launch, in order."""
        ran = list(itertools.takewhile(lambda counted: counted.ended, self._read(first - 1, last)))
        self._left(ran[-1])
        return ran

    def _read(self, first: int, last: int) -> list[Counted]:
        self.backend.download(self._counters, out=self._counted)
        return [Counted(*counted) for counted in self._counted[first : last + 1].tolist()]

    def _left(self, counted: Counted) -> Counted:
        self.edges, self.most_degree = counted.degree_sum // 2, counted.most_degree
        return counted

    def most_tested_degree(self, fixed: FixedPairs | None) -> int:
        """The largest degree of a variable with an edge to test, after the level that was read last."""
        if fixed is None:
            return self.most_degree
        return fixed.most_tested_degree(self.backend.download(self.struct.values["degrees"]))

    def forget(self) -> None:
        """Queue the zeroing of all counters, so that a level can be counted again."""
        self.backend.fill(self._counters, 0)

    def entries(self, graph: int) -> Any:
        """The adjacency matrix, (p, p) uint8 on the device."""
        entries = self.backend.empty((self.p, self.p), np.uint8)
        self.launch(SOURCE, "expand", self.struct, np.int32(graph), entries)
        return entries

    def bits(self, graph: int) -> Any:
        """(p, words) uint32 on the device: a graph."""
        return self._bits[graph]

    def download(self, graph: int) -> np.ndarray:
        """The adjacency matrix, (p, p) bool in host memory; takes no device memory."""
        octets = self.backend.download(self.bits(graph)).view(np.uint8)
        return np.unpackbits(octets, axis=1, count=self.p, bitorder="little").view(bool)
