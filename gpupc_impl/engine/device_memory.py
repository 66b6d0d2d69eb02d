"""Arithmetic of device memory, for plans that must not exceed a budget."""

import math
from collections.abc import Callable

from gpupc_impl.engine.graph import COUNTER_SHAPE
from gpupc_impl.integers import round_up

COUNTER_BYTES = 8 * math.prod(COUNTER_SHAPE)
"""The counters of a launch."""


def allocated_bytes(nbytes: int) -> int:
    """What the device's allocator takes for an array of so many bytes."""
    return round_up(nbytes, 512)


def largest_fitting(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """The largest number in [low, high] that fits, as all below it do, by bisection; low - 1 if none does."""
    low -= 1
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
