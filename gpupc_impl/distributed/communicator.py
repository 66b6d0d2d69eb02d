"""Devices of this machine that search together in one process, each in a thread of its own."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from gpupc_impl.backends import Backend, BackendUnavailable

Value = TypeVar("Value")

Part = tuple[int, slice]
"""A part of arrays that all devices have in the same shape, with the number of the device that computes the part."""


class Communicator:
    """The connection of a device with the others of a search, which its thread uses.

    Every device makes the same calls in the same order, and each call waits for all devices.

    Args:
        values: two lists with a place for each device, which all communicators share. Calls use them in turn, so that
            nobody overwrites a value that another device has not read.

    Attributes:
        number, size: the number of the device, from 0 on, and the number of devices.

    Raises:
        BrokenBarrierError: another device has failed.
    """

    def __init__(self, backend: Backend, number: int, barrier: threading.Barrier, values: list[list[Any]]):
        self.backend, self.number, self.size = backend, number, barrier.parties
        self._barrier, self._values, self._turn = barrier, values, 0

    def all_gather(self, value: Value) -> list[Value]:
        """The values of all devices, in the order of their numbers."""
        self._turn = 1 - self._turn
        self._values[self._turn][self.number] = value
        self._barrier.wait()
        return list(self._values[self._turn])

    def arrays(self, own: Sequence[Any]) -> list[Sequence[Any]]:
        """The arrays of all devices, once their queued work is done."""
        self.backend.synchronize()
        return self.all_gather(own)

    def complete(self, own: Sequence[Any], parts: Iterable[Part]) -> None:
        """Copy the parts of arrays that other devices have computed."""
        if self.size == 1:
            return
        arrays = self.arrays(own)
        with self.backend.array_library():
            for owner, part in parts:
                if owner != self.number:
                    for to, of in zip(own, arrays[owner], strict=True):
                        to[part] = of[part]  # as in `fetch`
        self.backend.synchronize()
        self.all_gather(None)  # nobody changes an array that another device still reads

    def fetch(self, of: Any) -> Any:
        """A copy on this device of an array of another one, made by the library of `Backend.array_library`."""
        to = self.backend.empty(of.shape, of.dtype)
        to[...] = of  # CuPy copies between devices if both arrays have the same layout
        return to

    def abort(self) -> None:
        """Let the calls of the other devices fail."""
        self._barrier.abort()


def communicators(backends: Sequence[Backend]) -> list[Communicator]:
    """A communicator for each device."""
    barrier, values = threading.Barrier(len(backends)), [[None] * len(backends) for _ in range(2)]
    return [Communicator(backend, number, barrier, values) for number, backend in enumerate(backends)]


def on_all(devices: Sequence[Communicator], function: Callable[[Communicator], Value]) -> list[Value]:
    """The results of a function of each device, which runs in a thread for each, and for the first one in this thread.

    If it fails on a device, the others fail as well, and the first error is raised.
    """

    def guarded(device: Communicator) -> Value:
        try:
            return function(device)
        except BaseException:
            device.abort()
            raise

    with ThreadPoolExecutor(len(devices)) as pool:
        others = [pool.submit(guarded, device) for device in devices[1:]]
        try:
            first = guarded(devices[0])
        except threading.BrokenBarrierError:
            for error in (other.exception() for other in others):
                if error is not None and not isinstance(error, threading.BrokenBarrierError):
                    raise error from None
            raise
        return [first, *(other.result() for other in others)]


def further_backends(backend: Backend, workers: int) -> Iterator[Backend]:
    """Backends for the other GPUs that this process can use, or on CPU cores one for each further worker.

    Args:
        backend: the backend of the search.
        workers: the number of all workers that is requested; 0 if the number of GPUs is.
    """
    if backend.name == "host":
        limit = backend.device_memory_limit or backend.memory_limit // max(1, workers)
        yield from (type(backend)(limit) for _ in range(workers - 1))
        return
    import cupy

    count = cupy.cuda.runtime.getDeviceCount()
    for number in range(count if count > 1 and workers != 1 else 0):
        try:
            other = _backend_of_gpu(type(backend), number, backend.device_memory_limit)
        except BackendUnavailable:
            continue
        if other.device_key() != backend.device_key():
            other.waits_for_best = backend.waits_for_best
            yield other


@functools.cache
def _backend_of_gpu(kind: type[Backend], number: int, device_memory_limit: int | None) -> Backend:
    """The backend of a GPU for all searches of this process: a new one would load its kernels again."""
    import cupy

    with cupy.cuda.Device(number):  # The thread's current device is the backend's, unless a variable names one.
        return kind(device_memory_limit)
