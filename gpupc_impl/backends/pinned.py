"""Page-locked host memory that is kept for reuse, and copies through it that several threads feed.

A GPU copies from and to page-locked memory much faster than from other memory, and beside other work; but locking
pages takes longer than most copies. Blocks that are given back are therefore kept, up to `KEPT_BYTES`.
"""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import math
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from gpupc_impl.backends.machine import available_cores

KEPT_BYTES = 1 << 30
"""Free page-locked memory that is kept."""

CHUNK_BYTES = 4 << 20
"""What one thread copies at a time on its way to or from a device."""

MOST_THREADS = 8


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


@functools.cache
def _threads() -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(min(MOST_THREADS, available_cores()), "gpupc-copy")


def staged_upload(pool: PinnedPool, parts: list[np.ndarray], send: Callable[[np.ndarray, int], None]) -> None:
    """Copy parts of host arrays into page-locked memory, several at a time; who has copied one sends it on.

    Args:
        send: ``(staged, number of the part)``: returns when the staged copy has been read.
    """

    def stage(number: int) -> None:
        staged = pool.array(parts[number].shape, parts[number].dtype)
        staged[...] = parts[number]
        send(staged, number)

    copies = [_threads().submit(stage, number) for number in range(len(parts))]
    concurrent.futures.wait(copies)  # all, before one's fault makes the caller give up what they write to
    for copy in copies:
        copy.result()


def staged_download(
    pool: PinnedPool, target: np.ndarray, fetch: Callable[[np.ndarray, int], Callable[[], None]]
) -> None:
    """Fill a C-contiguous host array from a device through page-locked memory; threads copy what has arrived.

    Args:
        fetch: ``(staged bytes, offset) -> a function that waits until they have arrived``.
    """
    flat = target.reshape(-1).view(np.uint8)

    def unload(staged: np.ndarray, arrived: Callable[[], None], offset: int) -> None:
        arrived()
        flat[offset : offset + len(staged)] = staged

    ahead = 2 * min(MOST_THREADS, available_cores())
    copies: collections.deque[concurrent.futures.Future[None]] = collections.deque()
    for offset in range(0, len(flat), CHUNK_BYTES):
        if len(copies) == ahead:
            copies.popleft().result()
        staged = pool.array((min(CHUNK_BYTES, len(flat) - offset),), np.uint8)
        copies.append(_threads().submit(unload, staged, fetch(staged, offset), offset))
    for copy in copies:
        copy.result()
