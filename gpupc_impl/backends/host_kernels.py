"""Kernels of the host backend: loads them, and launches them on the runtime's OS threads."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gpupc_impl.backends import shipped
from gpupc_impl.backends.arguments import Address, KernelParameter, Number, Pointer, Struct
from gpupc_impl.backends.base import KernelSource
from gpupc_impl.backends.compilations import Compilations
from gpupc_impl.backends.errors import BackendUnavailable, KernelCompilationError, KernelLaunchError
from gpupc_impl.backends.launch import MAX_THREADS, Dimensions, Kernel, Stream
from gpupc_impl.backends.simt import build
from gpupc_impl.integers import round_up

MAX_SHARED_BYTES = 232_448  # the upper bound on the dynamic shared memory of a block: that of an H100
ARGUMENT_ALIGNMENT = 16  # the largest alignment of any type of argument, in bytes
POLL_MS = 50  # the interval in which Python checks for an interrupt while a kernel runs


class Threads(NamedTuple):
    """The options with which kernels are compiled and launched."""

    sanitizers: tuple[str, ...]
    workers: int
    stack_bytes: int


class _ExportedKernel(ctypes.Structure):
    """The struct ``simt::ExportedKernel`` of a compiled kernel."""

    _fields_ = (("codes", ctypes.c_void_p), ("count", ctypes.c_int), ("run", ctypes.c_void_p))


class LoadedKernel:
    """A kernel in this process's memory, which all host backends of the process share."""

    def __init__(self, library: ctypes.CDLL, structs: Sequence[Struct]):
        self.library, self.exported = library, _ExportedKernel.in_dll(library, "simt_kernel")
        codes = ctypes.string_at(self.exported.codes, 4 * self.exported.count)
        types = [codes[i : i + 4].rstrip(b"\0").decode() for i in range(0, len(codes), 4)]
        remaining = iter(structs)
        self.parameters = [next(remaining) if code == "S" else _parameter(code) for code in types]


def _parameter(code: str) -> KernelParameter:
    """Return a parameter from its code in export.hpp: "f8" a number, "*f8" a pointer to it, "*V" any other pointer."""
    if code.startswith("*"):
        return Pointer(None if code == "*V" else code[1:])
    return Number(code)


def compile_kernel(kernel: KernelSource, sanitizers: tuple[str, ...]) -> Path:
    """The library of a kernel: compiled ahead, taken from the cache or compiled now."""
    if not kernel.path.is_file():
        raise KernelCompilationError(f"kernel source {str(kernel.path)!r} does not exist")
    return (None if sanitizers else shipped.library(kernel)) or _build_kernel(kernel, sanitizers)


def _build_kernel(kernel: KernelSource, sanitizers: tuple[str, ...]) -> Path:
    try:
        return build.build_kernel(kernel, sanitizers)
    except BackendUnavailable as error:
        raise BackendUnavailable(f"kernel {kernel.expression} has to be compiled here: {error}") from error


def load_kernel(kernel: KernelSource, sanitizers: tuple[str, ...], library: Path) -> LoadedKernel:
    """Load a kernel from its library, which is compiled here if it does not load."""
    _runtime(sanitizers)  # the kernel's library refers to its symbols
    compile_again = functools.partial(_build_kernel, kernel, sanitizers)
    loaded = _load_library(f"kernel {kernel.expression}", library, compile_again)
    return LoadedKernel(loaded, kernel.structs)


class HostKernel(Kernel):
    def __init__(self, expression: str, loaded: LoadedKernel, address: Address, threads: Threads):
        super().__init__(expression, loaded.parameters, MAX_THREADS, MAX_SHARED_BYTES, address)
        self._exported, self._threads = loaded.exported, threads

    def _launch(
        self,
        grid: Dimensions,
        block: Dimensions,
        encoded: Sequence[bytes],
        shared_bytes: int,
        stream: Stream | None,
        cooperative: bool,
    ) -> None:
        padded = [value.ljust(round_up(len(value), ARGUMENT_ALIGNMENT), b"\0") for value in encoded]
        memory = ctypes.create_string_buffer(b"".join(padded))
        addresses = itertools.accumulate(map(len, padded), initial=ctypes.addressof(memory))
        pointers = (ctypes.c_void_p * (len(padded) + 1))(*addresses)
        pool = _pool(self._threads)
        if problem := pool.run(self._exported, pointers, grid, block, shared_bytes):
            raise self._error(problem)

    def resident_blocks(self, threads: int, shared_bytes: int) -> int:
        return 1  # An OS thread runs one block to its end before the next one, so blocks cannot wait for each other.


# --- the runtime -------------------------------------------------------------------------------------------------
class _Pool:
    """The runtime's OS threads, which execute one launch at a time."""

    def __init__(self, runtime: ctypes.CDLL, workers: int, stack_bytes: int):
        self._runtime = runtime
        self._lock = threading.Lock()
        self._handle = runtime.simt_pool_new(workers, stack_bytes)
        if not self._handle:
            raise KernelLaunchError(f"the system grants no {workers} threads; set GPUPC_HOST_THREADS lower")

    def run(self, exported: _ExportedKernel, args: Any, grid: Dimensions, block: Dimensions, shared_bytes: int) -> str:
        """Run a kernel to its end; returns the error as a text, or an empty string."""
        runtime, handle = self._runtime, self._handle
        three = ctypes.c_uint * 3
        with self._lock:
            try:
                runtime.simt_start(handle, exported.run, args, three(*grid), three(*block), shared_bytes)
                while not runtime.simt_wait(handle, POLL_MS):
                    pass
            except BaseException:
                self._cancel()
                raise
            error: bytes = runtime.simt_error(handle)
            return error.decode()

    def _cancel(self) -> None:
        """Cancel the launch, and return only when no thread uses its arrays, even if Python is interrupted again."""
        while True:
            with contextlib.suppress(KeyboardInterrupt):
                self._runtime.simt_cancel(self._handle)
                if self._runtime.simt_wait(self._handle, POLL_MS):
                    return


@functools.cache
def _pool(threads: Threads) -> _Pool:
    return _Pool(_runtime(threads.sanitizers), threads.workers, threads.stack_bytes)


os.register_at_fork(after_in_child=_pool.cache_clear)  # A forked child has none of its parent's threads.


_runtimes = Compilations()


def prefetch_runtime(sanitizers: tuple[str, ...]) -> None:
    """Have a thread compile the runtime, unless it is loaded."""
    if not _runtime.cache_info().currsize:
        _runtimes.prefetch(sanitizers, functools.partial(_compile_runtime, sanitizers))


def _compile_runtime(sanitizers: tuple[str, ...]) -> Path:
    return (None if sanitizers else shipped.library(None)) or build.build_runtime(sanitizers)


@functools.cache
def _runtime(sanitizers: tuple[str, ...]) -> ctypes.CDLL:
    """The runtime, loaded so that the libraries of kernels find its symbols."""
    library = _load_library(
        "the runtime",
        _runtimes.result(sanitizers, functools.partial(_compile_runtime, sanitizers)),
        functools.partial(build.build_runtime, sanitizers),
        ctypes.RTLD_GLOBAL,
    )
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


def _load_library(
    what: str, library: Path, compile_again: Callable[[], Path], mode: int = ctypes.DEFAULT_MODE
) -> ctypes.CDLL:
    """Load a library. One that does not load is compiled here: it may be damaged, or need a newer C library."""
    try:
        return ctypes.CDLL(str(library), mode)
    except OSError:
        library.unlink(missing_ok=True)
    try:
        return ctypes.CDLL(str(compile_again()), mode)
    except OSError as error:
        raise KernelCompilationError(f"{what} compiled but cannot be loaded: {error}") from error
