"""Batches of tests, which run one after the other on a GPU and in parallel on cores."""

import concurrent.futures
from collections.abc import Callable, Sequence
from typing import TypeVar

from gpupc_impl.backends import Backend

Batch = TypeVar("Batch")


def for_each(work: Callable[[Batch], None], batches: Sequence[Batch], backend: Backend) -> None:
    """Do the work of every batch in any order: each batch writes only its own results."""
    threads = min(backend.array_threads, len(batches))
    if threads <= 1:
        for batch in batches:
            work(batch)
        return
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, batches))
