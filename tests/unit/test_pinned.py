"""Page-locked memory that is used again, and copies through it; here it is ordinary memory."""

from __future__ import annotations

import ctypes
import threading
import weakref

import numpy as np
import pytest

from gpupc_impl.backends import pinned
from gpupc_impl.backends.pinned import PinnedPool, staged_download, staged_upload

KIB = 1024


@pytest.fixture
def allocated():
    """The sizes that the pool has asked for."""
    return []


@pytest.fixture
def pool(allocated):
    def allocate(size):
        allocated.append(size)
        memory = ctypes.create_string_buffer(size)
        return memory, ctypes.addressof(memory)

    return PinnedPool(allocate)


def test_memory_is_used_again_once_no_array_sees_it(pool, allocated):
    array = pool.array((4, 8), np.float64)
    assert (array.shape, array.dtype, array.flags.c_contiguous, array.flags.writeable) == ((4, 8), float, True, True)
    view, address = array[1:], array.ctypes.data
    del array
    assert pool.array((3,), np.uint8).ctypes.data != address
    del view
    assert pool.array((3,), np.uint8).ctypes.data == address
    assert len(allocated) == 2


@pytest.mark.parametrize("size", [0, 1, 64 * KIB, 64 * KIB + 1, 81 * KIB, 2**20, 2**20 + 1, 5 * 2**20 + 3])
def test_at_most_a_quarter_more_than_asked_for(pool, allocated, size):
    array = pool.array((size,), np.uint8)
    assert array.nbytes == size <= allocated[0] <= max(64 * KIB, 1.25 * size)


def test_only_so_much_is_kept(pool, allocated, monkeypatch):
    monkeypatch.setattr(pinned, "KEPT_BYTES", 130 * KIB)
    arrays = [pool.array((64 * KIB,), np.uint8) for _ in range(3)]
    assert len({array.ctypes.data for array in arrays}) == 3
    del arrays
    assert len([pool.array((64 * KIB,), np.uint8) for _ in range(3)]) == 3
    assert len(allocated) == 4  # two of three were kept


def test_parts_are_sent_in_order_and_few_at_a_time(pool, monkeypatch):
    monkeypatch.setattr(pinned, "available_cores", lambda: 1)
    parts = [np.arange(6 * n).reshape(n, 6)[:, : n % 7] for n in range(20)]
    sent, arrived = [], []

    def send(staged, number):
        assert staged.flags.c_contiguous
        np.testing.assert_array_equal(staged, parts[number])
        sent.append(number)
        assert len(sent) - len(arrived) <= 3
        alive = weakref.ref(staged)

        def wait():
            assert alive() is not None  # else its memory is given to another part before the device has read it
            arrived.append(number)

        return wait

    staged_upload(pool, parts, send)
    assert sent == arrived == list(range(20))


def test_a_failure_to_send_is_passed_on(pool):
    def send(staged, number):
        raise RuntimeError(f"part {number}")

    with pytest.raises(RuntimeError, match="part 0"):
        staged_upload(pool, [np.zeros(3)] * 9, send)


@pytest.mark.parametrize("size", [0, 1, 100, 101, 2_345])
def test_what_arrives_late_comes_whole(pool, monkeypatch, size):
    monkeypatch.setattr(pinned, "CHUNK_BYTES", 100)
    source, target = np.random.default_rng(size).bytes(size), np.zeros(size, np.uint8)

    def fetch(staged, offset):
        def arrive():
            assert threading.current_thread() is not threading.main_thread()
            staged[...] = np.frombuffer(source, np.uint8)[offset : offset + len(staged)]

        return arrive

    staged_download(pool, target, fetch)
    assert target.tobytes() == source


def test_a_copy_that_never_arrives_is_an_error(pool):
    def fetch(staged, offset):
        def arrive():
            raise RuntimeError(f"the device is lost at {offset}")

        return arrive

    with pytest.raises(RuntimeError, match="the device is lost at 0"):
        staged_download(pool, np.zeros(9), fetch)
