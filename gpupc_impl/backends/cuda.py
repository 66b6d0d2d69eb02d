"""The CUDA backend: kernels compiled by NVRTC and run on a GPU through CuPy, which is imported when a backend is
opened, never by this module, so the package works without it."""

import contextlib
import functools
import itertools
import logging
import math
import socket
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from gpupc_impl.backends import cuda_device, nvrtc
from gpupc_impl.backends.arguments import Unfit
from gpupc_impl.backends.base import Backend, Empty, KernelSource, as_tuple, laid_out
from gpupc_impl.backends.cuda_device import (
    CudaEvent,
    CudaKernel,
    CudaStream,
    LoadedFunction,
    OnDevice,
    chosen_device,
    drop_pool,
    free_dropped_pools,
    pinned_pool,
    version,
)
from gpupc_impl.backends.errors import BackendUnavailable, DeviceMemoryError, KernelCompilationError, KernelLaunchError
from gpupc_impl.backends.machine import memory_bytes
from gpupc_impl.backends.pinned import CHUNK_BYTES, Rows, chunks, is_placed, staged_download, staged_upload
from gpupc_impl.backends.simt.build import cache_folder
from gpupc_impl.backends.sources import ASSERTIONS, PACKAGE_ROOT, SourceCache
from gpupc_impl.integers import ceil_div

logger = logging.getLogger("gpupc_impl.cuda")

MIRROR = KernelSource("backends/kernels/mirror.cu", "mirror<double>")  # copies the upper triangle to the lower one
SMALL_BYTES = 1 << 21  # up to which one core copies an array alone, since waking helpers would take longer
SMALL_MATRIX_BYTES = 1 << 20  # up to which a symmetric matrix is uploaded whole: mirroring takes longer
TRIANGLE_PARTS = 8  # into which a triangle is divided at least, so that staging one overlaps with sending another
SMALL_PLACED_BYTES = 16 << 20  # up to which a pinned symmetric matrix is uploaded whole: queueing parts takes longer
MAX_PLACED_BYTES = 1 << 30  # up to which host arrays for uploads are pinned, so that enough is left for others
PINNED_RESULT_BYTES = 256 << 20  # up to which downloads stay in pinned memory; larger ones are copied on
MEMORY_MARGIN = 512 * 2**20  # left free for code and local memory; a sixteenth of the device's memory if that is more


class CudaBackend(Backend):
    """Kernels on one GPU, in one stream unless the caller names another. The device is number ``GPUPC_CUDA_DEVICE``
    (environment) among those that ``CUDA_VISIBLE_DEVICES`` leaves visible, else CuPy's current one."""

    name = "cuda"
    warp_threads = 32
    _loaded: ClassVar[SourceCache[LoadedFunction]] = SourceCache()
    _beside_kernels = (PACKAGE_ROOT / ASSERTIONS,)

    def __init__(self, device_memory_limit: int | None = None):
        super().__init__(device_memory_limit)
        import cupy

        runtime = cupy.cuda.runtime
        free_dropped_pools(runtime.CUDARuntimeError)
        self._cupy = cupy
        self._device = cupy.cuda.Device(chosen_device())
        self._device_id, self._current_device = self._device.id, runtime.getDevice
        self._running: dict[str, None] = {}  # the kernels launched since the last synchronisation, in order
        self._in_flight: list[np.ndarray] = []  # pinned memory that queued copies still read
        try:
            with self._device:
                self._stream = cupy.cuda.Stream(non_blocking=True)
                free_bytes, _ = runtime.memGetInfo()
        except runtime.CUDARuntimeError as error:
            raise BackendUnavailable(f"CUDA device {self._device.id} cannot be used: {error}") from error
        self.max_shared_bytes = self._attribute(runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin)
        self.multiprocessors = self._attribute(runtime.cudaDevAttrMultiProcessorCount)
        self.blocks_at_once = 8 * self.multiprocessors
        self._has_cooperative_launches = bool(self._attribute(runtime.cudaDevAttrCooperativeLaunch))
        architecture = nvrtc.target_architecture(cupy.cuda.nvrtc, self._device.compute_capability)
        assert architecture is not None  # `unavailable` reports this error.
        self._architecture = architecture
        with self._device:
            self._pool = cupy.cuda.MemoryPool()
        weakref.finalize(self, drop_pool, self._pool, self._device, runtime.CUDARuntimeError).atexit = False
        self._other_pool = None  # the device's own pool, while arrays are allocated in managed memory
        self._pinned = pinned_pool(self._device_id)
        self._peak = 0
        available = max(0, free_bytes - max(MEMORY_MARGIN, free_bytes // 16))
        self._limit: int = available if device_memory_limit is None else min(device_memory_limit, available)

    @classmethod
    def unavailable(cls) -> str | None:
        return cuda_device.fault()

    def describe(self) -> dict[str, Any]:
        runtime = self._cupy.cuda.runtime
        properties = runtime.getDeviceProperties(self._device_id)
        return {
            "device": properties["name"].decode(),
            "compute_capability": f"{properties['major']}.{properties['minor']}",
            "multiprocessors": properties["multiProcessorCount"],
            "memory_bytes": properties["totalGlobalMem"],
            "cuda_driver": version(runtime.driverGetVersion()),
            "cuda_runtime": version(runtime.runtimeGetVersion()),
            "nvrtc": ".".join(map(str, self._cupy.cuda.nvrtc.getVersion())),
            "cupy": self._cupy.__version__,
        }

    def device_key(self) -> str:
        runtime = self._cupy.cuda.runtime
        # If the driver provides no uuid, the machine's name and the PCI bus identify the device.
        uuid = bytes(runtime.getDeviceProperties(self._device_id).get("uuid", b"")).hex() or socket.gethostname()
        return f"{uuid} {runtime.deviceGetPCIBusId(self._device_id)}"

    def stream(self) -> CudaStream:
        return CudaStream(self)

    def synchronize(self) -> None:
        with self._on_device():
            self._stream.synchronize()
        self._running.clear()
        self._in_flight.clear()

    def _queued(self) -> Callable[[], None]:
        """Return a function that waits for the work queued so far."""
        with self._in_stream():
            return CudaEvent(self, self._stream.record()).synchronize

    def _attribute(self, number: int) -> int:
        return int(self._cupy.cuda.runtime.deviceGetAttribute(number, self._device_id))

    def _in_stream(self, stream: CudaStream | None = None) -> OnDevice:
        """Return a context in which this device is current, and this stream or the backend's own."""
        return OnDevice(self, self._stream if stream is None else stream.handle)

    def _on_device(self) -> OnDevice:
        """Return a context in which this device is current, for calls that name their stream."""
        return OnDevice(self, None)

    # --- memory ----------------------------------------------------------------------------------------------------
    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Any:
        sizes, dtype = as_tuple(shape), np.dtype(dtype)
        with self._in_stream():
            return self._cupy.ndarray(sizes, dtype, memptr=self._allocate(math.prod(sizes) * dtype.itemsize))

    def empty_all(self, **arrays: tuple[int | tuple[int, ...], DTypeLike]) -> dict[str, Any]:
        # One allocation serves all arrays, because an allocation for each would take longer than many kernels.
        places, end = laid_out(arrays)
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
            drop_pool(managed, self._device, self._cupy.cuda.runtime.CUDARuntimeError)

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
        free_dropped_pools(faults[0])

    @property
    def memory_used(self) -> int:
        with self._in_stream():
            return self._used_bytes()

    def _used_bytes(self) -> int:
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
        """Allocate device memory from the pool, within the budget. `MemoryPool.set_limit` is not used: it counts freed
        blocks that the pool caches as used, and refuses a request if those blocks are fragmented. Here the cached
        blocks are returned to the device when the budget needs them."""
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

    # --- to the device -----------------------------------------------------------------------------------------
    def full(self, shape: int | tuple[int, ...], value: Any, dtype: DTypeLike) -> Any:
        if len(set(np.asarray(value, dtype).tobytes())) > 1:  # CuPy's fill would compile a kernel first.
            return self.upload(np.full(shape, value, dtype))
        array = self.empty(shape, dtype)
        self.fill(array, value)
        return array

    def upload(self, array: ArrayLike) -> Any:
        host = np.asarray(array, order="C")
        device = self.empty(host.shape, host.dtype)
        if not is_placed(host):
            if host.nbytes > SMALL_BYTES:

                def send(staged: np.ndarray, part: Rows) -> None:
                    self._send(device.data.ptr + part.first, staged)

                self._in_flight += staged_upload(self._pinned, host, chunks(host.nbytes), send, self._queued)
                return device
            staged = self._pinned.array(host.shape, host.dtype)
            staged[...] = host
            host = staged
        self._in_flight.append(host)
        self._send(device.data.ptr, host)
        return device

    def upload_rows(self, matrix: np.ndarray, width: int) -> Any:
        device = self.empty((len(matrix), width), matrix.dtype)
        if not matrix.nbytes:
            return device
        self.fill(device, 0)
        matrix = np.ascontiguousarray(matrix)
        row_bytes, pitch = matrix.shape[1] * matrix.itemsize, width * matrix.itemsize
        count = max(ceil_div(matrix.nbytes, CHUNK_BYTES), TRIANGLE_PARTS if matrix.nbytes > SMALL_BYTES else 1)
        height = len(matrix) if is_placed(matrix) else ceil_div(len(matrix), count)
        parts = [
            Rows(first * row_bytes, min(height, len(matrix) - first), row_bytes, row_bytes)
            for first in range(0, len(matrix), height)
        ]
        self._upload_parts(matrix, parts, lambda part: device.data.ptr + part.first // row_bytes * pitch, pitch)
        return device

    def upload_symmetric(self, matrix: np.ndarray) -> Any:
        if matrix.nbytes <= (SMALL_PLACED_BYTES if is_placed(matrix) else SMALL_MATRIX_BYTES):
            return self.upload(matrix)
        matrix = np.ascontiguousarray(matrix)
        p, itemsize = len(matrix), matrix.itemsize
        device = self.empty(matrix.shape, matrix.dtype)
        # Rows from `first` on have the fraction (1 - first / p)^2 of the triangle, so these bounds cut it equally.
        count = max(TRIANGLE_PARTS, ceil_div(matrix.nbytes, 2 * CHUNK_BYTES))
        bounds = [round(p * (1 - math.sqrt(1 - part / count))) for part in range(count + 1)]
        parts = [
            Rows(first * (p + 1) * itemsize, last - first, (p - first) * itemsize, p * itemsize)
            for first, last in itertools.pairwise(bounds)
            if last > first
        ]
        self._upload_parts(matrix, parts, lambda part: device.data.ptr + part.first, p * itemsize)
        tiles = ceil_div(p, 32)
        self.kernel(*MIRROR)((tiles, tiles), (32, 8), [device, np.int32(p)])
        return device

    def _upload_parts(
        self, matrix: np.ndarray, parts: Sequence[Rows], address: Callable[[Rows], int], pitch: int
    ) -> None:
        """Upload parts of a C-contiguous matrix, each to rows on the device that begin `pitch` bytes apart."""
        if is_placed(matrix):
            self._in_flight.append(matrix)
            for part in parts:
                self._send_rows(address(part), pitch, matrix.ctypes.data, part)
            return

        def send(staged: np.ndarray, part: Rows) -> None:
            rows, width = staged.shape
            self._send_rows(address(part), pitch, staged.ctypes.data, Rows(0, rows, width, width))

        self._in_flight += staged_upload(self._pinned, matrix, parts, send, self._queued)

    def _send(self, address: int, pinned: np.ndarray) -> None:
        if pinned.nbytes:
            runtime = self._cupy.cuda.runtime
            kind = runtime.memcpyHostToDevice
            with self._on_device():
                runtime.memcpyAsync(address, pinned.ctypes.data, pinned.nbytes, kind, self._stream.ptr)

    def _send_rows(self, address: int, pitch: int, pinned: int, part: Rows) -> None:
        """Queue a copy from pinned memory at an address to rows on the device that begin `pitch` bytes apart."""
        runtime = self._cupy.cuda.runtime
        kind, source = runtime.memcpyHostToDevice, pinned + part.first
        with self._on_device():
            runtime.memcpy2DAsync(address, pitch, source, part.stride, part.width, part.rows, kind, self._stream.ptr)

    # --- to the host -------------------------------------------------------------------------------------------
    def download_all(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        if sum(array.nbytes for array in arrays) > PINNED_RESULT_BYTES:
            return [self.download(array) for array in arrays]
        out = [self._pinned.array(array.shape, array.dtype) for array in arrays]
        for host, array in zip(out, arrays, strict=True):
            self._fetch(host, array.data.ptr)
        self.synchronize()
        return out

    def download(self, array: Any, out: np.ndarray | None = None) -> np.ndarray:
        if not array.nbytes:
            return np.empty(array.shape, array.dtype)
        if out is not None or array.nbytes <= PINNED_RESULT_BYTES:
            host = self._pinned.array(array.shape, array.dtype) if out is None else out
            self._fetch(host, array.data.ptr)
            self.synchronize()
            return host
        host = np.empty(array.shape, array.dtype)

        def fetch(staged: np.ndarray, offset: int) -> Callable[[], None]:
            self._fetch(staged, array.data.ptr + offset)
            return self._queued()

        staged_download(self._pinned, host, fetch)
        self.synchronize()
        return host

    def _fetch(self, pinned: np.ndarray, address: int) -> None:
        if pinned.nbytes:
            runtime = self._cupy.cuda.runtime
            kind = runtime.memcpyDeviceToHost
            with self._on_device():
                runtime.memcpyAsync(pinned.ctypes.data, address, pinned.nbytes, kind, self._stream.ptr)

    def host_empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        return self._pinned.array(as_tuple(shape), dtype)

    @property
    def host_arrays(self) -> Empty:
        return self._placed_array

    def _placed_array(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """Return an array in pinned memory, or in pageable memory if it is very large or no more can be pinned."""
        sizes = as_tuple(shape)
        if math.prod(sizes) * np.dtype(dtype).itemsize <= MAX_PLACED_BYTES:
            with contextlib.suppress(MemoryError):
                return self._pinned.array(sizes, dtype)
        return np.empty(sizes, dtype)

    # --- kernels ---------------------------------------------------------------------------------------------------
    def _target(self) -> Hashable:
        return self._device_id, self._architecture, cache_folder()

    def _compilation(self, kernel: KernelSource) -> Callable[[], nvrtc.Image]:
        return functools.partial(nvrtc.compile_image, self._cupy.cuda.nvrtc, kernel, self._architecture)

    def _launchable(self, expression: str, loaded: LoadedFunction) -> CudaKernel:
        return CudaKernel(self, expression, loaded)

    def gram(self, matrix: Any) -> Any:
        out = self.empty((matrix.shape[1], matrix.shape[1]), matrix.dtype)
        with self._in_stream():
            return self._cupy.matmul(matrix.T, matrix, out=out)

    @contextlib.contextmanager
    def array_library(self) -> Iterator[Any]:
        with self._in_stream(), self._cupy.cuda.using_allocator(self._allocate):
            yield self._cupy

    def address(self, array: Any) -> int:
        if not isinstance(array, self._cupy.ndarray):
            raise Unfit("a device array", "a NumPy array in host memory (use upload)")
        if array.data.device_id != self._device_id and array.size:
            raise Unfit(f"an array on {self._device}", f"one on {array.device}")
        if not array.flags.c_contiguous:
            raise Unfit("a C-contiguous array", f"one with strides {array.strides}")
        return int(array.data.ptr)

    def _load(self, kernel: KernelSource, image: nvrtc.Image) -> LoadedFunction:
        name, expression = Path(kernel.source).name, kernel.expression
        compiled = image.kernels[expression]
        with self._in_stream():
            try:
                module = self._cupy.RawModule(path=str(image.path))
                function = module.get_function(compiled.name)
            except self._cupy.cuda.driver.CUDADriverError as error:
                raise KernelCompilationError(
                    f"{expression} in {name}, compiled for {self._architecture}, cannot be loaded: {error}"
                ) from error
            logger.info(
                "%s %s: %d registers, %d bytes local, %d bytes static shared (%s)",
                name,
                expression,
                function.num_regs,
                function.local_size_bytes,
                function.shared_size_bytes,
                "from the cache" if image.cached else "compiled",
            )
            return LoadedFunction(function, nvrtc.parameters(compiled, kernel.structs))
