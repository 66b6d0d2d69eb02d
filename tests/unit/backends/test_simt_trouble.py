"""Kernels that deadlock, run for ever or are interrupted: reported, never hung, and the next launch is fine."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from gpupc_impl.backends import KernelLaunchError, open_backend
from gpupc_impl.backends.host import HostBackend

TROUBLE = Path(__file__).parent / "kernels" / "trouble.cu"
WORDS = Path(__file__).parent / "kernels" / "words.cu"


@pytest.fixture(params=["1", "2", "5"])
def backend(request, monkeypatch):
    monkeypatch.setenv("GPUPC_HOST_THREADS", request.param)
    return open_backend("host")


def add_one(backend, cells):
    """A launch that must work whatever came before; scan has barriers, add_one has none."""
    array = backend.upload(np.arange(cells, dtype=np.int32))
    backend.kernel(TROUBLE, "add_one")((cells // 64 + 1,), (64,), [array, np.int32(cells)])
    np.testing.assert_array_equal(backend.download(array), np.arange(1, cells + 1))
    ones = backend.full(256, 1, np.int32)
    backend.kernel(WORDS, "scan")((1,), (256,), [ones], 1024)
    np.testing.assert_array_equal(backend.download(ones), np.arange(1, 257))


REPORTS = {
    "barrier_against_warp": r"kernel barrier_against_warp: block \(\d, 0, 0\) is deadlocked; "
    r"of 64 threads 0 have exited, (5 wait at __syncwarp\(mask 0x000000ff\), 59 wait at __syncthreads"
    r"|59 wait at __syncthreads, 5 wait at __syncwarp\(mask 0x000000ff\))$",
    "shuffle_against_vote": r"block \(\d, 0, 0\) is deadlocked.*"
    r"32 wait at __(shfl|ballot)_sync\(mask 0xffffffff\), 32 wait at",
    "foreign_mask": r"kernel foreign_mask: lane \d+ calls __syncwarp with mask 0x[0-9a-f]{8}, which lacks that lane",
    "one_block_of_many": r"block \(3, 0, 0\) is deadlocked; of 64 threads 0 have exited",
}


@pytest.mark.parametrize("kernel", REPORTS)
def test_a_wait_that_cannot_end_is_reported(backend, kernel):
    for _ in range(2):
        with pytest.raises(KernelLaunchError, match=REPORTS[kernel]):
            backend.kernel(TROUBLE, kernel)((8,), (64,), [])
        add_one(backend, 1000)


def test_a_barrier_may_be_met_in_two_branches(backend):
    """CUDA leaves this undefined; here it is one barrier, whichever line it is met at."""
    out = backend.empty(64, np.int32)
    backend.kernel(TROUBLE, "barrier_in_branches")((1,), (64,), [out])
    np.testing.assert_array_equal(backend.download(out), np.arange(64) ^ 1)


@pytest.fixture
def interruptible():
    """A shell starts its background jobs, the tests perhaps among them, with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("kernel", "grid"), [("never_ending_barriers", 1), ("long_grid", 2**31 - 1)])
def test_an_interrupt_stops_a_kernel(backend, kernel, grid):
    cell = backend.full(1, 0, np.int32 if kernel == "never_ending_barriers" else np.uint64)
    launch = backend.kernel(TROUBLE, kernel)
    main = threading.main_thread().ident
    for _ in range(2):
        alarm = threading.Timer(0.05, lambda: signal.pthread_kill(main, signal.SIGINT))
        alarm.start()
        with pytest.raises(KeyboardInterrupt):
            launch((grid,), (64,), [cell])
        alarm.join()
        add_one(backend, 1000)


def test_threads_may_launch_at_once(backend):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: add_one(backend, n), range(100, 140)))


def test_a_forked_child_gets_its_own_threads(backend):
    add_one(backend, 100)
    child = get_context("fork").Process(target=add_one, args=(backend, 1000))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    add_one(backend, 100)


def test_the_stack_of_a_thread_can_be_larger(monkeypatch):
    monkeypatch.setenv("GPUPC_HOST_STACK_KIB", "2048")
    backend = HostBackend()
    out = backend.full(64, 0, np.int32)
    backend.kernel(TROUBLE, "deep")((1,), (64,), [out, np.int32(1500)])
    assert set(backend.download(out)) == {1501}
