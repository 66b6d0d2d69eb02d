"""Arithmetic of device memory, with which plans keep within a budget."""

import math
from collections.abc import Callable

from gpupc_impl.engine.graph import COUNTER_SHAPE
from gpupc_impl.integers import round_up

COUNTER_BYTES = 8 * math.prod(COUNTER_SHAPE)
"""The size of a launch's counters, in bytes."""


def allocated_bytes(nbytes: int) -> int:
    """Return the bytes that the device's allocator uses for an array of this many bytes."""
    return round_up(nbytes, 512)


def largest_fitting(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number in [low, high] that fits, found by bisection; low - 1 if none fits.

    All numbers below one that fits must fit as well.
    """
    low -= 1
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
