"""Notifies observers whenever this process compiles code."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

observers: list[Callable[[bool], None]] = []
"""Functions that are called with True when a compilation begins and with False when it ends; compilations may be
nested."""


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Notify the observers that the block, or the decorated function, compiles code."""
    for observer in observers:
        observer(True)
    try:
        yield
    finally:
        for observer in observers:
            observer(False)
