"""The ``host`` backend: runs CUDA kernels on this machine's cores, compiled by its C++ compiler."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import json
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from gpupc_impl.backends.arguments import Number, Parameter, Pointer, Struct, Unfit, described
from gpupc_impl.backends.base import (
    NO_CONSTANTS,
    PACKAGE_ROOT,
    Backend,
    BackendUnavailable,
    DeviceMemoryError,
    Event,
    KernelCompilationError,
    KernelLaunchError,
    Stream,
)
from gpupc_impl.backends.launch import MAX_THREADS, Kernel
from gpupc_impl.backends.machine import available_cores, cpu_name, memory_bytes
from gpupc_impl.backends.simt import build
from gpupc_impl.backends.sources import MadeOfSources, source_name
from gpupc_impl.integers import round_up

POLL_MS = 50
"""While a kernel runs, Python checks this often whether it was interrupted."""

_libc = ctypes.CDLL(None)
_libc.posix_memalign.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]
_libc.free.restype = None


class _Memory:
    """Device memory of one array: an allocation of its own, so that the address sanitizer guards both its ends."""

    def __init__(self, backend: HostBackend, shape: tuple[int, ...], dtype: np.dtype):
        if dtype.hasobject:
            raise TypeError(f"a device array cannot hold Python objects (dtype {dtype})")
        if any(n < 0 for n in shape):
            raise ValueError(f"a device array cannot have the shape {shape}")
        self.backend = backend
        self.nbytes = math.prod(shape) * dtype.itemsize
        backend._account.take(self.nbytes)
        pointer = ctypes.c_void_p()
        failed = _libc.posix_memalign(ctypes.byref(pointer), 256, max(self.nbytes, 1)) != 0
        if failed or pointer.value is None:
            backend._account.give_back(self.nbytes)
            raise DeviceMemoryError(self.nbytes, backend.memory_used, backend.memory_limit)
        self.address = pointer.value
        if backend._sanitizers:  # reading before writing gives nonsense every time
            ctypes.memset(self.address, 0xFD, self.nbytes)
        self.__array_interface__ = {"version": 3, "data": (self.address, False), "shape": shape, "typestr": dtype.str}
        weakref.finalize(self, _release, backend._account, self.address, self.nbytes).atexit = False


class _Borrowed:
    """A host array that kernels read where it lies; it takes of the budget as a copy would."""

    def __init__(self, backend: HostBackend, array: np.ndarray):
        self.backend, self.nbytes, self.address = backend, array.nbytes, array.ctypes.data
        backend._account.take(self.nbytes)
        self.__array_interface__ = {
            "version": 3,
            "data": (self.address, True),
            "shape": array.shape,
            "typestr": array.dtype.str,
        }
        self._array = array
        weakref.finalize(self, backend._account.give_back, self.nbytes).atexit = False


def _release(account: _Account, address: int, nbytes: int) -> None:
    _libc.free(address)
    account.give_back(nbytes)


class _Account:
    """How much of the budget is in use."""

    def __init__(self, limit: int):
        self.limit = limit
        self.used = 0
        self.peak = 0
        self._lock = threading.RLock()  # a collection inside the lock may free an array of ours

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


class _Pool:
    """The runtime's OS threads; runs one launch at a time."""

    def __init__(self, runtime: ctypes.CDLL, workers: int, stack_bytes: int):
        self._runtime = runtime
        self._lock = threading.Lock()
        self._handle = runtime.simt_pool_new(workers, stack_bytes)
        if not self._handle:
            raise KernelLaunchError(f"the system grants no {workers} threads; set GPUPC_HOST_THREADS lower")

    def run(self, entry: _Entry, args: Any, grid: Sequence[int], block: Sequence[int], shared_bytes: int) -> str:
        """Run a kernel to its end; returns what went wrong, or nothing."""
        runtime, handle = self._runtime, self._handle
        dims = ctypes.c_uint * 3
        with self._lock:
            try:
                runtime.simt_start(handle, entry.run, args, dims(*grid), dims(*block), shared_bytes)
                while not runtime.simt_wait(handle, POLL_MS):
                    pass
            except BaseException:
                self._stop()
                raise
            error: bytes = runtime.simt_error(handle)
            return error.decode()

    def _stop(self) -> None:
        """Cancel the launch and stay until no thread touches its arrays, however often we are interrupted."""
        while True:
            try:
                self._runtime.simt_cancel(self._handle)
                if self._runtime.simt_wait(self._handle, POLL_MS):
                    return
            except KeyboardInterrupt:
                continue


@functools.cache
def _pool(process: int, sanitizers: tuple[str, ...], workers: int, stack_bytes: int) -> _Pool:
    """The one pool of a process: a forked child has none of its parent's threads and gets its own."""
    return _Pool(_runtime(sanitizers), workers, stack_bytes)


class _Entry(ctypes.Structure):
    _fields_ = (("codes", ctypes.c_void_p), ("count", ctypes.c_int), ("run", ctypes.c_void_p))


class _Loaded:
    """A kernel in this process's memory, whatever backend asked for it."""

    def __init__(self, source: Path, library: ctypes.CDLL, structs: Sequence[Struct]):
        self.source, self.library, self.entry = source, library, _Entry.in_dll(library, "simt_entry")
        codes = ctypes.string_at(self.entry.codes, 4 * self.entry.count)
        types = [codes[i : i + 4].rstrip(b"\0").decode() for i in range(0, len(codes), 4)]
        remaining = iter(structs)
        self.parameters = [next(remaining) if code == "S" else _parameter(code) for code in types]


_loaded: MadeOfSources[_Loaded] = MadeOfSources()


class HostKernel(Kernel):
    """A kernel compiled for the host."""

    def __init__(self, backend: HostBackend, expression: str, loaded: _Loaded):
        super().__init__(expression, loaded.parameters, MAX_THREADS, backend.max_shared_bytes, backend.address)
        self._backend, self._source, self._entry = backend, loaded.source, loaded.entry

    def _launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        args: Sequence[Any],
        encoded: Sequence[bytes],
        shared_bytes: int,
        stream: Stream | None,
        cooperative: bool,
    ) -> None:
        if self._backend._recorder:
            self._backend._recorder.record(self, grid, block, shared_bytes, args, encoded)
        padded = [value.ljust(round_up(len(value), 16), b"\0") for value in encoded]  # aligned as the strictest type
        memory = ctypes.create_string_buffer(b"".join(padded))
        places = itertools.accumulate(map(len, padded), initial=ctypes.addressof(memory))
        pointers = (ctypes.c_void_p * (len(padded) + 1))(*places)
        if problem := self._backend._run(self._entry, pointers, grid, block, shared_bytes):
            raise self._error(problem)

    def resident_blocks(self, threads: int, shared_bytes: int) -> int:
        return 1  # a worker runs one block to its end before the next


def _parameter(code: str) -> Parameter:
    """A parameter by what export.hpp calls it: "f8" a number, "*f8" a pointer to such, "*V" one to something else."""
    if code.startswith("*"):
        return Pointer(None if code == "*V" else code[1:])
    return Number(code)


_launches = itertools.count()


class _Recorder:
    """Writes launches to a folder, to be replayed under the thread sanitizer (``python -m ...backends.replay``)."""

    def __init__(self, folder: Path, backend: HostBackend):
        self._folder = folder
        self._backend = backend

    def record(
        self,
        kernel: HostKernel,
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int,
        args: Sequence[Any],
        encoded: Sequence[bytes],
    ) -> None:
        memories: dict[int, _Memory | _Borrowed] = {}
        lines = [" ".join(map(str, (*grid, *block, shared_bytes, len(args))))]
        for parameter, value, content in zip(kernel.parameters, args, encoded, strict=True):
            pointers = list(parameter.arrays(value))
            line = [content.hex(), len(pointers)]
            for at, array in pointers:
                memory = self._backend._memory_of(array)
                assert memory is not None  # the launch has been checked
                memories.setdefault(memory.address, memory)
                line += [at, list(memories).index(memory.address), array.ctypes.data - memory.address]
            lines.append(" ".join(map(str, line)))
        lines.append(" ".join(map(str, (len(memories), *(memory.nbytes for memory in memories.values())))))
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"{os.getpid()}-{next(_launches):06d}"
        with open(self._folder / f"{name}.launch", "wb") as file:
            file.write("\n".join(lines).encode() + b"\n")
            for memory in memories.values():
                file.write(ctypes.string_at(memory.address, memory.nbytes))
        # Written last: a launch counts once its description is there.
        description = {"source": source_name(kernel._source), "expression": kernel.name, "launch": f"{name}.launch"}
        (self._folder / f"{name}.json").write_text(json.dumps(description) + "\n")


class HostEvent(Event):
    """A time of the clock."""

    def __init__(self) -> None:
        self._seconds = time.perf_counter()

    def synchronize(self) -> None:
        """It has passed."""

    def seconds_since(self, earlier: Self) -> float:
        return self._seconds - earlier._seconds


class HostStream(Stream):
    """Work is done when it is queued, so streams run in order."""

    def copy(self, target: np.ndarray, source: np.ndarray) -> None:
        if not (target.flags.c_contiguous and source.flags.c_contiguous and target.nbytes == source.nbytes):
            raise ValueError(f"cannot copy {described(source)} of {source.nbytes} bytes to one of {target.nbytes}")
        if target.nbytes:
            target.reshape(-1).view(np.uint8)[...] = source.reshape(-1).view(np.uint8)

    def fill_bytes(self, array: np.ndarray, byte: int) -> None:
        if array.nbytes:
            array.reshape(-1).view(np.uint8).fill(byte)

    def record(self) -> HostEvent:
        return HostEvent()

    def wait(self, event: Event) -> None:
        """Nothing is queued."""

    def synchronize(self) -> None:
        """Nothing is queued."""


class HostBackend(Backend):
    """Runs kernels on this machine's cores.

    Environment:
        CXX: the C++ compiler to use.
        GPUPC_HOST_THREADS: OS threads to use; default: the cores this process may run on.
        GPUPC_HOST_STACK_KIB: stack of one CUDA thread in KiB; default 256.
        GPUPC_CACHE_DIR: where compiled kernels are kept.
        GPUPC_SANITIZE: ``address``, ``undefined`` or both; needs ``sanitizer_environment``.
        GPUPC_RECORD_LAUNCHES: a folder into which each launch is written, for ``gpupc_impl.backends.replay``.
    """

    name = "host"
    warp_threads = 1
    multiprocessors = 0
    max_shared_bytes = 232_448  # what an H100 grants

    def __init__(self, device_memory_limit: int | None = None):
        if reason := self.unavailable():
            raise BackendUnavailable(reason)
        if device_memory_limit is not None and device_memory_limit < 0:
            raise ValueError(f"device_memory_limit must not be negative; got {device_memory_limit}")
        self.device_memory_limit = device_memory_limit
        self.compile_seconds = 0.0
        self.threads = _thread_count()
        self.array_threads = self.threads
        self.blocks_at_once = 2 * self.threads
        self._stack_bytes = _positive("GPUPC_HOST_STACK_KIB", 256, at_least=16) * 1024
        self._sanitizers = build.parse_sanitizers(os.environ.get("GPUPC_SANITIZE", ""))
        self._account = _Account(memory_bytes() if device_memory_limit is None else device_memory_limit)
        self._kernels: dict[tuple[str, str], HostKernel] = {}
        folder = os.environ.get("GPUPC_RECORD_LAUNCHES")
        self._recorder = _Recorder(Path(folder), self) if folder else None

    @classmethod
    def unavailable(cls) -> str | None:
        if sys.platform != "linux":
            return f"the host backend runs on Linux only, not on {sys.platform}; use a Linux container"
        try:
            build.find_compiler()
            sanitizers = build.parse_sanitizers(os.environ.get("GPUPC_SANITIZE", ""))
        except (BackendUnavailable, ValueError) as error:
            return str(error)
        if "thread" in sanitizers:
            return (
                "the thread sanitizer cannot run inside Python: set GPUPC_RECORD_LAUNCHES to a folder instead, "
                "run, and then run python -m gpupc_impl.backends.replay on that folder"
            )
        if "address" in sanitizers and not hasattr(_libc, "__asan_init"):
            return "GPUPC_SANITIZE=address needs its runtime loaded first: start Python with sanitizer_environment()"
        return build.missing_sanitizer(sanitizers)

    def describe(self) -> dict[str, Any]:
        compiler = build.find_compiler()
        return {
            "device": cpu_name(),
            "threads": self.threads,
            "compiler": compiler.version,
            "sanitizers": list(self._sanitizers),
        }

    # --- memory ----------------------------------------------------------------------------------------------------

    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        return np.asarray(_Memory(self, tuple(int(n) for n in shape), np.dtype(dtype)))

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
        return np.asarray(_Borrowed(self, matrix))

    def download(self, array: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        if out is None:
            return np.array(array, order="C")
        out[...] = array
        return out

    def gram(self, matrix: np.ndarray) -> np.ndarray:
        out = self.empty((matrix.shape[1], matrix.shape[1]), matrix.dtype)
        return np.matmul(matrix.T, matrix, out=out)

    @contextlib.contextmanager
    def array_library(self) -> Iterator[Any]:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1, user_api="blas"):
            yield np

    def host_empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        return np.empty(shape, dtype)

    def stream(self) -> HostStream:
        return HostStream()

    @contextlib.contextmanager
    def managed_memory(self, oversubscribe: bool = False) -> Iterator[None]:
        limit = self._account.limit
        if oversubscribe:
            self._account.limit = max(limit, memory_bytes())
        try:
            yield
        finally:
            self._account.limit = limit

    @contextlib.contextmanager
    def smaller_device(self, left: int) -> Iterator[None]:
        limit = self._account.limit
        self._account.limit = min(limit, left)
        try:
            yield
        finally:
            self._account.limit = limit

    def release_memory(self) -> None:
        pass  # arrays are NumPy's, which go as they are dropped

    @property
    def memory_used(self) -> int:
        return self._account.used

    @property
    def memory_peak(self) -> int:
        return self._account.peak

    def reset_peak(self) -> None:
        self._account.reset_peak()

    @property
    def memory_limit(self) -> int:
        return self._account.limit

    def address(self, array: Any) -> int:
        """Where a C-contiguous device array of this backend lies.

        Raises:
            Unfit: it is none.
        """
        if not isinstance(array, np.ndarray) or self._memory_of(array) is None:
            raise Unfit("a device array", "a NumPy array in host memory (use upload)")
        if not array.flags.c_contiguous:
            raise Unfit("a C-contiguous array", f"one with strides {array.strides}")
        return array.ctypes.data

    def _memory_of(self, array: np.ndarray) -> _Memory | _Borrowed | None:
        """The memory of this backend that an array or view lies in."""
        owner: Any = array
        while isinstance(owner, np.ndarray):
            owner = owner.base
        return owner if isinstance(owner, (_Memory, _Borrowed)) and owner.backend is self else None

    # --- kernels ---------------------------------------------------------------------------------------------------

    def kernel(
        self,
        source: str | Path,
        expression: str,
        structs: Sequence[Struct] = (),
        constants: Mapping[str, int] = NO_CONSTANTS,
    ) -> HostKernel:
        key = str(source), expression
        if key not in self._kernels:
            path, started = PACKAGE_ROOT / source, time.perf_counter()
            made_for = self._sanitizers, build.find_compiler(), build.cache_folder()
            load = functools.partial(self._load_kernel, path, expression, structs, constants)
            try:
                made_of = path, expression, *structs, tuple(constants.items()), made_for
                loaded = _loaded.get(made_of, (path, *build.BESIDE_KERNELS), load)
            finally:
                self.compile_seconds += time.perf_counter() - started
            self._kernels[key] = HostKernel(self, expression, loaded)
        return self._kernels[key]

    def _load_kernel(
        self, path: Path, expression: str, structs: Sequence[Struct], constants: Mapping[str, int]
    ) -> _Loaded:
        if not path.is_file():
            raise KernelCompilationError(f"kernel source {str(path)!r} does not exist")
        path = path.resolve()
        _runtime(self._sanitizers)  # kernels refer to it
        build_it = functools.partial(build.build_kernel, path, expression, structs, self._sanitizers, constants)
        return _Loaded(path, _load(f"kernel {expression}", build_it), structs)

    def synchronize(self) -> None:
        """Launches have ended when they return; there is nothing to wait for."""

    def _run(self, *launch: Any) -> str:
        return _pool(os.getpid(), self._sanitizers, self.threads, self._stack_bytes).run(*launch)


def _load(what: str, make: Callable[[], Path], mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    """Build a library, or take it from the cache, and load it; one from the cache that does not load is built anew."""
    try:
        return ctypes.CDLL(str(make()), mode)
    except OSError:
        make().unlink(missing_ok=True)
    try:
        return ctypes.CDLL(str(make()), mode)
    except OSError as error:
        raise KernelCompilationError(f"{what} compiled but cannot be loaded: {error}") from error


@functools.cache
def _runtime(sanitizers: tuple[str, ...]) -> ctypes.CDLL:
    """The runtime, loaded so that kernels find its names."""
    library = _load("the runtime", lambda: build.build_runtime(sanitizers), ctypes.RTLD_GLOBAL)
    library.simt_pool_new.argtypes = [ctypes.c_uint, ctypes.c_size_t]
    library.simt_pool_new.restype = ctypes.c_void_p
    three = ctypes.POINTER(ctypes.c_uint)
    library.simt_start.argtypes = [ctypes.c_void_p] * 3 + [three, three, ctypes.c_size_t]
    library.simt_start.restype = None
    library.simt_wait.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.simt_wait.restype = ctypes.c_bool
    library.simt_cancel.argtypes = [ctypes.c_void_p]
    library.simt_cancel.restype = None
    library.simt_error.argtypes = [ctypes.c_void_p]
    library.simt_error.restype = ctypes.c_char_p
    return library


def _thread_count() -> int:
    return _positive("GPUPC_HOST_THREADS", available_cores(), at_most=1024)


def _positive(variable: str, default: int, at_least: int = 1, at_most: int = 1 << 20) -> int:
    """A whole number from the environment."""
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or not at_least <= int(text) <= at_most:
        raise ValueError(f"{variable}={text!r}: must be a whole number from {at_least} to {at_most}")
    return int(text)
