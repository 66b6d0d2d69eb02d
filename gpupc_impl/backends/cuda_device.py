"""Parts of the CUDA backend: the choice of the GPU, contexts, streams, events, loaded kernels, and memory pools."""

import collections
import contextlib
import ctypes
import functools
import itertools
import os
import threading
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from gpupc_impl.backends import nvrtc
from gpupc_impl.backends.arguments import KernelParameter
from gpupc_impl.backends.errors import KernelLaunchError
from gpupc_impl.backends.launch import MAX_REMEMBERED, MAX_THREADS, Dimensions, Event, Kernel, Stream, check_copy
from gpupc_impl.backends.pinned import PinnedPool

DEVICE_VARIABLE = "GPUPC_CUDA_DEVICE"
_dropped_pools: collections.deque[tuple[Any, Any]] = collections.deque()  # unused, with their devices


def fault() -> str | None:
    """Return the reason why no GPU can be used, as a sentence; None if one can."""
    try:
        import cupy
    except ImportError as error:
        return (
            f"CuPy cannot be imported ({str(error).strip().splitlines()[0]}); for a GPU with a CUDA 12 driver: "
            "pip install cupy-cuda12x nvidia-cuda-nvrtc-cu12, with a CUDA 13 driver: pip install cupy-cuda13x "
            "nvidia-cuda-nvrtc"
        )
    runtime = cupy.cuda.runtime
    try:
        devices = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        driver = runtime.driverGetVersion()
        if not driver:
            return "no CUDA device is visible: no NVIDIA driver is installed here"
        return (
            f"no CUDA device can be used: {error} (the driver supports CUDA {version(driver)}, CuPy is built for "
            f"CUDA {version(runtime.runtimeGetVersion())}; CUDA_VISIBLE_DEVICES is "
            f"{os.environ.get('CUDA_VISIBLE_DEVICES')!r})"
        )
    chosen = os.environ.get(DEVICE_VARIABLE)
    if chosen and not (chosen.isdecimal() and int(chosen) < devices):
        return f"{DEVICE_VARIABLE} is {chosen!r}; it must be a whole number from 0 to {devices - 1}"
    capability = cupy.cuda.Device(chosen_device()).compute_capability
    try:
        if nvrtc.target_architecture(cupy.cuda.nvrtc, capability) is None:
            return f"the device's compute capability {capability} is too old for this version of NVRTC"
    except (RuntimeError, OSError) as error:
        return (
            f"CuPy finds no NVRTC, CUDA's runtime compiler ({str(error).splitlines()[0]}); install the CUDA "
            "toolkit, or: pip install nvidia-cuda-nvrtc-cu12 (nvidia-cuda-nvrtc for CUDA 13)"
        )
    return None


def chosen_device() -> int | None:
    """Return the device number from the environment; None for CuPy's current device."""
    chosen = os.environ.get(DEVICE_VARIABLE)
    return int(chosen) if chosen else None


def version(number: int) -> str:
    """Format CUDA's version 12090 as "12.9"."""
    return f"{number // 1000}.{number % 1000 // 10}"


# --- streams ---------------------------------------------------------------------------------------------------------
class OnDevice:
    """A context in which a device is current, and a stream if one is given. CUDA reports a kernel's fault at a later
    call, so an error names all kernels that may have caused it. This is a class instead of a generator function because
    it accounts for most of the time of a launch."""

    __slots__ = ("_device", "_stream", "_switched")

    def __init__(self, device: Any, stream: Any):
        self._device, self._stream, self._switched = device, stream, False

    def __enter__(self) -> None:
        device = self._device
        self._switched = device._current_device() != device._device_id
        if self._switched:
            device._device.__enter__()
        if self._stream is not None:
            self._stream.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        if self._stream is not None:
            self._stream.__exit__(None, None, None)
        if self._switched:
            self._device._device.__exit__(None, None, None)
        if error is not None:
            cuda = self._device._cupy.cuda
            if isinstance(error, (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError)):
                suspects = ", ".join(self._device._running) or "none"
                raise KernelLaunchError(
                    f"{error} (kernels launched since the last synchronisation: {suspects})"
                ) from error


class CudaEvent(Event):
    def __init__(self, device: Any, handle: Any):
        self._device, self.handle = device, handle

    def synchronize(self) -> None:
        with self._device._in_stream():
            self.handle.synchronize()

    def seconds_since(self, earlier: Self) -> float:
        return float(self._device._cupy.cuda.get_elapsed_time(earlier.handle, self.handle)) / 1e3


class CudaStream(Stream):
    """An additional CUDA stream beside the backend's own."""

    def __init__(self, device: Any):
        self._device = device
        with device._in_stream():
            self.handle = device._cupy.cuda.Stream(non_blocking=True)

    def copy(self, target: Any, source: Any) -> None:
        check_copy(target, source)
        if not target.nbytes:
            return
        runtime = self._device._cupy.cuda.runtime
        to_host = isinstance(target, np.ndarray)
        pointers = (target.ctypes.data, source.data.ptr) if to_host else (target.data.ptr, source.ctypes.data)
        kind = runtime.memcpyDeviceToHost if to_host else runtime.memcpyHostToDevice
        with self._device._in_stream(self):
            runtime.memcpyAsync(*pointers, target.nbytes, kind, self.handle.ptr)

    def fill_bytes(self, array: Any, byte: int) -> None:
        if array.nbytes:
            with self._device._in_stream(self):
                array.data.memset_async(byte, array.nbytes)

    def record(self) -> CudaEvent:
        with self._device._in_stream(self):
            return CudaEvent(self._device, self.handle.record())

    def wait(self, event: Event) -> None:
        assert isinstance(event, CudaEvent)
        with self._device._in_stream(self):
            self.handle.wait_event(event.handle)

    def synchronize(self) -> None:
        with self._device._in_stream(self):
            self.handle.synchronize()


# --- kernels ---------------------------------------------------------------------------------------------------------
class LoadedFunction:
    """A kernel loaded on a device. All backends of the process on that device share this object."""

    def __init__(self, function: Any, parameters: Sequence[KernelParameter]):
        self.parameters, self.pointer, self.registers = parameters, function.kernel.ptr, function.num_regs
        self.max_threads, self.static_shared_bytes = function.max_threads_per_block, function.shared_size_bytes
        self._function, self._granted_bytes = function, function.max_dynamic_shared_size_bytes
        self._lock = threading.Lock()

    def allow_shared(self, shared_bytes: int) -> None:
        """Request this much dynamic shared memory, because CUDA grants more than 48 KB only on request."""
        if shared_bytes > self._granted_bytes:
            with self._lock:
                granted = max(shared_bytes, self._granted_bytes)
                self._function.max_dynamic_shared_size_bytes = self._granted_bytes = granted


class CudaKernel(Kernel):
    def __init__(self, backend: Any, expression: str, function: LoadedFunction):
        parameters, threads = function.parameters, min(MAX_THREADS, function.max_threads)
        shared_bytes = backend.max_shared_bytes - function.static_shared_bytes
        super().__init__(expression, parameters, threads, shared_bytes, backend.address, function.registers)
        self._backend, self._function = backend, function
        self._driver, self._pointer = backend._cupy.cuda.driver, function.pointer
        self._resident: dict[tuple[int, int], int] = {}
        self._padding: list[bytes] = []  # the padding before each argument
        offsets, end = [], 0
        for parameter in parameters:
            self._padding.append(bytes(-end % parameter.storage.alignment))
            offsets.append(end + len(self._padding[-1]))
            end = offsets[-1] + parameter.storage.itemsize
        # The driver reads the arguments from a buffer in the layout that the kernel expects.
        self._buffer = (ctypes.c_char * end)()
        self._size = ctypes.c_size_t(end)
        self._extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(self._buffer), 2, ctypes.addressof(self._size), 0)
        self._extra_address = ctypes.addressof(self._extra)
        # For a cooperative launch the driver reads the address of each argument instead.
        start = ctypes.addressof(self._buffer)
        self._arguments = (ctypes.c_void_p * len(offsets))(*(start + offset for offset in offsets))
        self._lock = threading.Lock()  # The lock lets one launch at a time use the buffer.

    def _launch(
        self,
        grid: Dimensions,
        block: Dimensions,
        encoded: Sequence[bytes],
        shared_bytes: int,
        stream: CudaStream | None,
        cooperative: bool,
    ) -> None:
        # The driver is called directly, because a launch through CuPy's `RawKernel` takes several times as long.
        content = b"".join(itertools.chain.from_iterable(zip(self._padding, encoded, strict=True)))
        handle = (self._backend._stream if stream is None else stream.handle).ptr
        self._backend._running[self.name] = None
        with self._backend._on_device(), self._lock:
            self._function.allow_shared(shared_bytes)
            self._buffer.raw = content
            if cooperative:
                addresses = ctypes.addressof(self._arguments)
                self._driver.launchCooperativeKernel(self._pointer, *grid, *block, shared_bytes, handle, addresses)
            else:
                self._driver.launchKernel(self._pointer, *grid, *block, shared_bytes, handle, 0, self._extra_address)

    def resident_blocks(self, threads: int, shared_bytes: int) -> int:
        if not self._backend._has_cooperative_launches:
            return 0
        blocks = self._resident.get((threads, shared_bytes))
        if blocks is None:
            with self._backend._on_device():
                self._function.allow_shared(shared_bytes)
                blocks = self._driver.occupancyMaxActiveBlocksPerMultiprocessor(self._pointer, threads, shared_bytes)
            blocks *= self._backend.multiprocessors
            if len(self._resident) == MAX_REMEMBERED:
                self._resident.clear()
            self._resident[threads, shared_bytes] = blocks
        return blocks


# --- pools of memory -------------------------------------------------------------------------------------------------
@functools.cache
def pinned_pool(device: int) -> PinnedPool:
    """The process's pool of pinned memory for a device."""
    import cupy

    def allocate(size: int) -> tuple[Any, int]:
        with cupy.cuda.Device(device):  # Otherwise another thread would create a context on its own current device.
            memory = cupy.cuda.PinnedMemory(size)
        return memory, memory.ptr

    return PinnedPool(allocate, (cupy.cuda.runtime.CUDARuntimeError,))


def drop_pool(pool: Any, device: Any, error: type[Exception]) -> None:
    """Free the blocks that an unused pool caches, as CuPy (14.2) does not when a pool is garbage collected. Arrays that
    still exist return their blocks to the pool later, so the pool is kept until all of them have."""
    _dropped_pools.append((pool, device))
    free_dropped_pools(error)


def free_dropped_pools(error: type[Exception]) -> None:
    """Free the blocks that have been returned to dropped pools."""
    for _ in range(len(_dropped_pools)):
        try:
            pool, device = _dropped_pools.popleft()
        except IndexError:  # Another thread is freeing the rest already.
            return
        with contextlib.suppress(error), device:  # After a fault the device frees no memory.
            pool.free_all_blocks()
            if pool.total_bytes():
                _dropped_pools.append((pool, device))
