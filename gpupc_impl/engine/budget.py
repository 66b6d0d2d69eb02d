"""Budgets of device memory: the bytes of arrays, and the largest block whose arrays fit.

A method states the arrays of a phase once, by name, as shapes and types, which is also how `Backend.empty_all` takes
them. A plan and the allocation then cannot differ:

    def panel_arrays(p: int, rows: int) -> Arrays:
        return {"c": ((rows, p), np.float64), "near": ((rows, row_words(p)), np.uint32)}

    rows = largest_fitting(1, p, lambda rows: device_bytes(panel_arrays(p, rows)) <= free_bytes(backend))
    arrays = backend.empty_all(**panel_arrays(p, rows))

All sizes are upper bounds: every array is counted as the device's allocator rounds it. The functions need no device."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend
from gpupc_impl.engine.graph import COUNTER_SHAPE
from gpupc_impl.integers import round_up

Arrays = Mapping[str, tuple[int | tuple[int, ...], Any]]  # by name, a shape or a length, and a type
COUNTER_BYTES = 8 * math.prod(COUNTER_SHAPE)


def allocated_bytes(nbytes: int) -> int:
    """Return the bytes that the device's allocator uses for an array."""
    return round_up(nbytes, 512)


def array_bytes(shape: int | tuple[int, ...], dtype: Any) -> int:
    """Return the bytes of an array, before the allocator rounds them."""
    count = math.prod(shape) if isinstance(shape, tuple) else shape
    return int(count * np.dtype(dtype).itemsize)


def device_bytes(arrays: Arrays) -> int:
    return sum(allocated_bytes(array_bytes(*array)) for array in arrays.values())


def free_bytes(backend: Backend) -> int:
    """Return the bytes that may still be allocated on a device, within its limit."""
    return max(0, backend.memory_limit - backend.memory_used)


def largest_fitting(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number in [low, high] that fits, or low - 1, by bisection: below one that fits, all fit."""
    low -= 1
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
