"""Integer arithmetic that Python has no operator for."""

from typing import TypeVar

import numpy as np

Integers = TypeVar("Integers", int, np.ndarray)


def ceil_div(dividend: Integers, divisor: int) -> Integers:
    """The quotient rounded up, for one integer or an array of them."""
    return -(-dividend // divisor)


def round_up(number: Integers, multiple: int) -> Integers:
    """The smallest multiple of `multiple` that is not below `number`."""
    return ceil_div(number, multiple) * multiple
