"""The CUDA backend: kernels compiled by NVRTC and run on a GPU through CuPy.

CuPy is imported when a backend is asked for, never by this module, so the package works without it.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import itertools
import logging
import math
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from gpupc_impl.backends import nvrtc
from gpupc_impl.backends.arguments import ASSERTIONS, Parameter, Struct, Unfit
from gpupc_impl.backends.base import (
    NO_CONSTANTS,
    PACKAGE_ROOT,
    Backend,
    BackendUnavailable,
    DeviceMemoryError,
    Empty,
    Event,
    KernelCompilationError,
    KernelLaunchError,
    KernelSource,
    Stream,
)
from gpupc_impl.backends.launch import MAX_THREADS, MOST_KNOWN, Dimensions, Kernel
from gpupc_impl.backends.machine import memory_bytes
from gpupc_impl.backends.nvrtc import NVRTC_OPTIONS
from gpupc_impl.backends.pinned import (
    CHUNK_BYTES,
    PinnedPool,
    Rows,
    is_placed,
    pieces,
    staged_download,
    staged_upload,
)
from gpupc_impl.backends.simt.build import cache_folder
from gpupc_impl.backends.sources import MadeOfSources
from gpupc_impl.integers import ceil_div, round_up

__all__ = ["NVRTC_OPTIONS", "CudaBackend"]

logger = logging.getLogger("gpupc_impl.cuda")

MIRROR = KernelSource("backends/kernels/mirror.cu", "mirror<double>")
"""The kernel of this backend's own."""

DEVICE_VARIABLE = "GPUPC_CUDA_DEVICE"

MEMORY_MARGIN = 512 * 2**20
"""Device memory left for code and for the local memory of running threads; a sixteenth where that is more."""


ALIGNMENT = 256
"""Of arrays in one piece of memory, in bytes."""

SMALL_BYTES = 1 << 21
"""Arrays up to this size are copied by one core: to wake others would take longer."""

SMALL_MATRIX_BYTES = 1 << 20
"""Symmetric matrices up to this size are uploaded whole: copying half of one would take longer."""

TRIANGLE_PARTS = 8
"""Parts at least that half of a larger one goes up in, since copying one part hides behind sending another."""

LEAST_TRIANGLE_BYTES = 16 << 20
"""Matrices up to this size go up whole from page-locked memory: to queue parts of one would take longer."""

MOST_PLACED_BYTES = 1 << 30
"""Arrays up to this size are made in page-locked memory, where they are to be uploaded: others may want some."""

PINNED_RESULT_BYTES = 256 << 20
"""Downloads up to this size stay in page-locked memory; larger ones go on to memory of their own."""


@functools.cache
def _pinned_pool(device: int) -> PinnedPool:
    """The one pool of a process for a device."""
    import cupy

    def allocate(size: int) -> tuple[Any, int]:
        with cupy.cuda.Device(device):  # in any thread; else CUDA would wake its first device
            memory = cupy.cuda.PinnedMemory(size)
        return memory, memory.ptr

    return PinnedPool(allocate, (cupy.cuda.runtime.CUDARuntimeError,))


_dropped: collections.deque[tuple[Any, Any]] = collections.deque()
"""Pools of which nothing more will be made, with their devices."""


def _give_back(pool: Any, device: Any, error: type[Exception]) -> None:
    """Free what a pool keeps, of which nothing more will be made.

    CuPy (14.2) does not free the blocks of a pool that is just dropped. Those of arrays that are still there come back
    to it later, so it stays here until the last of them has.
    """
    _dropped.append((pool, device))
    _free_dropped(error)


def _free_dropped(error: type[Exception]) -> None:
    """Free what has come back to pools that were dropped."""
    for _ in range(len(_dropped)):
        try:
            pool, device = _dropped.popleft()
        except IndexError:  # another thread has them
            return
        with contextlib.suppress(error), device:  # behind a fault the device frees nothing, and takes nothing
            pool.free_all_blocks()
            if pool.total_bytes():
                _dropped.append((pool, device))


class CudaBackend(Backend):
    """Kernels on one GPU, in one stream unless others are asked for.

    The device is the one numbered by the environment variable ``GPUPC_CUDA_DEVICE`` among those that
    ``CUDA_VISIBLE_DEVICES`` leaves visible, else CuPy's current device.
    """

    name = "cuda"
    warp_threads = 32

    def __init__(self, device_memory_limit: int | None = None):
        import cupy

        if device_memory_limit is not None and device_memory_limit < 0:
            raise ValueError(f"device_memory_limit must not be negative; got {device_memory_limit}")
        self._cupy = cupy
        self._device = cupy.cuda.Device(_chosen_device())
        self._device_id, self._current_device = self._device.id, cupy.cuda.runtime.getDevice
        self._running: dict[str, None] = {}  # kernels launched since the last synchronisation, in order
        self._kernels: dict[tuple[str, str], CudaKernel] = {}
        self._pinned = _pinned_pool(self._device.id)
        self._in_flight: list[np.ndarray] = []  # page-locked memory that queued copies read
        self._peak = 0
        self._other_pool = None
        self.device_memory_limit = device_memory_limit
        self.compile_seconds = 0.0
        runtime = cupy.cuda.runtime
        _free_dropped(runtime.CUDARuntimeError)
        try:
            with self._device:
                self._stream = cupy.cuda.Stream(non_blocking=True)
                self._pool = cupy.cuda.MemoryPool()
                free, _ = runtime.memGetInfo()
        except runtime.CUDARuntimeError as error:
            raise BackendUnavailable(f"CUDA device {self._device.id} cannot be used: {error}") from error
        weakref.finalize(self, _give_back, self._pool, self._device, runtime.CUDARuntimeError).atexit = False
        available = max(0, free - max(MEMORY_MARGIN, free // 16))
        self._limit: int = available if device_memory_limit is None else min(device_memory_limit, available)
        self.max_shared_bytes = runtime.deviceGetAttribute(
            runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin, self._device.id
        )
        self.multiprocessors = runtime.deviceGetAttribute(runtime.cudaDevAttrMultiProcessorCount, self._device.id)
        self.blocks_at_once = 8 * self.multiprocessors
        self._cooperative = bool(runtime.deviceGetAttribute(runtime.cudaDevAttrCooperativeLaunch, self._device.id))
        architecture = nvrtc.target_architecture(cupy.cuda.nvrtc, self._device.compute_capability)
        assert architecture is not None  # else `unavailable` has a sentence
        self._architecture = architecture

    @classmethod
    def unavailable(cls) -> str | None:
        try:
            import cupy
        except ImportError as error:
            return (
                f"CuPy cannot be imported ({str(error).strip().splitlines()[0]}); for a GPU with a CUDA 12 driver: "
                'pip install "gpupc[cuda12]", with a CUDA 13 driver: pip install "gpupc[cuda13]"'
            )
        runtime = cupy.cuda.runtime
        try:
            devices = runtime.getDeviceCount()
        except runtime.CUDARuntimeError as error:
            driver = runtime.driverGetVersion()
            if not driver:
                return "no CUDA device is visible: no NVIDIA driver is installed here"
            return (
                f"no CUDA device can be used: {error} (the driver supports CUDA {_version(driver)}, CuPy is built for "
                f"CUDA {_version(runtime.runtimeGetVersion())}; CUDA_VISIBLE_DEVICES is "
                f"{os.environ.get('CUDA_VISIBLE_DEVICES')!r})"
            )
        chosen = os.environ.get(DEVICE_VARIABLE)
        if chosen and not (chosen.isdecimal() and int(chosen) < devices):
            return f"{DEVICE_VARIABLE} is {chosen!r}; it must be a whole number from 0 to {devices - 1}"
        capability = cupy.cuda.Device(_chosen_device()).compute_capability
        try:
            if nvrtc.target_architecture(cupy.cuda.nvrtc, capability) is None:
                return f"the device's compute capability {capability} is too old for this version of NVRTC"
        except (RuntimeError, OSError) as error:
            return (
                f"CuPy finds no NVRTC, CUDA's runtime compiler ({str(error).splitlines()[0]}); install the CUDA "
                "toolkit, or: pip install nvidia-cuda-nvrtc-cu12 (nvidia-cuda-nvrtc for CUDA 13)"
            )
        return None

    def describe(self) -> dict[str, Any]:
        runtime = self._cupy.cuda.runtime
        properties = runtime.getDeviceProperties(self._device.id)
        return {
            "device": properties["name"].decode(),
            "compute_capability": f"{properties['major']}.{properties['minor']}",
            "multiprocessors": properties["multiProcessorCount"],
            "memory_bytes": properties["totalGlobalMem"],
            "cuda_driver": _version(runtime.driverGetVersion()),
            "cuda_runtime": _version(runtime.runtimeGetVersion()),
            "nvrtc": ".".join(map(str, self._cupy.cuda.nvrtc.getVersion())),
            "cupy": self._cupy.__version__,
        }

    def device_key(self) -> str:
        runtime = self._cupy.cuda.runtime
        # A driver that gives no uuid has a bus of this machine.
        uuid = bytes(runtime.getDeviceProperties(self._device_id).get("uuid", b"")).hex() or socket.gethostname()
        return f"{uuid} {runtime.deviceGetPCIBusId(self._device_id)}"

    # --- memory ------------------------------------------------------------------------------------------------

    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Any:
        sizes, dtype = _sizes(shape), np.dtype(dtype)
        with self._on_device():
            return self._cupy.ndarray(sizes, dtype, memptr=self._allocate(math.prod(sizes) * dtype.itemsize))

    def empty_all(self, **arrays: tuple[int | tuple[int, ...], DTypeLike]) -> dict[str, Any]:
        # One piece of memory: to ask for each would take longer than many a kernel.
        places, end = {}, 0
        for name, (shape, dtype) in arrays.items():
            sizes, kind = _sizes(shape), np.dtype(dtype)
            places[name] = end, sizes, kind
            end += round_up(math.prod(sizes) * kind.itemsize, ALIGNMENT)
        with self._on_device():
            memory = self._allocate(end)
            return {
                name: self._cupy.ndarray(sizes, kind, memptr=memory + start)
                for name, (start, sizes, kind) in places.items()
            }

    def full(self, shape: int | tuple[int, ...], value: Any, dtype: DTypeLike) -> Any:
        if len(set(np.asarray(value, dtype).tobytes())) > 1:  # CuPy's fill has a kernel that CuPy must compile first
            return self.upload(np.full(shape, value, dtype))
        array = self.empty(shape, dtype)
        self.fill(array, value)
        return array

    def fill(self, array: Any, value: Any) -> None:
        byte = np.asarray(value, array.dtype).tobytes()[0]
        with self._naming_streams():
            array.data.memset_async(byte, array.nbytes, self._stream)

    def upload(self, array: ArrayLike) -> Any:
        host = np.asarray(array, order="C")
        device = self.empty(host.shape, host.dtype)
        if is_placed(host):
            self._in_flight.append(host)
            self._send(device.data.ptr, host)
            return device
        if host.nbytes <= SMALL_BYTES:
            staged = self._pinned.array(host.shape, host.dtype)
            staged[...] = host
            self._in_flight.append(staged)
            self._send(device.data.ptr, staged)
            return device

        def send(staged: np.ndarray, part: Rows) -> None:
            self._send(device.data.ptr + part.first, staged)

        self._in_flight += staged_upload(self._pinned, host, pieces(host.nbytes), send, self._queued)
        return device

    def upload_rows(self, matrix: np.ndarray, width: int) -> Any:
        device = self.empty((len(matrix), width), matrix.dtype)
        if not matrix.nbytes:
            return device
        self.fill(device, 0)
        matrix = np.ascontiguousarray(matrix)
        given, wanted = matrix.shape[1] * matrix.itemsize, width * matrix.itemsize
        if is_placed(matrix):
            self._in_flight.append(matrix)
            self._send_rows(device.data.ptr, wanted, matrix.ctypes.data, Rows(0, len(matrix), given, given))
            return device
        count = max(ceil_div(matrix.nbytes, CHUNK_BYTES), TRIANGLE_PARTS if matrix.nbytes > SMALL_BYTES else 1)
        height = ceil_div(len(matrix), count)
        parts = [
            Rows(first * given, min(height, len(matrix) - first), given, given)
            for first in range(0, len(matrix), height)
        ]

        def send(staged: np.ndarray, part: Rows) -> None:
            self._send_staged(device.data.ptr + part.first // given * wanted, wanted, staged)

        self._in_flight += staged_upload(self._pinned, matrix, parts, send, self._queued)
        return device

    def upload_symmetric(self, matrix: np.ndarray) -> Any:
        if matrix.nbytes <= SMALL_MATRIX_BYTES:
            return self.upload(matrix)
        matrix = np.ascontiguousarray(matrix)
        direct = is_placed(matrix)
        if direct and matrix.nbytes <= LEAST_TRIANGLE_BYTES:
            return self.upload(matrix)
        p, itemsize = len(matrix), matrix.itemsize
        device = self.empty(matrix.shape, matrix.dtype)
        # Rows from `first` on hold (1 - first / p)^2 of the triangle.
        count = max(TRIANGLE_PARTS, ceil_div(matrix.nbytes, 2 * CHUNK_BYTES))
        bounds = [round(p * (1 - math.sqrt(1 - part / count))) for part in range(count + 1)]
        parts = [
            Rows(first * (p + 1) * itemsize, last - first, (p - first) * itemsize, p * itemsize)
            for first, last in itertools.pairwise(bounds)
            if last > first
        ]

        def send(staged: np.ndarray, part: Rows) -> None:
            self._send_staged(device.data.ptr + part.first, part.stride, staged)

        if direct:
            self._in_flight.append(matrix)
            for part in parts:
                self._send_rows(device.data.ptr + part.first, part.stride, matrix.ctypes.data, part)
        else:
            self._in_flight += staged_upload(self._pinned, matrix, parts, send, self._queued)
        tiles = ceil_div(p, 32)
        self.kernel(*MIRROR)((tiles, tiles), (32, 8), [device, np.int32(p)])
        return device

    def _queued(self) -> Callable[[], None]:
        """A function that waits for what has been queued so far."""
        with self._on_device():
            return CudaEvent(self, self._stream.record()).synchronize

    def _send(self, address: int, staged: np.ndarray) -> None:
        """Queue a copy of page-locked memory to the device."""
        if staged.nbytes:
            runtime = self._cupy.cuda.runtime
            kind = runtime.memcpyHostToDevice
            with self._naming_streams():
                runtime.memcpyAsync(address, staged.ctypes.data, staged.nbytes, kind, self._stream.ptr)

    def _send_staged(self, address: int, stride: int, staged: np.ndarray) -> None:
        """`_send_rows` of rows that lie one after the other."""
        rows, width = staged.shape
        self._send_rows(address, stride, staged.ctypes.data, Rows(0, rows, width, width))

    def _send_rows(self, address: int, stride: int, host: int, part: Rows) -> None:
        """Queue a copy of a part of page-locked memory at `host` to rows on the device, `stride` bytes apart."""
        runtime = self._cupy.cuda.runtime
        kind, source = runtime.memcpyHostToDevice, host + part.first
        with self._naming_streams():
            runtime.memcpy2DAsync(address, stride, source, part.stride, part.width, part.rows, kind, self._stream.ptr)

    def download_all(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        if sum(array.nbytes for array in arrays) > PINNED_RESULT_BYTES:
            return [self.download(array) for array in arrays]
        runtime = self._cupy.cuda.runtime
        kind = runtime.memcpyDeviceToHost
        out = [self._pinned.array(array.shape, array.dtype) for array in arrays]
        with self._naming_streams():
            for host, array in zip(out, arrays, strict=True):
                if array.nbytes:
                    runtime.memcpyAsync(host.ctypes.data, array.data.ptr, array.nbytes, kind, self._stream.ptr)
            self._stream.synchronize()
        self._done()
        return out

    def download(self, array: Any, out: np.ndarray | None = None) -> np.ndarray:
        if not array.nbytes:
            return np.empty(array.shape, array.dtype)
        runtime = self._cupy.cuda.runtime
        kind = runtime.memcpyDeviceToHost
        if out is not None or array.nbytes <= PINNED_RESULT_BYTES:
            host = self._pinned.array(array.shape, array.dtype) if out is None else out
            with self._naming_streams():
                runtime.memcpyAsync(host.ctypes.data, array.data.ptr, array.nbytes, kind, self._stream.ptr)
                self._stream.synchronize()
            self._done()
            return host
        host = np.empty(array.shape, array.dtype)

        def fetch(staged: np.ndarray, offset: int) -> Callable[[], None]:
            with self._naming_streams():
                runtime.memcpyAsync(staged.ctypes.data, array.data.ptr + offset, staged.nbytes, kind, self._stream.ptr)
            return self._queued()

        staged_download(self._pinned, host, fetch)
        self.synchronize()
        return host

    def gram(self, matrix: Any) -> Any:
        out = self.empty((matrix.shape[1], matrix.shape[1]), matrix.dtype)
        with self._on_device():
            return self._cupy.matmul(matrix.T, matrix, out=out)

    @contextlib.contextmanager
    def array_library(self) -> Iterator[Any]:
        with self._on_device(), self._cupy.cuda.using_allocator(self._allocate):
            yield self._cupy

    def host_empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        return self._pinned.array(_sizes(shape), dtype)

    @property
    def host_arrays(self) -> Empty:
        return self._placed_array

    def _placed_array(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """An array in page-locked memory, unless it is very large or there is no such memory left."""
        sizes = _sizes(shape)
        if math.prod(sizes) * np.dtype(dtype).itemsize <= MOST_PLACED_BYTES:
            with contextlib.suppress(MemoryError):
                return self._pinned.array(sizes, dtype)
        return np.empty(sizes, dtype)

    def stream(self) -> CudaStream:
        return CudaStream(self)

    @contextlib.contextmanager
    def managed_memory(self, oversubscribe: bool = False) -> Iterator[None]:
        device_pool, limit = self._pool, self._limit
        with self._on_device():
            device_pool.free_all_blocks()  # what is left of the device is for managed memory now
            self._pool = self._cupy.cuda.MemoryPool(self._cupy.cuda.malloc_managed)
        self._other_pool = device_pool
        if oversubscribe:
            self._limit = max(limit, limit + memory_bytes())
        try:
            yield
        finally:
            managed, self._pool, self._limit, self._other_pool = self._pool, device_pool, limit, None
            _give_back(managed, self._device, self._cupy.cuda.runtime.CUDARuntimeError)

    @contextlib.contextmanager
    def smaller_device(self, left: int) -> Iterator[None]:
        runtime, limit = self._cupy.cuda.runtime, self._limit
        with self._on_device():
            self._pool.free_all_blocks()
            free, _ = runtime.memGetInfo()
            held = 0
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
                with self._on_device():
                    runtime.free(held)

    def release_memory(self) -> None:
        faults = self._cupy.cuda.runtime.CUDARuntimeError, KernelLaunchError
        with contextlib.suppress(*faults), self._on_device():  # behind one there is nothing to give
            self._pool.free_all_blocks()
        _free_dropped(faults[0])

    @property
    def memory_used(self) -> int:
        with self._on_device():
            return self._used_bytes()

    def _used_bytes(self) -> int:
        """What both pools hold that is in use; while there is managed memory the device's own counts as well."""
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
        """Device memory from the pool, within the budget.

        The budget is kept here and not by `MemoryPool.set_limit`, which counts freed blocks that the pool holds on
        to as used, and refuses when they are in pieces. Here they go back to the device once the room is needed.
        """
        used = self._used_bytes()
        if used + size > self._limit:
            raise DeviceMemoryError(size, used, self._limit)
        if self._pool.total_bytes() + size > self._limit:
            self._pool.free_all_blocks()
        try:
            memory = self._pool.malloc(size)
        except self._cupy.cuda.memory.OutOfMemoryError as error:
            free, _ = self._cupy.cuda.runtime.memGetInfo()  # others use the device too
            raise DeviceMemoryError(size, used, used + free) from error
        self._peak = max(self._peak, self._used_bytes())
        return memory

    # --- kernels -----------------------------------------------------------------------------------------------

    def kernel(
        self,
        source: str | Path,
        expression: str,
        structs: Sequence[Struct] = (),
        constants: Mapping[str, int] = NO_CONSTANTS,
    ) -> CudaKernel:
        key = str(source), expression
        if key not in self._kernels:
            self._kernels[key] = self._load(PACKAGE_ROOT / source, expression, structs, constants)
        return self._kernels[key]

    def address(self, array: Any) -> int:
        """Where a C-contiguous array on this backend's device lies.

        Raises:
            Unfit: it is none.
        """
        if not isinstance(array, self._cupy.ndarray):
            raise Unfit("a device array", "a NumPy array in host memory (use upload)")
        if array.data.device_id != self._device_id and array.size:
            raise Unfit(f"an array on {self._device}", f"one on {array.device}")
        if not array.flags.c_contiguous:
            raise Unfit("a C-contiguous array", f"one with strides {array.strides}")
        return int(array.data.ptr)

    def synchronize(self) -> None:
        with self._naming_streams():
            self._stream.synchronize()
        self._done()

    def _done(self) -> None:
        """Nothing is queued any more."""
        self._running.clear()
        self._in_flight.clear()

    def _load(
        self, source: Path, expression: str, structs: Sequence[Struct], constants: Mapping[str, int]
    ) -> CudaKernel:
        start = time.perf_counter()
        made_for = self._device_id, self._architecture, cache_folder()
        load = functools.partial(self._load_function, source, expression, structs, constants)
        made_of = source, expression, *structs, tuple(constants.items()), made_for
        function = _functions.get(made_of, (source, PACKAGE_ROOT / ASSERTIONS), load)
        self.compile_seconds += time.perf_counter() - start
        return CudaKernel(self, expression, function)

    def _load_function(
        self, source: Path, expression: str, structs: Sequence[Struct], constants: Mapping[str, int]
    ) -> _Function:
        start = time.perf_counter()
        image = nvrtc.compile_image(self._cupy.cuda.nvrtc, source, {expression: structs}, self._architecture, constants)
        entry = image.entries[expression]
        with self._on_device():
            try:
                module = self._cupy.RawModule(path=str(image.path))
                function = module.get_function(entry.name)
            except self._cupy.cuda.driver.CUDADriverError as error:
                raise KernelCompilationError(
                    f"{expression} in {source.name}, compiled for {self._architecture}, cannot be loaded: {error}"
                ) from error
            logger.info(
                "%s %s: %d registers, %d bytes local, %d bytes static shared, %.0f ms (%s)",
                source.name,
                expression,
                function.num_regs,
                function.local_size_bytes,
                function.shared_size_bytes,
                1e3 * (time.perf_counter() - start),
                "from the cache" if image.cached else "compiled",
            )
            return _Function(function, nvrtc.parameters(entry, structs))

    def _on_device(self, stream: CudaStream | None = None) -> _OnDevice:
        """A context for work on this device and stream, the backend's own by default."""
        return _OnDevice(self, self._stream if stream is None else stream.handle)

    def _naming_streams(self) -> _OnDevice:
        """A context for work on this device that names its stream itself."""
        return _OnDevice(self, None)

    def _launching(self, kernel: str) -> _OnDevice:
        """A context for the launch of a kernel."""
        self._running[kernel] = None
        return self._naming_streams()


class _OnDevice:
    """Work on a backend's device, and on one stream where one is given. A class of its own, since a launch takes little
    longer than it.

    CUDA reports a kernel's fault at some later call: name the suspects.
    """

    __slots__ = ("_backend", "_other", "_stream")

    def __init__(self, backend: CudaBackend, stream: Any):
        self._backend, self._stream, self._other = backend, stream, False

    def __enter__(self) -> Any:
        backend = self._backend
        self._other = backend._current_device() != backend._device_id
        if self._other:
            backend._device.__enter__()
        if self._stream is not None:
            self._stream.__enter__()
        return self._stream

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        if self._stream is not None:
            self._stream.__exit__(None, None, None)
        if self._other:
            self._backend._device.__exit__(None, None, None)
        if error is not None:
            backend, cuda = self._backend, self._backend._cupy.cuda
            if isinstance(error, (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError)):
                suspects = ", ".join(backend._running) or "none"
                raise KernelLaunchError(
                    f"{error} (kernels launched since the last synchronisation: {suspects})"
                ) from error


class CudaEvent(Event):
    """An event of CUDA, recorded in a stream."""

    def __init__(self, backend: CudaBackend, handle: Any):
        self._backend, self.handle = backend, handle

    def synchronize(self) -> None:
        with self._backend._on_device():
            self.handle.synchronize()

    def seconds_since(self, earlier: Self) -> float:
        return float(self._backend._cupy.cuda.get_elapsed_time(earlier.handle, self.handle)) / 1e3


class CudaStream(Stream):
    """A stream of CUDA beside the backend's own."""

    def __init__(self, backend: CudaBackend):
        self._backend = backend
        with backend._on_device():
            self.handle = backend._cupy.cuda.Stream(non_blocking=True)

    def copy(self, target: Any, source: Any) -> None:
        if not (target.flags.c_contiguous and source.flags.c_contiguous and target.nbytes == source.nbytes):
            raise ValueError(f"cannot copy {source.nbytes} bytes to an array of {target.nbytes}, or they have gaps")
        if not target.nbytes:
            return
        runtime = self._backend._cupy.cuda.runtime
        to_host = isinstance(target, np.ndarray)
        pointers = (target.ctypes.data, source.data.ptr) if to_host else (target.data.ptr, source.ctypes.data)
        kind = runtime.memcpyDeviceToHost if to_host else runtime.memcpyHostToDevice
        with self._backend._on_device(stream=self):
            runtime.memcpyAsync(*pointers, target.nbytes, kind, self.handle.ptr)

    def fill_bytes(self, array: Any, byte: int) -> None:
        if array.nbytes:
            with self._backend._on_device(stream=self):
                array.data.memset_async(byte, array.nbytes)

    def record(self) -> CudaEvent:
        with self._backend._on_device(stream=self):
            return CudaEvent(self._backend, self.handle.record())

    def wait(self, event: Event) -> None:
        assert isinstance(event, CudaEvent)
        with self._backend._on_device(stream=self):
            self.handle.wait_event(event.handle)

    def synchronize(self) -> None:
        with self._backend._on_device(stream=self):
            self.handle.synchronize()


class _Function:
    """A kernel loaded on a device, whatever backend asked for it."""

    def __init__(self, function: Any, parameters: Sequence[Parameter]):
        self.parameters, self.pointer, self.registers = parameters, function.kernel.ptr, function.num_regs
        self.most_threads, self.static_shared_bytes = function.max_threads_per_block, function.shared_size_bytes
        self._function, self._allowed_shared = function, function.max_dynamic_shared_size_bytes
        self._lock = threading.Lock()

    def allow_shared(self, shared_bytes: int) -> None:
        if shared_bytes > self._allowed_shared:  # CUDA grants more than 48 KB only to kernels that say so
            with self._lock:
                most = max(shared_bytes, self._allowed_shared)
                self._function.max_dynamic_shared_size_bytes = self._allowed_shared = most


_functions: MadeOfSources[_Function] = MadeOfSources()


class CudaKernel(Kernel):
    """A kernel of a backend."""

    def __init__(self, backend: CudaBackend, expression: str, function: _Function):
        parameters, threads = function.parameters, min(MAX_THREADS, function.most_threads)
        shared_bytes = backend.max_shared_bytes - function.static_shared_bytes
        super().__init__(expression, parameters, threads, shared_bytes, backend.address, function.registers)
        self._backend, self._function = backend, function
        self._driver, self._pointer = backend._cupy.cuda.driver, function.pointer
        self._resident: dict[tuple[int, int], int] = {}
        self._gaps: list[bytes] = []  # before each argument
        places, end = [], 0
        for parameter in parameters:
            self._gaps.append(bytes(-end % parameter.storage.alignment))
            places.append(end + len(self._gaps[-1]))
            end = places[-1] + parameter.storage.itemsize
        # What the driver reads: a buffer of the arguments, each where the kernel expects it, and its size.
        self._buffer = (ctypes.c_char * end)()
        self._size = ctypes.c_size_t(end)
        self._extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(self._buffer), 2, ctypes.addressof(self._size), 0)
        self._extra_address = ctypes.addressof(self._extra)
        # A cooperative launch takes the address of each argument instead.
        start = ctypes.addressof(self._buffer)
        self._arguments = (ctypes.c_void_p * len(places))(*(start + place for place in places))
        self._lock = threading.Lock()  # the buffer is one launch's

    def _launch(
        self,
        grid: Dimensions,
        block: Dimensions,
        args: Sequence[Any],
        encoded: Sequence[bytes],
        shared_bytes: int,
        stream: CudaStream | None,
        cooperative: bool,
    ) -> None:
        # Through the driver and not through `RawKernel`, whose way from Python takes several times as long.
        piece = b"".join(itertools.chain.from_iterable(zip(self._gaps, encoded, strict=True)))
        handle = (self._backend._stream if stream is None else stream.handle).ptr
        with self._backend._launching(self.name), self._lock:
            self._function.allow_shared(shared_bytes)
            self._buffer.raw = piece
            if cooperative:
                addresses = ctypes.addressof(self._arguments)
                self._driver.launchCooperativeKernel(self._pointer, *grid, *block, shared_bytes, handle, addresses)
            else:
                self._driver.launchKernel(self._pointer, *grid, *block, shared_bytes, handle, 0, self._extra_address)

    def resident_blocks(self, threads: int, shared_bytes: int) -> int:
        if not self._backend._cooperative:
            return 0
        found = self._resident.get((threads, shared_bytes))
        if found is None:
            with self._backend._naming_streams():
                self._function.allow_shared(shared_bytes)
                found = self._driver.occupancyMaxActiveBlocksPerMultiprocessor(self._pointer, threads, shared_bytes)
            found *= self._backend.multiprocessors
            if len(self._resident) == MOST_KNOWN:
                self._resident.clear()
            self._resident[threads, shared_bytes] = found
        return found


def _chosen_device() -> int | None:
    """The device number that the environment asks for; None for CuPy's current device."""
    chosen = os.environ.get(DEVICE_VARIABLE)
    return int(chosen) if chosen else None


def _sizes(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(int, shape)) if isinstance(shape, tuple) else (int(shape),)


def _version(number: int) -> str:
    """CUDA's 12090 as "12.9"."""
    return f"{number // 1000}.{number % 1000 // 10}"
