"""What messages about a user's table say and how they are given."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

SHOWN = 5
"""Number of columns that a message names."""


def shown(names: Sequence[Any]) -> str:
    """The first of some names, for a message."""
    more = f", ... {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(repr(str(name)) for name in names[:SHOWN]) + more


def is_frame(data: Any) -> bool:
    return hasattr(data, "columns") and hasattr(data, "iloc")


def column_names(data: Any, names: Sequence[str] | None) -> Sequence[Any]:
    """The names that a message gives to the columns of (n, p) data."""
    return names if names is not None else getattr(data, "columns", [f"V{k}" for k in range(np.shape(data)[1])])


def warn(message: str) -> None:
    """Warn at, or within a few calls of, the user's call of the library."""
    warnings.warn(message, stacklevel=7)
