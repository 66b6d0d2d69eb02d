"""The CUDA backend on a device: memory and its budget, launches and their checks, compilation, faults."""

import gc
import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gpupc_impl
from gpupc_impl import BackendUnavailable, DeviceMemoryError
from gpupc_impl.backends import KernelCompilationError, KernelLaunchError, cuda, open_backend, resolve_backend
from gpupc_impl.backends.sources import SourceCache

pytestmark = pytest.mark.gpu

MIB = 2**20

KERNELS = r"""
#include "backends/simt/portable.cuh"
#include "engine/kernels/grid_barrier.cuh"

template <class T> __global__ void scale(const T* in, T* out, long long n, T factor) {
    const long long k = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (k < n) out[k] = in[k] * factor;
}

__global__ void scalars(double* out, bool a, signed char b, unsigned char c, short d, int e, unsigned f, long long g,
                        float h, double i) {
    const double values[] = {double(a), double(b), double(c), double(d), double(e), double(f), double(g), h, i};
    for (int k = 0; k < 9; ++k) out[k] = values[k];
}

__global__ void is_null(const double* p, int* out) { out[0] = p == nullptr; }

__global__ void add_one(int* counter) { counter[0] += 1; }

// Reverses n numbers within dynamic shared memory.
__global__ void reverse(const int* in, int* out, int n) {
    GPUPC_DYNAMIC_SHARED(int, shared);
    for (int k = threadIdx.x; k < n; k += blockDim.x) shared[k] = in[k];
    __syncthreads();
    for (int k = threadIdx.x; k < n; k += blockDim.x) out[k] = shared[n - 1 - k];
}

__global__ void with_static_shared(int* out) {
    GPUPC_DYNAMIC_SHARED(int, dynamic);
    __shared__ int fixed[1024];
    fixed[threadIdx.x] = dynamic[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = fixed[threadIdx.x] + dynamic[threadIdx.x];
}

__global__ void __launch_bounds__(64) narrow(int* out) { out[0] = 1; }

template <class T> __global__ void arithmetic(const T* x, T* out, int n) {
    for (int k = threadIdx.x; k + 2 < n; k += blockDim.x) out[k] = x[k] * x[k + 1] + x[k + 2] / x[k];
}

__global__ void fault(int* p) { p[1ll << 44] = 1; }

// Every block hands its number on to the block before it, `rounds` times, one more each time.
__global__ void hand_on(int* values, unsigned long long* arrived, int rounds) {
    GridBarrier barrier{arrived};
    for (int k = 0; k < rounds; ++k) {
        const int next = values[k % 2 * gridDim.x + (blockIdx.x + 1) % gridDim.x];
        if (threadIdx.x == 0) values[(k + 1) % 2 * gridDim.x + blockIdx.x] = next + 1;
        barrier.wait();
    }
}
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("kernels") / "tests.cu"
    path.write_text(KERNELS)
    return path


@pytest.fixture
def backend(device):
    return open_backend("cuda")


def test_is_the_automatic_choice():
    assert resolve_backend("auto") == "cuda"


def test_describe_names_the_device(backend):
    facts = backend.describe()
    assert facts["device"]
    assert facts["memory_bytes"] > 2**30


@pytest.mark.parametrize("chosen", ["-1", "999", "first"])
def test_a_wrong_device_number_is_named(monkeypatch, chosen):
    monkeypatch.setenv("GPUPC_CUDA_DEVICE", chosen)
    with pytest.raises(BackendUnavailable, match=f"GPUPC_CUDA_DEVICE is '{chosen}'"):
        open_backend("cuda")


def test_the_chosen_device_is_used(monkeypatch):
    monkeypatch.setenv("GPUPC_CUDA_DEVICE", "0")
    assert open_backend("cuda").upload(np.arange(3)).device.id == 0


ARRAYS = np.arange(7, dtype=np.int32), np.array([True, False]), np.array(3.5), np.empty((0, 5), np.uint64)


@pytest.mark.parametrize("array", [*ARRAYS, np.arange(24.0).reshape(2, 3, 4), np.arange(24.0).reshape(4, 6).T[::2]])
def test_upload_and_download(backend, array):
    back = backend.download(backend.upload(array))
    assert back.dtype == array.dtype
    assert back.flags.c_contiguous
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(0, "f8"), (-1, "i8"), (2**64 - 1, "u8"), (True, "bool"), (7, "u1"), (7, "i4"), (np.nan, "f8")],
)
@pytest.mark.parametrize("shape", [5, (300, 200), (0, 3)])
def test_full(backend, shape, value, dtype):
    np.testing.assert_array_equal(backend.download(backend.full(shape, value, dtype)), np.full(shape, value, dtype))


def test_backends_that_are_dropped_keep_no_device_memory():
    # Other programs take and give back some of the device's memory meanwhile, but not as much as this.
    rng = np.random.default_rng(3)
    data = rng.normal(size=(30, 3000))
    for how in ({"method": "pair-scan"}, {"method": "out-of-core-um", "max_level": 1}):
        gpupc_impl.skeleton(data, alpha=1e-6, backend="cuda", **how)
        before = open_backend("cuda").memory_limit
        for _ in range(20):
            gpupc_impl.skeleton(data, alpha=1e-6, backend="cuda", **how)
        assert before - open_backend("cuda").memory_limit < 10 * data.shape[1] ** 2 * 8
    kept = [open_backend("cuda") for _ in range(20)]
    for backend in kept:
        backend.empty(64 * MIB, np.uint8)
    low = open_backend("cuda").memory_limit
    del kept, backend
    gc.collect()
    assert open_backend("cuda").memory_limit - low > 19 * 60 * MIB


def test_memory_is_counted():
    backend = open_backend("cuda", device_memory_limit=64 * MIB)
    assert (backend.memory_used, backend.memory_peak, backend.memory_limit) == (0, 0, 64 * MIB)
    first, second = backend.empty(10 * MIB, np.uint8), backend.empty((5, MIB), np.uint8)
    assert backend.memory_used == backend.memory_peak == 15 * MIB
    del first
    assert (backend.memory_used, backend.memory_peak) == (5 * MIB, 15 * MIB)
    del second
    assert backend.memory_used == 0


def test_the_budget_is_kept():
    backend = open_backend("cuda", device_memory_limit=8 * MIB)
    kept = backend.upload(np.zeros(MIB, np.float32))
    with pytest.raises(DeviceMemoryError) as caught:
        backend.empty((5, MIB), np.uint8)
    assert (caught.value.requested, caught.value.used, caught.value.limit) == (5 * MIB, 4 * MIB, 8 * MIB)
    assert backend.memory_used == 4 * MIB
    backend.empty((4, MIB), np.uint8)
    del kept


def test_freed_memory_can_be_used_in_other_sizes():
    backend = open_backend("cuda", device_memory_limit=8 * MIB)
    for sizes in ([8], [4, 4], [1, 7], [3, 3, 2], [8]):
        held = [backend.empty(size * MIB, np.uint8) for size in sizes]
        assert backend.memory_used == 8 * MIB
        del held
    block = backend.empty(6 * MIB, np.uint8)
    del block
    piece = backend.empty(MIB, np.uint8)  # of the freed block, which is thereby split
    backend.empty(7 * MIB, np.uint8)
    del piece


def test_what_the_device_has_is_the_limit(backend):
    assert 0 < backend.memory_limit < backend.describe()["memory_bytes"]
    assert open_backend("cuda", device_memory_limit=2**60).memory_limit < 2**50
    with pytest.raises(DeviceMemoryError):
        backend.empty(2**60, np.uint8)


@pytest.mark.parametrize(("name", "dtype"), [("double", np.float64), ("float", np.float32), ("int", np.int32)])
def test_launch(backend, source, name, dtype):
    values = np.arange(10_000).astype(dtype)
    array, out = backend.upload(values), backend.empty(values.shape, dtype)
    backend.kernel(source, f"scale<{name}>")([40], [256], [array, out, np.int64(values.size), dtype(3)])
    np.testing.assert_array_equal(backend.download(out), values * dtype(3))


def test_scalars_arrive_as_they_are(backend, source):
    values = [np.bool_(True), np.int8(-3), np.uint8(200), np.int16(-300), np.int32(-(2**31)), np.uint32(2**32 - 1)]
    values += [np.int64(-(2**52)), np.float32(0.1), np.float64(0.1)]
    out = backend.empty(9, np.float64)
    backend.kernel(source, "scalars")([1], [1], [out, *values])
    assert backend.download(out).tolist() == [float(value) for value in values]


def test_none_is_a_null_pointer(backend, source):
    kernel, out = backend.kernel(source, "is_null"), backend.full(1, 5, np.int32)
    kernel([1], [1], [None, out])
    assert backend.download(out)[0] == 1
    kernel([1], [1], [backend.empty(1, np.float64), out])
    assert backend.download(out)[0] == 0


def test_backends_do_not_disturb_each_other(source):
    backends = [open_backend("cuda", device_memory_limit=64 * MIB) for _ in range(2)]
    counters = [backend.full(1, 0, np.int32) for backend in backends]
    for _ in range(50):
        for backend, counter in zip(backends, counters, strict=True):
            backend.kernel(source, "add_one")([1], [1], [counter])
    assert [backend.download(counter)[0] for backend, counter in zip(backends, counters, strict=True)] == [50, 50]
    backends[0].upload(np.zeros(MIB))
    assert backends[1].memory_peak < MIB


def test_a_block_too_large_for_the_kernel_is_named(backend, source):
    with pytest.raises(KernelLaunchError, match=r"kernel narrow: block \(65, 1, 1\) has 65 threads; .* 1 to 64"):
        backend.kernel(source, "narrow")([1], [65], [backend.empty(1, np.int32)])


@pytest.mark.parametrize(
    ("position", "value"),
    [(0, np.zeros(4)), (0, np.float64(1)), (2, 4), (2, np.int32(4)), (2, np.float64(4)), (3, 2.0), (3, None)],
)
def test_arguments_that_do_not_fit(backend, source, position, value):
    said = {0: "a device array", 2: "64-bit integer", 3: "64-bit floating-point"}[position]
    arguments = [backend.full(4, 1, np.float64), backend.full(4, 1, np.float64), np.int64(4), np.float64(2)]
    arguments[position] = value
    with pytest.raises(KernelLaunchError, match=f"kernel scale<double>: argument {position} must be .*{said}.* not "):
        backend.kernel(source, "scale<double>")([1], [4], arguments)


@pytest.mark.parametrize("size", [0, 4, 48 * 1024, 48 * 1024 + 4, None], ids=str)
def test_dynamic_shared_memory(backend, source, size):
    size = backend.max_shared_bytes // 4 * 4 if size is None else size
    values = np.arange(size // 4, dtype=np.int32)
    array, out = backend.upload(values), backend.empty(values.shape, np.int32)
    kernel = backend.kernel(source, "reverse")
    for _ in range(2):
        kernel([1], [256], [array, out, np.int32(values.size)], shared_bytes=size)
        np.testing.assert_array_equal(backend.download(out), values[::-1])


def test_shared_memory_has_a_limit(backend, source):
    assert backend.max_shared_bytes >= 48 * 1024
    kernel, out = backend.kernel(source, "with_static_shared"), backend.empty(1024, np.int32)
    possible = backend.max_shared_bytes - 4096
    kernel([1], [1024], [out], shared_bytes=possible)
    np.testing.assert_array_equal(backend.download(out), 2 * np.arange(1024))
    for size in (-1, possible + 1):
        with pytest.raises(KernelLaunchError, match=rf"{size} bytes of dynamic shared memory .* 0 to {possible}"):
            kernel([1], [1024], [out], shared_bytes=size)


def test_compilation_is_timed_logged_and_kept(source, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("GPUPC_CACHE_DIR", str(tmp_path))
    caplog.set_level(logging.INFO, logger="gpupc_impl.cuda")
    backend = open_backend("cuda")
    assert backend.compile_seconds == 0
    kernel = backend.kernel(source, "reverse")
    backend.kernel(source, "scale<double>")
    seconds = backend.compile_seconds
    assert seconds > 0
    assert backend.kernel(source, "reverse") is kernel
    assert backend.compile_seconds == seconds
    monkeypatch.setattr(cuda.CudaBackend, "_loaded", SourceCache())  # as a process finds it that starts
    again = open_backend("cuda")
    again.kernel(source, "reverse")
    assert again.compile_seconds > 0
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert lines[0].startswith("tests.cu reverse: ")
    assert "registers" in lines[0]
    assert ["compiled" in line for line in lines] == [True, True, False]


def test_a_kernel_that_does_not_compile(backend, tmp_path):
    path = tmp_path / "broken.cu"
    path.write_text("__global__ void broken() { int x = ; }")
    with pytest.raises(KernelCompilationError, match="expected an expression"):
        backend.kernel(path, "broken")
    with pytest.raises(KernelCompilationError, match="does not exist"):
        backend.kernel("gaussian/kernels/nowhere.cu", "broken")


@pytest.mark.parametrize(("name", "dtype"), [("double", np.float64), ("float", np.float32)])
def test_arithmetic_is_neither_contracted_nor_flushed(backend, source, name, dtype):
    """The bits are NumPy's, for ordinary numbers and for those that are not normalised."""
    rng = np.random.default_rng(1)
    tiny = float(np.finfo(dtype).tiny)
    for x in (rng.standard_normal(4096), tiny * rng.uniform(0.1, 2, 4096)):
        x = x.astype(dtype)
        out = backend.empty(x.size - 2, dtype)
        backend.kernel(source, f"arithmetic<{name}>")([1], [128], [backend.upload(x), out, np.int32(x.size)])
        expected = x[:-2] * x[1:-1] + x[2:] / x[:-2]
        np.testing.assert_array_equal(backend.download(out), expected)
    flushed = backend.upload(np.full(1, np.finfo(dtype).smallest_subnormal * 8, dtype))
    out = backend.empty(1, dtype)
    backend.kernel(source, f"scale<{name}>")([1], [1], [flushed, out, np.int64(1), dtype(0.5)])
    assert backend.download(out)[0] == np.finfo(dtype).smallest_subnormal * 4


def test_a_fault_names_the_kernel(source):
    """In a process of its own: after a fault, CUDA does no more work for a process."""
    code = f"""
import numpy as np
from gpupc_impl.backends import KernelLaunchError, open_backend
backend = open_backend("cuda")
array = backend.full(1, 0, np.int32)
backend.kernel({str(source)!r}, "add_one")([1], [1], [array])
backend.synchronize()
backend.kernel({str(source)!r}, "fault")([1], [1], [array])
try:
    backend.download(array)
except KernelLaunchError as error:
    print("CAUGHT", error)
"""
    root = Path(gpupc_impl.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=root)
    (caught,) = [line for line in done.stdout.splitlines() if line.startswith("CAUGHT")]
    assert "synchronisation: fault)" in caught


@pytest.mark.parametrize("shared_bytes", [0, 60_000])
def test_blocks_together_wait_for_each_other_and_see_what_was_written(backend, source, shared_bytes):
    kernel, rounds = backend.kernel(source, "hand_on"), 1000
    blocks = kernel.resident_blocks(128, shared_bytes)
    assert blocks >= backend.multiprocessors
    values = backend.upload(np.tile(np.arange(blocks, dtype=np.int32), (2, 1)))
    arrived = backend.full(1, 0, np.uint64)
    kernel((blocks,), (128,), [values, arrived, np.int32(rounds)], shared_bytes, cooperative=True)
    expected = (np.arange(blocks) + rounds) % blocks + rounds
    np.testing.assert_array_equal(backend.download(values)[rounds % 2], expected)
    assert backend.download(arrived)[0] == rounds * blocks
    with pytest.raises(KernelLaunchError, match="blocks asked for in a cooperative launch"):
        kernel((blocks + 1,), (128,), [values, arrived, np.int32(1)], shared_bytes, cooperative=True)
