"""Reads the clock in the same way for every method.

The clock runs from the prepared problem in host memory to the adjacency and the separating sets in host memory,
transfers included. The time for loading the problem, orienting edges and writing files is not included.
"""

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from gpupc_impl.backends.compiling import compiling

T = TypeVar("T")


def timed(work: Callable[[], T], synchronize: Callable[[], None]) -> tuple[T, float]:
    """Return the value of ``work()`` and its wall-clock seconds, between two calls of ``synchronize()``.

    Garbage collection runs beforehand, so that no run pays for the garbage of another run.
    """
    gc.collect()
    synchronize()
    start = time.perf_counter()
    value = work()
    synchronize()
    return value, time.perf_counter() - start


@contextlib.contextmanager
def numba_compilation() -> Iterator[Callable[[], float | None]]:
    """Yield a function that returns for how long numba compiled in this context; None if it did not compile or is not
    installed.

    The time is what numba measures: typing, optimising and generating code, with nested compilations counted once.
    Reading a function from numba's cache on disk is not included.
    """
    try:
        from numba.core import event
    except ImportError:
        yield lambda: None
        return
    listening: Any = event.TimingListener  # The type is Any because numba declares no types.

    class Listener(listening):  # type: ignore[misc]
        """This also notifies the observers of compilations."""

        def on_start(self, event: Any) -> None:
            super().on_start(event)
            self._ends = getattr(self, "_ends", [])
            self._ends.append(compiling())
            self._ends[-1].__enter__()

        def on_end(self, event: Any) -> None:
            self._ends.pop().__exit__(None, None, None)
            super().on_end(event)

    with event.install_listener("numba:compile", Listener()) as listener:
        yield lambda: listener.duration if listener.done else None
