"""Reading the clock: one way for every method.

Inside the clock is the way from the prepared problem in host memory to the adjacency and the separating sets in host
memory, transfers included. Loading the problem, orienting edges and writing files are outside.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


def timed(work: Callable[[], T], synchronize: Callable[[], None]) -> tuple[T, float]:
    """The value of ``work()`` and its wall-clock seconds, bracketed by ``synchronize()``.

    Garbage is collected beforehand, so that one run does not pay for another's.
    """
    gc.collect()
    synchronize()
    start = time.perf_counter()
    value = work()
    synchronize()
    return value, time.perf_counter() - start


@contextlib.contextmanager
def numba_compilation() -> Iterator[Callable[[], float | None]]:
    """A function that tells how long numba compiled inside this context; None when it did not or is not installed.

    Counted is what numba itself calls compiling (typing, optimising, generating code), nested compilations once.
    Reading a function from numba's cache on disk is not compiling.
    """
    try:
        from numba.core import event
    except ImportError:
        yield lambda: None
        return
    listening: Any = event.TimingListener  # numba has no types
    with event.install_listener("numba:compile", listening()) as listener:
        yield lambda: listener.duration if listener.done else None
