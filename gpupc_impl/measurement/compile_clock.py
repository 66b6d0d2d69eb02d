"""Measures for how long a worker compiled code; the worker's owner reads this time while the worker runs."""

import mmap
import os
import struct
import threading
import time

from gpupc_impl.backends import compiling

LIMIT_S = 120.0
"""The upper bound on the compile time that does not count against a worker's time limits, since compilers may hang."""


class CompileClock:
    """A clock in memory that two processes share. The memory contains the seconds of finished compilations, and the
    start of a running one.

    Args:
        descriptor: the descriptor of another process's clock, which is then closed; None makes a new clock.

    Attributes:
        descriptor: of the shared memory; the process that made the clock closes it.
    """

    _FORM = struct.Struct("dd")

    def __init__(self, descriptor: int | None = None):
        self.descriptor = os.memfd_create("compile-clock") if descriptor is None else descriptor
        if descriptor is None:
            os.ftruncate(self.descriptor, self._FORM.size)
        self._memory = mmap.mmap(self.descriptor, self._FORM.size)
        if descriptor is not None:
            os.close(descriptor)  # The mapping keeps a descriptor of its own.
        self._depth, self._lock = 0, threading.Lock()

    def observe(self) -> None:
        """Measure this process's compilations from now on."""
        compiling.observers.append(self._note)

    def close(self) -> None:
        """Free the memory; the clock then stands at 0."""
        self._memory.close()

    def seconds(self) -> float:
        """The seconds of compilation so far, at most `LIMIT_S`."""
        if self._memory.closed:
            return 0.0
        ended, started = self._FORM.unpack(self._memory[:])
        seconds = ended + (time.monotonic() - started if started else 0.0)
        return min(seconds, LIMIT_S) if seconds > 0 else 0.0

    def _note(self, begins: bool) -> None:
        with self._lock:
            self._depth += 1 if begins else -1
            ended, started = self._FORM.unpack(self._memory[:])
            if begins and self._depth == 1:
                self._memory[:] = self._FORM.pack(ended, time.monotonic())
            elif not begins and self._depth == 0:
                self._memory[:] = self._FORM.pack(ended + time.monotonic() - started, 0.0)
