"""What a level on blocks of pairs removes, up to billions of pairs, brought into order by threads of the host.

One core takes longer to sort such a list than a GPU takes to find it. Nothing has to be sorted: within a block the
pairs are in order, and where they go follows from how many each row has in the blocks before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core import mapped

THREADS = 8
"""More read no more from memory."""

AT_ONCE = 1 << 22
"""Pairs that a thread looks at before it takes others."""

TILE = 512
"""Rows and columns that are mirrored at a time: both tiles stay in a core's cache."""

FEW = 64
"""A list is a short one where the graph has so many times as many places: its pairs are mirrored one by one."""


@dataclasses.dataclass(frozen=True)
class Found:
    """What separated pairs of some rows with a range of variables, row by row in ascending order.

    Attributes:
        first: the first row's variable.
        counts: (rows,) int64: how many pairs of each row are separated.
        others: (k,) int32: their second variables.
        members: (k,) int32: what their sets hold.
    """

    first: int
    counts: np.ndarray
    others: np.ndarray
    members: np.ndarray


def find(members: np.ndarray, none: np.uint32, bits: np.uint32, rows: slice, columns: slice) -> list[Found]:
    """The separated pairs of a block.

    Args:
        members: (rows, columns) uint32, `none` where nothing separates; of the others, `bits` are the member.
        rows, columns: the variables of the block.
    """
    width = columns.stop - columns.start

    def look(part: slice) -> Found:
        of_part = members[part]
        separated = of_part != none
        counts, at = np.count_nonzero(separated, axis=1), np.flatnonzero(separated)
        found = of_part.reshape(-1)[at] & bits
        at -= np.repeat(np.arange(len(counts)) * width - columns.start, counts)
        return Found(rows.start + part.start, counts, at.astype(np.int32), found.view(np.int32))

    return in_threads(look, mapped.pieces(len(members), max(1, AT_ONCE // width)))


def in_order(found: list[Found], p: int) -> tuple[np.ndarray, np.ndarray]:
    """The (k, 2) pairs in ascending order and the (k, 1) members of their sets, int32.

    Args:
        found: of pairs i < j; where two have a row in common, the one with larger second variables comes later.
            Emptied.
    """
    starts = np.zeros(p + 1, np.int64)
    for each in found:
        starts[each.first + 1 : each.first + 1 + len(each.counts)] += each.counts
    np.cumsum(starts, out=starts)
    pairs, members = np.empty((starts[-1], 2), np.int32), np.empty((starts[-1], 1), np.int32)

    def name_rows(part: slice) -> None:
        of_part = starts[part.start : part.stop + 1]
        rows = np.arange(part.start, part.stop, dtype=np.int32)
        pairs[of_part[0] : of_part[-1], 0] = np.repeat(rows, np.diff(of_part))

    in_threads(name_rows, mapped.pieces(p, max(1, AT_ONCE // p)))

    def put(each: Found, place: np.ndarray) -> None:
        at = np.repeat(place - (np.cumsum(each.counts) - each.counts), each.counts)
        at += np.arange(len(at))
        members.reshape(-1)[at] = each.members
        pairs.reshape(-1)[2 * at + 1] = each.others

    places = []
    for each in found:
        own = starts[each.first : each.first + len(each.counts)]
        places.append(own.copy())
        own += each.counts
    waiting = list(zip(found, places, strict=True))[::-1]
    found.clear()
    in_threads(lambda _: put(*waiting.pop()), range(len(waiting)))  # each is dropped as soon as it is in its place
    return pairs, members


def take_out(graph: np.ndarray, pairs: np.ndarray) -> None:
    """Take (k, 2) pairs i < j out of a symmetric (p, p) bool graph, in memory row by row."""
    p = len(graph)
    if FEW * len(pairs) < p * p:
        i, j = pairs.T
        graph[i, j] = graph[j, i] = False
        return
    flat = graph.reshape(-1)

    def clear(part: slice) -> None:
        flat[pairs[part, 0] * np.int64(p) + pairs[part, 1]] = False

    in_threads(clear, mapped.pieces(len(pairs), AT_ONCE))
    mirror(graph, slice(0, p), slice(0, p))


def mirror(graph: np.ndarray, rows: slice, columns: slice) -> None:
    """Copy a block of a (p, p) bool graph, or what it has above the diagonal, to the other side of the diagonal."""

    def copy(tile: tuple[slice, slice]) -> None:
        i, j = tile
        if i == j:
            above = np.triu(graph[i, i], 1)
            graph[i, i] = above | above.T
        else:
            graph[j, i] = graph[i, j].T

    tiles = [
        (slice(rows.start + i.start, rows.start + i.stop), slice(columns.start + j.start, columns.start + j.stop))
        for i in mapped.pieces(rows.stop - rows.start, TILE)
        for j in mapped.pieces(columns.stop - columns.start, TILE)
    ]
    in_threads(copy, [(i, j) for i, j in tiles if rows != columns or i.start <= j.start])


def in_threads(work: Callable[[Any], Any], parts: Iterable[Any]) -> list[Any]:
    """What `work` gives for each part, in order; the parts are shared out among threads."""
    waiting: Sequence[Any] = list(parts)
    threads = min(THREADS, available_cores(), len(waiting))
    if threads < 2:
        return [work(part) for part in waiting]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, waiting))
