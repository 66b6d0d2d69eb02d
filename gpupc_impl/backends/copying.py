"""Copies inside host memory on all cores: one core does not read memory as fast as a GPU takes it."""

from __future__ import annotations

import threading

import numpy as np
from numba import njit, prange

_ALONE = threading.Lock()
"""Not every threading layer of numba lets two threads start parallel work."""


@njit("void(u1[::1],u1[::1],i8,i8,i8,i8)", parallel=True, nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _copy(target: np.ndarray, source: np.ndarray, first: int, rows: int, width: int, stride: int) -> None:
    for row in prange(rows):
        start = first + row * stride
        target[row * width : (row + 1) * width] = source[start : start + width]


def copy_rows(target: np.ndarray, source: np.ndarray, first: int, rows: int, width: int, stride: int) -> None:
    """Copy rows of `width` bytes that begin at `first`, `first + stride`, ... of `source` (uint8, flat), one after the
    other, to `target` (uint8, flat)."""
    with _ALONE:
        _copy(target, source, first, rows, width, stride)
