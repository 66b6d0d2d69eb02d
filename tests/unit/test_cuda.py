"""The CUDA backend's own logic, over a stand-in for CuPy: what it refuses, counts, translates and says.

Nothing here shows that CuPy or a device behaves as the stand-in does; tests/gpu does, on a device.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import types
import weakref
from pathlib import Path

import numpy as np
import pytest

from gpupc_impl.backends import (
    BackendUnavailable,
    DeviceMemoryError,
    KernelCompilationError,
    KernelLaunchError,
    Struct,
    nvrtc,
    open_backend,
)
from gpupc_impl.backends import Pointer as ToArray
from gpupc_impl.backends.cuda import CudaBackend

KIB = 1024


class CudaError(RuntimeError):
    pass


class OutOfMemory(MemoryError):
    pass


class Context:
    """A device or a stream: something that is entered before work."""

    entered, ptr = 0, 0

    def __init__(self, number=None, **options):
        self.id, self.compute_capability, self.options = number or 0, "90", options

    def __enter__(self):
        Context.entered += 1

    def __exit__(self, *failure):
        Context.entered -= 1

    def __eq__(self, other):
        return self.id == other.id

    __hash__ = None

    def synchronize(self):
        assert Context.entered


class Pointer:
    ptr = 0

    def memset_async(self, value, size):
        assert Context.entered


class Pool:
    """Keeps what is freed, in whole blocks of 512 bytes, until it is told to give it back."""

    has = 1 << 20

    def __init__(self):
        self.used = self.kept = 0

    def used_bytes(self):
        assert Context.entered
        return self.used

    def total_bytes(self):
        return self.used + self.kept

    def free_all_blocks(self):
        self.kept = 0

    def malloc(self, size):
        assert Context.entered
        size = -(-size // 512) * 512
        if self.used + self.kept + size > self.has:
            raise OutOfMemory
        self.used += size
        pointer = Pointer()
        weakref.finalize(pointer, self._free, size)
        return pointer

    def _free(self, size):
        self.used -= size
        self.kept += size


class Array:
    def __init__(self, shape, dtype, memptr):
        self.host, self.data, self.device = np.zeros(shape, dtype), memptr, Context(0)
        self.size, self.nbytes, self.flags = self.host.size, self.host.nbytes, self.host.flags
        self.shape, self.dtype, self.strides = self.host.shape, self.host.dtype, self.host.strides
        memptr.ptr = self.host.ctypes.data


class PinnedMemory:
    def __init__(self, size):
        self.memory = ctypes.create_string_buffer(size)
        self.ptr = ctypes.addressof(self.memory)


def copy(target, source, size, kind, stream):
    assert Context.entered
    if Function.fault:
        raise CudaError("cudaErrorIllegalAddress")
    ctypes.memmove(target, source, size)


class Function:
    max_threads_per_block, shared_size_bytes, max_dynamic_shared_size_bytes = 512, 4 * KIB, 44 * KIB
    num_regs, local_size_bytes = 100, 0
    launches: list[tuple]
    fault = False

    def __call__(self, grid, block, args, *, shared_mem):
        assert Context.entered
        assert shared_mem <= self.max_dynamic_shared_size_bytes
        self.launches.append((grid, block, args, shared_mem))


@pytest.fixture
def cupy(monkeypatch):
    """The stand-in, as the module that ``import cupy`` finds."""
    monkeypatch.setattr(Function, "launches", [], raising=False)
    monkeypatch.setattr(Function, "fault", False)
    runtime = types.SimpleNamespace(
        CUDARuntimeError=CudaError,
        getDeviceCount=lambda: 2,
        driverGetVersion=lambda: 12020,
        runtimeGetVersion=lambda: 13000,
        memGetInfo=lambda: (Pool.has, Pool.has),
        deviceGetAttribute=lambda attribute, device: 100 * KIB,
        cudaDevAttrMaxSharedMemoryPerBlockOptin=97,
        memcpyAsync=copy,
        memcpyHostToDevice=1,
        memcpyDeviceToHost=2,
    )
    module = types.SimpleNamespace(
        ndarray=Array,
        RawModule=lambda path: types.SimpleNamespace(get_function=lambda name: Function()),
        cuda=types.SimpleNamespace(
            Device=Context,
            Stream=Context,
            MemoryPool=Pool,
            PinnedMemory=PinnedMemory,
            runtime=runtime,
            driver=types.SimpleNamespace(CUDADriverError=CudaError),
            memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemory),
            nvrtc=types.SimpleNamespace(getSupportedArchs=lambda: (80, 90)),
        ),
    )
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setattr("gpupc_impl.backends.cuda.MEMORY_MARGIN", 0)
    monkeypatch.delenv("GPUPC_CUDA_DEVICE", raising=False)
    return module


@pytest.fixture
def backend(cupy, monkeypatch):
    def compile_image(nvrtc_, source, kernels, architecture):
        assert architecture == "sm_90"
        entries = {
            name: nvrtc.Entry(f"_{name}", ("b8[16]", "u32") if structs else ("u64", "u64", "u32", "f64"))
            for name, structs in kernels.items()
        }
        return nvrtc.Image(Path("image"), entries, cached=False)

    monkeypatch.setattr(nvrtc, "compile_image", compile_image)
    yield open_backend("cuda", device_memory_limit=64 * KIB)
    assert Context.entered == 0


@pytest.fixture
def arguments(backend):
    return [backend.upload(np.arange(3.0)), None, np.int32(3), np.float64(0.5)]


# --- availability ----------------------------------------------------------------------------------------------------


def fail(message):
    def function(*args):
        raise CudaError(message)

    return function


def test_without_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert 'pip install "gpupc[cuda12]"' in CudaBackend.unavailable()


def test_without_a_driver(cupy):
    cupy.cuda.runtime.getDeviceCount = fail("cudaErrorInsufficientDriver")
    cupy.cuda.runtime.driverGetVersion = lambda: 0
    assert CudaBackend.unavailable() == "no CUDA device is visible: no NVIDIA driver is installed here"


def test_with_an_old_driver_or_a_hidden_device(cupy, monkeypatch):
    cupy.cuda.runtime.getDeviceCount = fail("cudaErrorInsufficientDriver")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    reason = CudaBackend.unavailable()
    for part in ("cudaErrorInsufficientDriver", "driver supports CUDA 12.2", "CUDA 13.0", "CUDA_VISIBLE_DEVICES is ''"):
        assert part in reason


@pytest.mark.parametrize("chosen", ["2", "-1", "first"])
def test_with_a_wrong_device_number(cupy, monkeypatch, chosen):
    monkeypatch.setenv("GPUPC_CUDA_DEVICE", chosen)
    with pytest.raises(BackendUnavailable, match=f"GPUPC_CUDA_DEVICE is '{chosen}'; .* from 0 to 1"):
        open_backend("cuda")


def test_without_nvrtc(cupy):
    cupy.cuda.nvrtc.getSupportedArchs = fail("libnvrtc.so.12 was not found")
    assert "pip install nvidia-cuda-nvrtc" in CudaBackend.unavailable()


def test_with_an_old_device(cupy):
    cupy.cuda.nvrtc.getSupportedArchs = lambda: (100, 120)
    assert "capability 90 is too old" in CudaBackend.unavailable()


def test_with_a_device(cupy):
    assert CudaBackend.unavailable() is None


def test_with_a_busy_device(cupy):
    cupy.cuda.runtime.memGetInfo = fail("cudaErrorDevicesUnavailable")
    with pytest.raises(BackendUnavailable, match="CUDA device 0 cannot be used: cudaErrorDevicesUnavailable"):
        open_backend("cuda")


# --- memory ----------------------------------------------------------------------------------------------------------


def test_freed_memory_counts_only_until_the_room_is_needed(backend):
    first = backend.empty(40 * KIB, np.uint8)
    with pytest.raises(DeviceMemoryError) as caught:
        backend.empty((30, KIB), np.uint8)
    assert (caught.value.requested, caught.value.used, caught.value.limit) == (30 * KIB, 40 * KIB, 64 * KIB)
    del first
    second = backend.empty((30, KIB), np.uint8)
    assert backend.memory_used == second.nbytes
    assert backend.memory_peak == 40 * KIB
    backend.reset_peak()
    assert backend.memory_peak == second.nbytes


def test_a_full_device_is_out_of_memory_whatever_the_budget(cupy):
    backend = open_backend("cuda", device_memory_limit=2**60)
    assert backend.memory_limit < Pool.has
    cupy.cuda.runtime.memGetInfo = lambda: (4096, Pool.has)
    backend._pool.has = 8192
    with pytest.raises(DeviceMemoryError) as caught:
        backend.empty(10_000, np.uint8)
    assert (caught.value.requested, caught.value.used, caught.value.limit) == (10_000, 0, 4096)


def test_a_negative_budget_is_refused(cupy):
    with pytest.raises(ValueError, match="must not be negative; got -1"):
        open_backend("cuda", device_memory_limit=-1)


# --- launches --------------------------------------------------------------------------------------------------------


def test_a_launch_reaches_the_device_as_it_was_asked_for(backend, arguments):
    backend.kernel("a.cu", "kernel")(np.array([2, 3]), [64], arguments, shared_bytes=np.int64(16))
    ((grid, block, passed, shared),) = Function.launches
    assert (grid, block, shared) == ((2, 3, 1), (64, 1, 1), 16)
    assert all(value.size == 1 for value in passed)  # CuPy passes these by value
    assert b"".join(value.tobytes() for value in passed) == struct.pack("=QQid", arguments[0].data.ptr, 0, 3, 0.5)


def test_structs_arrive_by_value(backend, arguments):
    pair = Struct("Pair", values=ToArray(np.float64), n=np.int32, scale=np.float32)
    kernel = backend.kernel("a.cu", "kernel", [pair])
    kernel([1], [1], [pair(values=arguments[0], n=-1, scale=np.float32(0.5)), np.int32(3)])
    ((_, _, passed, _),) = Function.launches
    assert passed[0].tobytes() == struct.pack("=Qif", arguments[0].data.ptr, -1, 0.5)
    assert passed[1].tobytes() == struct.pack("=i", 3)
    wrong = backend.upload(np.arange(3))
    with pytest.raises(
        KernelLaunchError, match=r"kernel kernel: Pair\.values must be a device array of float64, not an array of int64"
    ):
        kernel([1], [1], [pair(values=wrong, n=1, scale=np.float32(1)), np.int32(3)])
    with pytest.raises(KernelLaunchError, match="argument 0 must be the struct Pair, not an array of float64"):
        kernel([1], [1], [arguments[0], np.int32(3)])


def test_an_empty_grid_is_not_launched(backend, arguments):
    backend.kernel("a.cu", "kernel")([0], [64], arguments)
    assert Function.launches == []


def test_much_shared_memory_is_asked_for_once(backend, arguments):
    kernel = backend.kernel("a.cu", "kernel")
    for size in (44, 60, 50, 96):
        kernel([1], [64], arguments, shared_bytes=size * KIB)
    assert [launch[3] for launch in Function.launches] == [44 * KIB, 60 * KIB, 50 * KIB, 96 * KIB]
    with pytest.raises(KernelLaunchError, match=f"may have 0 to {96 * KIB}"):
        kernel([1], [64], arguments, shared_bytes=96 * KIB + 1)


@pytest.mark.parametrize(
    ("grid", "block", "said"),
    [
        ([1], [513], "has 513 threads; this kernel's may have 1 to 512 .it uses 100 registers"),
        ([1], [0], "has 0 threads"),
        ([1], [2048], "x is 2048; it may be 0 to 1024"),
        ([1, 65536], [1], "y is 65536; it may be 0 to 65535"),
        ([1] * 4, [1], "one to three numbers"),
    ],
)
def test_a_launch_that_cannot_be(backend, arguments, grid, block, said):
    with pytest.raises(KernelLaunchError, match=f"kernel k<3>: .*{said}"):
        backend.kernel("a.cu", "k<3>")(grid, block, arguments)


@pytest.mark.parametrize(
    ("position", "value", "said"),
    [
        (0, np.zeros(3), r"a device array, not a NumPy array in host memory \(use upload\)"),
        (0, 0, "a device array, None or a NumPy 64-bit integer"),
        (1, np.int32(0), "a device array, None or a NumPy 64-bit integer"),
        (2, 3, r"a NumPy 32-bit integer scalar, not 3 \(int\)"),
        (2, np.int64(3), "a NumPy 32-bit integer"),
        (2, None, "a NumPy 32-bit integer"),
        (3, 0.5, r"a NumPy 64-bit floating-point scalar, not 0.5 \(float\)"),
        (3, np.uint64(1), "a NumPy 64-bit floating-point"),
        (3, np.zeros(3), "a NumPy 64-bit floating-point scalar, not an array of float64"),
    ],
)
def test_arguments_that_do_not_fit(backend, arguments, position, value, said):
    arguments[position] = value
    with pytest.raises(KernelLaunchError, match=f"kernel k: argument {position} must be {said}"):
        backend.kernel("a.cu", "k")([1], [1], arguments)
    with pytest.raises(KernelLaunchError, match="takes 4 arguments; 3 given"):
        backend.kernel("a.cu", "k")([1], [1], arguments[:3])


def test_arrays_of_another_device_or_with_gaps_are_refused(backend, arguments):
    arguments[0].device = Context(1)
    with pytest.raises(KernelLaunchError, match=r"argument 0 must be an array on .*, not one on "):
        backend.kernel("a.cu", "k")([1], [1], arguments)
    arguments[0].device, arguments[0].flags = Context(0), np.zeros(6)[::2].flags
    with pytest.raises(KernelLaunchError, match=r"argument 0 must be a C-contiguous array, not one with strides"):
        backend.kernel("a.cu", "k")([1], [1], arguments)


def test_a_fault_names_the_kernels_since_the_last_synchronisation(backend, arguments):
    for name in ("first", "second", "third", "second"):
        if name == "second":
            backend.synchronize()
        backend.kernel("a.cu", name)([1], [1], arguments)
    backend.kernel("a.cu", "fourth")([1], [1], arguments)
    Function.fault = True
    with pytest.raises(KernelLaunchError, match=r"cudaErrorIllegalAddress .*synchronisation: second, fourth\)"):
        backend.download(arguments[0])


def test_an_image_that_the_driver_refuses(backend, cupy):
    cupy.RawModule = lambda path: fail("CUDA_ERROR_NO_BINARY_FOR_GPU")()
    with pytest.raises(KernelCompilationError, match=r"k in a\.cu, compiled for sm_90, cannot be loaded: CUDA_ERROR"):
        backend.kernel("a.cu", "k")
