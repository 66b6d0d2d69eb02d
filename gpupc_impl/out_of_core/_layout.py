"""What the layouts of a level share: the matrix and the graph read a block at a time, and the end of a level."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.backends.machine import memory_bytes
from gpupc_impl.backends.pinned import Copy
from gpupc_impl.core import mapped
from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.engine.graph import NO_KEY
from gpupc_impl.gaussian.partial_correlation import removed_p_values
from gpupc_impl.integers import ceil_div
from gpupc_impl.out_of_core._plan import Plan
from gpupc_impl.out_of_core._removed import Found, in_threads, take_out

if TYPE_CHECKING:
    from gpupc_impl.out_of_core._search import BlockSearch

COPY_BYTES = 4 << 20
"""What a thread copies at a time of a block of the matrix."""

KEPT_SHARE = 0.25
"""Share of the machine's memory up to which the pages of a mapped matrix are left there."""


class Layout(abc.ABC):
    """A level in one layout.

    Attributes:
        plan: the memory that the level takes and the bytes it moves; some layouts know it only after they have run.
        found, tested: what separates pairs, and how many pairs were tested, in the blocks of pairs merged so far.
    """

    def __init__(self, search: BlockSearch, level: int, plan: Plan | None = None):
        self.search, self.level, self.plan, self.p = search, level, plan, search.p
        self.problem, self.backend, self.pipelines = search.problem, search.backend, search.pipelines
        self.adjacency, self.largest_p, self.counters = search.adjacency_left, search.largest_p, search.counters
        self.critical = search.problem.critical_r_squared(level)
        self.first_come = search.run.separating_sets == "first-come"
        self.found: list[Found] = []
        self.tested = 0

    @abc.abstractmethod
    def run(self) -> LevelOutcome:
        """Make the level's tests, and take the separated edges out of the graph."""

    # --- blocks of the host's data -----------------------------------------------------------------------------

    def read(self, rows: slice, columns: slice, target: np.ndarray) -> None:
        """A block of the correlation matrix into a staging area; several threads, since one is slower than a GPU."""
        block = self.problem.correlation[rows, columns]
        rows_at_once = max(1, COPY_BYTES // (8 * length(columns)))
        copies = [Copy(target[part], block[part]) for part in mapped.pieces(length(rows), rows_at_once)]
        for copy in copies:
            copy.finish()
        release_large(self.problem.correlation)

    def read_bits(self, rows: slice, columns: slice, target: np.ndarray) -> None:
        """A block of the graph, a bit a pair, into a staging area of 32-bit words."""
        block, target_bytes, width = self.adjacency[rows, columns], target.view(np.uint8), ceil_div(length(columns), 8)

        def pack(part: slice) -> None:
            target_bytes[part, :width] = np.packbits(block[part], axis=1, bitorder="little")
            target_bytes[part, width:] = 0

        in_threads(pack, mapped.pieces(length(rows), max(1, COPY_BYTES // length(columns))))

    def gather(self, members: np.ndarray, target: np.ndarray) -> None:
        """A sub-matrix of the correlation matrix into a staging area."""
        correlation = self.problem.correlation
        if isinstance(correlation, np.ndarray):
            target[...] = correlation[members[:, None], members]
        else:  # a matrix made on the fly supports slices only
            for row, member in zip(target, members, strict=True):
                row[...] = correlation[int(member) : int(member) + 1, :][0, members]

    # --- the end of a level ------------------------------------------------------------------------------------

    def record_p_values(self, i: np.ndarray, j: np.ndarray, smallest: np.ndarray) -> None:
        """Update the pairs' largest p-values from the bits of the smallest r^2 of each pair, where there is one."""
        tested = smallest != NO_KEY
        i, j, r_squared = i[tested], j[tested], smallest[tested].view(np.float64)
        p_values = self.problem.p_value(r_squared, self.level)
        self.largest_p[i, j] = self.largest_p[j, i] = np.fmax(self.largest_p[i, j], p_values)

    def remove_separated(self, pairs: np.ndarray, sets: np.ndarray) -> LevelOutcome:
        """Take the separated edges, (k, 2) with their (k, level) sets, out of the graph."""
        take_out(self.adjacency, pairs)
        if self.largest_p is not None:
            i, j = pairs.T
            self.largest_p[i, j] = self.largest_p[j, i] = removed_p_values(self.problem, pairs, sets)
        tests, undefined, pseudo_inverses = map(int, self.backend.download(self.counters).sum(axis=0)[:3])
        return LevelOutcome(*self.count(), tests, pairs, sets, undefined, pseudo_inverses)

    def count(self) -> tuple[int, int]:
        """Edges left, and the largest degree of a variable with an edge to test."""
        degrees = np.array([np.count_nonzero(row) for row in self.adjacency])
        return int(degrees.sum()) // 2, self.problem.most_tested_degree(degrees)


def release_large(matrix: Any) -> None:
    """Give the pages of a mapped matrix back behind a block, if it takes much of the machine's memory.

    It is read many times, and pages that were given back are mapped anew.
    """
    array = mapped.base_memmap(matrix)
    if array is not None and array.nbytes > KEPT_SHARE * memory_bytes():
        mapped.release(array)


def upper_blocks(p: int, side: int) -> Iterator[tuple[slice, slice]]:
    """The blocks (I, J), J >= I, of a p x p matrix."""
    for rows in mapped.pieces(p, side):
        for columns in pieces(slice(rows.start, p), side):
            yield rows, columns


def pieces(whole: slice, size: int) -> Iterator[slice]:
    for part in mapped.pieces(length(whole), size):
        yield slice(whole.start + part.start, whole.start + part.stop)


def length(part: slice) -> int:
    return part.stop - part.start
