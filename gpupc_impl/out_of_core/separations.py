"""The separated pairs of a level on blocks of pairs, up to billions, which threads of the host merge. One core would
sort the list of pairs more slowly than a GPU makes it, so nothing is sorted. Within a block the pairs are in order, and
their places in the list follow from the number of separated pairs that each row has in the blocks before."""

import dataclasses
import itertools

import numpy as np

from gpupc_impl.core import mapped_arrays
from gpupc_impl.gaussian.pair_block import MEMBER, NO_MEMBER
from gpupc_impl.out_of_core.host_blocks import in_threads, pieces

PAIRS_AT_ONCE = 1 << 22  # number of pairs that a thread processes at a time
TILE = 512  # rows and columns of a mirrored tile: the tile and its mirror image fit into a core's cache
SPARSE_FACTOR = 64  # cells for each pair, above which a graph is updated pair by pair and not in tiles


@dataclasses.dataclass(frozen=True)
class BlockSeparations:
    """The separated pairs between consecutive rows from variable `first` on and a range of columns, row by row in
    ascending order: the number of those of each row, (rows,) int64, and the second variable of each pair (`others`) and
    the variable that separates it (`members`), (k,) int32 each."""

    first: int
    counts: np.ndarray
    others: np.ndarray
    members: np.ndarray


def find(members: np.ndarray, rows: slice, columns: slice) -> list[BlockSeparations]:
    """The separated pairs of a block, from its (rows, columns) uint32 keys (`pair_block.MEMBER`)."""
    width = columns.stop - columns.start

    def find_in(part: slice) -> BlockSeparations:
        cells = members[part]
        separated = cells != NO_MEMBER
        counts, at = np.count_nonzero(separated, axis=1), np.flatnonzero(separated)
        separators = cells.reshape(-1)[at] & MEMBER
        at -= np.repeat(np.arange(len(counts)) * width - columns.start, counts)
        return BlockSeparations(rows.start + part.start, counts, at.astype(np.int32), separators.view(np.int32))

    return in_threads(find_in, mapped_arrays.pieces(len(members), max(1, PAIRS_AT_ONCE // width)))


def in_order(blocks: list[BlockSeparations], p: int) -> tuple[np.ndarray, np.ndarray]:
    """The (k, 2) int32 pairs in ascending order, and the (k, 1) int32 members of their sets. Of two blocks with a
    common row, that with larger second variables is later. The list is emptied, to free each block once copied."""
    starts = np.zeros(p + 1, np.int64)
    for block in blocks:
        starts[block.first + 1 : block.first + 1 + len(block.counts)] += block.counts
    np.cumsum(starts, out=starts)
    pairs, members = np.empty((starts[-1], 2), np.int32), np.empty((starts[-1], 1), np.int32)

    def fill_rows(part: slice) -> None:
        bounds = starts[part.start : part.stop + 1]
        rows = np.arange(part.start, part.stop, dtype=np.int32)
        pairs[bounds[0] : bounds[-1], 0] = np.repeat(rows, np.diff(bounds))

    in_threads(fill_rows, mapped_arrays.pieces(p, max(1, PAIRS_AT_ONCE // p)))

    def copy(block: BlockSeparations, row_places: np.ndarray) -> None:
        at = np.repeat(row_places - (np.cumsum(block.counts) - block.counts), block.counts)
        at += np.arange(len(at))
        members.reshape(-1)[at] = block.members
        pairs.reshape(-1)[2 * at + 1] = block.others

    places = []
    for block in blocks:
        own = starts[block.first : block.first + len(block.counts)]
        places.append(own.copy())
        own += block.counts
    waiting = list(zip(blocks, places, strict=True))[::-1]
    blocks.clear()
    in_threads(lambda _: copy(*waiting.pop()), range(len(waiting)))
    return pairs, members


def take_out(graph: np.ndarray, pairs: np.ndarray) -> None:
    """Remove ascending (k, 2) pairs i < j from a symmetric (p, p) bool graph."""
    p = len(graph)
    if SPARSE_FACTOR * len(pairs) < p * p:
        i, j = pairs.T
        graph[i, j] = graph[j, i] = False
        return
    flat = graph.reshape(-1)

    def clear(part: slice) -> None:
        flat[pairs[part, 0] * np.int64(p) + pairs[part, 1]] = False

    in_threads(clear, mapped_arrays.pieces(len(pairs), PAIRS_AT_ONCE))
    mirror(graph, slice(0, p), slice(0, p))


def mirror(graph: np.ndarray, rows: slice, columns: slice) -> None:
    """Copy a block of a (p, p) bool graph, or its part above the diagonal, to the other side of the diagonal."""

    def copy(tile: tuple[slice, slice]) -> None:
        i, j = tile
        if i == j:
            above = np.triu(graph[i, i], 1)
            graph[i, i] = above | above.T
        else:
            graph[j, i] = graph[i, j].T

    tiles = itertools.product(pieces(rows, TILE), pieces(columns, TILE))
    in_threads(copy, [(i, j) for i, j in tiles if rows != columns or i.start <= j.start])
