"""Single numbers as users pass them."""

import math
from typing import Any

import numpy as np


def as_number(value: Any) -> float:
    """Return a real number of any type, or an array of one without dimensions, as a float; NaN for anything else,
    which includes text."""
    if isinstance(value, (str, bytes)) or np.ndim(value) > 0:
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
