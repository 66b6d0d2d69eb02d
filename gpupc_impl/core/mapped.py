"""Matrices that lie in files: mapped into memory and read a piece at a time.

The pages of a mapped file that were read count as memory of the process, although the system can take them back at any
time. Code that reads through a large matrix therefore calls `release` now and then, which costs next to nothing; but
reading the same pages once more takes about four times as long as before.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

PIECE_BYTES = 1 << 26
"""What is read of a mapped array before its pages are released."""

SPOT_ROWS = 64
"""Rows that `spot_sha256` reads."""


def base_memmap(array: Any) -> np.memmap | None:
    """The mapped array that an array is, or is a view of; None when it lies in memory."""
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return None if array is None or _mapping(array) is None else array


def _mapping(array: np.memmap) -> mmap.mmap | None:
    """What NumPy maps the file with; None where the array is a copy in memory, which is of the same class."""
    return getattr(array, "_mmap", None)


def release(array: Any) -> None:
    """Give the pages of a mapped array back to the system; the next read maps them again. Others are left alone."""
    mapped = base_memmap(array)
    mapping = None if mapped is None or mapped.mode == "c" else _mapping(mapped)  # "c": changes would be lost
    if mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)


def npy_path(array: Any) -> Path | None:
    """The ``.npy`` file of which a mapped array is the whole content; None for any other array."""
    if not isinstance(array, np.memmap) or _mapping(array) is None or array.filename is None:
        return None
    path = Path(array.filename)
    with contextlib.suppress(OSError, ValueError):
        whole = np.load(path, mmap_mode="r")
        same = ("shape", "dtype", "strides", "offset")
        if isinstance(whole, np.memmap) and all(getattr(whole, name) == getattr(array, name) for name in same):
            return path
    return None


def new_npy(path: Path, shape: tuple[int, int]) -> np.memmap:
    """A new ``.npy`` of float64, mapped for writing, with its room on the disk taken.

    Raises:
        OSError: there is no room for it. Without this check a full disk would end the process with SIGBUS.
    """
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=shape)
    if hasattr(os, "posix_fallocate"):
        with open(path, "rb+") as file:
            os.posix_fallocate(file.fileno(), 0, array.offset + array.nbytes)
    return array


def pieces(count: int, size: int) -> Iterator[slice]:
    """``range(count)`` cut into slices of a size, the last one shorter."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def row_pieces(array: np.ndarray) -> Iterator[slice]:
    """The rows of an array cut into slices of about `PIECE_BYTES`."""
    row_bytes = max(1, array.nbytes // max(1, len(array)))
    return pieces(len(array), max(1, PIECE_BYTES // row_bytes))


def update_digest(digest: Any, array: np.ndarray) -> None:
    """Hash the bytes of a C-contiguous array, as ``digest.update(array.tobytes())`` would, but without a copy."""
    for rows in row_pieces(array):
        digest.update(array[rows].reshape(-1).view(np.uint8).data)
        release(array)


def spot_sha256(matrix: np.ndarray) -> str:
    """Digest of the shape and of up to `SPOT_ROWS` rows, evenly spread: cheap, and another matrix has another one."""
    digest = hashlib.sha256(f"{matrix.dtype.str} {matrix.shape}".encode())
    for row in np.unique(np.linspace(0, len(matrix) - 1, SPOT_ROWS).astype(int)):
        digest.update(np.ascontiguousarray(matrix[row]).data)
    release(matrix)
    return digest.hexdigest()
