"""Page-locked host memory that is kept for reuse, and copies through it that all cores feed.

A GPU copies from and to page-locked memory much faster than from other memory, and beside other work; but locking
pages takes longer than most copies. Blocks that are given back are therefore kept, up to `KEPT_BYTES`.
"""

from __future__ import annotations

import collections
import functools
import math
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

KEPT_BYTES = 1 << 30
"""Free page-locked memory that is kept."""

CHUNK_BYTES = 4 << 20
"""What is copied at a time on its way to or from a device."""

ROW_BYTES = 1 << 15
"""What one core copies at a time."""

AHEAD = 4
"""Parts that may be on their way."""


CROWDED_BYTES_PER_S = 2e9
"""Slower than one core copies: so all cores together are only where others are at work on them."""


class PinnedPool:
    """Blocks of page-locked memory.

    Args:
        allocate: ``bytes -> (object that owns the memory, address)``.
    """

    def __init__(self, allocate: Callable[[int], tuple[Any, int]]):
        self._allocate = allocate
        self._free: dict[int, list[tuple[Any, int]]] = collections.defaultdict(list)
        self._kept = 0
        self._lock = threading.RLock()  # a collection inside the lock may give a block back

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """A C-contiguous array in page-locked memory, contents undefined; the memory comes back when it is dropped."""
        dtype = np.dtype(dtype)
        size = _size_class(math.prod(shape) * dtype.itemsize)
        with self._lock:
            block = self._free[size].pop() if self._free[size] else None
            if block is not None:
                self._kept -= size
        return np.asarray(_Block(self, size, block or self._allocate(size), shape, dtype))

    def give_back(self, size: int, block: tuple[Any, int]) -> None:
        with self._lock:
            if self._kept + size <= KEPT_BYTES:
                self._kept += size
                self._free[size].append(block)


class _Block:
    """The memory behind one array."""

    def __init__(self, pool: PinnedPool, size: int, block: tuple[Any, int], shape: tuple[int, ...], dtype: np.dtype):
        self.__array_interface__ = {"version": 3, "data": (block[1], False), "shape": shape, "typestr": dtype.str}
        weakref.finalize(self, pool.give_back, size, block).atexit = False


def _size_class(size: int) -> int:
    """The sizes that blocks come in: at most a quarter more than asked for."""
    if size <= 1 << 16:
        return 1 << 16
    step = 1 << (size.bit_length() - 3)
    return -(-size // step) * step


class Rows(NamedTuple):
    """A part of C-contiguous memory, in bytes: rows of `width` that begin at `first`, `first + stride`, ..."""

    first: int
    rows: int
    width: int
    stride: int


def pieces(size: int) -> list[Rows]:
    """Memory of some bytes, in parts of at most `CHUNK_BYTES`: those that are copied as rows, and what is left."""
    whole = size // ROW_BYTES
    at_once = max(1, CHUNK_BYTES // ROW_BYTES)
    parts = [Rows(row * ROW_BYTES, min(at_once, whole - row), ROW_BYTES, ROW_BYTES) for row in range(0, whole, at_once)]
    rest = size - whole * ROW_BYTES
    return [*parts, Rows(whole * ROW_BYTES, 1, rest, rest)] if rest else parts


def staged_upload(
    pool: PinnedPool,
    source: np.ndarray,
    parts: Iterable[Rows],
    send: Callable[[np.ndarray, Rows], Callable[[], None]],
) -> list[np.ndarray]:
    """Copy parts of a C-contiguous host array into page-locked memory, and send each on while the next is copied.

    Args:
        send: ``(staged bytes, part) -> a function that waits until they have been read``.

    Returns:
        Page-locked memory that may not have been read yet; keep it until then.
    """
    flat = source.reshape(-1).view(np.uint8)
    under_way: collections.deque[tuple[np.ndarray, Callable[[], None]]] = collections.deque()
    crowded = False
    for part in parts:
        if len(under_way) == AHEAD:
            under_way.popleft()[1]()
        staged = pool.array((part.rows * part.width,), np.uint8)
        start = time.perf_counter()
        _copier()(staged, flat, *part, crowded)
        # The threads of a BLAS stay on the cores for a tenth of a second after its last product; to wait for others
        # beside them takes milliseconds a part.
        crowded = crowded or staged.nbytes < CROWDED_BYTES_PER_S * (time.perf_counter() - start)
        under_way.append((staged, send(staged, part)))
    return [staged for staged, _ in under_way]


def staged_download(
    pool: PinnedPool, target: np.ndarray, fetch: Callable[[np.ndarray, int], Callable[[], None]]
) -> None:
    """Fill a C-contiguous host array from a device through page-locked memory; what has arrived is copied while more
    is on its way.

    Args:
        fetch: ``(staged bytes, offset) -> a function that waits until they have arrived``.
    """
    flat = target.reshape(-1).view(np.uint8)
    under_way: collections.deque[tuple[np.ndarray, Callable[[], None], Rows]] = collections.deque()

    def unload() -> None:
        staged, arrived, part = under_way.popleft()
        arrived()
        into = flat[part.first : part.first + len(staged)]
        _copier()(into, staged, 0, part.rows, part.width, part.width)

    for part in pieces(len(flat)):
        if len(under_way) == AHEAD:
            unload()
        staged = pool.array((part.rows * part.width,), np.uint8)
        under_way.append((staged, fetch(staged, part.first), part))
    while under_way:
        unload()


@functools.cache
def _copier() -> Callable[..., None]:
    """Copies rows on all cores; on one where numba is not installed."""
    try:
        from gpupc_impl.backends.copying import copy_rows
    except ImportError:
        return _copy_rows
    return copy_rows


def _copy_rows(
    target: np.ndarray, source: np.ndarray, first: int, rows: int, width: int, stride: int, alone: bool = False
) -> None:
    for row in range(rows):
        start = first + row * stride
        target[row * width : (row + 1) * width] = source[start : start + width]
