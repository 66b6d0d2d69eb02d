"""Device memory of the host backend, which is allocated within a budget."""

import ctypes
import math
import threading
import weakref

import numpy as np

from gpupc_impl.backends.errors import DeviceMemoryError

ALIGNMENT = 256
libc = ctypes.CDLL(None)
libc.posix_memalign.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.free.restype = None


class Budget:
    """The number of bytes that may be in use, and of those that are in use."""

    def __init__(self, limit: int):
        self.limit = limit
        self.used = 0
        self.peak = 0
        # The lock is reentrant because garbage collection inside of it may free an array of the same budget.
        self._lock = threading.RLock()

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
    """The owner of the memory of an array that kernels may use."""

    def __init__(
        self, budget: Budget, address: int, shape: tuple[int, ...], dtype: np.dtype, borrowed: np.ndarray | None = None
    ):
        self.budget, self.address, self.nbytes = budget, address, math.prod(shape) * dtype.itemsize
        self._borrowed = borrowed  # keeps the memory alive for as long as this object lives
        read_only = borrowed is not None
        self.__array_interface__ = {"version": 3, "data": (address, read_only), "shape": shape, "typestr": dtype.str}
        weakref.finalize(self, _release, budget, None if read_only else address, self.nbytes).atexit = False


def allocate(budget: Budget, shape: tuple[int, ...], dtype: np.dtype, poison: bool) -> Memory:
    """Uninitialised memory of its own, so that the address sanitizer detects accesses beyond its ends.

    With `poison`, it is filled with bytes that make no sense, so that a kernel that reads before it writes fails.
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
    """The memory of a host array, which kernels read without a copy; it counts against the budget as a copy would."""
    budget.take(array.nbytes)
    return Memory(budget, array.ctypes.data, array.shape, array.dtype, array)


def owner(array: np.ndarray, budget: Budget) -> Memory | None:
    """Return the memory in which an array or a view lies; None if the memory does not count against this budget."""
    memory: object = array
    while isinstance(memory, np.ndarray):
        memory = memory.base
    return memory if isinstance(memory, Memory) and memory.budget is budget else None


def _release(budget: Budget, address: int | None, nbytes: int) -> None:
    if address is not None:
        libc.free(address)
    budget.give_back(nbytes)
