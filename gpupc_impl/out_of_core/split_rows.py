"""Tests of a row whose neighbours do not fit on the device at once, in blocks of neighbours (kernels/split_row.cu)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gpupc_impl.backends import DeviceMemoryError, Filled, KernelSource, Pointer, Struct
from gpupc_impl.core import mapped
from gpupc_impl.engine.device_memory import allocated_bytes
from gpupc_impl.engine.graph import BINOMIALS
from gpupc_impl.engine.row_graph import KEY_CONSTANTS, RowGraph
from gpupc_impl.gaussian.level_kernels import FIRST_LEVELS, LevelKernels
from gpupc_impl.integers import ceil_div
from gpupc_impl.out_of_core import host_blocks, memory_plan
from gpupc_impl.out_of_core.host_blocks import length
from gpupc_impl.out_of_core.layout import Layout
from gpupc_impl.out_of_core.row_tests import ROW_SEARCH

SPLIT_ROW = Struct(  # split_row.cu
    "SplitRow",
    C=Pointer(np.float64),
    pieces=Pointer(np.int32),
    **dict.fromkeys(("size", "i", "before", "n", "n_pieces"), np.int32),
)
THREADS, MOST_BLOCKS = 64, 1024


SPLIT = LevelKernels(
    lambda size: KernelSource(
        "out_of_core/kernels/split_row.cu", f"split_row<{size}>", (SPLIT_ROW, ROW_SEARCH), KEY_CONSTANTS
    ),
    own_levels=FIRST_LEVELS,
)
"""The kernels that test a part of a row; the transfer of the part takes longer than its tests."""


class SplitRows(Layout):
    """A layout by rows that can split a row.

    Attributes:
        graph: the graph at the level's start.
        keys: (slots,) uint64 on the host: the best key of every slot so far.
        smallest: (slots,) uint64 on the host: the bits of the smallest r^2 of every slot; None without p-values.
        max_degree: the largest number of neighbours of a row.
        binomials: uint64 on the device: the table of binomials for rows of up to `max_degree` neighbours.
        arena_bytes: the size of the only area of each pipeline.
    """

    graph: RowGraph
    keys: np.ndarray
    smallest: np.ndarray | None
    max_degree: int
    binomials: Any
    arena_bytes: int

    def row_search(self, keys: Any, smallest: Any) -> Filled:
        """The `ROW_SEARCH` of rows whose keys and smallest r^2 are on the device."""
        context, problem = self.context, self.context.problem
        return ROW_SEARCH(
            keys=keys,
            min_r_squared=smallest,
            counters=context.counters,
            binomial=BINOMIALS(table=self.binomials, max_n=self.max_degree),
            critical_r_squared=context.critical_r_squared,
            residual_tolerance=problem.residual_tolerance,
            pivot_tolerance=problem.pivot_tolerance,
            level=context.level,
            first_come=context.first_come,
        )

    def search_split(self, i: int) -> None:
        """Run the tests of row i, whose neighbours are divided into blocks.

        A launch has a number of members that sets take from each block, and one block of the other ends of edges.

        Raises:
            DeviceMemoryError: not even blocks of one neighbour fit.
        """
        graph, level, backend = self.graph, self.context.level, self.context.run.backend
        n = len(graph.row(i))
        slots = slice(int(graph.starts[i]), int(graph.starts[i + 1]))
        block_length = memory_plan.longest_piece(level, self.arena_bytes, n)
        if not block_length:
            arena = allocated_bytes(memory_plan.split_bytes(level, 1))
            needed = backend.memory_used + 2 * (arena - self.arena_bytes)
            raise DeviceMemoryError(needed, backend.memory_used, backend.memory_limit)
        keys = backend.upload(np.minimum(self.keys[slots], self.keys[graph.reverse[slots]]))
        smallest = None if self.smallest is None else backend.upload(self.smallest[slots])
        backend.synchronize()
        search, blocks = self.row_search(keys, smallest), list(mapped.pieces(n, block_length))
        for counts in compositions([length(block) for block in blocks], level):
            for other in range(len(blocks)):
                self._queue_split(i, blocks, counts, other, search)
        self.context.pipelines.finish()
        self.keys[slots] = backend.download(keys)
        if smallest is not None:
            self.smallest[slots] = backend.download(smallest)

    def _queue_split(self, i: int, blocks: list[slice], counts: Mapping[int, int], other: int, search: Filled) -> None:
        """Queue the tests of the sets with ``counts[b]`` members from block b, against the neighbours in `other`."""
        pipeline, near, correlation = self.context.pipelines.next(), self.graph.row(i), self.context.problem.correlation
        before = int(np.searchsorted(near, i))
        present = sorted({*counts, other})
        lengths = [length(blocks[b]) for b in present]
        positions = np.concatenate([np.arange(blocks[b].start, blocks[b].stop) for b in present])
        own, size = int(np.searchsorted(positions, before)), len(positions) + 1
        bases = np.cumsum([0, *lengths]).tolist()
        geometry = {b: (blocks[b].start, count, base) for b, count, base in zip(present, lengths, bases, strict=False)}
        matrix, device_matrix = pipeline.area("arena", (size, size), np.float64)
        pieces, device_pieces = pipeline.area("arena", (len(counts) + 1, 4), np.int32, matrix.nbytes)
        with pipeline.extracting():
            host_blocks.gather(correlation, np.insert(near[positions], own, i), matrix)
            pieces[:] = [(*geometry[b], counts[b]) for b in sorted(counts)] + [(*geometry[other], 0)]
            host_blocks.release_large(correlation)
        pipeline.upload((device_matrix, matrix), (device_pieces, pieces))
        numbers = {"size": size, "i": own, "before": before, "n": len(near), "n_pieces": len(counts)}
        row = SPLIT_ROW(C=device_matrix, pieces=device_pieces, **numbers)
        sets = math.prod(math.comb(length(blocks[b]), count) for b, count in counts.items())
        grid = (min(MOST_BLOCKS, ceil_div(sets, THREADS)),)
        pipeline.launch(SPLIT.choose(self.context.run.backend, self.context.level), grid, (THREADS,), [row, search])


def compositions(lengths: list[int], level: int) -> Iterator[dict[int, int]]:
    """Every way to draw the members of a set from blocks of these lengths, as the number of members from each block."""
    for chosen in itertools.combinations_with_replacement(range(len(lengths)), level):
        counts = {block: len(list(run)) for block, run in itertools.groupby(chosen)}
        if all(count <= lengths[block] for block, count in counts.items()):
            yield counts
