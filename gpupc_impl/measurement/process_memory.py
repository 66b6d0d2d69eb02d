"""The memory of processes that a process started."""

import contextlib

import psutil


def descendants_memory(pid: int) -> int:
    """The resident memory of all descendants of a process, in bytes, without its own."""
    total = 0
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
    return total
