"""The memory layer of the CUDA backend, which allocates from a pool within a budget."""

from __future__ import annotations

import collections
import contextlib
import math
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from gpupc_impl.backends.cuda_device import CudaDevice
from gpupc_impl.backends.errors import DeviceMemoryError, KernelLaunchError
from gpupc_impl.backends.machine import memory_bytes
from gpupc_impl.integers import round_up

MEMORY_MARGIN = 512 * 2**20
"""Device memory left free for code and for the local memory of running threads; a sixteenth of the device's memory if
that is more."""

ALIGNMENT = 256
"""The alignment of arrays that share one allocation, in bytes."""

_dropped_pools: collections.deque[tuple[Any, Any]] = collections.deque()
"""Pools from which nothing is allocated any more, each with its device."""


class CudaMemory(CudaDevice):
    """The layer of the CUDA backend that allocates device memory."""

    def __init__(self, device_memory_limit: int | None = None):
        import cupy

        runtime = cupy.cuda.runtime
        _free_dropped_pools(runtime.CUDARuntimeError)
        super().__init__(device_memory_limit)
        with self._device:
            self._pool = cupy.cuda.MemoryPool()
        weakref.finalize(self, _drop_pool, self._pool, self._device, runtime.CUDARuntimeError).atexit = False
        self._peak = 0
        self._other_pool = None  # the device's own pool, while arrays are allocated in managed memory
        available = max(0, self._free_bytes - max(MEMORY_MARGIN, self._free_bytes // 16))
        self._limit: int = available if device_memory_limit is None else min(device_memory_limit, available)

    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Any:
        sizes, dtype = as_tuple(shape), np.dtype(dtype)
        with self._in_stream():
            return self._cupy.ndarray(sizes, dtype, memptr=self._allocate(math.prod(sizes) * dtype.itemsize))

    def empty_all(self, **arrays: tuple[int | tuple[int, ...], DTypeLike]) -> dict[str, Any]:
        # One allocation serves all arrays, because an allocation for each would take longer than many kernels.
        places, end = {}, 0
        for name, (shape, dtype) in arrays.items():
            sizes, kind = as_tuple(shape), np.dtype(dtype)
            places[name] = end, sizes, kind
            end += round_up(math.prod(sizes) * kind.itemsize, ALIGNMENT)
        with self._in_stream():
            memory = self._allocate(end)
            return {
                name: self._cupy.ndarray(sizes, kind, memptr=memory + start)
                for name, (start, sizes, kind) in places.items()
            }

    def fill(self, array: Any, value: Any) -> None:
        byte = np.asarray(value, array.dtype).tobytes()[0]
        with self._on_device():
            array.data.memset_async(byte, array.nbytes, self._stream)

    @contextlib.contextmanager
    def managed_memory(self, oversubscribe: bool = False) -> Iterator[None]:
        device_pool, limit = self._pool, self._limit
        with self._in_stream():
            device_pool.free_all_blocks()  # Managed memory migrates to the memory that is free on the device.
            self._pool = self._cupy.cuda.MemoryPool(self._cupy.cuda.malloc_managed)
        self._other_pool = device_pool
        if oversubscribe:
            self._limit = max(limit, limit + memory_bytes())
        try:
            yield
        finally:
            managed, self._pool, self._limit, self._other_pool = self._pool, device_pool, limit, None
            _drop_pool(managed, self._device, self._cupy.cuda.runtime.CUDARuntimeError)

    @contextlib.contextmanager
    def smaller_device(self, left: int) -> Iterator[None]:
        runtime, limit = self._cupy.cuda.runtime, self._limit
        smallest = 8_000_000  # bytes; with 3 to 6 MB an access to managed memory meets an illegal address on an H100
        if left < smallest:
            raise DeviceMemoryError(
                smallest,
                self.memory_used,
                left,
                f"{left:,} bytes of device memory are too few for the driver, which moves managed memory in blocks of "
                f"2 MiB: leave {smallest:,} or more (device_mb={smallest // 1_000_000})",
            )
        held = 0  # the address of the allocation that occupies the rest
        with self._in_stream():
            self._pool.free_all_blocks()
            free, _ = runtime.memGetInfo()
            if free > left:
                try:
                    held = runtime.malloc(free - left)
                except runtime.CUDARuntimeError as error:
                    raise DeviceMemoryError(free - left, self._used_bytes(), limit) from error
        self._limit = min(limit, left)
        try:
            yield
        finally:
            self._limit = limit
            if held:
                with self._in_stream():
                    runtime.free(held)

    def release_memory(self) -> None:
        # After a fault the device frees no memory.
        faults = self._cupy.cuda.runtime.CUDARuntimeError, KernelLaunchError
        with contextlib.suppress(*faults), self._in_stream():
            self._pool.free_all_blocks()
        _free_dropped_pools(faults[0])

    @property
    def memory_used(self) -> int:
        with self._in_stream():
            return self._used_bytes()

    def _used_bytes(self) -> int:
        """The bytes in use in the pools of device memory and of managed memory."""
        return sum(pool.used_bytes() for pool in (self._pool, self._other_pool) if pool is not None)

    @property
    def memory_peak(self) -> int:
        return self._peak

    def reset_peak(self) -> None:
        self._peak = self.memory_used

    @property
    def memory_limit(self) -> int:
        return self._limit

    def _allocate(self, size: int) -> Any:
        """Allocate device memory from the pool, within the budget.

        `MemoryPool.set_limit` is not used: it counts freed blocks that the pool caches as used, and refuses a request
        if those blocks are fragmented. Here the cached blocks are returned to the device when the budget needs them.
        """
        used = self._used_bytes()
        if used + size > self._limit:
            raise DeviceMemoryError(size, used, self._limit)
        if self._pool.total_bytes() + size > self._limit:
            self._pool.free_all_blocks()
        try:
            memory = self._pool.malloc(size)
        except self._cupy.cuda.memory.OutOfMemoryError as error:
            free, _ = self._cupy.cuda.runtime.memGetInfo()  # Other processes use the device, too.
            raise DeviceMemoryError(size, used, used + free) from error
        self._peak = max(self._peak, self._used_bytes())
        return memory


def as_tuple(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape as a tuple of Python integers."""
    return tuple(map(int, shape)) if isinstance(shape, tuple) else (int(shape),)


def _drop_pool(pool: Any, device: Any, error: type[Exception]) -> None:
    """Free the blocks that an unused pool caches.

    CuPy (14.2) does not free the blocks of a pool that is garbage collected. Arrays that still exist return their
    blocks to the pool later, so the pool is kept until all of them have.
    """
    _dropped_pools.append((pool, device))
    _free_dropped_pools(error)


def _free_dropped_pools(error: type[Exception]) -> None:
    """Free the blocks that have been returned to dropped pools."""
    for _ in range(len(_dropped_pools)):
        try:
            pool, device = _dropped_pools.popleft()
        except IndexError:  # Another thread is freeing the rest already.
            return
        with contextlib.suppress(error), device:  # After a fault the device frees no memory.
            pool.free_all_blocks()
            if pool.total_bytes():
                _dropped_pools.append((pool, device))
