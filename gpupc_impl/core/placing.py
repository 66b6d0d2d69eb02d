"""Where the arrays of a problem lie in memory.

A GPU copies from pinned memory directly. Data in pageable memory are first copied to pinned memory, which for a matrix
of correlations can take a third of a search. Code that makes a problem for a backend therefore makes it `inside` the
backend's allocator, and families need no backend.
"""

import contextlib
import contextvars
from collections.abc import Iterator

import numpy as np
from numpy.typing import DTypeLike

from gpupc_impl.backends.base import Empty
from gpupc_impl.core import mapped

_empty: contextvars.ContextVar[Empty] = contextvars.ContextVar("empty", default=np.empty)


def new_array(shape: tuple[int, ...], dtype: DTypeLike = np.float64) -> np.ndarray:
    """An uninitialised host array for data of a problem."""
    return _empty.get()(shape, dtype)


@contextlib.contextmanager
def inside(empty: Empty | None) -> Iterator[None]:
    """In this context the large arrays of problems are allocated by `empty`; None means by NumPy."""
    token = _empty.set(empty or np.empty)
    try:
        yield
    finally:
        _empty.reset(token)


def placed(array: np.ndarray, dtype: DTypeLike | None = None) -> np.ndarray:
    """A copy of an array, C-contiguous and read-only, from the allocator of the context; `dtype` changes its type."""
    copy = new_array(array.shape, dtype or array.dtype)
    mapped.by_pieces(copy, lambda rows: np.copyto(copy[rows], array[rows], casting="unsafe"))
    copy.setflags(write=False)
    return copy
