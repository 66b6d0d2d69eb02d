"""Where the arrays of a problem lie in memory.

A GPU copies from page-locked memory by itself; from any other the host copies first, which for a matrix of correlations
takes a third of a search (docs/log.md). So whoever makes a problem for a backend makes it `inside` memory of
that backend, and no family has to know of one.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

import numpy as np
from numpy.typing import DTypeLike

from gpupc_impl.backends.base import Empty

_empty: contextvars.ContextVar[Empty] = contextvars.ContextVar("empty", default=np.empty)


def new_array(shape: tuple[int, ...], dtype: DTypeLike = np.float64) -> np.ndarray:
    """A host array for data of a problem, contents undefined."""
    return _empty.get()(shape, dtype)


@contextlib.contextmanager
def inside(empty: Empty | None) -> Iterator[None]:
    """Problems made in this context have their large arrays from `empty`; None: from NumPy."""
    token = _empty.set(empty or np.empty)
    try:
        yield
    finally:
        _empty.reset(token)


def placed(array: np.ndarray, dtype: DTypeLike | None = None) -> np.ndarray:
    """A copy of an array in such memory, C-contiguous and read-only; `dtype`: its type, if it is to be another."""
    copy = new_array(array.shape, dtype or array.dtype)
    copy[...] = array
    copy.setflags(write=False)
    return copy
