"""A matrix whose pages take memory only once they are written."""

from __future__ import annotations

import contextlib
import mmap
import platform
import sys

import numpy as np

from gpupc_impl.core.problem import InvalidProblem

MAP_NORESERVE = 0x4000 if platform.machine() in ("x86_64", "aarch64") else 0
"""The value of Linux's flag, for which Python's mmap has a name from 3.13 on."""


def empty_graph(p: int) -> np.ndarray:
    """Return a (p, p) bool array of False. On Linux it takes only address space until edges are written into its pages.

    Raises:
        InvalidProblem: the process has no room for the array.
    """
    try:
        if sys.platform != "linux" or p == 0:
            return np.zeros((p, p), bool)
        # NumPy's zeros would be refused if p^2 bytes exceed the memory, although hardly any page is ever written.
        space = mmap.mmap(-1, p * p, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    except (MemoryError, OSError) as error:
        raise InvalidProblem(
            f"the adjacency matrix of {p:,} variables takes {p * p:,} bytes of address space, which this process "
            f"cannot have ({error}): raise its limit (ulimit -v, vm.overcommit_memory), or take fewer variables"
        ) from error
    with contextlib.suppress(OSError):  # Linux may lack huge pages
        space.madvise(mmap.MADV_NOHUGEPAGE)  # an edge then takes a page of 4 KiB, not of 2 MiB
    return np.frombuffer(space, np.uint8).view(bool).reshape(p, p)
