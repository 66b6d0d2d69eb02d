"""Memory, arguments and settings of the host backend."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpupc_impl.backends import BackendUnavailable, DeviceMemoryError, KernelLaunchError, host
from gpupc_impl.backends.host import HostBackend

TROUBLE = Path(__file__).parent / "kernels" / "trouble.cu"


def test_upload_and_download_are_contiguous_copies(backend):
    original = np.arange(12, dtype=np.float32).reshape(3, 4).T
    array = backend.upload(original)
    copy = backend.download(array)
    np.testing.assert_array_equal(copy, original)
    assert array.flags.c_contiguous
    array[0, 0] = 99
    assert original[0, 0] == copy[0, 0] == 0


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "int32", "uint64", "float32", "float64"])
@pytest.mark.parametrize("shape", [0, 1, (3, 0, 2), (5, 7), ()])
def test_full_of_any_shape_and_type(backend, shape, dtype):
    array = backend.download(backend.full(shape, 1, dtype))
    assert array.dtype == dtype
    np.testing.assert_array_equal(array, np.full(shape, 1, dtype))


def test_the_budget_is_kept_and_what_is_freed_can_be_had_again():
    backend = HostBackend(device_memory_limit=1000)
    assert (backend.memory_limit, backend.memory_used, backend.memory_peak) == (1000, 0, 0)
    first = backend.empty(100, np.float64)
    with pytest.raises(DeviceMemoryError, match="201 bytes asked for with 800 of 1,000 bytes in use") as caught:
        backend.empty(201, np.uint8)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.requested, again.used, again.limit) == (201, 800, 1000)
    second = backend.full(200, 0, np.uint8)
    assert backend.memory_used == 1000
    del first
    assert backend.memory_used == 200
    third = backend.upload(np.zeros(100))
    del second, third
    assert (backend.memory_used, backend.memory_peak) == (0, 1000)


def test_a_symmetric_matrix_is_read_where_it_lies_within_the_budget():
    backend = HostBackend(device_memory_limit=8 * 16)
    matrix = np.arange(16.0).reshape(4, 4)
    there = backend.upload_symmetric(matrix)
    assert np.shares_memory(there, matrix) == (not backend.describe()["sanitizers"])
    assert not np.shares_memory(there, matrix) or not there.flags.writeable
    assert backend.memory_used == 8 * 16
    backend.address(there[1:])
    with pytest.raises(DeviceMemoryError):
        backend.upload_symmetric(np.eye(2))
    del there
    assert backend.memory_used == 0
    transposed = backend.upload_symmetric(np.arange(16.0).reshape(4, 4).T)
    assert transposed.flags.c_contiguous
    np.testing.assert_array_equal(transposed, np.arange(16.0).reshape(4, 4).T)


@pytest.mark.parametrize("columns", [1, 3, 10, 11])
def test_products_of_columns_are_computed_some_at_a_time(backend, monkeypatch, columns):
    monkeypatch.setattr(host, "GRAM_COLUMNS", columns)
    values = np.random.default_rng(0).normal(size=(40, 10))
    product = backend.gram(backend.upload(values))
    np.testing.assert_allclose(product, values.T @ values, rtol=0, atol=1e-13)
    assert np.array_equal(product, product.T)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 400)), max_size=60))
def test_the_account_balances(steps):
    backend = HostBackend(device_memory_limit=1000)
    held, peak = [], 0
    for take, n in steps:
        if take:
            fits = sum(a.nbytes for a in held) + n <= 1000
            if fits:
                held.append(backend.empty(n, np.uint8))
            else:
                with pytest.raises(DeviceMemoryError):
                    backend.empty(n, np.uint8)
        elif held:
            del held[n % len(held)]
        used = sum(a.nbytes for a in held)
        peak = max(peak, used)
        assert (backend.memory_used, backend.memory_peak) == (used, peak)


def test_an_array_too_large_for_any_machine_is_a_memory_error(backend):
    with pytest.raises(DeviceMemoryError):
        backend.empty((2**40, 2**20), np.float64)


def test_arrays_that_cannot_be(backend):
    with pytest.raises(TypeError, match="Python objects"):
        backend.upload(np.array([None]))
    with pytest.raises(ValueError, match="shape"):
        backend.empty((-1,), np.int32)
    with pytest.raises(ValueError, match="must not be negative"):
        HostBackend(device_memory_limit=-1)


def every_type(backend, **changed):
    pointers = {"d": (1.5, np.float64), "f": (2.5, np.float32), "i": (-3, np.int32), "u": (4, np.uint64)}
    pointers |= {"c": (5, np.uint8), "b": (True, np.bool_), "any": (0, np.int16)}
    arguments = {name: backend.full(1, *filled) for name, filled in pointers.items()}
    arguments |= {"i4": np.int32(-7), "u4": np.uint32(2**32 - 8), "i8": np.int64(-(2**40)), "u8": np.uint64(2**63)}
    arguments |= {"f4": np.float32(0.25), "f8": np.float64(1e300), "b1": np.bool_(True)}
    return list({**arguments, "out": backend.full(14, 0, np.float64), **changed}.values())


def test_every_type_of_argument_arrives(backend):
    arguments = every_type(backend)
    backend.kernel(TROUBLE, "every_type")((1,), (1,), arguments)
    expected = [1.5, 2.5, -3, 4, 5, 1, 1, -7, 2**32 - 8, -(2**40), 2**63, 0.25, 1e300, 1]
    assert backend.download(arguments[-1]).tolist() == expected


def test_none_is_a_null_pointer(backend):
    names = ("d", "f", "i", "u", "c", "b", "any")
    arguments = every_type(backend, **dict.fromkeys(names))
    backend.kernel(TROUBLE, "every_type")((1,), (1,), arguments)
    assert backend.download(arguments[-1]).tolist()[:7] == [-1] * 7


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("i4", 5, r"argument 7 must be a NumPy int32, not 5 \(int\)"),
        ("u4", np.int32(5), "argument 8 must be a NumPy uint32, not int32 5"),
        ("f8", 1.0, r"argument 12 must be a NumPy float64, not 1.0 \(float\)"),
        ("b1", np.int8(1), "argument 13 must be a NumPy bool, not int8 1"),
        ("d", np.float64(1), "argument 0 must be a device array of float64, not float64 1.0"),
        ("d", np.zeros(3), r"argument 0 must be a device array, not a NumPy array in host memory \(use upload\)"),
    ],
)
def test_a_wrong_argument_is_named(backend, name, value, message):
    with pytest.raises(KernelLaunchError, match=f"kernel every_type: {message}"):
        backend.kernel(TROUBLE, "every_type")((1,), (1,), every_type(backend, **{name: value}))


def test_an_array_must_have_the_declared_type_but_sign_is_free(backend):
    kernel = backend.kernel(TROUBLE, "every_type")
    kernel((1,), (1,), every_type(backend, u=backend.full(1, 4, np.int64), c=backend.full(1, 1, np.bool_)))
    for wrong in (np.float32, np.int64, np.int32):
        said = f"argument 0 must be a device array of float64, not an array of {np.dtype(wrong)}"
        with pytest.raises(KernelLaunchError, match=said):
            kernel((1,), (1,), every_type(backend, d=backend.empty(1, wrong)))


def test_views_may_be_arguments_when_they_are_contiguous(backend):
    cells = backend.full((4, 8), 0, np.int32)
    kernel = backend.kernel(TROUBLE, "add_one")
    kernel((1,), (8,), [cells[2], np.int32(8)])
    kernel((1,), (8,), [cells.reshape(-1)[24:], np.int32(8)])
    assert backend.download(cells).sum(axis=1).tolist() == [0, 0, 8, 8]
    with pytest.raises(KernelLaunchError, match="argument 0 must be a C-contiguous array"):
        kernel((1,), (4,), [cells[:, 0], np.int32(4)])


@pytest.mark.parametrize(
    ("grid", "block", "args", "shared", "message"),
    [
        ((1,), (1,), [np.int32(1)], 0, "takes 0 arguments; 1 given"),
        ((1, 1, 1, 1), (1,), [], 0, r"grid \(1, 1, 1, 1\) must have one to three numbers"),
        ((1,), (1, 1, 65), [], 0, "block .*: z is 65; it may be 0 to 64"),
        ((1,), (32, 33), [], 0, r"block \(32, 33, 1\) has 1056 threads; this kernel's may have 1 to 1024"),
        ((1,), (1,), [], -1, "-1 bytes of dynamic shared memory"),
        ((1,), (1,), [], 10**6, "1000000 bytes of dynamic shared memory asked for; a block may have 0 to 232448"),
    ],
)
def test_a_wrong_launch_is_named(backend, grid, block, args, shared, message):
    with pytest.raises(KernelLaunchError, match=f"kernel nothing: .*{message}"):
        backend.kernel(TROUBLE, "nothing")(grid, block, args, shared)


def test_a_grid_with_a_zero_runs_nothing(backend):
    cells = backend.full(64, 0, np.int32)
    backend.kernel(TROUBLE, "add_one")((1, 0), (64,), [cells, np.int32(64)])
    assert not backend.download(cells).any()


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("grid", [(1,), (7, 5, 3), (100_000,), (2, 30_000)])
def test_each_block_runs_once(monkeypatch, grid, threads):
    monkeypatch.setenv("GPUPC_HOST_THREADS", threads)
    backend = HostBackend()
    out = backend.full((int(np.prod(grid)), 1, 12), -1, np.int32)
    backend.kernel(TROUBLE.parent / "words.cu", "indexes")(grid, (1,), [out])
    blocks = backend.download(out)[:, 0, 3:6]
    n = np.arange(len(blocks))
    y = grid[1] if len(grid) > 1 else 1
    np.testing.assert_array_equal(blocks, np.stack([n % grid[0], n // grid[0] % y, n // (grid[0] * y)], axis=-1))


@pytest.mark.parametrize("text", ["0", "-2", "two", "1.5", "100000"])
def test_a_wrong_thread_count_is_named(monkeypatch, text):
    monkeypatch.setenv("GPUPC_HOST_THREADS", text)
    with pytest.raises(ValueError, match=f"GPUPC_HOST_THREADS='{text}': must be a whole number from 1 to 1024"):
        HostBackend()


def test_describe_names_the_device_and_no_paths(backend):
    facts = backend.describe()
    assert facts["device"]
    assert facts["threads"] == backend.threads >= 1
    assert not any("/" in str(value) for value in facts.values())


def test_without_a_compiler_the_backend_says_how_to_get_one(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install ziglang" in HostBackend.unavailable()
    with pytest.raises(BackendUnavailable, match="no C\\+\\+ compiler found; install one"):
        HostBackend()


def test_a_wrong_cxx_is_named(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    assert "'no-such-compiler -O2') does not run" in HostBackend.unavailable()


NO_SANITIZERS = {"memory": "unknown sanitizer 'memory'", "address,thread": "cannot be combined"}
NO_SANITIZERS |= dict.fromkeys(("thread", "address"), "sanitizer_environment")


@pytest.mark.parametrize(("kinds", "message"), NO_SANITIZERS.items())
def test_sanitizers_that_cannot_run_here_are_refused(monkeypatch, kinds, message):
    monkeypatch.setenv("GPUPC_SANITIZE", kinds)
    assert message in HostBackend.unavailable()
