"""Chooses the memory for the arrays of a problem: a GPU copies from pinned memory directly, whereas data in pageable
memory are first copied to pinned memory, which for a matrix of correlations can take a third of a search. Code that
makes a problem for a backend runs `inside` its allocator, so that families need not know the backend."""

import contextlib
import contextvars
from collections.abc import Iterator

import numpy as np
from numpy.typing import DTypeLike

from gpupc_impl.backends.base import Empty
from gpupc_impl.core import mapped_arrays

_empty: contextvars.ContextVar[Empty] = contextvars.ContextVar("empty", default=np.empty)


def new_array(shape: tuple[int, ...], dtype: DTypeLike = np.float64) -> np.ndarray:
    return _empty.get()(shape, dtype)


@contextlib.contextmanager
def allocated_by(empty: Empty | None) -> Iterator[None]:
    """Let `empty` allocate with this allocator inside the context; None means NumPy's."""
    token = _empty.set(empty or np.empty)
    try:
        yield
    finally:
        _empty.reset(token)


def copied(array: np.ndarray, dtype: DTypeLike | None = None) -> np.ndarray:
    """Return a C-contiguous read-only copy of an array, from the allocator of the context."""
    copy = new_array(array.shape, dtype or array.dtype)
    mapped_arrays.by_pieces(copy, lambda rows: np.copyto(copy[rows], array[rows], casting="unsafe"))
    copy.setflags(write=False)
    return copy
