"""The ``host`` backend runs CUDA kernels on this machine's cores, compiled by a C++ compiler."""

import contextlib
import functools
import math
import os
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from gpupc_impl.backends.arguments import Unfit
from gpupc_impl.backends.base import Backend, KernelSource
from gpupc_impl.backends.errors import BackendUnavailable
from gpupc_impl.backends.host_kernels import (
    MAX_SHARED_BYTES,
    HostKernel,
    LoadedKernel,
    Recorder,
    Threads,
    compile_kernel,
    load_kernel,
    prefetch_runtime,
)
from gpupc_impl.backends.host_memory import ALIGNMENT, Budget, allocate, borrow, libc, owner
from gpupc_impl.backends.launch import Event, Stream, check_copy
from gpupc_impl.backends.machine import available_cores, cpu_name, memory_bytes
from gpupc_impl.backends.simt import build, shipped
from gpupc_impl.backends.sources import SourceCache
from gpupc_impl.integers import round_up

_PLACES = ("CXX", "PATH", "GPUPC_SHIPPED_DIR", "GPUPC_CACHE_DIR", "XDG_CACHE_HOME", "HOME")
GRAM_COLUMNS = 1024
"""The number of columns whose products with all others are computed at a time. In one product of 16,000 columns,
threads of OpenBLAS 0.3.31 write out of bounds."""


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


class HostBackend(Backend):
    """Runs kernels on this machine's cores.

    Environment:
        CXX: the C++ compiler to use.
        GPUPC_HOST_THREADS: OS threads to use; default: the cores this process may run on.
        GPUPC_HOST_STACK_KIB: stack of one CUDA thread in KiB; default 256.
        GPUPC_CACHE_DIR: where compiled kernels are kept.
        GPUPC_SHIPPED_DIR: where kernels that were compiled ahead lie; default: in the installed package, if it has any.
        GPUPC_SANITIZE: ``address``, ``undefined`` or both; needs ``sanitizer_environment``.
        GPUPC_RECORD_LAUNCHES: a folder into which each launch is written, for ``gpupc_impl.backends.replay``.
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
        folder = os.environ.get("GPUPC_RECORD_LAUNCHES")
        self._recorder = Recorder(Path(folder), self._budget) if folder else None

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
        if "thread" in sanitizers:
            return (
                "the thread sanitizer cannot run inside Python: set GPUPC_RECORD_LAUNCHES to a folder instead, "
                "run, and then run python -m gpupc_impl.backends.replay on that folder"
            )
        if "address" in sanitizers and not hasattr(libc, "__asan_init"):
            return "GPUPC_SANITIZE=address needs its runtime loaded first: start Python with sanitizer_environment()"
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
        shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        sizes = tuple(int(n) for n in shape)
        return np.asarray(allocate(self._budget, sizes, np.dtype(dtype), poison=bool(self._sanitizers)))

    def empty_all(self, **arrays: tuple[int | tuple[int, ...], DTypeLike]) -> dict[str, np.ndarray]:
        if self._sanitizers:  # Only accesses beyond the ends of allocations are detected.
            return super().empty_all(**arrays)
        places, end = {}, 0
        for name, (shape, dtype) in arrays.items():
            kind = np.dtype(dtype)
            nbytes = (math.prod(map(int, shape)) if isinstance(shape, tuple) else int(shape)) * kind.itemsize
            places[name] = slice(end, end + nbytes), kind, shape
            end += round_up(nbytes, ALIGNMENT)
        memory = self.empty(end, np.uint8)
        return {name: memory[part].view(kind).reshape(shape) for name, (part, kind, shape) in places.items()}

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
        """Return the address of a C-contiguous device array of this backend."""
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
        return HostKernel(expression, loaded, self.address, self._launch_threads, self._recorder)

    def synchronize(self) -> None:
        """Return at once, because a launch returns only after its end."""


def _whole_number(variable: str, default: int, lower: int = 1, upper: int = 1 << 20) -> int:
    """Read an integer from the environment."""
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or not lower <= int(text) <= upper:
        raise ValueError(f"{variable}={text!r}: must be a whole number from {lower} to {upper}")
    return int(text)
