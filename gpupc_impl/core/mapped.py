"""Matrices in files that are mapped into memory and read in pieces.

The pages of a mapped file that were read count as memory of the process, although the system can reclaim them at any
time. Code that reads a large matrix therefore calls `release` after each piece, which costs next to nothing; but
reading released pages again takes about four times as long.
"""

import contextlib
import hashlib
import mmap
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core.files import load_array

Result = TypeVar("Result")

PIECE_BYTES = 1 << 26
"""How much of a mapped array is read before its pages are released."""

SPOT_ROWS = 64
"""The upper bound on rows that `spot_sha256` reads."""


def base_memmap(array: Any) -> np.memmap | None:
    """The mapped array that an array is or is a view of; None if it lies in memory."""
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return None if array is None or _mapping(array) is None else array


def _mapping(array: np.memmap) -> mmap.mmap | None:
    """NumPy's mapping of the file; None for a copy in memory, which has the same class."""
    return getattr(array, "_mmap", None)


def release(array: Any) -> None:
    """Release the pages of a mapped array; the next read maps them again. Does nothing for any other array."""
    mapped = base_memmap(array)
    # Mode "c" is copy on write: its changes would be lost.
    mapping = None if mapped is None or mapped.mode == "c" else _mapping(mapped)
    if mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)


def npy_path(array: Any) -> Path | None:
    """The ``.npy`` file whose whole content a mapped array is; None for any other array."""
    if not isinstance(array, np.memmap) or _mapping(array) is None or array.filename is None:
        return None
    path = Path(array.filename)
    with contextlib.suppress(OSError, ValueError):
        whole = load_array(path, mapped=True)
        same = ("shape", "dtype", "strides", "offset")
        if isinstance(whole, np.memmap) and all(getattr(whole, name) == getattr(array, name) for name in same):
            return path
    return None


def new_npy(path: Path, shape: tuple[int, int]) -> np.memmap:
    """A new ``.npy`` of float64, mapped for writing, whose space on the disk is allocated.

    Raises:
        OSError: the disk is too full. Without this check writing to the mapping would end the process with SIGBUS.
    """
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=shape)
    if hasattr(os, "posix_fallocate"):
        with open(path, "rb+") as file:
            os.posix_fallocate(file.fileno(), 0, array.offset + array.nbytes)
    return array


def pieces(count: int, size: int) -> Iterator[slice]:
    """``range(count)`` in slices of a size, the last of which may be shorter."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def row_pieces(array: np.ndarray) -> Iterator[slice]:
    """The rows of an array in slices of about `PIECE_BYTES`."""
    row_bytes = max(1, array.nbytes // max(1, len(array)))
    return pieces(len(array), max(1, PIECE_BYTES // row_bytes))


def by_pieces(array: np.ndarray, function: Callable[[slice], Result]) -> list[Result]:
    """The results of a function of some rows of an array, for all pieces of it, by threads where there are several."""
    parts = list(row_pieces(array))
    if len(parts) < 2:
        return [function(rows) for rows in parts]
    with ThreadPoolExecutor(min(len(parts), available_cores())) as pool:
        return list(pool.map(function, parts))


def update_digest(digest: Any, array: np.ndarray) -> None:
    """Hash the bytes of a C-contiguous array as ``digest.update(array.tobytes())`` does, but without a copy."""
    for rows in row_pieces(array):
        digest.update(array[rows].reshape(-1).view(np.uint8).data)
        release(array)


def spot_rows(matrix: np.ndarray) -> np.ndarray:
    """(k,) int: up to `SPOT_ROWS` evenly spread rows."""
    return np.unique(np.linspace(0, len(matrix) - 1, SPOT_ROWS).astype(int))


def spot_sha256(matrix: np.ndarray) -> str:
    """A digest of the shape and of `SPOT_ROWS` evenly spread rows: a cheap check whether a matrix is the same."""
    digest = hashlib.sha256(f"{matrix.dtype.str} {matrix.shape}".encode())
    for row in spot_rows(matrix):
        digest.update(np.ascontiguousarray(matrix[row]).data)
    release(matrix)
    return digest.hexdigest()
