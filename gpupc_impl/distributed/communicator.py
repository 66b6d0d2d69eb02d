"""Devices of this machine that search together in one process, each in a thread of its own."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from gpupc_impl.backends import Backend, BackendUnavailable

Value = TypeVar("Value")

Part = tuple[int, slice]
"""The number of a device, and the part that it computes of arrays which all devices have in the same shape."""


class Communicator:
    """The connection of a device with the other devices of a search; only the thread of the device uses it.

    Every device makes the same calls in the same order, and each call waits for all devices.

    Args:
        values: two lists with an entry for each device, which all communicators share. Calls use them alternately, so
            that no device overwrites a value that another device has not read yet.

    Attributes:
        number, size: the number of the device, from 0 on, and the number of devices.

    Raises:
        BrokenBarrierError: another device has failed.
    """

    def __init__(self, backend: Backend, number: int, barrier: threading.Barrier, values: list[list[Any]]):
        self.backend, self.number, self.size = backend, number, barrier.parties
        self._barrier, self._values, self._turn = barrier, values, 0

    def all_gather(self, value: Value) -> list[Value]:
        """Return the values of all devices, in the order of their numbers."""
        self._turn = 1 - self._turn
        self._values[self._turn][self.number] = value
        self._barrier.wait()
        return list(self._values[self._turn])

    def arrays(self, own: Sequence[Any]) -> list[Sequence[Any]]:
        """Wait until all devices have done their queued work, and return their arrays."""
        self.backend.synchronize()
        return self.all_gather(own)

    def complete(self, own: Sequence[Any], parts: Iterable[Part]) -> None:
        """Copy into the arrays `own` the parts that other devices have computed."""
        if self.size == 1:
            return
        arrays = self.arrays(own)
        with self.backend.array_library():
            for owner, part in parts:
                if owner != self.number:
                    for to, of in zip(own, arrays[owner], strict=True):
                        to[part] = of[part]  # copies between devices, as in `fetch`
        self.backend.synchronize()
        self.all_gather(None)  # nobody changes an array that another device still reads

    def fetch(self, of: Any) -> Any:
        """Return a copy on this device of an array of another device; called within `Backend.array_library`."""
        to = self.backend.empty(of.shape, of.dtype)
        to[...] = of  # CuPy copies between devices if both arrays have the same layout
        return to

    def abort(self) -> None:
        """Make the present and later calls of the other devices fail."""
        self._barrier.abort()

    def check(self) -> None:
        """Raise BrokenBarrierError if another device has failed, without waiting for the others."""
        if self._barrier.broken:
            raise threading.BrokenBarrierError


def communicators(backends: Sequence[Backend]) -> list[Communicator]:
    """Return a communicator for each device."""
    barrier, values = threading.Barrier(len(backends)), [[None] * len(backends) for _ in range(2)]
    return [Communicator(backend, number, barrier, values) for number, backend in enumerate(backends)]


def on_all(devices: Sequence[Communicator], function: Callable[[Communicator], Value]) -> list[Value]:
    """Call a function for each device in a thread, for the first device in the calling thread, and return the results.

    If the function fails for a device, the calls of the other devices fail as well, and the original error is raised.
    """
    errors: list[BaseException] = []  # in the order in which devices fail
    others: list[Future[Value]] = []

    def guarded(device: Communicator) -> Value:
        try:
            return function(device)
        except BaseException as error:
            errors.append(error)
            device.abort()
            raise

    try:
        with ThreadPoolExecutor(len(devices)) as pool:
            try:
                others += [pool.submit(guarded, device) for device in devices[1:]]
                first = guarded(devices[0])
            except BaseException:  # Ctrl-C, or a thread that cannot start, must not leave the others waiting
                devices[0].abort()
                raise
            return [first, *(other.result() for other in others)]
    except threading.BrokenBarrierError:
        raise errors[0] from None
    finally:  # Errors refer to the arrays of all devices by the frames that they passed, and this frame to the errors.
        while errors:
            traceback.clear_frames(errors.pop().__traceback__)
        others.clear()


def further_backends(backend: Backend, workers: int) -> Iterator[Backend]:
    """Yield new backends for the other GPUs that this process can use, or on CPU cores one for each further worker.

    Each search has its own backends, since searches in several threads cannot share them. All backends of a GPU share
    the kernels that are loaded on it.

    Args:
        backend: the backend of the search.
        workers: the requested number of workers, including the one on `backend`; 0 stands for all GPUs.
    """
    if backend.name == "host":
        limit = backend.device_memory_limit or backend.memory_limit // max(1, workers)
        yield from (type(backend)(limit) for _ in range(workers - 1))
        return
    import cupy

    count = cupy.cuda.runtime.getDeviceCount()
    for number in range(count if count > 1 and workers != 1 else 0):
        with cupy.cuda.Device(number):  # The thread's current device is the backend's, unless a variable names one.
            try:
                other = type(backend)(backend.device_memory_limit)
            except BackendUnavailable:
                continue
        if other.device_key() != backend.device_key():
            other.waits_for_best = backend.waits_for_best
            yield other
