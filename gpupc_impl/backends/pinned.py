"""Pinned (page-locked) host memory that is reused, and multi-threaded copies through it.

A GPU copies from and to pinned memory asynchronously and much faster than from and to pageable memory, but pinning
pages takes longer than most copies. Free blocks are therefore cached, up to `CACHED_BYTES`. One core does not read
memory as fast as a GPU receives it, so helper threads copy as well. A BLAS keeps the cores busy for a tenth of a second
after its last product, during which a helper may get no core. The caller therefore never waits for a copy that no
helper has begun, but makes that copy itself."""

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

CACHED_BYTES = 1 << 30
CHUNK_BYTES = 4 << 20  # the bytes of one copy to or from a device
STAGE_BYTES = 64 << 20  # of the block for uploads: most matrices fit whole, and a larger one takes longer to pin
DOWNLOADS_IN_FLIGHT = 4  # the number of chunks of a download that the device copies while earlier chunks are copied on
COPIERS = 8  # the upper bound on the threads that copy, the caller included; more threads do not increase the bandwidth


class PinnedPool:
    """A pool of blocks of pinned memory, allocated by ``bytes -> (owner, address)``, or refused by an exception."""

    def __init__(self, allocate: Callable[[int], tuple[Any, int]], refusal: tuple[type[Exception], ...] = ()):
        self._allocate, self._refusal = allocate, refusal
        self._free: dict[int, list[tuple[Any, int]]] = collections.defaultdict(list)
        self._cached_bytes = 0
        # The lock is reentrant because garbage collection inside of it may return a block.
        self._lock = threading.RLock()

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """Return an uninitialised array in pinned memory, which returns to the pool with the last reference to it."""
        dtype = np.dtype(dtype)
        size = _size_class(math.prod(shape) * dtype.itemsize)
        with self._lock:
            block = self._free[size].pop() if self._free[size] else None
            if block is not None:
                self._cached_bytes -= size
        return np.asarray(_Block(self, size, block or self._pin_pages(size), shape, dtype))

    def _pin_pages(self, size: int) -> tuple[Any, int]:
        try:
            return self._allocate(size)
        except self._refusal:
            with self._lock:
                self._free.clear()
                self._cached_bytes = 0
        try:
            return self._allocate(size)
        except self._refusal as error:
            raise MemoryError(
                f"the system grants no page-locked memory: {size:,} bytes asked for ({error}); copies to and from a "
                "GPU go through it, so drop results and problems that are no longer needed, or end other programs there"
            ) from error

    def give_back(self, size: int, block: tuple[Any, int]) -> None:
        with self._lock:
            if self._cached_bytes + size <= CACHED_BYTES:
                self._cached_bytes += size
                self._free[size].append(block)


class _Block:
    def __init__(self, pool: PinnedPool, size: int, block: tuple[Any, int], shape: tuple[int, ...], dtype: np.dtype):
        self.__array_interface__ = {"version": 3, "data": (block[1], False), "shape": shape, "typestr": dtype.str}
        weakref.finalize(self, pool.give_back, size, block).atexit = False


def is_placed(array: np.ndarray) -> bool:
    """Return whether a device may copy asynchronously from an array: contiguous, in pinned memory, read-only."""
    memory: Any = array if array.flags.c_contiguous else None
    while isinstance(memory, np.ndarray):
        if memory.flags.writeable:
            return False
        memory = memory.base
    return isinstance(memory, _Block)


def _size_class(size: int) -> int:
    """Return the size of the block for an array, which is at most a quarter larger, so that blocks can be reused."""
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

    @property
    def size(self) -> int:
        return self.rows * self.width


def chunks(size: int) -> list[Rows]:
    """Cut memory of a size into parts of at most `CHUNK_BYTES`."""
    starts = range(0, size, CHUNK_BYTES)
    return [Rows(first, 1, width, width) for first in starts if (width := min(CHUNK_BYTES, size - first))]


def staged_upload(
    pool: PinnedPool,
    source: np.ndarray,
    parts: Iterable[Rows],
    send: Callable[[np.ndarray, Rows], None],
    queued: Callable[[], Callable[[], None]],
) -> list[np.ndarray]:
    """Copy parts of a C-contiguous host array into pinned memory, and `send` each, given ``(pinned bytes, part)``, to
    the device while others are copied. ``queued()`` returns a function that waits until the copies queued so far are
    done. The result is the pinned memory that these may still read, which the caller must keep until then."""
    flat, groups = source.reshape(-1).view(np.uint8), _groups(parts)
    stage = _Stage(pool, flat, next(groups, []))
    in_flight, wait = [], None
    for group in groups:
        if wait is not None:
            wait()
        following = _Stage(pool, flat, group)
        stage.send(send)
        in_flight, wait, stage = [stage.memory], queued(), following
    stage.send(send)
    return [*in_flight, stage.memory]


def _groups(parts: Iterable[Rows]) -> Iterator[list[Rows]]:
    """Group consecutive parts that have at most `STAGE_BYTES` together; a larger part is a group of its own."""
    group: list[Rows] = []
    size = 0
    for part in parts:
        if group and size + part.size > STAGE_BYTES:
            yield group
            group, size = [], 0
        group.append(part)
        size += part.size
    if group:
        yield group


class _Stage:
    def __init__(self, pool: PinnedPool, flat: np.ndarray, parts: list[Rows]):
        ends = [*itertools.accumulate((part.size for part in parts), initial=0)]
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
    """Fill a C-contiguous host array from a device through pinned memory; chunks are copied on while later ones arrive.
    ``fetch(pinned bytes, offset)`` returns a function that waits until the bytes have arrived."""
    flat = target.reshape(-1).view(np.uint8)
    in_flight: collections.deque[tuple[np.ndarray, Callable[[], None], int]] = collections.deque()
    copies: collections.deque[Copy] = collections.deque()

    def copy_on() -> None:
        staged, wait, first = in_flight.popleft()
        wait()
        if len(copies) == COPIERS:
            copies.popleft().finish()
        copies.append(Copy(flat[first : first + len(staged)], staged))

    for part in chunks(len(flat)):
        if len(in_flight) == DOWNLOADS_IN_FLIGHT:
            copy_on()
        staged = pool.array((part.width,), np.uint8)
        in_flight.append((staged, fetch(staged, part.first), part.first))
    while in_flight:
        copy_on()
    while copies:
        copies.popleft().finish()


class Copy:
    """A copy between two arrays of equal shape, made by a helper or by the thread that waits for it."""

    def __init__(self, target: np.ndarray, source: np.ndarray):
        self._arrays: tuple[np.ndarray, np.ndarray] | None = target, source
        self._error: Exception | None = None
        self._begun, self._done = threading.Lock(), threading.Lock()
        self._done.acquire()
        if (pending := _helper_queue()) is not None:
            pending.put(self)

    def make(self) -> None:
        """Make the copy, unless another thread has begun it."""
        if self._begun.acquire(blocking=False):
            assert self._arrays is not None
            try:
                np.copyto(*self._arrays)
            except Exception as error:
                self._error = error
            self._done.release()

    def finish(self) -> None:
        """Return when the copy is done; may be called once."""
        self.make()
        self._done.acquire()
        self._arrays = None  # The helpers' queue may still hold a reference to this copy.
        if self._error is not None:
            raise self._error


@functools.cache
def _helper_queue() -> queue.SimpleQueue[Copy] | None:
    """Return the queue from which helpers take copies; an executor takes several times as long per copy."""
    pending: queue.SimpleQueue[Copy] = queue.SimpleQueue()

    def help_out() -> None:
        while True:
            pending.get().make()

    threads = min(COPIERS, available_cores()) - 1
    for number in range(threads):
        threading.Thread(target=help_out, name=f"gpupc-copy-{number}", daemon=True).start()
    return pending if threads else None
