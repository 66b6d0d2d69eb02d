"""Copies blocks of the host's matrix and graph into staging areas, with several threads."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from gpupc_impl.backends.machine import available_cores, memory_bytes
from gpupc_impl.backends.pinned import Copy
from gpupc_impl.core import mapped_arrays
from gpupc_impl.integers import ceil_div

THREADS = 8  # upper bound on the threads, which suffices for the memory's bandwidth
COPY_BYTES = 4 << 20  # bytes of a block of the matrix that a thread copies at a time
KEPT_SHARE = 0.25  # largest share of the machine's memory that a mapped matrix may take for its pages to stay resident


def read(matrix: Any, rows: slice, columns: slice, target: np.ndarray) -> None:
    """Copy a block of a matrix with several threads, since a single thread is slower than the transfer to a GPU."""
    block = matrix[rows, columns]
    rows_at_once = max(1, COPY_BYTES // (8 * length(columns)))
    copies = [Copy(target[part], block[part]) for part in mapped_arrays.pieces(length(rows), rows_at_once)]
    for copy in copies:
        copy.finish()
    release_large(matrix)


def read_bits(graph: np.ndarray, rows: slice, columns: slice, target: np.ndarray) -> None:
    """Pack a block of a (p, p) bool graph into rows of 32-bit words, one bit per pair."""
    block, target_bytes, width = graph[rows, columns], target.view(np.uint8), ceil_div(length(columns), 8)

    def pack(part: slice) -> None:
        target_bytes[part, :width] = np.packbits(block[part], axis=1, bitorder="little")
        target_bytes[part, width:] = 0

    in_threads(pack, mapped_arrays.pieces(length(rows), max(1, COPY_BYTES // length(columns))))


def gather(matrix: Any, members: np.ndarray, target: np.ndarray) -> None:
    if isinstance(matrix, np.ndarray):
        target[...] = matrix[members[:, None], members]
    else:  # a matrix that is computed on access supports slices only
        for row, member in zip(target, members, strict=True):
            row[...] = matrix[int(member) : int(member) + 1, :][0, members]


def release_large(matrix: Any) -> None:
    """Drop the resident pages of a mapped matrix if the matrix takes much of the machine's memory."""
    array = mapped_arrays.base_memmap(matrix)
    if array is not None and array.nbytes > KEPT_SHARE * memory_bytes():
        mapped_arrays.release(array)


def upper_blocks(p: int, side: int) -> Iterator[tuple[slice, slice]]:
    """The blocks (I, J), J >= I, of a p x p matrix."""
    for rows in mapped_arrays.pieces(p, side):
        for columns in pieces(slice(rows.start, p), side):
            yield rows, columns


def pieces(whole: slice, size: int) -> Iterator[slice]:
    """Consecutive slices of at most `size` elements."""
    for part in mapped_arrays.pieces(length(whole), size):
        yield slice(whole.start + part.start, whole.start + part.stop)


def length(part: slice) -> int:
    return part.stop - part.start


def in_threads(work: Callable[[Any], Any], parts: Iterable[Any], most: int = THREADS) -> list[Any]:
    """The results of `work` for the parts, in their order; at most so many threads share the parts."""
    waiting: Sequence[Any] = list(parts)
    threads = min(most, available_cores(), len(waiting))
    if threads < 2:
        return [work(part) for part in waiting]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, waiting))
