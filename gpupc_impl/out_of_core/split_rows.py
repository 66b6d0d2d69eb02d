"""Tests of a row whose neighbours do not fit on the device at once, in blocks of neighbours (kernels/split_row.cu)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

import numpy as np

from gpupc_impl.backends import DeviceMemoryError, Filled, KernelSource, Pointer, Struct
from gpupc_impl.core import mapped
from gpupc_impl.engine.device_memory import allocated_bytes
from gpupc_impl.engine.row_graph import KEY_CONSTANTS
from gpupc_impl.integers import ceil_div
from gpupc_impl.out_of_core import host_blocks, memory_plan
from gpupc_impl.out_of_core.host_blocks import length
from gpupc_impl.out_of_core.level_rows import LevelRows
from gpupc_impl.out_of_core.row_tests import ROW_SEARCH

SPLIT_ROW = Struct(  # split_row.cu
    "SplitRow",
    C=Pointer(np.float64),
    pieces=Pointer(np.int32),
    **dict.fromkeys(("size", "i", "before", "n", "n_pieces"), np.int32),
)
THREADS, MOST_BLOCKS = 64, 1024


def split_kernel(level: int) -> KernelSource:
    source = "out_of_core/kernels/split_row.cu"
    return KernelSource(source, f"split_row<{level}>", (SPLIT_ROW, ROW_SEARCH), KEY_CONSTANTS)


def search_row(rows: LevelRows, i: int) -> None:
    """Run the tests of row i: one launch for each composition of a set from the blocks (so many members from this
    block, so many from that) and each block of other ends.

    Raises:
        DeviceMemoryError: not even blocks of one neighbour fit.
    """
    graph, context, arena = rows.graph, rows.context, rows.arena_bytes
    backend, level = context.backend, context.level
    n = len(graph.row(i))
    slots = slice(int(graph.starts[i]), int(graph.starts[i + 1]))
    block_length = memory_plan.longest_piece(level, arena, n)
    if not block_length:
        needed = backend.memory_used - 2 * arena + 2 * allocated_bytes(memory_plan.split_bytes(level, 1))
        raise DeviceMemoryError(needed, backend.memory_used, backend.memory_limit)
    keys = backend.upload(np.minimum(rows.keys[slots], rows.keys[graph.reverse[slots]]))
    smallest = None if rows.smallest is None else backend.upload(rows.smallest[slots])
    backend.synchronize()
    search, blocks = rows.argument(keys, smallest), list(mapped.pieces(n, block_length))
    for counts in compositions([length(block) for block in blocks], level):
        for other in range(len(blocks)):
            _queue_tests(rows, i, blocks, counts, other, search)
    context.pipelines.finish()
    rows.keys[slots] = backend.download(keys)
    if smallest is not None:
        rows.smallest[slots] = backend.download(smallest)


def _queue_tests(
    rows: LevelRows, i: int, blocks: list[slice], counts: Mapping[int, int], other: int, search: Filled
) -> None:
    """Queue the tests of the sets with ``counts[b]`` members from each block b, against the neighbours in `other`."""
    context = rows.context
    pipeline, near = context.pipelines.next(), rows.graph.row(i)
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
        host_blocks.gather(context.problem.correlation, np.insert(near[positions], own, i), matrix)
        pieces[:] = [(*geometry[b], counts[b]) for b in sorted(counts)] + [(*geometry[other], 0)]
        host_blocks.release_large(context.problem.correlation)
    pipeline.upload((device_matrix, matrix), (device_pieces, pieces))
    sets = math.prod(math.comb(length(blocks[b]), count) for b, count in counts.items())
    row = SPLIT_ROW(
        C=device_matrix,
        pieces=device_pieces,
        size=size,
        i=own,
        before=before,
        n=len(near),
        n_pieces=len(counts),
    )
    kernel = split_kernel(context.level)
    pipeline.launch(kernel, (min(MOST_BLOCKS, ceil_div(sets, THREADS)),), (THREADS,), [row, search])


def compositions(lengths: list[int], level: int) -> Iterator[dict[int, int]]:
    """Every way to draw the members of a set from blocks of these lengths: the number of members by block."""
    for chosen in itertools.combinations_with_replacement(range(len(lengths)), level):
        counts = {block: len(list(run)) for block, run in itertools.groupby(chosen)}
        if all(count <= lengths[block] for block, count in counts.items()):
            yield counts
