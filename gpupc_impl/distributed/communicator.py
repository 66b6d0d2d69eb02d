"""How workers of a search exchange values: the interface, and its form for threads (`cluster` has that for Dask)."""

from __future__ import annotations

import abc
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from gpupc_impl.backends import Backend

Value = TypeVar("Value")
Part = tuple[int, slice]  # a worker's number, and its part of arrays that have the same shape on all workers
MESSAGE_BYTES = 1 << 26  # the bytes of arrays after which a worker sends a message to the others


class Communicator(abc.ABC):
    """The connection of the worker with a `number`, from 0 on, with the other workers of a search, `size` in all; only
    one thread at a time uses it. Every worker makes the same calls in the same order, and each call but `check` and
    `abort` waits for all workers. A call raises BrokenBarrierError if another worker has failed."""

    backend: Backend
    number: int
    size: int
    is_broken: bool  # whether a worker has failed

    @abc.abstractmethod
    def exchange(self, values: Sequence[Any]) -> list[Any]:
        """Send a value to each worker; returns the values that each has sent to this one."""

    @abc.abstractmethod
    def abort(self) -> None:
        """Make the present and later calls of all workers fail."""

    def check(self) -> None:
        """Raise BrokenBarrierError if another worker has failed, without waiting for the others."""
        if self.is_broken:
            raise threading.BrokenBarrierError

    def _sent(self, array: Any) -> Any:
        """Return a part of an array on the device in the form in which other workers take it."""
        return array

    def _put(self, to: Any, sent: Any) -> None:
        """Copy what another worker has sent into an array of the same shape on the device."""
        to[...] = sent  # CuPy copies between devices if both arrays have the same layout

    def all_gather(self, value: Value) -> list[Value]:
        """Return the values of all workers, in the order of their numbers."""
        return self.exchange([value] * self.size)

    def complete(self, own: Sequence[Any], parts: Sequence[Part]) -> None:
        """Copy into the device arrays `own` the parts that other workers have computed."""
        if self.size == 1:
            return
        with self.backend.array_library():
            for some in self._messages(own, parts):
                mine = [[self._sent(array[part]) for array in own] for owner, part in some if owner == self.number]
                received = [iter(each) for each in self.all_gather(mine)]
                for owner, part in some:
                    arrays = next(received[owner])
                    if owner != self.number:
                        for to, sent in zip(own, arrays, strict=True):
                            self._put(to[part], sent)
        self._wait()

    def from_others(self, array: Any) -> Iterator[Any]:
        """Yield copies on this device of the arrays that the other workers pass in this call."""
        self.backend.synchronize()
        for number, sent in enumerate(self.all_gather(self._sent(array))):
            if number != self.number:
                yield self._copy(sent)

    def least(self, library: Any, own: Sequence[Any], parts: Sequence[Part]) -> None:
        """Set this worker's parts of the arrays `own` to the minima over all workers, in `Backend.array_library`."""
        for some in self._messages(own, parts):
            mine = [
                [[self._sent(array[part]) for array in own] for owner, part in some if owner == number != self.number]
                for number in range(self.size)
            ]
            own_parts = [part for owner, part in some if owner == self.number]
            for number, arrays_of_parts in enumerate(self.exchange(mine)):
                if number != self.number:
                    for part, arrays in zip(own_parts, arrays_of_parts, strict=True):
                        for array, sent in zip(own, arrays, strict=True):
                            library.minimum(array[part], self._copy(sent), out=array[part])
        self._wait()

    def _wait(self) -> None:
        """Wait until no worker reads the arrays of another one any more."""
        self.backend.synchronize()
        self.all_gather(None)

    def _messages(self, arrays: Sequence[Any], parts: Sequence[Part]) -> Iterator[list[Part]]:
        """Yield parts in groups of about `MESSAGE_BYTES`, equal on all workers, once the device has written arrays."""
        self.backend.synchronize()
        some: list[Part] = []
        size = 0
        row_bytes = sum(array.nbytes // max(1, len(array)) for array in arrays)
        for owner, part in parts:
            some.append((owner, part))
            size += row_bytes * (part.stop - part.start)
            if size >= MESSAGE_BYTES:
                yield some
                some, size = [], 0
        if some:
            yield some

    def _copy(self, sent: Any) -> Any:
        to = self.backend.empty(sent.shape, sent.dtype)
        self._put(to, sent)
        return to


class ThreadCommunicator(Communicator):
    """The connection of a worker that is a thread of this process, whose device reads the arrays of other devices. All
    communicators share two lists (`values`) with an entry for each worker. Calls use them alternately, so that no
    worker overwrites a value that another worker has not read yet."""

    def __init__(self, backend: Backend, number: int, barrier: threading.Barrier, values: list[list[Any]]):
        self.backend, self.number, self.size = backend, number, barrier.parties
        self._barrier, self._values, self._turn = barrier, values, 0

    def exchange(self, values: Sequence[Any]) -> list[Any]:
        self._turn = 1 - self._turn
        self._values[self._turn][self.number] = values
        self._barrier.wait()
        return [each[self.number] for each in self._values[self._turn]]

    def abort(self) -> None:
        self._barrier.abort()

    is_broken = property(lambda self: self._barrier.broken)


class Laps:
    """The durations of a worker's steps."""

    def __init__(self, communicator: Communicator):
        self._communicator = communicator
        self.seconds: Counter[str] = Counter()
        self._last = time.perf_counter()

    def start(self) -> None:
        """Forget all durations, and begin the next step now."""
        self.seconds.clear()
        self._last = time.perf_counter()

    def lap(self, step: str) -> None:
        """Wait for the device, and add the time since the previous call to a step."""
        self._communicator.check()
        self._communicator.backend.synchronize()
        now = time.perf_counter()
        self.seconds[step] += now - self._last
        self._last = now
