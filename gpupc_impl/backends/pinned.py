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
import itertools
import math
import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.integers import round_up

KEPT_BYTES = 1 << 30
"""Free page-locked memory that is kept."""

CHUNK_BYTES = 4 << 20
"""What is copied at a time on its way to or from a device."""

ROUND_BYTES = 64 << 20
"""What goes up at a time through one block: most matrices whole, since every block takes time to come by."""

AHEAD = 4
"""Parts that may be on their way down."""

COPIERS = 8
"""Threads that copy, the caller among them: more read no more from memory."""


class PinnedPool:
    """Blocks of page-locked memory.

    Args:
        allocate: ``bytes -> (object that owns the memory, address)``.
        refusal: what that raises where the system locks no more pages.
    """

    def __init__(self, allocate: Callable[[int], tuple[Any, int]], refusal: tuple[type[Exception], ...] = ()):
        self._allocate, self._refusal = allocate, refusal
        self._free: dict[int, list[tuple[Any, int]]] = collections.defaultdict(list)
        self._kept = 0
        self._lock = threading.RLock()  # a collection inside the lock may give a block back

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """A C-contiguous array in page-locked memory, contents undefined; the memory comes back when it is dropped.

        Raises:
            MemoryError: the system locks no more pages, not even in place of those that were kept.
        """
        dtype = np.dtype(dtype)
        size = _size_class(math.prod(shape) * dtype.itemsize)
        with self._lock:
            block = self._free[size].pop() if self._free[size] else None
            if block is not None:
                self._kept -= size
        return np.asarray(_Block(self, size, block or self._lock_pages(size), shape, dtype))

    def _lock_pages(self, size: int) -> tuple[Any, int]:
        try:
            return self._allocate(size)
        except self._refusal:
            with self._lock:
                self._free.clear()
                self._kept = 0
        try:
            return self._allocate(size)
        except self._refusal as error:
            raise MemoryError(
                f"the system grants no page-locked memory: {size:,} bytes asked for ({error}); copies to and from a "
                "GPU go through it, so drop results and problems that are no longer needed, or end other programs there"
            ) from error

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


def is_placed(array: np.ndarray) -> bool:
    """Whether copies to a device may read an array where it lies, also while the caller goes on: it is C-contiguous, in
    page-locked memory of a pool, and read-only."""
    memory: Any = array if array.flags.c_contiguous else None
    while isinstance(memory, np.ndarray):
        if memory.flags.writeable:
            return False
        memory = memory.base
    return isinstance(memory, _Block)


def _size_class(size: int) -> int:
    """The sizes that blocks come in: at most a quarter more than asked for."""
    if size <= 1 << 16:
        return 1 << 16
    step = 1 << (size.bit_length() - 3)
    return round_up(size, step)


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
    send: Callable[[np.ndarray, Rows], None],
    queued: Callable[[], Callable[[], None]],
) -> list[np.ndarray]:
    """Copy parts of a C-contiguous host array into page-locked memory, and send each on while others are copied.

    Args:
        send: queues a copy to the device, of ``(staged bytes, part)``.
        queued: ``() -> a function that waits until what has been sent so far has been read``.

    Returns:
        Page-locked memory that may not have been read yet; keep it until then.
    """
    flat, rounds = source.reshape(-1).view(np.uint8), _rounds(parts)
    now = _Round(pool, flat, next(rounds, []))
    kept, read = [], None
    for following in rounds:
        if read is not None:
            read()
        then = _Round(pool, flat, following)
        now.send(send)
        kept, read, now = [now.memory], queued(), then
    now.send(send)
    return [*kept, now.memory]


def _rounds(parts: Iterable[Rows]) -> Iterator[list[Rows]]:
    """Parts in order, at most `ROUND_BYTES` together, or one that is larger."""
    together: list[Rows] = []
    size = 0
    for part in parts:
        if together and size + part.rows * part.width > ROUND_BYTES:
            yield together
            together, size = [], 0
        together.append(part)
        size += part.rows * part.width
    if together:
        yield together


class _Round:
    """Parts on their way into one block of page-locked memory."""

    def __init__(self, pool: PinnedPool, flat: np.ndarray, parts: list[Rows]):
        ends = [*itertools.accumulate((part.rows * part.width for part in parts), initial=0)]
        self.memory = pool.array((ends[-1],), np.uint8)
        self._copies = []
        for part, (first, end) in zip(parts, itertools.pairwise(ends), strict=True):
            staged = self.memory[first:end].reshape(part.rows, part.width)
            source = np.ndarray(staged.shape, np.uint8, flat, part.first, (part.stride, 1))
            self._copies.append((staged, part, Copy(staged, source)))

    def send(self, send: Callable[[np.ndarray, Rows], None]) -> None:
        for staged, part, copy in self._copies:
            copy.finish()
            send(staged, part)


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
    """A copy from one array to another of its shape that a helper makes, or who waits for it."""

    def __init__(self, target: np.ndarray, source: np.ndarray):
        self._arrays: tuple[np.ndarray, np.ndarray] | None = target, source
        self._fault: Exception | None = None
        self._begun, self._made = threading.Lock(), threading.Lock()
        self._made.acquire()
        if (waiting := _helpers()) is not None:
            waiting.put(self)

    def make(self) -> None:
        """Make the copy, unless somebody has begun it."""
        if self._begun.acquire(blocking=False):
            assert self._arrays is not None
            try:
                np.copyto(*self._arrays)
            except Exception as fault:
                self._fault = fault
            self._made.release()

    def finish(self) -> None:
        """Return when the copy is made; call this once."""
        self.make()
        self._made.acquire()
        self._arrays = None  # a helper that is late still knows of this copy
        if self._fault is not None:
            raise self._fault


@functools.cache
def _helpers() -> queue.SimpleQueue[Copy] | None:
    """Where helpers take copies from. An executor and its futures take several times as long for each."""
    waiting: queue.SimpleQueue[Copy] = queue.SimpleQueue()

    def help_out() -> None:
        while True:
            waiting.get().make()

    threads = min(COPIERS, available_cores()) - 1
    for number in range(threads):
        threading.Thread(target=help_out, name=f"gpupc-copy-{number}", daemon=True).start()
    return waiting if threads else None
