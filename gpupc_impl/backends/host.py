"""The ``host`` backend runs CUDA kernels on this machine's cores, compiled by a C++ compiler."""

import contextlib
import ctypes
import functools
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from gpupc_impl.backends import shipped
from gpupc_impl.backends.arguments import Unfit
from gpupc_impl.backends.base import ALIGNMENT, Backend, KernelSource, as_tuple, laid_out
from gpupc_impl.backends.errors import BackendUnavailable, DeviceMemoryError
from gpupc_impl.backends.host_kernels import (
    MAX_SHARED_BYTES,
    HostKernel,
    LoadedKernel,
    Threads,
    compile_kernel,
    load_kernel,
    prefetch_runtime,
)
from gpupc_impl.backends.launch import Event, Stream, check_copy
from gpupc_impl.backends.machine import available_cores, cpu_name, memory_bytes
from gpupc_impl.backends.simt import build
from gpupc_impl.backends.sources import SourceCache

_PLACES = ("CXX", "PATH", "GPUPC_SHIPPED_DIR", "GPUPC_CACHE_DIR", "XDG_CACHE_HOME", "HOME")
GRAM_COLUMNS = 1024  # in one product: with 16,000, threads of OpenBLAS 0.3.31 write out of bounds


libc = ctypes.CDLL(None)
libc.posix_memalign.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.free.restype = None


class HostEvent(Event):
    """An event, which keeps the time at which it was recorded."""

    def __init__(self) -> None:
        self._seconds = time.perf_counter()

    def synchronize(self) -> None:
        """Return at once, because queued work runs immediately and the event has passed."""

    def seconds_since(self, earlier: Self) -> float:
        return self._seconds - earlier._seconds


class HostStream(Stream):
    """A stream whose work runs as it is queued, so that streams run one after the other."""

    def copy(self, target: np.ndarray, source: np.ndarray) -> None:
        check_copy(target, source)
        if target.nbytes:
            target.reshape(-1).view(np.uint8)[...] = source.reshape(-1).view(np.uint8)

    def fill_bytes(self, array: np.ndarray, byte: int) -> None:
        if array.nbytes:
            array.reshape(-1).view(np.uint8).fill(byte)

    def record(self) -> HostEvent:
        return HostEvent()

    def wait(self, event: Event) -> None:
        """Return at once, because nothing is queued."""

    def synchronize(self) -> None:
        """Return at once, because nothing is queued."""


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
    """Uninitialised memory of its own, so that the address sanitizer detects accesses beyond its ends. With `poison`,
    it is filled with bytes that make no sense, so that a kernel that reads before it writes fails."""
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


class HostBackend(Backend):
    """Runs kernels on this machine's cores.

    Environment:
        CXX: the C++ compiler to use.
        GPUPC_HOST_THREADS: OS threads to use; default: the cores this process may run on.
        GPUPC_HOST_STACK_KIB: stack of one CUDA thread in KiB; default 256.
        GPUPC_CACHE_DIR: where compiled kernels are kept.
        GPUPC_SHIPPED_DIR: where kernels that were compiled ahead lie; default: in the installed package, if it has any.
        GPUPC_SANITIZE: ``thread``, or ``address``, ``undefined`` or both; needs ``sanitizer_environment``.
    """

    name = "host"
    warp_threads = 1
    multiprocessors = 0
    max_shared_bytes = MAX_SHARED_BYTES
    _loaded: ClassVar[SourceCache[LoadedKernel]] = SourceCache()
    _beside_kernels = build.BESIDE_KERNELS

    def __init__(self, device_memory_limit: int | None = None):
        super().__init__(device_memory_limit)
        self.threads = _whole_number("GPUPC_HOST_THREADS", available_cores(), upper=1024)
        self.array_threads = self.threads
        self.blocks_at_once = 2 * self.threads
        stack_bytes = _whole_number("GPUPC_HOST_STACK_KIB", 256, lower=16) * 1024
        self._sanitizers = build.parse_sanitizers(os.environ.get("GPUPC_SANITIZE", ""))
        self._launch_threads = Threads(self._sanitizers, self.threads, stack_bytes)
        self._budget = Budget(memory_bytes() if device_memory_limit is None else device_memory_limit)

    @classmethod
    def unavailable(cls) -> str | None:
        if sys.platform != "linux":
            return f"the host backend runs on Linux only, not on {sys.platform}; use a Linux container"
        try:
            sanitizers = build.parse_sanitizers(os.environ.get("GPUPC_SANITIZE", ""))
            if sanitizers or shipped.target() is None:
                build.find_compiler()
        except (BackendUnavailable, ValueError) as error:
            return str(error)
        for kind, symbol in (("address", "__asan_init"), ("thread", "__tsan_init")):
            if kind in sanitizers and not hasattr(libc, symbol):
                return (
                    f"GPUPC_SANITIZE={kind} needs its runtime loaded first: start Python with sanitizer_environment()"
                )
        return build.missing_sanitizer(sanitizers) if sanitizers else None

    def describe(self) -> dict[str, Any]:
        ahead = None if self._sanitizers else shipped.compiler()
        return {
            "device": cpu_name(),
            "threads": self.threads,
            "compiler": ahead or build.find_compiler().version,
            "sanitizers": list(self._sanitizers),
        }

    # --- memory ----------------------------------------------------------------------------------------------------
    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        return np.asarray(allocate(self._budget, as_tuple(shape), np.dtype(dtype), poison=bool(self._sanitizers)))

    def empty_all(self, **arrays: tuple[int | tuple[int, ...], DTypeLike]) -> dict[str, np.ndarray]:
        if self._sanitizers:  # Only accesses beyond the ends of allocations are detected.
            return super().empty_all(**arrays)
        places, end = laid_out(arrays)
        memory = self.empty(end, np.uint8)
        return {
            name: memory[start : start + math.prod(sizes) * kind.itemsize].view(kind).reshape(sizes)
            for name, (start, sizes, kind) in places.items()
        }

    def full(self, shape: int | tuple[int, ...], value: Any, dtype: DTypeLike) -> np.ndarray:
        array = self.empty(shape, dtype)
        array.fill(value)
        return array

    def fill(self, array: np.ndarray, value: Any) -> None:
        array.fill(value)

    def upload(self, array: ArrayLike) -> np.ndarray:
        source = np.asarray(array)
        target = self.empty(source.shape, source.dtype)
        target[...] = source
        return target

    def upload_rows(self, matrix: np.ndarray, width: int) -> np.ndarray:
        target = self.empty((len(matrix), width), matrix.dtype)
        target[:, : matrix.shape[1]] = matrix
        target[:, matrix.shape[1] :] = 0
        return target

    def upload_symmetric(self, matrix: np.ndarray) -> np.ndarray:
        if self._sanitizers or not matrix.flags.c_contiguous:
            return self.upload(matrix)
        return np.asarray(borrow(self._budget, matrix))

    def download(self, array: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        if out is None:
            return np.array(array, order="C")
        out[...] = array
        return out

    def gram(self, matrix: np.ndarray) -> np.ndarray:
        p = matrix.shape[1]
        out = self.empty((p, p), matrix.dtype)
        for start in range(0, p, GRAM_COLUMNS):
            own, rest = slice(start, start + GRAM_COLUMNS), slice(start + GRAM_COLUMNS, p)
            np.matmul(matrix[:, own].T, matrix[:, own], out=out[own, own])
            np.matmul(matrix[:, own].T, matrix[:, rest], out=out[own, rest])
            out[rest, own] = out[own, rest].T
        return out

    @contextlib.contextmanager
    def array_library(self) -> Iterator[Any]:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1, user_api="blas"):
            yield np

    def host_empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        return np.empty(shape, dtype)

    def stream(self) -> HostStream:
        return HostStream()

    def managed_memory(self, oversubscribe: bool = False) -> contextlib.AbstractContextManager[None]:
        return self._with_limit(max(self.memory_limit, memory_bytes()) if oversubscribe else self.memory_limit)

    def smaller_device(self, left: int) -> contextlib.AbstractContextManager[None]:
        return self._with_limit(min(self.memory_limit, left))

    @contextlib.contextmanager
    def _with_limit(self, limit: int) -> Iterator[None]:
        before, self._budget.limit = self._budget.limit, limit
        try:
            yield
        finally:
            self._budget.limit = before

    def release_memory(self) -> None:
        """Do nothing: the memory of an array is freed with its last reference."""

    @property
    def memory_used(self) -> int:
        return self._budget.used

    @property
    def memory_peak(self) -> int:
        return self._budget.peak

    def reset_peak(self) -> None:
        self._budget.reset_peak()

    @property
    def memory_limit(self) -> int:
        return self._budget.limit

    def address(self, array: Any) -> int:
        if not isinstance(array, np.ndarray) or owner(array, self._budget) is None:
            raise Unfit("a device array", "a NumPy array in host memory (use upload)")
        if not array.flags.c_contiguous:
            raise Unfit("a C-contiguous array", f"one with strides {array.strides}")
        return array.ctypes.data

    # --- kernels ---------------------------------------------------------------------------------------------------
    def _target(self) -> Hashable:
        return self._sanitizers, *map(os.environ.get, _PLACES)

    def prefetch(self, kernels: Sequence[KernelSource]) -> None:
        prefetch_runtime(self._sanitizers)
        super().prefetch(kernels)

    def _compilation(self, kernel: KernelSource) -> Callable[[], Path]:
        return functools.partial(compile_kernel, kernel, self._sanitizers)

    def _load(self, kernel: KernelSource, compiled: Path) -> LoadedKernel:
        return load_kernel(kernel, self._sanitizers, compiled)

    def _launchable(self, expression: str, loaded: LoadedKernel) -> HostKernel:
        return HostKernel(expression, loaded, self.address, self._launch_threads)

    def synchronize(self) -> None:
        """Return at once, because a launch returns only after its end."""


def _whole_number(variable: str, default: int, lower: int = 1, upper: int = 1 << 20) -> int:
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or not lower <= int(text) <= upper:
        raise ValueError(f"{variable}={text!r}: must be a whole number from {lower} to {upper}")
    return int(text)
