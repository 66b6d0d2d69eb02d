"""Device memory of the host backend: allocations within a budget."""

from __future__ import annotations

import ctypes
import math
import threading
import weakref

import numpy as np

from gpupc_impl.backends.errors import DeviceMemoryError

ALIGNMENT = 256
"""The alignment of an array, in bytes."""

libc = ctypes.CDLL(None)
libc.posix_memalign.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.free.restype = None


class Budget:
    """How many bytes may be in use, and how many are."""

    def __init__(self, limit: int):
        self.limit = limit
        self.used = 0
        self.peak = 0
        self._lock = threading.RLock()  # garbage collection inside the lock may free an array of the same budget

    def take(self, nbytes: int) -> None:
        with self._lock:
            if self.used + nbytes > self.limit:
                raise DeviceMemoryError(nbytes, self.used, self.limit)
            self.used += nbytes
            self.peak = max(self.peak, self.used)

    def give_back(self, nbytes: int) -> None:
        with self._lock:
            self.used -= nbytes

    def reset_peak(self) -> None:
        with self._lock:
            self.peak = self.used


class Memory:
    """The owner of an array that kernels may use.

    Attributes:
        budget: the budget that its bytes count against, which is one backend's.
        address: its first byte.
        nbytes: its size.
    """

    def __init__(
        self, budget: Budget, address: int, shape: tuple[int, ...], dtype: np.dtype, borrowed: np.ndarray | None = None
    ):
        self.budget, self.address, self.nbytes = budget, address, math.prod(shape) * dtype.itemsize
        self._borrowed = borrowed  # lives as long as this
        read_only = borrowed is not None
        self.__array_interface__ = {"version": 3, "data": (address, read_only), "shape": shape, "typestr": dtype.str}
        weakref.finalize(self, _release, budget, None if read_only else address, self.nbytes).atexit = False


def allocate(budget: Budget, shape: tuple[int, ...], dtype: np.dtype, poison: bool) -> Memory:
    """Uninitialised memory in an allocation of its own, so that the address sanitizer guards both its ends.

    Args:
        poison: fill it with a byte that makes no sense, so that a kernel that reads before it writes fails every time.

    Raises:
        DeviceMemoryError: the budget or the system has not as much memory.
    """
    if dtype.hasobject:
        raise TypeError(f"a device array cannot hold Python objects (dtype {dtype})")
    if any(n < 0 for n in shape):
        raise ValueError(f"a device array cannot have the shape {shape}")
    nbytes = math.prod(shape) * dtype.itemsize
    budget.take(nbytes)
    pointer = ctypes.c_void_p()
    failed = libc.posix_memalign(ctypes.byref(pointer), ALIGNMENT, max(nbytes, 1)) != 0
    if failed or pointer.value is None:
        budget.give_back(nbytes)
        raise DeviceMemoryError(nbytes, budget.used, budget.limit)
    if poison:
        ctypes.memset(pointer.value, 0xFD, nbytes)
    return Memory(budget, pointer.value, shape, dtype)


def borrow(budget: Budget, array: np.ndarray) -> Memory:
    """The memory of a host array, which kernels read where it lies; it counts against the budget as a copy would."""
    budget.take(array.nbytes)
    return Memory(budget, array.ctypes.data, array.shape, array.dtype, array)


def owner(array: np.ndarray, budget: Budget) -> Memory | None:
    """The memory that an array or a view lies in; None if it does not count against this budget."""
    memory: object = array
    while isinstance(memory, np.ndarray):
        memory = memory.base
    return memory if isinstance(memory, Memory) and memory.budget is budget else None


def _release(budget: Budget, address: int | None, nbytes: int) -> None:
    if address is not None:
        libc.free(address)
    budget.give_back(nbytes)
