"""The interface of a backend: device memory, compiled kernels and streams. Two backends run the same ``.cu`` files:
``cuda`` (a GPU, through CuPy and NVRTC) and ``host`` (this machine's cores, through any C++ compiler and the CUDA
vocabulary in ``simt/``). A method uses only this interface, so it runs on both unchanged."""

import abc
import contextlib
import functools
import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from gpupc_impl.backends.arguments import Struct
from gpupc_impl.backends.errors import BackendUnavailable
from gpupc_impl.backends.launch import Kernel, Stream
from gpupc_impl.backends.sources import NO_CONSTANTS, SourceCache
from gpupc_impl.backends.sources import PACKAGE_ROOT as PACKAGE_ROOT
from gpupc_impl.backends.sources import KernelSource as KernelSource
from gpupc_impl.integers import round_up

Empty = Callable[[tuple[int, ...], DTypeLike], np.ndarray]  # makes an uninitialised C-contiguous host array

_prefetched: dict[tuple[int, Hashable], Any] = {}
"""Sequences of kernels passed to `prefetch`, by identity and target; kept here, so that no identity is used again."""


ALIGNMENT = 256  # of a device array, in bytes
Shape = int | tuple[int, ...]


def as_tuple(shape: Shape) -> tuple[int, ...]:
    return tuple(map(int, shape)) if isinstance(shape, tuple) else (int(shape),)


def laid_out(
    arrays: Mapping[str, tuple[Shape, DTypeLike]],
) -> tuple[dict[str, tuple[int, tuple[int, ...], np.dtype]], int]:
    """Return the first byte, the shape and the type of arrays that lie one after the other, and the size of all."""
    places, end = {}, 0
    for name, (shape, dtype) in arrays.items():
        sizes, kind = as_tuple(shape), np.dtype(dtype)
        places[name] = end, sizes, kind
        end += round_up(math.prod(sizes) * kind.itemsize, ALIGNMENT)
    return places, end


class Backend(abc.ABC):
    """A device on which kernels run, with its memory and a budget for it."""

    name: ClassVar[str]  # ``"cuda"`` or ``"host"``
    warp_threads: ClassVar[int]  # the number of threads that execute a warp in kernels that use engine/kernels/warp.cuh
    device_memory_limit: int | None  # the upper bound on the device memory in use, in bytes; None: the device's memory
    multiprocessors: int  # the number of multiprocessors of a GPU; 0 on CPU cores
    blocks_at_once: int  # the number of blocks for a launch whose warps distribute the work among themselves
    array_threads: int = 1  # the number of threads that may call the library of `array_library` concurrently
    compile_seconds: float  # the time that this object has waited for kernels to be compiled or read from the cache
    max_shared_bytes: int  # the upper bound on the dynamic shared memory of a block
    waits_for_best: bool = False  # whether searches wait for their fastest kernels to be compiled, as measured ones do

    _loaded: ClassVar[SourceCache[Any]]  # the kernels that this process has loaded, and those that threads compile

    @abc.abstractmethod
    def __init__(self, device_memory_limit: int | None = None):
        if reason := self.unavailable():
            raise BackendUnavailable(f"backend {self.name!r} cannot be used here: {reason}")
        if device_memory_limit is not None and device_memory_limit < 0:
            raise ValueError(f"device_memory_limit must not be negative; got {device_memory_limit}")
        self.device_memory_limit = device_memory_limit
        self.compile_seconds = 0.0
        self._kernels: dict[tuple[str, str], Kernel] = {}

    @classmethod
    @abc.abstractmethod
    def unavailable(cls) -> str | None:
        """Return the reason why this backend cannot be used on this machine, as a sentence; None if it can."""

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return facts for a record, at least ``device`` (its name), without host names, user names or paths."""

    def device_key(self) -> str | None:
        """Text that identifies the GPU among all machines'; None on CPU cores. It is not written to records."""
        return None

    # --- memory ------------------------------------------------------------------------------------------------
    @abc.abstractmethod
    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Any:
        """Return an uninitialised device array, whose memory is freed with the last reference to it. DeviceMemoryError
        is raised if it does not fit into the rest of the device's memory or of the budget."""

    def empty_all(self, **arrays: tuple[int | tuple[int, ...], DTypeLike]) -> dict[str, Any]:
        """Return several uninitialised arrays, each given as ``name=(shape, type)``. One allocation may serve all."""
        return {name: self.empty(shape, dtype) for name, (shape, dtype) in arrays.items()}

    @abc.abstractmethod
    def full(self, shape: int | tuple[int, ...], value: Any, dtype: DTypeLike) -> Any:
        """Return a device array filled with one value."""

    @abc.abstractmethod
    def fill(self, array: Any, value: Any) -> None:
        """Fill a device array with a value whose bytes are all equal, such as 0 or -1."""

    @abc.abstractmethod
    def upload(self, array: ArrayLike) -> Any:
        """Return a C-contiguous copy of a host array on the device."""

    @abc.abstractmethod
    def upload_rows(self, matrix: np.ndarray, width: int) -> Any:
        """Return a (rows, width) device array with the columns of a matrix, followed by columns of zeros."""

    @abc.abstractmethod
    def upload_symmetric(self, matrix: np.ndarray) -> Any:
        """Return a symmetric (p, p) matrix on the device, read-only. The backend may let kernels read the matrix in
        host memory, or copy one triangle and mirror it on the device."""

    def download_all(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        """Return copies of device arrays in host memory, made after the work queued so far."""
        return [self.download(array) for array in arrays]

    @abc.abstractmethod
    def download(self, array: Any, out: np.ndarray | None = None) -> np.ndarray:
        """Return a copy of a device array in host memory, made after the work queued so far, in the array `out` of the
        same size from `host_empty`, or in a new one."""

    @abc.abstractmethod
    def gram(self, matrix: Any) -> Any:
        """Return X^T X of an (m, p) float64 device array, computed by the device's linear algebra library."""

    @abc.abstractmethod
    def array_library(self) -> contextlib.AbstractContextManager[Any]:
        """Yield the library that computes with this device's arrays, NumPy or CuPy. Inside the context CuPy works on
        this device and takes memory within the budget. NumPy's arrays do not count against the budget; NumPy computes a
        matrix product in one thread, so that `array_threads` threads may work concurrently."""

    @abc.abstractmethod
    def host_empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """Return an uninitialised host array that streams copy from and to asynchronously (pinned memory)."""

    @property
    def host_arrays(self) -> Empty | None:
        """The allocator of host arrays from which the device copies fastest once read-only; None if all are equal."""
        return None

    @abc.abstractmethod
    def stream(self) -> Stream:
        """Return a new stream."""

    @abc.abstractmethod
    def managed_memory(self, oversubscribe: bool = False) -> contextlib.AbstractContextManager[None]:
        """Allocate arrays in managed memory inside this context; the driver migrates its pages to where they are
        accessed. The budget stays the same, unless `oversubscribe` adds the host's memory to it."""

    @abc.abstractmethod
    def smaller_device(self, left: int) -> contextlib.AbstractContextManager[None]:
        """Leave only `left` free bytes on the device inside this context, by allocating the rest. The budget becomes at
        most `left`; the host backend only lowers the budget. DeviceMemoryError is raised if the device does not grant
        that allocation, or `left` is below 8 MB, so that the driver could not move managed memory."""

    @abc.abstractmethod
    def release_memory(self) -> None:
        """Return cached free memory to the device."""

    @property
    @abc.abstractmethod
    def memory_used(self) -> int:
        """The bytes of device memory that this backend uses now."""

    @property
    @abc.abstractmethod
    def memory_peak(self) -> int:
        """The largest ``memory_used`` since this object was made, or since `reset_peak`."""

    @abc.abstractmethod
    def reset_peak(self) -> None:
        """Set `memory_peak` to the memory in use now."""

    @property
    @abc.abstractmethod
    def memory_limit(self) -> int:
        """The upper bound on the device memory in use, in bytes: the budget, or the device's memory."""

    # --- kernels -----------------------------------------------------------------------------------------------
    def kernel(
        self,
        source: str | Path,
        expression: str,
        structs: Sequence[Struct] = (),
        constants: Mapping[str, int] = NO_CONSTANTS,
    ) -> Kernel:
        """Return a kernel of a ``.cu`` file, which is compiled on first use. KernelCompilationError is raised if the
        source does not compile, or declares other structs or constants.

        Args:
            source: a path relative to the package (``"gaussian/kernels/cupc_s.cu"``), or an absolute path.
            expression: the kernel's name with its template arguments, as in C++ (``"pair_scan_one<true>"``).
            structs: the structs among the kernel's parameters, in order.
            constants: values on which Python relies, by the name of the constant in the source (``{"BINS": 32}``).
        """
        name = str(source), expression
        if name not in self._kernels:
            started = time.perf_counter()
            kernel = KernelSource(str(source), expression, tuple(structs), constants)
            key, sources = self._key(kernel)
            try:
                loaded = self._loaded.get(
                    key, sources, self._compilation(kernel), functools.partial(self._load, kernel)
                )
            finally:
                self.compile_seconds += time.perf_counter() - started
            self._kernels[name] = self._launchable(expression, loaded)
        return self._kernels[name]

    def prefetch(self, kernels: Sequence[KernelSource]) -> None:
        """Let threads compile kernels that are probably needed soon, in this order. `kernel` waits for a requested one,
        and raises its error. Requesting the same object again takes no time, so callers keep their sequences."""
        key = id(kernels), self._target()
        if key not in _prefetched:
            _prefetched[key] = kernels
            for kernel in kernels:
                self._loaded.prefetch(*self._key(kernel), self._compilation(kernel))

    def clock(self) -> float:
        """A clock in seconds that stops while `kernel` waits for a compiler."""
        return time.perf_counter() - self.compile_seconds

    def is_ready(self, kernel: KernelSource) -> bool:
        """Return whether searches use this optional prefetched kernel: it is compiled, or they always wait for it."""
        return self.waits_for_best or self._loaded.is_ready(*self._key(kernel))

    def finish_prefetched(self) -> None:
        """Wait until all prefetched kernels are compiled."""
        self._loaded.compilations.finish()

    def drop_prefetched(self) -> None:
        """Drop the prefetched kernels that no thread has begun to compile; the next search may request them again."""
        if self._loaded.compilations.cancel():
            _prefetched.clear()

    def _key(self, kernel: KernelSource) -> tuple[Hashable, tuple[Path, ...]]:
        """Return a key that identifies a compiled kernel in the process, and the kernel's sources."""
        key = kernel.path, kernel.expression, *kernel.structs, tuple(kernel.constants.items()), self._target()
        return key, (kernel.path, *self._beside_kernels)

    _beside_kernels: ClassVar[tuple[Path, ...]]  # the sources that are compiled with every kernel

    @abc.abstractmethod
    def _target(self) -> Hashable:
        """Return the target of compilations and the cache that keeps their results."""

    @abc.abstractmethod
    def _compilation(self, kernel: KernelSource) -> Callable[[], Any]:
        """Return the function that compiles a kernel or reads it from the cache."""

    @abc.abstractmethod
    def _load(self, kernel: KernelSource, compiled: Any) -> Any:
        """Load what `_compilation` returned."""

    @abc.abstractmethod
    def _launchable(self, expression: str, loaded: Any) -> Kernel:
        """Return a loaded kernel as this object launches it."""

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait for all the work queued on the device."""
