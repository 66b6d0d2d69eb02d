"""Page-locked memory and copies through it, over ordinary memory and a device that is slow to read and to write."""

import gc
import queue
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest

from gpupc_impl.backends import pinned
from gpupc_impl.backends.pinned import Copy, PinnedPool, Rows, chunks, staged_download, staged_upload
from gpupc_impl.integers import ceil_div

CHUNK = 1000
ROUND = 5500


class Memory:
    """Allocates; counts what it was asked for, and what is there."""

    def __init__(self):
        self.asked: list[int] = []
        self.there = 0
        self.fails = False

    def __call__(self, size: int) -> tuple[object, int]:
        if self.fails:
            raise MemoryError("no pages left to lock")
        self.asked.append(size)
        self.there += size
        owner = Owner(self, size)
        return owner, owner.bytes.ctypes.data


class Owner:
    """What the memory lies in, until it is dropped."""

    def __init__(self, memory: Memory, size: int):
        self.memory, self.bytes = memory, np.full(size, 0xEE, np.uint8)

    def __del__(self):
        self.memory.there -= len(self.bytes)


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def pool(memory) -> PinnedPool:
    return PinnedPool(memory)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(pinned, "CHUNK_BYTES", CHUNK)
    monkeypatch.setattr(pinned, "STAGE_BYTES", ROUND)


def test_arrays_are_as_asked_for_and_do_not_overlap(pool):
    first, second = pool.array((3, 5), np.float64), pool.array((7,), np.int32)
    first[...], second[...] = 1.5, -2
    assert (first.shape, first.dtype) == ((3, 5), np.float64)
    assert first.flags.carray, "contiguous, aligned and writeable"
    assert (first == 1.5).all()
    assert (second == -2).all()
    assert pool.array((0, 4), np.int64).shape == (0, 4)
    assert pool.array((), np.int64).shape == ()


def test_memory_comes_back_when_the_last_view_is_dropped(pool, memory):
    array = pool.array((100, 100), np.float64)
    view = array[10:20].T.view(np.uint64)
    address = array.ctypes.data
    del array
    other = pool.array((100, 100), np.float64)
    assert other.ctypes.data != address
    assert len(memory.asked) == 2
    del view
    assert pool.array((99, 101), np.float64).ctypes.data == address
    assert len(memory.asked) == 2


def test_what_is_kept_is_bounded(pool, memory, monkeypatch):
    monkeypatch.setattr(pinned, "CACHED_BYTES", 5 << 16)
    arrays = [pool.array((2**16,), np.uint8) for _ in range(8)]
    assert memory.there == 8 << 16
    arrays.clear()
    assert memory.there == 5 << 16
    again = [pool.array((2**16,), np.uint8) for _ in range(5)]
    assert len(memory.asked) == 8
    larger = pool.array((2**17,), np.uint8)
    assert len(memory.asked) == 9
    del again, larger
    assert memory.there <= 5 << 16


def test_where_no_more_pages_are_locked_those_that_are_kept_are_given_up(memory):
    class Refused(Exception):
        pass

    def allocate(size):
        if memory.there + size > 3 << 20:
            raise Refused("cudaErrorMemoryAllocation")
        return memory(size)

    pool = PinnedPool(allocate, (Refused,))
    for size in (1 << 20, 3 << 19):
        pool.array((size,), np.uint8)
    gc.collect()
    assert memory.there == (1 << 20) + (3 << 19)  # kept
    held = pool.array((1 << 21,), np.uint8)
    assert memory.there == held.nbytes
    with pytest.raises(MemoryError, match=r"2,097,152 bytes asked for \(cudaErrorMemoryAllocation\); .* drop results"):
        pool.array((1 << 21,), np.uint8)
    del held
    gc.collect()
    assert pool.array((1 << 21,), np.uint8).nbytes == 1 << 21


def test_arrays_that_are_there_to_the_end_do_not_matter():
    """Python takes modules apart before what hangs on them, such as a result that another module keeps."""
    program = """
import sys

import numpy as np

from gpupc_impl.backends import pinned

def allocate(size):
    memory = np.zeros(size, np.uint8)
    return memory, memory.ctypes.data

pool = pinned.PinnedPool(allocate)
np.kept, sys.kept, pinned.kept, kept = (pool.array((10,), float) for _ in range(4))
pinned.Copy(np.zeros(10**6), np.ones(10**6)).finish()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


SIZES = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 7 * CHUNK + 3, 40 * CHUNK + 1]


class Device:
    """Memory that is written and read late: when somebody waits for it."""

    def __init__(self, size: int):
        self.bytes = np.zeros(size, np.uint8)
        self.queued = 0
        self.unread: list[Callable[[], None]] = []

    def send(self, staged: np.ndarray, part: Rows) -> None:
        self.queued += 1

        def read() -> None:
            rows = staged.reshape(part.rows, part.width)
            for row in range(part.rows):
                start = part.first + row * part.stride
                self.bytes[start : start + part.width] = rows[row]

        self.unread.append(read)

    def sent(self) -> Callable[[], None]:
        until = self.queued
        return lambda: self.read(until)

    def read(self, until: int | None = None) -> None:
        """What was sent, in order, all of it or the first `until` parts."""
        left = 0 if until is None else max(0, self.queued - until)
        while len(self.unread) > left:
            self.unread.pop(0)()

    def fetch(self, staged: np.ndarray, offset: int) -> Callable[[], None]:
        self.queued += 1

        def arrives() -> None:
            time.sleep(1e-4)
            staged[...] = self.bytes[offset : offset + len(staged)]

        return arrives


def random_bytes(size: int) -> np.ndarray:
    return np.random.default_rng(size).integers(0, 256, size, np.uint8)


@pytest.fixture(scope="module")
def threads() -> queue.SimpleQueue:
    """Helpers on their own threads, whatever cores there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pinned, "available_cores", lambda: 4)
        return pinned._helper_queue.__wrapped__()


@pytest.fixture(params=["helpers", "one core", "starved helpers"])
def copier(request, threads, monkeypatch):
    """Who copies; starved helpers come to nothing, as when others keep all cores."""
    helpers = {"helpers": threads, "one core": None, "starved helpers": queue.SimpleQueue()}[request.param]
    monkeypatch.setattr(pinned, "_helper_queue", lambda: helpers)


@pytest.mark.usefixtures("copier")
def test_a_fault_of_a_copy_surfaces():
    copies = [Copy(np.zeros(3), np.zeros(2 + (k != 7))) for k in range(20)]
    for copy in copies[:7] + copies[8:]:
        copy.finish()
    with pytest.raises(ValueError, match="broadcast"):
        copies[7].finish()


@pytest.mark.usefixtures("copier")
@pytest.mark.parametrize("size", SIZES)
def test_what_goes_up_is_what_arrives(pool, memory, size):
    data, device = random_bytes(size), Device(size)
    data.setflags(write=size % 2 == 0)
    kept = staged_upload(pool, data, chunks(size), device.send, device.sent)
    assert len(kept) == min(2, ceil_div(size, 5 * CHUNK) or 1)
    assert device.queued == len(chunks(size))
    device.read()
    np.testing.assert_array_equal(device.bytes, data)
    assert len(memory.asked) <= 3  # however many parts there are


@pytest.mark.usefixtures("copier")
def test_parts_of_a_matrix_go_up(pool):
    matrix = np.random.default_rng(0).normal(size=(9, 9))
    device = Device(matrix.nbytes)
    parts = [Rows(first * 80, min(2, 9 - first), 72 - 8 * first, 72) for first in range(0, 9, 2)]
    kept = staged_upload(pool, matrix, parts, device.send, device.sent)
    assert [len(memory) for memory in kept] == [sum(part.rows * part.width for part in parts)]
    device.read()
    arrived = device.bytes.view(float).reshape(9, 9)
    for first in range(0, 9, 2):
        np.testing.assert_array_equal(arrived[first : first + 2, first:], matrix[first : first + 2, first:])


@pytest.mark.usefixtures("copier")
@pytest.mark.parametrize("size", SIZES)
def test_what_comes_down_is_what_was_there(pool, memory, size):
    data, device = random_bytes(size), Device(size)
    device.bytes[:] = data
    target = np.full(size, 0xAB, np.uint8)
    staged_download(pool, target, device.fetch)
    np.testing.assert_array_equal(target, data)
    assert device.queued == len(chunks(size))
    assert len(memory.asked) <= pinned.DOWNLOADS_IN_FLIGHT + pinned.COPIERS + 1
