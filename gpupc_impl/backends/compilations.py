"""Compiles kernels in parallel threads, ahead of the search that needs them, and notifies observers. Both compilers
release Python's global lock while they work: CuPy around NVRTC, and a C++ compiler is another process."""

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
READING_SECONDS = 0.1  # for which a search that can do without a kernel waits for it to be read from the cache

Report = Callable[[int, int], None]
"""Called during a wait with the numbers of compiled and of all requested kernels, and with zeros after the wait."""

_report: ContextVar[Report | None] = ContextVar("report", default=None)


@contextlib.contextmanager
def reported(report: Report | None) -> Iterator[None]:
    """Report waits for compilations in short intervals inside this context."""
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)


observers: list[Callable[[bool], None]] = []  # called with True when a compilation begins, with False when it ends


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


class _Request(NamedTuple):
    """A result that a thread computes; a caller waits for it if it is `urgent`; `since` is the time of the request."""

    future: Future[Any]
    urgent: bool
    since: float


class Compilations:
    """Results of functions that run in threads, by key. An exception in a thread is raised where its result is
    requested. A forked child has none of its parent's threads, so it starts without its parent's requests."""

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[Hashable, _Request] = {}
        self._taken = 0  # the number of results since the last time at which no request was open

    def prefetch(self, key: Hashable, make: Callable[[], Any]) -> None:
        """Let a thread compute a result, unless it has been requested already."""
        with self._lock:
            if not self._requests:
                self._taken = 0
            if key not in self._requests:
                self._requests[key] = _Request(_threads(False).submit(make), urgent=False, since=time.monotonic())

    def is_ready(self, key: Hashable) -> bool:
        """Whether a requested result is available. The first call after a request waits for as long as reading from the
        cache may take. Later calls do not wait, because a search asks again at every level."""
        with self._lock:
            request = self._requests.get(key)
        if request is None:
            return False
        patience = max(0.0, request.since + READING_SECONDS - time.monotonic())
        return bool(wait([request.future], patience).done) and not request.future.cancelled()

    def finish(self) -> None:
        with self._lock:
            futures = [request.future for request in self._requests.values()]
        wait(futures)

    def result(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the requested result and forget it; if no thread has begun to compute it, it is computed now."""
        with self._lock:
            request = self._requests.get(key)
            if request is None or (not request.urgent and request.future.cancel()):
                request = _Request(_threads(True).submit(make), urgent=True, since=time.monotonic())
                self._requests[key] = request
        try:
            self._wait(request.future)
            return request.future.result()
        finally:
            with self._lock:
                if self._requests.get(key) is request:
                    del self._requests[key]
                    self._taken += 1

    def cancel(self) -> bool:
        """Drop the requests that no thread has begun to serve; returns whether there were any."""
        with self._lock:
            dropped = [key for key, each in self._requests.items() if not each.urgent and each.future.cancel()]
            for key in dropped:
                del self._requests[key]
            return bool(dropped)

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


@functools.cache
def _threads(urgent: bool) -> ThreadPoolExecutor:
    """Return the executor of urgent results, which do not wait for others, or the one of others."""
    return ThreadPoolExecutor(available_cores(), thread_name_prefix="compile-now" if urgent else "compile")


os.register_at_fork(after_in_child=_threads.cache_clear)
