"""Compilations in parallel threads, ahead of the search that needs their results.

Both compilers leave Python's lock while they work: NVRTC is a library that CuPy calls without it, and a C++ compiler is
a process of its own.
"""

from __future__ import annotations

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

QUIET_SECONDS = 0.3
"""The time to wait for a compilation before the wait is reported: reading kernels from the cache takes less."""

Report = Callable[[int, int], None]
"""Is called with the number of requested kernels that are compiled and of all that were requested, during a wait; and
with zeros after it."""

_report: ContextVar[Report | None] = ContextVar("report", default=None)


@contextlib.contextmanager
def reported(report: Report | None) -> Iterator[None]:
    """Inside this context, waits for compilations are reported in short intervals."""
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)


class Compilations:
    """Results of functions that run in threads, by key. A failure is raised where the result is requested.

    A forked child has none of its parent's threads, so it begins with none of its parent's requests.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[int, Hashable], _Request] = {}
        self._taken = 0  # results since there was no request

    def prefetch(self, key: Hashable, make: Callable[[], Any]) -> None:
        """Have a thread make a result, unless it has been requested already."""
        process = os.getpid()
        with self._lock:
            if not self._requests:
                self._taken = 0
            if (process, key) not in self._requests:
                self._requests[process, key] = _Request(
                    _threads(process).submit(make), urgent=False, since=time.monotonic()
                )

    def is_ready(self, key: Hashable) -> bool:
        """Whether a requested result is there.

        Right after the request it is waited for as long as reading it from the cache may take, and later not at all: a
        search asks again at every level, and must not wait for a compiler each time.
        """
        with self._lock:
            request = self._requests.get((os.getpid(), key))
        if request is None:
            return False
        patience = max(0.0, request.since + QUIET_SECONDS - time.monotonic())
        if not wait([request.future], patience).done:
            return False
        return not request.future.cancelled()

    def finish(self) -> None:
        """Wait for all that was requested."""
        with self._lock:
            futures = [request.future for (process, _), request in self._requests.items() if process == os.getpid()]
        wait(futures)

    def result(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The requested result, which is then forgotten; made at once if no thread has begun with it."""
        process = os.getpid()
        with self._lock:
            request = self._requests.get((process, key))
            if request is None or (not request.urgent and request.future.cancel()):
                request = _Request(_urgent_threads(process).submit(make), urgent=True, since=time.monotonic())
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
        """Drop the requests with which no thread has begun; returns whether there were any."""
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
    """A result that a thread makes, or will make; `urgent` if somebody waits for it; requested at the time `since`."""

    future: Future[Any]
    urgent: bool
    since: float


@functools.cache
def _threads(process: int) -> ThreadPoolExecutor:
    """The threads of a process, as many as compilers may work at once."""
    return ThreadPoolExecutor(available_cores(), thread_name_prefix="compile")


@functools.cache
def _urgent_threads(process: int) -> ThreadPoolExecutor:
    """Threads for what is waited for, which does not queue behind what may be needed later."""
    return ThreadPoolExecutor(available_cores(), thread_name_prefix="compile-now")
