"""The CUDA backend's own logic, over a stand-in for CuPy: what it refuses, counts, translates and says.

Nothing here shows that CuPy or a device behaves as the stand-in does; tests/gpu does, on a device.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import math
import struct
import sys
import threading
import types
import warnings
import weakref
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import pytest

from gpupc_impl import backends
from gpupc_impl.backends import (
    BackendUnavailable,
    DeviceMemoryError,
    KernelCompilationError,
    KernelLaunchError,
    Struct,
    cuda,
    cuda_copies,
    cuda_memory,
    nvrtc,
    open_backend,
    pinned,
)
from gpupc_impl.backends import Pointer as ToArray
from gpupc_impl.backends.cuda import CudaBackend
from gpupc_impl.backends.cuda_copies import MIRROR
from gpupc_impl.backends.sources import SourceCache
from gpupc_impl.integers import round_up

KIB, MB = 1024, 1_000_000


class CudaError(RuntimeError):
    pass


class OutOfMemory(MemoryError):
    pass


class Current(threading.local):
    """What CUDA and CuPy know of a thread: its device, and the stream that it queues work in."""

    def __init__(self):
        self.devices, self.streams = [0], []


CURRENT = Current()


class Device:
    compute_capability = "90"

    def __init__(self, number=None):
        self.id = CURRENT.devices[-1] if number is None else number

    def __enter__(self):
        CURRENT.devices.append(self.id)

    def __exit__(self, *failure):
        CURRENT.devices.pop()

    def __eq__(self, other):
        return self.id == other.id

    __hash__ = None


class Stream:
    """Does nothing before somebody waits for it, as a device may."""

    def __init__(self, non_blocking):
        assert non_blocking
        self.device, self.queue, self.done = CURRENT.devices[-1], [], 0
        self.ptr, self.lock = 1 + len(STREAMS), threading.RLock()
        STREAMS[self.ptr] = self

    def __enter__(self):
        assert CURRENT.devices[-1] == self.device
        CURRENT.streams.append(self)

    def __exit__(self, *failure):
        assert CURRENT.streams.pop() is self

    def run(self, until):
        if Function.fault:
            raise CudaError("cudaErrorIllegalAddress")
        with self.lock:
            while self.done < until:
                self.queue[self.done]()
                self.done += 1

    def synchronize(self):
        assert CURRENT.devices[-1] == self.device
        self.run(len(self.queue))

    def record(self):
        assert working() is self
        return Event(self)

    def wait_event(self, event):
        assert working() is self
        self.queue.append(event.run)


STREAMS: dict[int, Stream] = {}


class Event:
    def __init__(self, stream):
        self.run = functools.partial(stream.run, len(stream.queue))

    def synchronize(self):
        working()
        self.run()


def working():
    """The current stream; there must be one, on the current device."""
    assert CURRENT.streams, "no stream is current"
    assert CURRENT.streams[-1].device == CURRENT.devices[-1]
    return CURRENT.streams[-1]


class Memory:
    """Page-locked memory, or a device's (undefined at first)."""

    live: ClassVar[weakref.WeakSet[Memory]] = weakref.WeakSet()
    lock = threading.Lock()

    def __init__(self, size):
        self.device_id = CURRENT.devices[-1]
        self.bytes = np.full(size, 0xAB, np.uint8)
        self.ptr = self.bytes.ctypes.data
        with self.lock:
            self.live.add(self)

    @classmethod
    def at(cls, address, size):
        """The bytes there, which must all be of one piece of this kind of memory."""
        with cls.lock:
            for memory in cls.live:
                start = address - memory.ptr
                if type(memory) is cls and 0 <= start <= start + size <= memory.bytes.size:
                    return memory.bytes[start : start + size]
        raise AssertionError(f"{size} bytes at {address} are not {cls.__name__}")


class PinnedMemory(Memory):
    pass


class Place:
    """A place in a device's memory, which lives as long as it does."""

    def __init__(self, memory, offset):
        self.memory, self.device_id = memory, memory.device_id
        self.bytes, self.ptr = memory.bytes[offset:], memory.ptr + offset

    def __add__(self, offset):
        return Place(self.memory, self.ptr - self.memory.ptr + offset)

    def memset_async(self, value, size, stream=None):
        target, stream = DeviceMemory.at(self.ptr, size), working() if stream is None else stream
        assert CURRENT.devices[-1] == stream.device
        stream.queue.append(lambda: target.fill(value))


class DeviceMemory(Memory):
    pass


class Pool:
    """Keeps what is freed, in whole blocks of 512 bytes, until it is told to give it back."""

    has = 1 << 20
    opened: list[Pool]

    def __init__(self, allocator=None):
        self.used, self.kept, self.allocator = 0, 0, allocator
        self.opened.append(self)

    def used_bytes(self):
        working()
        return self.used

    def total_bytes(self):
        return self.used + self.kept

    def free_all_blocks(self):
        self.kept = 0

    def malloc(self, size):
        working()
        taken = round_up(size, 512)
        if self.used + self.kept + taken > self.has:
            raise OutOfMemory
        self.used += taken
        memory = DeviceMemory(size)
        weakref.finalize(memory, self._free, taken)
        return Place(memory, 0)

    def _free(self, size):
        self.used -= size
        self.kept += size


class Array:
    def __init__(self, shape, dtype, memptr):
        values = memptr.bytes[: math.prod(shape) * np.dtype(dtype).itemsize].view(dtype).reshape(shape)
        self.data, self.device = memptr, Device()
        self.size, self.nbytes, self.flags = values.size, values.nbytes, values.flags
        self.shape, self.dtype, self.strides = values.shape, values.dtype, values.strides


def copy(target, source, size, kind, stream):
    copy_2d(target, size, source, size, size, 1, kind, stream)


def copy_2d(target, target_pitch, source, source_pitch, width, height, kind, stream):
    stream = STREAMS[stream]
    assert CURRENT.devices[-1] == stream.device
    to, of = (DeviceMemory, PinnedMemory) if kind == 1 else (PinnedMemory, DeviceMemory)
    rows = [
        (to.at(target + row * target_pitch, width), of.at(source + row * source_pitch, width)) for row in range(height)
    ]

    def run():
        for to_row, of_row in rows:
            to_row[:] = of_row

    stream.queue.append(run)


class Launch(NamedTuple):
    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: bytes
    shared_bytes: int
    stream: Stream
    cooperative: bool = False


def launch_kernel(function, x, y, z, block_x, block_y, block_z, shared_bytes, stream, parameters, extra):
    """As ``cuLaunchKernel`` reads its arguments: from one buffer, which ends with the call."""
    stream = STREAMS[stream]
    assert CURRENT.devices[-1] == stream.device
    assert parameters == 0
    function = Function.loaded[function]
    assert shared_bytes <= function.max_dynamic_shared_size_bytes
    buffer_pointer, buffer, buffer_size, size, end = (ctypes.c_void_p * 5).from_address(extra)
    assert (buffer_pointer, buffer_size, end) == (1, 2, None)  # CU_LAUNCH_PARAM_BUFFER_POINTER, ..._SIZE, ..._END
    arguments = ctypes.string_at(buffer, ctypes.c_size_t.from_address(size).value)
    launch = Launch(function.name, (x, y, z), (block_x, block_y, block_z), arguments, shared_bytes, stream)
    Function.launches.append(launch)


def launch_cooperative_kernel(function, x, y, z, block_x, block_y, block_z, shared_bytes, stream, parameters):
    """As ``cuLaunchCooperativeKernel`` reads its arguments: each from a place of its own."""
    stream, function = STREAMS[stream], Function.loaded[function]
    assert CURRENT.devices[-1] == stream.device
    assert shared_bytes <= function.max_dynamic_shared_size_bytes
    sizes = (8, 8, 4, 8)  # of the parameters that `compiled` gives a kernel
    places = (ctypes.c_void_p * len(sizes)).from_address(parameters)
    arguments = b"".join(ctypes.string_at(place, size) for place, size in zip(places, sizes, strict=True))
    launch = Launch(function.name, (x, y, z), (block_x, block_y, block_z), arguments, shared_bytes, stream, True)
    Function.launches.append(launch)


def resident_blocks(function, threads, shared_bytes):
    assert shared_bytes <= Function.loaded[function].max_dynamic_shared_size_bytes
    return min(2048 // threads, 100 * KIB // max(shared_bytes, 1))


class Function:
    max_threads_per_block, shared_size_bytes, max_dynamic_shared_size_bytes = 512, 4 * KIB, 44 * KIB
    num_regs, local_size_bytes = 100, 0
    loaded: list[Function]
    launches: list[Launch]
    fault = False

    def __init__(self, name):
        self.name, self.kernel = name, types.SimpleNamespace(ptr=len(self.loaded))
        self.loaded.append(self)


@pytest.fixture
def cupy(monkeypatch):
    """The stand-in, as the module that ``import cupy`` finds."""
    for name, value in (("loaded", []), ("launches", []), ("fault", False)):
        monkeypatch.setattr(Function, name, value, raising=False)
    monkeypatch.setattr(Pool, "opened", [], raising=False)
    monkeypatch.setattr(Memory, "live", weakref.WeakSet())
    monkeypatch.setattr(cuda, "_functions", SourceCache())
    runtime = types.SimpleNamespace(
        CUDARuntimeError=CudaError,
        getDevice=lambda: CURRENT.devices[-1],
        getDeviceCount=lambda: 2,
        driverGetVersion=lambda: 12020,
        runtimeGetVersion=lambda: 13000,
        memGetInfo=lambda: (Pool.has, Pool.has),
        deviceGetAttribute=lambda attribute, device: {97: 100 * KIB, 16: 132, 95: 1}[attribute],
        cudaDevAttrMaxSharedMemoryPerBlockOptin=97,
        cudaDevAttrMultiProcessorCount=16,
        cudaDevAttrCooperativeLaunch=95,
        memcpyAsync=copy,
        memcpy2DAsync=copy_2d,
        memcpyHostToDevice=1,
        memcpyDeviceToHost=2,
    )
    module = types.SimpleNamespace(
        ndarray=Array,
        RawModule=lambda path: types.SimpleNamespace(get_function=Function),
        cuda=types.SimpleNamespace(
            Device=Device,
            Stream=Stream,
            MemoryPool=Pool,
            PinnedMemory=PinnedMemory,
            malloc_managed="malloc_managed",
            runtime=runtime,
            driver=types.SimpleNamespace(
                CUDADriverError=CudaError,
                launchKernel=launch_kernel,
                launchCooperativeKernel=launch_cooperative_kernel,
                occupancyMaxActiveBlocksPerMultiprocessor=resident_blocks,
            ),
            memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemory),
            nvrtc=types.SimpleNamespace(getSupportedArchs=lambda: (80, 90)),
        ),
    )
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setattr(cuda_memory, "MEMORY_MARGIN", 0)
    monkeypatch.delenv("GPUPC_CUDA_DEVICE", raising=False)
    cuda_copies._pinned_pool.cache_clear()
    yield module
    cuda_copies._pinned_pool.cache_clear()
    assert (CURRENT.devices, CURRENT.streams) == ([0], [])


PARAMETERS = {
    "with_pair": ("b8[16]", "u32"),
    "with_gaps": ("u8", "b8[16]", "u8", "u16", "b8[8]", "u8", "f64"),
    "mirror<double>": ("u64", "u32"),
}


@pytest.fixture
def compiled(monkeypatch):
    def compile_image(nvrtc_, source, kernels, architecture, constants):
        assert architecture == "sm_90"
        entries = {
            name: nvrtc.CompiledKernel(f"_{name}", PARAMETERS.get(name, ("u64", "u64", "u32", "f64")))
            for name in kernels
        }
        return nvrtc.Image(Path("image"), entries, cached=False)

    monkeypatch.setattr(nvrtc, "compile_image", compile_image)


@pytest.fixture
def backend(cupy, compiled):
    return open_backend("cuda", device_memory_limit=64 * KIB)


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
    assert "pip install cupy-cuda12x" in CudaBackend.unavailable()


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


@pytest.mark.parametrize(("driver", "visible", "warned"), [(True, None, True), (False, None, False), (True, "", False)])
def test_auto_says_where_a_gpu_might_have_been_used(monkeypatch, driver, visible, warned):
    """Not where there is no driver, nor where the user hid the devices."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(backends, "has_nvidia_driver", lambda: driver)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert backends.resolve_backend("auto") == "host"
        assert backends.resolve_backend("host") == "host"  # as asked
    assert len(said) == warned
    if warned:
        assert "pip install cupy-cuda12x" in str(said[0].message)


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
    Pool.opened[-1].has = 8192
    with pytest.raises(DeviceMemoryError) as caught:
        backend.empty(10_000, np.uint8)
    assert (caught.value.requested, caught.value.used, caught.value.limit) == (10_000, 0, 4096)


def test_arrays_come_back_as_they_went(backend, monkeypatch):
    arrays = [np.arange(20, dtype=np.int32).reshape(4, 5), np.zeros((3, 0)), np.arange(9.0)[::2], np.float32(3)]
    for array, up in zip(arrays, [backend.upload(array) for array in arrays], strict=True):
        down = backend.download(up)
        assert (down.dtype, down.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(down, array)
    out = backend.host_empty(5, np.float64)
    assert backend.download(backend.upload(arrays[2]), out=out) is out
    np.testing.assert_array_equal(out, arrays[2])


@pytest.mark.parametrize("limit", [10, 2000])
def test_several_arrays_come_back_together(backend, monkeypatch, limit):
    monkeypatch.setattr(cuda_copies, "PINNED_RESULT_BYTES", limit)
    arrays = [np.arange(20, dtype=np.int32).reshape(4, 5), np.zeros((3, 0)), np.arange(9.0)]
    for array, down in zip(arrays, backend.download_all([backend.upload(array) for array in arrays]), strict=True):
        assert (down.dtype, down.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(down, array)


def test_large_arrays_go_and_come_in_pieces(backend, monkeypatch):
    for module in (cuda_copies, pinned):
        monkeypatch.setattr(module, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(pinned, "STAGE_BYTES", 4000)
    monkeypatch.setattr(cuda_copies, "SMALL_BYTES", 1000)
    monkeypatch.setattr(cuda_copies, "PINNED_RESULT_BYTES", 2000)
    array = np.random.default_rng(0).random((50, 70))  # 28 pieces
    np.testing.assert_array_equal(backend.download(backend.upload(array)), array)


def test_what_queued_copies_read_is_not_given_away(backend):
    arrays = [np.full(9, n) for n in range(5)]
    up = [backend.upload(array) for array in arrays]
    assert not any((array.data.bytes.view(int) == n).any() for n, array in enumerate(up))  # nothing has run yet
    for array, device in zip(arrays, up, strict=True):
        np.testing.assert_array_equal(backend.download(device), array)
    before = len(list(PinnedMemory.live))
    for array in arrays:
        backend.download(backend.upload(array))
    assert len(list(PinnedMemory.live)) == before  # now it is used again


@pytest.mark.parametrize("value", [0, -1, 0.5, True])
def test_filled_arrays(backend, value):
    array = backend.full((2, 3), value, np.asarray(value).dtype)
    np.testing.assert_array_equal(backend.download(array), np.full((2, 3), value))
    backend.fill(array, 0)
    assert not backend.download(array).any()


def test_several_arrays_lie_in_one_piece(backend):
    arrays = backend.empty_all(a=((3, 5), np.float64), b=(0, np.int32), c=(7, np.uint8), d=(300, np.int64))
    assert {name: (array.shape, array.dtype) for name, array in arrays.items()} == {
        "a": ((3, 5), np.float64),
        "b": ((0,), np.int32),
        "c": ((7,), np.uint8),
        "d": ((300,), np.int64),
    }
    assert all(array.data.ptr % 8 == 0 for array in arrays.values())
    for byte, array in enumerate(arrays.values(), start=1):
        backend.fill(array, np.frombuffer(bytes([byte]) * array.dtype.itemsize, array.dtype)[0])
    for byte, array in enumerate(arrays.values(), start=1):
        assert set(backend.download(array).tobytes()) <= {byte}
    assert backend.memory_used == 256 + 256 + 2560  # each from a multiple of 256 on
    del arrays, array
    assert backend.memory_used == 0
    with pytest.raises(DeviceMemoryError):
        backend.empty_all(a=(60 * KIB, np.uint8), b=(5 * KIB, np.uint8))


@pytest.mark.parametrize("p", [1, 5, 33, 100])
def test_half_of_a_symmetric_matrix_is_copied(cupy, compiled, monkeypatch, p):
    monkeypatch.setattr(cuda_copies, "SMALL_MATRIX_BYTES", 1000)
    backend = open_backend("cuda")
    copied = []
    monkeypatch.setattr(cupy.cuda.runtime, "memcpyAsync", lambda *copy_: (copied.append(copy_[2]), copy(*copy_)))
    monkeypatch.setattr(
        cupy.cuda.runtime, "memcpy2DAsync", lambda *copy_: (copied.append(copy_[4] * copy_[5]), copy_2d(*copy_))
    )
    matrix = np.corrcoef(np.random.default_rng(p).random((p, p + 9))).reshape(p, p)
    matrix = np.triu(matrix) + np.triu(matrix, 1).T  # to the last bit
    half = backend.upload_symmetric(matrix)
    host = open_backend("host")
    result = host.upload(backend.download(half))
    for launch in Function.launches:  # the lower triangle is undefined before
        assert struct.unpack("=Qi", launch.arguments) == (half.data.ptr, p)
        host.kernel(*MIRROR)(launch.grid, launch.block, [result, np.int32(p)])
    np.testing.assert_array_equal(host.download(result), matrix)
    assert bool(Function.launches) == (matrix.nbytes > 1000)
    down, *up = copied[::-1]
    assert down == matrix.nbytes
    assert sum(up) < 0.75 * matrix.nbytes if Function.launches else sum(up) == matrix.nbytes


@pytest.mark.parametrize("least", [1000, 1 << 20])
@pytest.mark.parametrize("is_writeable", [False, True])
def test_what_is_placed_is_copied_from_where_it_lies(cupy, compiled, monkeypatch, least, is_writeable):
    """And stays until it has been read; what may change meanwhile is copied first."""
    monkeypatch.setattr(cuda_copies, "SMALL_MATRIX_BYTES", 1000)
    monkeypatch.setattr(cuda_copies, "SMALL_PLACED_BYTES", least)
    backend = open_backend("cuda")
    matrix = backend.host_arrays((40, 40), np.float64)
    matrix[...] = np.corrcoef(np.random.default_rng(0).random((40, 50)))
    if not is_writeable:
        matrix.setflags(write=False)
    place = range(matrix.ctypes.data, matrix.ctypes.data + matrix.nbytes)
    sources = []
    monkeypatch.setattr(cupy.cuda.runtime, "memcpyAsync", lambda *copy_: (sources.append(copy_[1]), copy(*copy_)))
    monkeypatch.setattr(cupy.cuda.runtime, "memcpy2DAsync", lambda *copy_: (sources.append(copy_[2]), copy_2d(*copy_)))
    up = backend.upload(matrix), backend.upload_rows(matrix, 64), backend.upload_symmetric(matrix)
    assert all((source in place) != is_writeable for source in sources)
    assert bool(Function.launches) == (is_writeable or least == 1000)
    expected = np.array(matrix)
    del matrix
    np.testing.assert_array_equal(backend.download(up[0]), expected)
    np.testing.assert_array_equal(backend.download(up[1])[:, :40], expected)
    np.testing.assert_array_equal(np.triu(backend.download(up[2])), np.triu(expected))


def test_what_others_may_change_is_no_placed_array(backend):
    array = backend.host_arrays((4, 4), np.float64)
    view = array[1:]
    view.setflags(write=False)
    assert not pinned.is_placed(view)
    array.setflags(write=False)
    assert pinned.is_placed(view)
    assert not pinned.is_placed(array[:, 1:])


def test_arrays_are_placed_as_far_as_there_is_room(backend, monkeypatch):
    monkeypatch.setattr(cuda_copies, "MAX_PLACED_BYTES", 800)
    assert isinstance(backend.host_arrays((10, 10), np.float64).base, pinned._Block)
    assert backend.host_arrays((10, 11), np.float64).base is None

    def refuse(shape, dtype):
        raise MemoryError

    monkeypatch.setattr(backend._pinned, "array", refuse)
    assert backend.host_arrays((10, 10), np.float64).base is None


@pytest.mark.parametrize(("rows", "columns"), [(1, 7), (5, 5), (40, 13), (0, 4)])
def test_rows_are_copied_to_wider_ones(backend, monkeypatch, rows, columns):
    """In one part, and in several that threads copy."""
    matrix = np.random.default_rng(rows).integers(0, 200, (rows, columns)).astype(np.uint8)
    for small_bytes, chunk_bytes in ((1 << 21, 4 << 20), (30, 4 << 20), (30, 60)):
        monkeypatch.setattr(cuda_copies, "SMALL_BYTES", small_bytes)
        monkeypatch.setattr(cuda_copies, "CHUNK_BYTES", chunk_bytes)
        wide = backend.upload_rows(matrix, 16)
        assert wide.shape == (rows, 16)
        copied = backend.download(wide)
        np.testing.assert_array_equal(copied[:, :columns], matrix)
        assert not copied[:, columns:].any()


def test_a_product_takes_of_the_budget(backend, cupy):
    def matmul(a, b, out):
        working()
        return a, b, out

    cupy.matmul, Array.T = matmul, "transposed"
    samples = backend.empty((300, 20), np.float64)
    transposed, right, out = backend.gram(samples)
    assert (transposed, right, out.shape, out.dtype) == ("transposed", samples, (20, 20), np.float64)
    assert backend.memory_used == round_up(samples.nbytes, 512) + round_up(out.nbytes, 512)
    del out, right
    with pytest.raises(DeviceMemoryError):
        backend.gram(backend.empty((2, 80), np.float64))


def test_backends_share_what_is_loaded(cupy, monkeypatch):
    """And the shared memory that CUDA was asked to grant: who asks for less takes nothing from who asked for more."""
    images = []

    def compile_image(nvrtc_, source, kernels, architecture, constants):
        images.append(source.name)
        return nvrtc.Image(
            Path("image"), {name: nvrtc.CompiledKernel(name, ("u64", "u32")) for name in kernels}, cached=True
        )

    monkeypatch.setattr(nvrtc, "compile_image", compile_image)
    first, second = ((backend, backend.kernel(*MIRROR)) for backend in (open_backend("cuda"), open_backend("cuda")))
    for (backend, kernel), shared_bytes in ((first, 90), (second, 60), (first, 90)):
        kernel([1], [1], [backend.empty(1, np.float64), np.int32(1)], KIB * shared_bytes)
    assert images == ["mirror.cu"]
    assert len(Function.loaded) == 1
    assert [launch.shared_bytes for launch in Function.launches] == [90 * KIB, 60 * KIB, 90 * KIB]
    assert len({launch.stream for launch in Function.launches[:2]}) == 2


def keeps(pool):
    return pool.used + pool.kept


def test_a_backend_that_is_dropped_gives_its_memory_back(cupy, compiled):
    backend = open_backend("cuda")
    backend.kernel("kernel.cu", "some")  # refers to the backend
    pool = Pool.opened[-1]
    backend.empty(40 * KIB, np.uint8)
    assert keeps(pool) == 40 * KIB
    del backend
    gc.collect()
    assert keeps(pool) == 0


def test_an_array_that_outlives_its_backend_goes_back_behind_it(cupy, compiled):
    backend = open_backend("cuda")
    pool, array = Pool.opened[-1], backend.empty(40 * KIB, np.uint8)
    del backend
    gc.collect()
    assert keeps(pool) == array.nbytes
    del array
    open_backend("cuda")
    assert keeps(pool) == 0


def test_an_array_that_goes_with_its_backend_is_given_back(cupy, compiled):
    backend = open_backend("cuda")
    pool = Pool.opened[-1]
    backend.some_array = backend.empty(40 * KIB, np.uint8)  # freed by the collector behind the backend's end
    backend.kernel("kernel.cu", "some")
    del backend
    gc.collect()
    open_backend("cuda").release_memory()
    assert keeps(pool) == 0


def test_memory_that_is_kept_can_be_released(backend):
    backend.empty(40 * KIB, np.uint8)
    held = backend.empty(8 * KIB, np.uint8)
    backend.release_memory()
    assert keeps(Pool.opened[-1]) == backend.memory_used == held.nbytes


def test_managed_memory_is_given_back(backend):
    with backend.managed_memory():
        pool = Pool.opened[-1]
        backend.empty(16 * KIB, np.uint8)
        held = backend.empty(8 * KIB, np.uint8)
    assert keeps(pool) == held.nbytes
    del held
    backend.release_memory()
    assert keeps(pool) == 0


def test_a_device_at_fault_does_not_keep_a_backend_from_going(cupy, compiled, monkeypatch):
    asked, told = [], []

    def free_all_blocks():
        asked.append(True)
        raise CudaError("an illegal memory access")

    monkeypatch.setattr(sys, "unraisablehook", told.append)
    backend = open_backend("cuda")
    Pool.opened[-1].free_all_blocks = free_all_blocks
    backend.release_memory()
    del backend
    gc.collect()
    assert (len(asked), told, len(cuda_memory._dropped_pools)) == (2, [], 0)


def test_managed_memory_has_the_same_budget_unless_asked(backend):
    held = backend.empty(40 * KIB, np.uint8)
    with backend.managed_memory():
        managed = backend.empty(16 * KIB, np.uint8)
        assert Pool.opened[-1].allocator == "malloc_managed"
        assert backend.memory_used == 56 * KIB
        with pytest.raises(DeviceMemoryError):
            backend.empty(16 * KIB, np.uint8)
    with backend.managed_memory(oversubscribe=True):
        more = backend.empty(100 * KIB, np.uint8)
        assert backend.memory_used == 140 * KIB
    assert (backend.memory_limit, backend.memory_used) == (64 * KIB, 40 * KIB)
    assert held.nbytes + managed.nbytes + more.nbytes == 156 * KIB


def test_a_device_seems_smaller_while_plain_memory_is_held(cupy, compiled, monkeypatch):
    runtime, held = cupy.cuda.runtime, []
    monkeypatch.setattr(runtime, "memGetInfo", lambda: (50 * MB, 64 * MB))
    backend = open_backend("cuda", device_memory_limit=40 * MB)
    monkeypatch.setattr(runtime, "malloc", lambda size: held.append(size) or len(held), raising=False)
    monkeypatch.setattr(runtime, "free", lambda address: held.__setitem__(address - 1, 0), raising=False)
    with backend.smaller_device(20 * MB):
        assert held == [30 * MB]
        assert backend.memory_limit == 20 * MB
    assert (held, backend.memory_limit) == ([0], 40 * MB)
    with backend.smaller_device(60 * MB):  # there is no more than that
        assert (held, backend.memory_limit) == ([0], 40 * MB)
    monkeypatch.setattr(runtime, "malloc", fail("cudaErrorMemoryAllocation"))
    with pytest.raises(DeviceMemoryError), backend.smaller_device(20 * MB):
        pass
    assert backend.memory_limit == 40 * MB


def test_a_device_too_small_for_managed_memory_is_refused(backend):
    said = r"7,999,999 .* too few .* leave 8,000,000 or more \(device_mb=8\)"
    with pytest.raises(DeviceMemoryError, match=said), backend.smaller_device(8 * MB - 1):
        pass
    assert backend.memory_limit == 64 * KIB


def test_the_chosen_device_does_the_work(cupy, compiled, monkeypatch):
    monkeypatch.setenv("GPUPC_CUDA_DEVICE", "1")
    backend = open_backend("cuda")
    array = backend.upload(np.arange(3.0))
    backend.kernel("a.cu", "kernel")([1], [1], [array, None, np.int32(3), np.float64(0.5)])
    np.testing.assert_array_equal(backend.download(array), np.arange(3.0))
    assert {launch.stream.device for launch in Function.launches} == {memory.device_id for memory in Memory.live} == {1}


def test_streams_beside_the_backends_own(backend):
    first, second = backend.stream(), backend.stream()
    array, host = backend.empty(4, np.int16), backend.host_empty(4, np.int16)
    first.fill_bytes(array, 1)
    second.wait(first.record())
    second.copy(host, array)
    moment = second.record()
    moment.synchronize()
    assert (host == 0x0101).all()
    backend.kernel("a.cu", "kernel")([1], [1], [array, None, np.int32(3), np.float64(0.5)], stream=first)
    assert Function.launches[-1].stream is first.handle
    with pytest.raises(ValueError, match="cannot copy 8 bytes to an array of 6"):
        first.copy(backend.empty(3, np.int16), host)


def test_a_negative_budget_is_refused(cupy):
    with pytest.raises(ValueError, match="must not be negative; got -1"):
        open_backend("cuda", device_memory_limit=-1)


# --- launches --------------------------------------------------------------------------------------------------------


def test_a_launch_reaches_the_device_as_it_was_asked_for(backend, arguments):
    backend.kernel("a.cu", "kernel")(np.array([2, 3]), [64], arguments, shared_bytes=np.int64(16))
    (launch,) = Function.launches
    assert launch[:3] == ("_kernel", (2, 3, 1), (64, 1, 1))
    assert (launch.shared_bytes, launch.stream) == (16, backend._stream)
    assert launch.arguments == struct.pack("=QQi4xd", arguments[0].data.ptr, 0, 3, 0.5)


def test_blocks_that_wait_for_each_other_are_launched_together(backend, arguments):
    kernel = backend.kernel("a.cu", "kernel")
    assert kernel.resident_blocks(128, 60 * KIB) == 132
    assert kernel.resident_blocks(512, 0) == 4 * 132
    kernel([132], [128], arguments, shared_bytes=60 * KIB, cooperative=True)
    kernel([133], [128], arguments, shared_bytes=60 * KIB)
    together, alone = Function.launches
    assert (together.cooperative, alone.cooperative) == (True, False)
    assert together[:3] == ("_kernel", (132, 1, 1), (128, 1, 1))
    assert (together.shared_bytes, together.stream) == (60 * KIB, backend._stream)
    assert together.arguments == struct.pack("=QQid", arguments[0].data.ptr, 0, 3, 0.5)
    with pytest.raises(KernelLaunchError, match=r"133 blocks asked for .*; 132 of this size are resident at once"):
        kernel([133], [128], arguments, shared_bytes=60 * KIB, cooperative=True)


def test_a_device_without_cooperative_launches(cupy, compiled):
    attributes = cupy.cuda.runtime.deviceGetAttribute
    cupy.cuda.runtime.deviceGetAttribute = lambda attribute, device: attribute != 95 and attributes(attribute, device)
    backend = open_backend("cuda")
    kernel = backend.kernel("a.cu", "kernel")
    assert kernel.resident_blocks(128, 0) == 0
    with pytest.raises(KernelLaunchError, match=r"1 blocks asked for .*; 0 of this size are resident at once"):
        kernel([1], [128], [None, None, np.int32(3), np.float64(0.5)], cooperative=True)


def test_structs_arrive_by_value(backend, arguments):
    pair = Struct("Pair", values=ToArray(np.float64), n=np.int32, scale=np.float32)
    kernel = backend.kernel("a.cu", "with_pair", [pair])
    kernel([1], [1], [pair(values=arguments[0], n=-1, scale=np.float32(0.5)), np.int32(3)])
    (launch,) = Function.launches
    assert launch.arguments == struct.pack("=Qifi", arguments[0].data.ptr, -1, 0.5, 3)
    wrong = backend.upload(np.arange(3))
    with pytest.raises(
        KernelLaunchError,
        match=r"kernel with_pair: Pair\.values must be a device array of float64, not an array of int64",
    ):
        kernel([1], [1], [pair(values=wrong, n=1, scale=np.float32(1)), np.int32(3)])
    with pytest.raises(KernelLaunchError, match="argument 0 must be the struct Pair, not an array of float64"):
        kernel([1], [1], [arguments[0], np.int32(3)])


def test_every_argument_lies_where_ptx_expects_it(backend):
    """A struct is aligned as its widest field, whatever comes before it."""
    wide, narrow = Struct("Wide", x=np.float64, n=np.int16), Struct("Narrow", a=np.int32, b=np.uint8)
    values = [np.bool_(True), wide(x=1.5, n=2), np.uint8(3), np.int16(4), narrow(a=5, b=6), np.uint8(7), np.float64(8)]
    backend.kernel("a.cu", "with_gaps", [wide, narrow])([1], [1], values)
    (launch,) = Function.launches

    class Wide(ctypes.Structure):
        _fields_ = [("x", ctypes.c_double), ("n", ctypes.c_int16)]

    class Narrow(ctypes.Structure):
        _fields_ = [("a", ctypes.c_int32), ("b", ctypes.c_uint8)]

    class Arguments(ctypes.Structure):
        _fields_ = [
            ("first", ctypes.c_bool),
            ("wide", Wide),
            ("second", ctypes.c_uint8),
            ("third", ctypes.c_int16),
            ("narrow", Narrow),
            ("fourth", ctypes.c_uint8),
            ("last", ctypes.c_double),
        ]

    seen = Arguments.from_buffer_copy(launch.arguments)
    assert len(launch.arguments) == ctypes.sizeof(Arguments)
    assert (seen.first, seen.wide.x, seen.wide.n, seen.second, seen.third) == (True, 1.5, 2, 3, 4)
    assert (seen.narrow.a, seen.narrow.b, seen.fourth, seen.last) == (5, 6, 7, 8)


def test_the_device_says_how_many_blocks_fill_it(backend):
    assert backend.blocks_at_once == 8 * 132


def test_an_empty_grid_is_not_launched(backend, arguments):
    backend.kernel("a.cu", "kernel")([0], [64], arguments)
    assert Function.launches == []


def test_much_shared_memory_is_asked_for_once(backend, arguments):
    kernel = backend.kernel("a.cu", "kernel")
    for size in (44, 60, 50, 96):
        kernel([1], [64], arguments, shared_bytes=size * KIB)
    assert [launch.shared_bytes for launch in Function.launches] == [44 * KIB, 60 * KIB, 50 * KIB, 96 * KIB]
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
    arguments[0].device, arguments[0].data.device_id = Device(1), 1
    with pytest.raises(KernelLaunchError, match=r"argument 0 must be an array on .*, not one on "):
        backend.kernel("a.cu", "k")([1], [1], arguments)
    arguments[0].device, arguments[0].data.device_id = Device(0), 0
    arguments[0].flags = np.zeros(6)[::2].flags
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


def test_a_fault_that_shows_in_a_large_copy_names_them_too(backend, arguments, monkeypatch):
    for module in (cuda_copies, pinned):
        monkeypatch.setattr(module, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(pinned, "STAGE_BYTES", 4000)
    monkeypatch.setattr(cuda_copies, "SMALL_BYTES", 1000)
    monkeypatch.setattr(cuda_copies, "PINNED_RESULT_BYTES", 2000)
    array = backend.upload(np.zeros((50, 70)))
    backend.kernel("a.cu", "first")([1], [1], arguments)
    Function.fault = True
    for fails in (lambda: backend.download(array), lambda: backend.upload(np.zeros((50, 70)))):
        with pytest.raises(KernelLaunchError, match=r"synchronisation: first\)"):
            fails()


def test_an_image_that_the_driver_refuses(backend, cupy):
    cupy.RawModule = lambda path: fail("CUDA_ERROR_NO_BINARY_FOR_GPU")()
    with pytest.raises(KernelCompilationError, match=r"k in a\.cu, compiled for sm_90, cannot be loaded: CUDA_ERROR"):
        backend.kernel("a.cu", "k")
