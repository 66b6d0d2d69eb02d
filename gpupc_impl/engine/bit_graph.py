"""Graphs on a device as matrices of bits (kernels/bit_graph.cuh), and the counts that a search reads between levels."""

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from gpupc_impl.backends import Backend, KernelSource, Pointer, Struct
from gpupc_impl.core.fixed_pairs import FixedPairs
from gpupc_impl.integers import ceil_div

WARPS = 8  # the number of warps in a thread block each of whose warps processes rows
HOST_BLOCKS = 64  # thread blocks on cores, each of which processes a range of rows; on a GPU every row has a warp


class LevelCounts(NamedTuple):
    """The counters of a level, in the order of the enumeration in kernels/bit_graph.cuh."""

    tests: int
    undefined: int
    singular: int
    degree_sum: int
    most_degree: int
    ended: int  # the time in nanoseconds at which a fused level ended, else 0
    arrived: int
    turns: int
    turns_of_side_1: int


COUNTERS = LevelCounts._fields
MOST_LEVELS = 64  # the number of levels that have counters; searches on real data end before level 20
CONSTANTS = {**{name.upper(): number for number, name in enumerate(COUNTERS[:-1])}, "COUNTERS": len(COUNTERS)}

GRAPHS = Struct(
    "BitGraphs",
    bits=Pointer(np.uint32),
    p=np.int32,
    words=np.int32,
    degrees=Pointer(np.int32),
    removed=Pointer(np.int32),
    counters=Pointer(np.uint64),
)
KERNELS = {
    name: KernelSource("engine/kernels/bit_graph.cu", name, (GRAPHS,), CONSTANTS) for name in ("count_rows", "expand")
}


def pack_pairs(pairs: np.ndarray, p: int) -> np.ndarray:
    """Return the graph of p variables with (k, 2) edges as (p, words) uint32."""
    bits = np.zeros((p, row_words(p)), np.uint32)
    for i, j in (pairs.T, pairs.T[::-1]):
        np.bitwise_or.at(bits, (i, j // 32), np.uint32(1) << (j % 32).astype(np.uint32))
    return bits


def pack_rows(adjacency: np.ndarray) -> np.ndarray:
    """Return the graph of a (p, p) bool adjacency matrix as (p, words) uint32."""
    octets = np.zeros((len(adjacency), 4 * row_words(len(adjacency))), np.uint8)
    packed = np.packbits(adjacency, axis=1, bitorder="little")
    octets[:, : packed.shape[1]] = packed
    return octets.view(np.uint32)


def row_words(p: int) -> int:
    """Return the 32-bit words of a row of p variables, a multiple of 4, so that kernels may read four at a time."""
    return ceil_div(p, 128) * 4


class BitGraphs:
    """Several numbered graphs over p variables, and the launches of kernels that process them row by row. The arrays of
    `memory`, with the shapes of `arrays`, hold the graphs; new ones are allocated if it is None. `struct` is the
    `GRAPHS` that kernels take; `edges` and `most_degree` are those after the last level that was read."""

    def __init__(self, backend: Backend, p: int, graphs: int, memory: Mapping[str, Any] | None = None):
        self.backend, self.p, self.words = backend, p, row_words(p)
        self.edges, self.most_degree = p * (p - 1) // 2, p - 1
        gpu = backend.warp_threads > 1
        self._grid = (ceil_div(p, WARPS) if gpu else min(p, HOST_BLOCKS),)
        self._block = (WARPS * backend.warp_threads if gpu else 1,)
        shapes = self.arrays(p, graphs)
        arrays = backend.empty_all(**shapes) if memory is None else {name: memory[name] for name in shapes}
        self._bits, self._counters = arrays["bits"], arrays["counters"]
        self._counts = backend.host_empty((MOST_LEVELS, len(COUNTERS)), np.uint64)
        backend.fill(self._counters, 0)
        self.struct = GRAPHS(p=p, words=self.words, **arrays)

    @staticmethod
    def arrays(p: int, graphs: int) -> dict[str, tuple[Any, Any]]:
        """Return the shapes and types of the device arrays by name, as `Backend.empty_all` takes them."""
        return {
            "bits": ((graphs, p, row_words(p)), np.uint32),
            "degrees": (p, np.int32),
            "removed": (p, np.int32),
            "counters": ((MOST_LEVELS, len(COUNTERS)), np.uint64),
        }

    def launch(self, kernel: KernelSource, *arguments: Any) -> None:
        """Queue a kernel each of whose warps has a range of rows."""
        self.backend.kernel(*kernel)(self._grid, self._block, arguments)

    def reset_counters(self) -> None:
        """Queue the zeroing of all counters, so that a level can be counted again."""
        self.backend.fill(self._counters, 0)

    def count(self, before: int, after: int, level: int) -> None:
        """Queue the counting of the edges that are left after a level."""
        numbers = np.int32(before), np.int32(after), np.int32(level)
        self.launch(KERNELS["count_rows"], self.struct, *numbers)

    def read(self, level: int) -> LevelCounts:
        """Wait for a level and return its counters."""
        return self._read(level, level)[-1]

    def read_fused(self, first: int, last: int) -> list[LevelCounts]:
        """Return the counters of the level before `first`, and of the levels to `last` that ran in one launch."""
        return self._read(first - 1, last, fused=True)

    def _read(self, first: int, last: int, fused: bool = False) -> list[LevelCounts]:
        self.backend.download(self._counters, out=self._counts)
        counts = [LevelCounts(*numbers) for numbers in self._counts[first : last + 1].tolist()]
        if fused:
            counts = list(itertools.takewhile(lambda level: level.ended, counts))
        self.edges, self.most_degree = counts[-1].degree_sum // 2, counts[-1].most_degree
        return counts

    def most_tested_degree(self, fixed: FixedPairs | None) -> int:
        """Return the largest degree of a variable with an edge to test, after the last level that was read."""
        if fixed is None:
            return self.most_degree
        return fixed.most_tested_degree(self.backend.download(self.struct.values["degrees"]))

    def entries(self, graph: int) -> Any:
        """Return the adjacency matrix, (p, p) uint8 on the device."""
        entries = self.backend.empty((self.p, self.p), np.uint8)
        self.launch(KERNELS["expand"], self.struct, np.int32(graph), entries)
        return entries

    def replace(self, *bits: np.ndarray) -> None:
        """Put other graphs, (p, words) uint32 in host memory, in place of the first ones; `struct` is replaced."""
        graphs = np.zeros(self._bits.shape, np.uint32)
        graphs[: len(bits)] = bits
        self._bits = self.backend.upload(graphs)
        self.struct = GRAPHS(**{**self.struct.values, "bits": self._bits})

    def bits(self, graph: int) -> Any:
        """Return (p, words) uint32 on the device."""
        return self._bits[graph]

    def download(self, graph: int) -> np.ndarray:
        """Return the adjacency matrix, (p, p) bool in host memory, without allocating device memory."""
        octets = self.backend.download(self.bits(graph)).view(np.uint8)
        return np.unpackbits(octets, axis=1, count=self.p, bitorder="little").view(bool)
