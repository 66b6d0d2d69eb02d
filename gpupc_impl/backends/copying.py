"""Copies inside host memory on all cores: one core does not read memory as fast as a GPU takes it."""

from __future__ import annotations

import threading

import numpy as np
from numba import config, get_num_threads, njit, prange, set_num_threads, types

_ALONE = threading.Lock()
"""Not every threading layer of numba lets two threads start parallel work."""


MOST_THREADS = 8
"""More read no more from memory, and take longer to wake."""

_INTO, _FROM = (types.Array(types.uint8, 1, "C", readonly=readonly) for readonly in (False, True))
_SIGNATURE = types.void(_INTO, _FROM, *[types.int64] * 4)


@njit(_SIGNATURE, parallel=True, nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _copy_together(target: np.ndarray, source: np.ndarray, first: int, rows: int, width: int, stride: int) -> None:
    for row in prange(rows):
        start = first + row * stride
        target[row * width : (row + 1) * width] = source[start : start + width]


@njit(_SIGNATURE, nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _copy_alone(target: np.ndarray, source: np.ndarray, first: int, rows: int, width: int, stride: int) -> None:
    for row in range(rows):
        start = first + row * stride
        target[row * width : (row + 1) * width] = source[start : start + width]


def copy_rows(
    target: np.ndarray, source: np.ndarray, first: int, rows: int, width: int, stride: int, alone: bool = False
) -> None:
    """Copy rows of `width` bytes that begin at `first`, `first + stride`, ... of `source` (uint8, flat), one after the
    other, to `target` (uint8, flat); with `alone` on one core."""
    if alone:
        _copy_alone(target, source, first, rows, width, stride)
        return
    with _ALONE:
        before = get_num_threads()
        set_num_threads(min(MOST_THREADS, config.NUMBA_NUM_THREADS))
        try:
            _copy_together(target, source, first, rows, width, stride)
        finally:
            set_num_threads(before)
