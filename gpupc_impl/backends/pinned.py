"""Page-locked host memory that is kept for reuse, and copies through it that several cores feed.

A GPU copies from and to page-locked memory much faster than from other memory, and beside other work; but locking
pages takes longer than most copies. Blocks that are given back are therefore kept, up to `KEPT_BYTES`.

One core does not read memory as fast as a GPU takes it, so helper threads copy as well. Nobody waits for a thread that
has not begun: the threads of a BLAS stay on the cores for a tenth of a second after its last product, and a helper may
not get one for as long. What no helper has begun, the caller copies.
"""

from __future__ import annotations

import collections
import functools
import math
import threading
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from gpupc_impl.backends.machine import available_cores

KEPT_BYTES = 1 << 30
"""Free page-locked memory that is kept."""

CHUNK_BYTES = 4 << 20
"""What is copied at a time on its way to or from a device."""

AHEAD = 4
"""Parts that may be on their way."""

COPIERS = 8
"""Threads that copy, the caller among them: more read no more from memory. As many parts may be under their hands."""


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
    """Memory of some bytes, in parts of at most `CHUNK_BYTES`."""
    starts = range(0, size, CHUNK_BYTES)
    return [Rows(first, 1, width, width) for first in starts if (width := min(CHUNK_BYTES, size - first))]


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
    copies: collections.deque[tuple[np.ndarray, Rows, Copy]] = collections.deque()
    under_way: collections.deque[tuple[np.ndarray, Callable[[], None]]] = collections.deque()

    def send_first() -> None:
        staged, part, copy = copies.popleft()
        copy.finish()
        if len(under_way) == AHEAD:
            under_way.popleft()[1]()
        under_way.append((staged, send(staged, part)))

    for part in parts:
        if len(copies) == COPIERS:
            send_first()
        staged = pool.array((part.rows, part.width), np.uint8)
        source_rows = np.ndarray(staged.shape, np.uint8, flat, part.first, (part.stride, 1))
        copies.append((staged, part, Copy(staged, source_rows)))
    while copies:
        send_first()
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
    under_way: collections.deque[tuple[np.ndarray, Callable[[], None], int]] = collections.deque()
    copies: collections.deque[Copy] = collections.deque()

    def unload() -> None:
        staged, arrived, first = under_way.popleft()
        arrived()
        if len(copies) == COPIERS:
            copies.popleft().finish()
        copies.append(Copy(flat[first : first + len(staged)], staged))

    for part in pieces(len(flat)):
        if len(under_way) == AHEAD:
            unload()
        staged = pool.array((part.width,), np.uint8)
        under_way.append((staged, fetch(staged, part.first), part.first))
    while under_way:
        unload()
    while copies:
        copies.popleft().finish()


class Copy:
    """A copy from one array to another that a helper makes, or who waits for it."""

    def __init__(self, target: np.ndarray, source: np.ndarray):
        self._arrays: tuple[np.ndarray, np.ndarray] | None = target, source
        helpers = _helpers()
        self._future: Future[None] | None = None if helpers is None else helpers.submit(self._make)

    def _make(self) -> None:
        assert self._arrays is not None
        target, source = self._arrays
        np.copyto(target, source)

    def finish(self) -> None:
        if self._future is None or self._future.cancel():  # nobody has begun
            self._make()
        else:
            self._future.result()
        self._arrays = None  # a helper that is late still knows of this copy


@functools.cache
def _helpers() -> ThreadPoolExecutor | None:
    threads = min(COPIERS, available_cores()) - 1
    return ThreadPoolExecutor(threads, "gpupc-copy") if threads else None
