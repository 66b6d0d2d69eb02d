"""Streams, in which work is queued on a device, and events, which mark positions in that work."""

from __future__ import annotations

import abc
from typing import Any, Self


class Event(abc.ABC):
    """A position in the work of a stream."""

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait until the stream has reached the event."""

    @abc.abstractmethod
    def seconds_since(self, earlier: Self) -> float:
        """Return the time between two events that have both passed."""


class Stream(abc.ABC):
    """Work that runs in order, concurrently with other streams if the device supports that. The host backend runs work
    as it is queued.

    Arrays that queued work uses must stay alive until the work is done; host arrays of copies come from
    `Backend.host_empty`.
    """

    @abc.abstractmethod
    def copy(self, target: Any, source: Any) -> None:
        """Queue a copy between a host array and a device array, both C-contiguous and of equal size in bytes."""

    @abc.abstractmethod
    def fill_bytes(self, array: Any, byte: int) -> None:
        """Queue a fill of a C-contiguous device array with a byte."""

    @abc.abstractmethod
    def record(self) -> Event:
        """Record an event after all the work queued so far."""

    @abc.abstractmethod
    def wait(self, event: Event) -> None:
        """Let work that is queued from now on start after an event of any stream."""

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait for all the work of this stream."""


def check_copy(target: Any, source: Any) -> None:
    """Raise ValueError unless one array can be copied to the other byte by byte."""
    if not (target.flags.c_contiguous and source.flags.c_contiguous and target.nbytes == source.nbytes):
        raise ValueError(
            f"cannot copy {source.nbytes} bytes to an array of {target.nbytes}: both arrays must be C-contiguous and "
            "of equal size"
        )
