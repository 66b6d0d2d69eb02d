"""Integer arithmetic for which Python has no operator."""

from typing import TypeVar

import numpy as np

Integers = TypeVar("Integers", int, np.ndarray)


def ceil_div(dividend: Integers, divisor: int) -> Integers:
    """Return the quotient rounded up, for an integer or an array of integers."""
    return -(-dividend // divisor)


def round_up(number: Integers, multiple: int) -> Integers:
    """Return the smallest multiple of `multiple` that is at least `number`."""
    return ceil_div(number, multiple) * multiple
