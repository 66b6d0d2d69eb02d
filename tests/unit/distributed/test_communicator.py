"""Workers that wait for each other, each in a thread of its own."""

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gpupc_impl.distributed.team import ThreadTeam


class LazyBackend:
    """Writes arrays when it is waited for, as a GPU may."""

    def __init__(self):
        self.queue = []

    def synchronize(self):
        for write in self.queue:
            write()
        self.queue.clear()

    def array_library(self):
        return contextlib.nullcontext(np)

    def describe(self):
        return {}


def three_workers():
    return ThreadTeam(None, [LazyBackend() for _ in range(3)])


def on_all(work, team=None):
    """Call a function for each of three workers with its communicator."""
    team = team or three_workers()
    return team.on_all(lambda number, call: work(team._communicators[number]))


class SlowArray(np.ndarray):
    """An array whose copy to another device takes long."""

    def __getitem__(self, part):
        time.sleep(0.05)
        return super().__getitem__(part)


def test_each_device_gets_what_the_others_computed():
    def compute(device):
        kept = []
        for turn in range(3):
            array = np.zeros(3).view(SlowArray if device.number == 2 else np.ndarray)
            device.backend.queue.append(lambda array=array, turn=turn: array.fill(10 * turn + device.number))
            device.complete([array], [(number, slice(number, number + 1)) for number in range(3)])
            kept.append(array.tolist())
            array.fill(-1)  # No other device may still be reading it.
        return kept

    expected = [[10.0 * turn + number for number in range(3)] for turn in range(3)]
    assert on_all(compute) == [expected] * 3


def test_values_are_those_of_the_same_call():
    def compute(device):
        time.sleep(0.01 * device.number)
        return [device.all_gather((call, device.number)) for call in range(4)]

    expected = [[(call, number) for number in range(3)] for call in range(4)]
    assert on_all(compute) == [expected] * 3


def test_the_error_is_that_of_the_device_that_failed_first():
    """Even if the device of the calling thread has ended without an error."""

    def fail(device):
        if device.number == 1:
            device.all_gather(None)
        if device.number == 2:
            raise ValueError("the cause")

    with pytest.raises(ValueError, match="the cause"):
        on_all(fail)


def test_devices_do_not_wait_for_one_whose_thread_does_not_start(monkeypatch):
    submit, started = ThreadPoolExecutor.submit, []

    def refused(self, *arguments):
        if started:
            raise RuntimeError("can't start new thread")
        started.append(arguments)
        return submit(self, *arguments)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refused)
    team = three_workers()
    rescue = threading.Timer(10, team._abort)
    rescue.start()
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="can't start"):
        on_all(lambda device: device.all_gather(None), team)
    rescue.cancel()
    assert time.monotonic() - began < 5
