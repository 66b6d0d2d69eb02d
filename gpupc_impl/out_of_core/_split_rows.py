"""Rows whose neighbours do not fit at once, in blocks of neighbours (kernels/split_row.cu)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from gpupc_impl.backends import DeviceMemoryError, Filled, KernelSource, Pointer, Struct
from gpupc_impl.core import mapped
from gpupc_impl.engine.graph import BINOMIALS
from gpupc_impl.integers import ceil_div
from gpupc_impl.out_of_core import _plan
from gpupc_impl.out_of_core._layout import release_large

if TYPE_CHECKING:
    from gpupc_impl.out_of_core._gathered import Gathered

ROW_SEARCH = Struct(  # row_search.cuh
    "RowSearch",
    **dict.fromkeys(("keys", "min_r_squared", "counters"), Pointer(np.uint64)),
    binomial=BINOMIALS,
    critical_r_squared=np.float64,
    residual_tolerance=np.float64,
    pivot_tolerance=np.float64,
    first_come=np.bool_,
)
SPLIT_ROW = Struct(  # split_row.cu
    "SplitRow",
    C=Pointer(np.float64),
    pieces=Pointer(np.int32),
    **dict.fromkeys(("size", "i", "before", "n", "n_pieces"), np.int32),
)
THREADS, BLOCKS = 64, 1024


def kernel(level: int) -> KernelSource:
    return KernelSource("out_of_core/kernels/split_row.cu", f"split_row<{level}>", (SPLIT_ROW, ROW_SEARCH))


def make_tests(layout: Gathered, i: int) -> None:
    """The tests of row i, for every composition of a set (so many members from this block, so many from that) and every
    block of other ends.

    Raises:
        DeviceMemoryError: not even blocks of one neighbour fit.
    """
    backend, graph, arena = layout.backend, layout.graph, layout.arena_bytes
    n = len(graph.row(i))
    slots = slice(int(graph.starts[i]), int(graph.starts[i + 1]))
    block_length = _plan.longest_piece(layout.level, arena, n)
    if not block_length:
        needed = backend.memory_used - 2 * arena + 2 * _plan.rounded(_plan.split_bytes(layout.level, 1))
        raise DeviceMemoryError(needed, backend.memory_used, backend.memory_limit)
    keys = backend.upload(np.minimum(layout.keys[slots], layout.keys[graph.reverse[slots]]))
    smallest = None if layout.smallest is None else backend.upload(layout.smallest[slots])
    backend.synchronize()
    search, blocks = layout.row_search(keys, smallest), list(mapped.pieces(n, block_length))
    for counts in compositions([block.stop - block.start for block in blocks], layout.level):
        for other in range(len(blocks)):
            _queue_tests(layout, i, blocks, counts, other, search)
    layout.pipelines.finish()
    layout.keys[slots] = backend.download(keys)
    if smallest is not None:
        layout.smallest[slots] = backend.download(smallest)


def _queue_tests(
    layout: Gathered, i: int, blocks: list[slice], counts: Mapping[int, int], other: int, search: Filled
) -> None:
    """The tests of the sets with so many members from each block, against the neighbours of one block."""
    pipeline, near = layout.pipelines.next(), layout.graph.row(i)
    before = int(np.searchsorted(near, i))
    present = sorted({*counts, other})
    lengths = [blocks[b].stop - blocks[b].start for b in present]
    positions = np.concatenate([np.arange(blocks[b].start, blocks[b].stop) for b in present])
    own, size = int(np.searchsorted(positions, before)), len(positions) + 1
    bases = np.cumsum([0, *lengths]).tolist()
    of_block = {b: (blocks[b].start, count, base) for b, count, base in zip(present, lengths, bases, strict=False)}
    matrix, device_matrix = pipeline.area("arena", (size, size), np.float64)
    pieces, device_pieces = pipeline.area("arena", (len(counts) + 1, 4), np.int32, matrix.nbytes)
    with pipeline.extracting():
        layout.gather(np.insert(near[positions], own, i), matrix)
        pieces[:] = [(*of_block[b], counts[b]) for b in sorted(counts)] + [(*of_block[other], 0)]
        release_large(layout.problem.correlation)
    pipeline.upload((device_matrix, matrix), (device_pieces, pieces))
    sets = math.prod(math.comb(of_block[b][1], count) for b, count in counts.items())
    pipeline.launch(
        layout.backend.kernel(*kernel(layout.level)),
        (min(BLOCKS, ceil_div(sets, THREADS)),),
        (THREADS,),
        [
            SPLIT_ROW(
                C=device_matrix,
                pieces=device_pieces,
                size=size,
                i=own,
                before=before,
                n=len(near),
                n_pieces=len(counts),
            ),
            search,
        ],
    )


def compositions(lengths: list[int], level: int) -> Iterator[dict[int, int]]:
    """Every way to take the members of a set from the blocks: how many come from each."""
    for chosen in itertools.combinations_with_replacement(range(len(lengths)), level):
        counts = {block: len(list(run)) for block, run in itertools.groupby(chosen)}
        if all(count <= lengths[block] for block, count in counts.items()):
            yield counts
