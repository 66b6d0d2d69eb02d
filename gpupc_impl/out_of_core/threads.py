"""Work on the host that is divided among threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gpupc_impl.backends.machine import available_cores

THREADS = 8
"""The most threads: this many saturate the memory's bandwidth."""


def in_threads(work: Callable[[Any], Any], parts: Iterable[Any]) -> list[Any]:
    """The results of `work` for the parts, in order; the parts are divided among threads."""
    waiting: Sequence[Any] = list(parts)
    threads = min(THREADS, available_cores(), len(waiting))
    if threads < 2:
        return [work(part) for part in waiting]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, waiting))
