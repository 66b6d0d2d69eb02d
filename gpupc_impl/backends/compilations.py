"""Compiles kernels in parallel threads, ahead of the search that needs them, and notifies observers of compilations.

Both compilers release Python's global lock while they work: CuPy releases it around NVRTC, and a C++ compiler is
another process.
"""

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import ContextVar
from typing import Any, NamedTuple

from gpupc_impl.backends.machine import available_cores

QUIET_SECONDS = 0.3  # the time after which a wait for a compilation is reported, in seconds
READING_SECONDS = 0.1
"""The time in seconds for which a search that can do without a kernel waits for it to be read from the cache."""

Report = Callable[[int, int], None]
"""A function that is called during a wait with the number of requested kernels that are compiled and of all requested
ones, and with zeros after the wait."""

_report: ContextVar[Report | None] = ContextVar("report", default=None)


@contextlib.contextmanager
def reported(report: Report | None) -> Iterator[None]:
    """Report waits for compilations in short intervals inside this context."""
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)


observers: list[Callable[[bool], None]] = []
"""Functions that are called with True when a compilation begins and with False when it ends; compilations may be
nested."""


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Notify the observers that the block, or the decorated function, compiles code."""
    for observer in observers:
        observer(True)
    try:
        yield
    finally:
        for observer in observers:
            observer(False)


class Compilations:
    """Results of functions that run in threads, by key. An exception in a thread is raised where its result is
    requested.

    A forked child has none of its parent's threads, so it starts without its parent's requests.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[int, Hashable], _Request] = {}
        self._taken = 0  # the number of results since the last time at which no request was open

    def prefetch(self, key: Hashable, make: Callable[[], Any]) -> None:
        """Let a thread compute a result, unless it has been requested already."""
        process = os.getpid()
        with self._lock:
            if not self._requests:
                self._taken = 0
            if (process, key) not in self._requests:
                self._requests[process, key] = _Request(
                    _threads(process, False).submit(make), urgent=False, since=time.monotonic()
                )

    def is_ready(self, key: Hashable) -> bool:
        """Whether a requested result is available.

        The first call after a request waits for as long as reading from the cache may take. Later calls do not wait,
        because a search asks again at every level and must not wait for a compiler each time.
        """
        with self._lock:
            request = self._requests.get((os.getpid(), key))
        if request is None:
            return False
        patience = max(0.0, request.since + READING_SECONDS - time.monotonic())
        if not wait([request.future], patience).done:
            return False
        return not request.future.cancelled()

    def finish(self) -> None:
        """Wait for all requested results."""
        with self._lock:
            futures = [request.future for (process, _), request in self._requests.items() if process == os.getpid()]
        wait(futures)

    def result(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the requested result and forget it; if no thread has begun to compute it, it is computed now."""
        process = os.getpid()
        with self._lock:
            request = self._requests.get((process, key))
            if request is None or (not request.urgent and request.future.cancel()):
                request = _Request(_threads(process, True).submit(make), urgent=True, since=time.monotonic())
                self._requests[process, key] = request
        try:
            self._wait(request.future)
            return request.future.result()
        finally:
            with self._lock:
                if self._requests.get((process, key)) is request:
                    del self._requests[process, key]
                    self._taken += 1

    def cancel(self) -> bool:
        """Drop the requests that no thread has begun to serve; returns whether there were any."""
        process = os.getpid()
        with self._lock:
            before = len(self._requests)
            for entry, request in list(self._requests.items()):
                if entry[0] != process or (not request.urgent and request.future.cancel()):
                    del self._requests[entry]
            return len(self._requests) < before

    def _wait(self, future: Future[Any]) -> None:
        last_report = None
        while not wait([future], QUIET_SECONDS).done:
            if (report := _report.get()) is not None:
                with self._lock:
                    done = [request.future.done() for request in self._requests.values()]
                report(self._taken + sum(done), self._taken + len(done))
                last_report = report
        if last_report is not None:
            last_report(0, 0)


class _Request(NamedTuple):
    """A result that a thread computes; a caller waits for it if it is `urgent`; `since` is the time of the request."""

    future: Future[Any]
    urgent: bool
    since: float


@functools.cache
def _threads(process: int, urgent: bool) -> ThreadPoolExecutor:
    """Return the executor of a process for urgent results, which do not wait for others, or the one for others."""
    return ThreadPoolExecutor(available_cores(), thread_name_prefix="compile-now" if urgent else "compile")
