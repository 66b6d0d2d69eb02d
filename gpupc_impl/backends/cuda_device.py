"""The device layer of the CUDA backend: it selects the GPU, and provides streams, events and error reports."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from gpupc_impl.backends import nvrtc
from gpupc_impl.backends.base import Backend
from gpupc_impl.backends.errors import BackendUnavailable, KernelLaunchError
from gpupc_impl.backends.streams import Event, Stream, check_copy

DEVICE_VARIABLE = "GPUPC_CUDA_DEVICE"


class CudaDevice(Backend):
    """The layer of the CUDA backend that handles the device itself."""

    name = "cuda"
    warp_threads = 32

    def __init__(self, device_memory_limit: int | None = None):
        import cupy

        if device_memory_limit is not None and device_memory_limit < 0:
            raise ValueError(f"device_memory_limit must not be negative; got {device_memory_limit}")
        self.device_memory_limit = device_memory_limit
        self._cupy = cupy
        self._device = cupy.cuda.Device(_chosen_device())
        self._device_id, self._current_device = self._device.id, cupy.cuda.runtime.getDevice
        self._running: dict[str, None] = {}  # the kernels launched since the last synchronisation, in order
        runtime = cupy.cuda.runtime
        try:
            with self._device:
                self._stream = cupy.cuda.Stream(non_blocking=True)
                self._free_bytes, _ = runtime.memGetInfo()
        except runtime.CUDARuntimeError as error:
            raise BackendUnavailable(f"CUDA device {self._device.id} cannot be used: {error}") from error
        self.max_shared_bytes = self._attribute(runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin)
        self.multiprocessors = self._attribute(runtime.cudaDevAttrMultiProcessorCount)
        self.blocks_at_once = 8 * self.multiprocessors

    @classmethod
    def unavailable(cls) -> str | None:
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
        properties = runtime.getDeviceProperties(self._device_id)
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
        # If the driver provides no uuid, the machine's name and the PCI bus identify the device.
        uuid = bytes(runtime.getDeviceProperties(self._device_id).get("uuid", b"")).hex() or socket.gethostname()
        return f"{uuid} {runtime.deviceGetPCIBusId(self._device_id)}"

    def stream(self) -> CudaStream:
        return CudaStream(self)

    def synchronize(self) -> None:
        with self._on_device():
            self._stream.synchronize()
        self._all_done()

    def _all_done(self) -> None:
        """Forget what was queued, because all of it has finished."""
        self._running.clear()

    def _queued(self) -> Callable[[], None]:
        """Return a function that waits for the work queued so far."""
        with self._in_stream():
            return CudaEvent(self, self._stream.record()).synchronize

    def _attribute(self, number: int) -> int:
        return int(self._cupy.cuda.runtime.deviceGetAttribute(number, self._device_id))

    def _in_stream(self, stream: CudaStream | None = None) -> _OnDevice:
        """Return a context in which this device is current, and this stream or the backend's own."""
        return _OnDevice(self, self._stream if stream is None else stream.handle)

    def _on_device(self) -> _OnDevice:
        """Return a context in which this device is current, for calls that name their stream."""
        return _OnDevice(self, None)


class _OnDevice:
    """A context in which a device is current, and a stream if one is given.

    CUDA reports a kernel's fault at a later call, so an error names all kernels that may have caused it. This is a
    class instead of a generator function because it accounts for most of the time of a launch.
    """

    __slots__ = ("_device", "_stream", "_switched")

    def __init__(self, device: CudaDevice, stream: Any):
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
    """A CUDA event that was recorded in a stream."""

    def __init__(self, device: CudaDevice, handle: Any):
        self._device, self.handle = device, handle

    def synchronize(self) -> None:
        with self._device._in_stream():
            self.handle.synchronize()

    def seconds_since(self, earlier: Self) -> float:
        return float(self._device._cupy.cuda.get_elapsed_time(earlier.handle, self.handle)) / 1e3


class CudaStream(Stream):
    """An additional CUDA stream beside the backend's own."""

    def __init__(self, device: CudaDevice):
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


def _chosen_device() -> int | None:
    """Return the device number from the environment; None for CuPy's current device."""
    chosen = os.environ.get(DEVICE_VARIABLE)
    return int(chosen) if chosen else None


def _version(number: int) -> str:
    """Format CUDA's version 12090 as "12.9"."""
    return f"{number // 1000}.{number % 1000 // 10}"
