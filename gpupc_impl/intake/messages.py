"""Parts of messages about a user's table, and the function that issues warnings."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

SHOWN = 5
"""The number of columns that a message names."""


def shown(names: Sequence[Any]) -> str:
    """Return the first `SHOWN` names and the number of the others, for a message."""
    more = f", ... {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(repr(str(name)) for name in names[:SHOWN]) + more


def is_frame(data: Any) -> bool:
    return hasattr(data, "columns") and hasattr(data, "iloc")


def column_names(data: Any, names: Sequence[str] | None) -> Sequence[Any]:
    """Return the names of the columns of (n, p) data for a message."""
    return names if names is not None else getattr(data, "columns", [f"V{k}" for k in range(np.shape(data)[1])])


def warn(message: str) -> None:
    """Issue a warning that is attributed to the user's call of the library, or to a call close to it."""
    warnings.warn(message, stacklevel=7)
