"""How the workers of a search exchange what they have computed: the interface, and its form for threads of a process.

`cluster` has the form for the workers of a Dask cluster.
"""

from __future__ import annotations

import abc
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from gpupc_impl.backends import Backend

Value = TypeVar("Value")

Part = tuple[int, slice]
"""The number of a worker, and the part that it computes of arrays which all workers have in the same shape."""


class Communicator(abc.ABC):
    """The connection of a worker with the other workers of a search; only one thread at a time uses it.

    Every worker makes the same calls in the same order, and each call but `check` and `abort` waits for all workers. A
    call raises BrokenBarrierError if another worker has failed.

    Attributes:
        backend: the worker's device.
        number, size: the number of the worker, from 0 on, and the number of workers.
    """

    backend: Backend
    number: int
    size: int

    @abc.abstractmethod
    def all_gather(self, value: Value) -> list[Value]:
        """Return the values of all workers, in the order of their numbers."""

    @abc.abstractmethod
    def complete(self, own: Sequence[Any], parts: Sequence[Part]) -> None:
        """Copy into the device arrays `own` the parts that other workers have computed."""

    @abc.abstractmethod
    def others(self, own: Sequence[Any], parts: Sequence[Part]) -> Iterator[tuple[slice, list[Any]]]:
        """Yield each of this worker's parts with copies, on this device, of that part of the arrays of another worker:
        once for each other worker. Called within `Backend.array_library`."""

    @abc.abstractmethod
    def abort(self) -> None:
        """Make the present and later calls of all workers fail."""

    @abc.abstractmethod
    def check(self) -> None:
        """Raise BrokenBarrierError if another worker has failed, without waiting for the others."""


class ThreadCommunicator(Communicator):
    """The connection of a worker that is a thread of this process.

    Args:
        values: two lists with an entry for each worker, which all communicators share. Calls use them alternately, so
            that no worker overwrites a value that another worker has not read yet.
    """

    def __init__(self, backend: Backend, number: int, barrier: threading.Barrier, values: list[list[Any]]):
        self.backend, self.number, self.size = backend, number, barrier.parties
        self._barrier, self._values, self._turn = barrier, values, 0

    def all_gather(self, value: Value) -> list[Value]:
        self._turn = 1 - self._turn
        self._values[self._turn][self.number] = value
        self._barrier.wait()
        return list(self._values[self._turn])

    def complete(self, own: Sequence[Any], parts: Iterable[Part]) -> None:
        if self.size == 1:
            return
        arrays = self._arrays(own)
        with self.backend.array_library():
            for owner, part in parts:
                if owner != self.number:
                    for to, of in zip(own, arrays[owner], strict=True):
                        to[part] = of[part]  # copies between devices, as in `_fetch`
        self.backend.synchronize()
        self.all_gather(None)  # nobody changes an array that another worker still reads

    def others(self, own: Sequence[Any], parts: Iterable[Part]) -> Iterator[tuple[slice, list[Any]]]:
        others = [arrays for number, arrays in enumerate(self._arrays(own)) if number != self.number]
        for part in (part for owner, part in parts if owner == self.number):  # no other worker changes this part
            for arrays in others:
                yield part, [self._fetch(array[part]) for array in arrays]

    def _arrays(self, own: Sequence[Any]) -> list[Sequence[Any]]:
        """Wait until all workers have done their queued work, and return their arrays."""
        self.backend.synchronize()
        return self.all_gather(own)

    def _fetch(self, of: Any) -> Any:
        to = self.backend.empty(of.shape, of.dtype)
        to[...] = of  # CuPy copies between devices if both arrays have the same layout
        return to

    def abort(self) -> None:
        self._barrier.abort()

    def check(self) -> None:
        if self._barrier.broken:
            raise threading.BrokenBarrierError


def thread_communicators(backends: Sequence[Backend]) -> list[ThreadCommunicator]:
    """Return a communicator for each device."""
    barrier, values = threading.Barrier(len(backends)), [[None] * len(backends) for _ in range(2)]
    return [ThreadCommunicator(backend, number, barrier, values) for number, backend in enumerate(backends)]
