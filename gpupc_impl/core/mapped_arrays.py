"""Matrices in files that are mapped into memory and processed piece by piece. Pages of a mapped file count as the
process's memory once read, although the system can reclaim them at any time. Code that reads a large matrix therefore
calls `release` after each piece, which costs next to nothing; but reading it again takes about four times as long."""

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
PIECE_BYTES = 1 << 26  # of a mapped array are read before its pages are released
SPOT_ROWS = 64  # upper bound on the rows that `spot_sha256` reads


def base_memmap(array: Any) -> np.memmap | None:
    """Return the mapped array of which an array is a view, or the array itself; None if it lies in memory."""
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return None if array is None or _mapping(array) is None else array


def _mapping(array: np.memmap) -> mmap.mmap | None:
    """A copy in memory has the class `memmap` as well, but no mapping."""
    return getattr(array, "_mmap", None)


def release(array: Any) -> None:
    """Release the pages of a mapped array, which the next read maps again; other arrays are left unchanged."""
    mapped = base_memmap(array)
    # Mode "c" is copy on write, so releasing its pages would discard changes.
    mapping = None if mapped is None or mapped.mode == "c" else _mapping(mapped)
    if mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)


def npy_path(array: Any) -> Path | None:
    """Return the path of the ``.npy`` file whose whole content a mapped array is; None for any other array."""
    if not isinstance(array, np.memmap) or _mapping(array) is None or array.filename is None:
        return None
    path = Path(array.filename)
    with contextlib.suppress(OSError, ValueError):
        whole = load_array(path, mapped=True)
        same = ("shape", "dtype", "strides", "offset")
        if isinstance(whole, np.memmap) and all(getattr(whole, name) == getattr(array, name) for name in same):
            return path
    return None


def new_npy(file: Any, shape: tuple[int, int]) -> np.memmap:
    """Write the header of an ``.npy`` of float64 into an empty file, allocate its space, and map its values. Without
    the allocation, a write to the mapping of a full disk would end the process with SIGBUS, not with OSError."""
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(np.float64)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    file.flush()
    offset = file.tell()
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, offset + 8 * shape[0] * shape[1])
    return np.memmap(file, np.float64, "r+", offset, shape)  # makes the file longer if necessary


def pieces(count: int, size: int) -> Iterator[slice]:
    """Yield slices of the given size that cover ``range(count)``; the last may be shorter."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def row_pieces(array: np.ndarray) -> Iterator[slice]:
    row_bytes = max(1, array.nbytes // max(1, len(array)))
    return pieces(len(array), max(1, PIECE_BYTES // row_bytes))


def by_pieces(array: np.ndarray, function: Callable[[slice], Result]) -> list[Result]:
    """Call a function for every piece of an array's rows, with several threads."""
    parts = list(row_pieces(array))
    if len(parts) < 2:
        return [function(rows) for rows in parts]
    with ThreadPoolExecutor(min(len(parts), available_cores())) as pool:
        return list(pool.map(function, parts))


def update_digest(digest: Any, array: np.ndarray) -> None:
    """Hash the bytes of a C-contiguous array without a copy."""
    for rows in row_pieces(array):
        digest.update(array[rows].reshape(-1).view(np.uint8).data)
        release(array)


def spot_rows(matrix: np.ndarray) -> np.ndarray:
    return np.unique(np.linspace(0, len(matrix) - 1, SPOT_ROWS).astype(int))


def spot_sha256(matrix: np.ndarray) -> str:
    """Return a digest of the shape and of some rows, a cheap test of whether a matrix is the same."""
    digest = hashlib.sha256(f"{matrix.dtype.str} {matrix.shape}".encode())
    for row in spot_rows(matrix):
        digest.update(np.ascontiguousarray(matrix[row]).data)
    release(matrix)
    return digest.hexdigest()
