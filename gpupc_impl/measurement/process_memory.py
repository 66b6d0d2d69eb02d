"""Measures the memory of the processes that a process started."""

from __future__ import annotations

import contextlib

import psutil


def descendants_memory(pid: int) -> int:
    """Return the resident memory of all descendants of a process, in bytes, without that of the process itself."""
    total = 0
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
    return total
