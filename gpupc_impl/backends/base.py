"""The interface of a backend: memory on a device, compiled kernels and streams.

Two backends run the same ``.cu`` files: ``cuda`` (a GPU, through CuPy and NVRTC) and ``host`` (this machine's
cores, through any C++ compiler and the CUDA vocabulary in ``simt/``). A method uses only this interface, so it
runs on both unchanged.
"""

from __future__ import annotations

import abc
import contextlib
import time
import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from gpupc_impl.backends.arguments import Struct
from gpupc_impl.backends.launch import Kernel
from gpupc_impl.backends.streams import Stream

Empty = Callable[[tuple[int, ...], DTypeLike], np.ndarray]
"""Returns an uninitialised C-contiguous host array of a shape and type."""

PACKAGE_ROOT = Path(__file__).resolve().parents[1]
"""Kernel sources are named relative to this folder; it is also the include root of every kernel."""

NO_CONSTANTS: Mapping[str, int] = types.MappingProxyType({})

_prefetched: dict[tuple[int, Hashable], Any] = {}
"""Sequences of kernels that were requested ahead, by identity and target. To be kept here keeps an identity unique."""


class KernelSource(NamedTuple):
    """Where a kernel comes from: the arguments of `Backend.kernel`."""

    source: str
    expression: str
    structs: tuple[Struct, ...] = ()
    constants: Mapping[str, int] = NO_CONSTANTS


class Backend(abc.ABC):
    """A device on which kernels run, with memory of its own and a budget for it.

    Args:
        device_memory_limit: bytes of device memory that may be in use at once; None means what the device has.

    Attributes:
        name: ``"cuda"`` or ``"host"``.
        warp_threads: how many threads stand for a warp in kernels that use engine/kernels/warp.cuh.
        device_memory_limit: the budget that was requested.
        multiprocessors: the multiprocessors of a GPU; 0 on CPU cores.
        blocks_at_once: how many blocks to launch where the warps of a launch distribute the work among themselves.
        array_threads: how many threads may compute with the library of `array_library` at once.
        compile_seconds: time spent waiting for kernels to be compiled, or read from the cache, since this object was
            made.
        max_shared_bytes: the upper bound on the dynamic shared memory of a block.
    """

    name: ClassVar[str]
    warp_threads: ClassVar[int]
    device_memory_limit: int | None
    multiprocessors: int
    blocks_at_once: int
    array_threads: int = 1
    compile_seconds: float
    max_shared_bytes: int

    @abc.abstractmethod
    def __init__(self, device_memory_limit: int | None = None): ...

    @classmethod
    @abc.abstractmethod
    def unavailable(cls) -> str | None:
        """Why this backend cannot be used on this machine, as a sentence; None when it can."""

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """Facts for a record: at least ``device`` (its name); no host names, user names or paths."""

    def device_key(self) -> str | None:
        """Text that differs between any two GPUs of any machines; None on CPU cores. It goes into no record."""
        return None

    # --- memory ------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Any:
        """An uninitialised device array. Its memory is freed with its last reference.

        Raises:
            DeviceMemoryError: the array does not fit in what is left of the device or of the budget.
        """

    def empty_all(self, **arrays: tuple[int | tuple[int, ...], DTypeLike]) -> dict[str, Any]:
        """Several uninitialised arrays, each given as ``name=(shape, type)``. Their memory may be freed as one."""
        return {name: self.empty(shape, dtype) for name, (shape, dtype) in arrays.items()}

    @abc.abstractmethod
    def full(self, shape: int | tuple[int, ...], value: Any, dtype: DTypeLike) -> Any:
        """A device array filled with one value."""

    @abc.abstractmethod
    def fill(self, array: Any, value: Any) -> None:
        """Fill a device array with a value whose bytes are all equal, such as 0 or -1."""

    @abc.abstractmethod
    def upload(self, array: ArrayLike) -> Any:
        """A C-contiguous copy of a host array on the device."""

    @abc.abstractmethod
    def upload_rows(self, matrix: np.ndarray, width: int) -> Any:
        """A (rows, width) device array: the columns of a matrix, then columns of zeros."""

    @abc.abstractmethod
    def upload_symmetric(self, matrix: np.ndarray) -> Any:
        """A symmetric (p, p) matrix on the device, read-only.

        The backend may let kernels read the host's memory, or copy one triangle and mirror it on the device.
        """

    def download_all(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        """Copies of device arrays in host memory, after the work queued so far."""
        return [self.download(array) for array in arrays]

    @abc.abstractmethod
    def download(self, array: Any, out: np.ndarray | None = None) -> np.ndarray:
        """A copy of a device array in host memory, after the work queued so far.

        Args:
            out: the target, an array of that size from `host_empty`; None for a new array.
        """

    @abc.abstractmethod
    def gram(self, matrix: Any) -> Any:
        """X^T X of an (m, p) float64 device array, on the device, by the device's linear algebra library."""

    @abc.abstractmethod
    def array_library(self) -> contextlib.AbstractContextManager[Any]:
        """The library that computes with this device's arrays, NumPy or CuPy.

        Inside the context CuPy works on this device and takes memory within the budget. NumPy's arrays are not counted;
        its products of matrices take one thread, so that `array_threads` threads may compute side by side.
        """

    @abc.abstractmethod
    def host_empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """An uninitialised host array that streams copy from and to asynchronously (pinned memory)."""

    @property
    def host_arrays(self) -> Empty | None:
        """Allocates the host arrays that the device copies from fastest, once they are read-only; None: any are."""
        return None

    @abc.abstractmethod
    def stream(self) -> Stream:
        """A new stream."""

    @abc.abstractmethod
    def managed_memory(self, oversubscribe: bool = False) -> contextlib.AbstractContextManager[None]:
        """Arrays made inside this context lie in managed memory, whose pages the driver moves to where they are used.

        The budget stays as it is, unless `oversubscribe` raises it by the host's memory.
        """

    @abc.abstractmethod
    def smaller_device(self, left: int) -> contextlib.AbstractContextManager[None]:
        """Inside this context the device has only `left` free bytes: an allocation holds the rest.

        The budget is at most `left`. The host backend only lowers the budget.

        Raises:
            DeviceMemoryError: the device does not grant the allocation that is to hold the rest.
        """

    @abc.abstractmethod
    def release_memory(self) -> None:
        """Return to the device the free memory that is cached for later arrays."""

    @property
    @abc.abstractmethod
    def memory_used(self) -> int:
        """Bytes of device memory in use through this backend now."""

    @property
    @abc.abstractmethod
    def memory_peak(self) -> int:
        """The largest ``memory_used`` since this object was made, or since `reset_peak`."""

    @abc.abstractmethod
    def reset_peak(self) -> None:
        """Set `memory_peak` to what is in use now."""

    @property
    @abc.abstractmethod
    def memory_limit(self) -> int:
        """Bytes of device memory that may be in use: the budget, or what the device has."""

    # --- kernels -----------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def kernel(
        self,
        source: str | Path,
        expression: str,
        structs: Sequence[Struct] = (),
        constants: Mapping[str, int] = NO_CONSTANTS,
    ) -> Kernel:
        """A kernel of a ``.cu`` file, compiled on first use.

        Args:
            source: a path relative to the package (``"gaussian/kernels/cupc_s.cu"``), or an absolute path.
            expression: the kernel's name with its template arguments, as C++ writes it (``"cupc_s<3>"``).
            structs: the structs among its parameters, in order.
            constants: values that Python relies on, by the name of the constant in the source (``{"BINS": 32}``).

        Raises:
            KernelCompilationError: the source does not compile, or its structs or constants differ from these.
        """

    def prefetch(self, kernels: Sequence[KernelSource]) -> None:
        """Have threads compile kernels that are probably needed soon, the first of them first.

        `kernel` waits for the one that it is asked for, and raises what went wrong with it. Requesting the same object
        again takes no time, so that callers keep the sequences that they pass.
        """
        key = id(kernels), self._target()
        if key not in _prefetched:
            _prefetched[key] = kernels
            for kernel in kernels:
                self._prefetch(kernel)

    def clock(self) -> float:
        """Seconds that pass except while `kernel` waits for a compiler."""
        return time.perf_counter() - self.compile_seconds

    @abc.abstractmethod
    def is_ready(self, kernel: KernelSource) -> bool:
        """Whether a kernel that was prefetched is compiled, so that `kernel` does not wait for a compiler."""

    @abc.abstractmethod
    def finish_prefetched(self) -> None:
        """Wait until all prefetched kernels are compiled."""

    def drop_prefetched(self) -> None:
        """Drop the prefetched kernels with which no thread has begun; the next search may request them again."""
        if self._cancel_compilations():
            _prefetched.clear()

    @abc.abstractmethod
    def _cancel_compilations(self) -> bool:
        """Drop compilations with which no thread has begun; returns whether there were any."""

    @abc.abstractmethod
    def _target(self) -> Hashable:
        """What this backend compiles for, and where the results are kept."""

    @abc.abstractmethod
    def _prefetch(self, kernel: KernelSource) -> None:
        """Have a thread compile a kernel."""

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait for all the work queued on the device."""
