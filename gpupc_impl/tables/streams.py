"""Tables of numbers in files that are larger than memory, which are read some rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from gpupc_impl.core import mapped
from gpupc_impl.core.files import load_array
from gpupc_impl.core.rows import RowStream
from gpupc_impl.ownership import open_regular
from gpupc_impl.tables.checks import DataError, checked_names

STREAMED_BYTES = 1 << 30
"""The size as float64 from which a table with more rows than columns is read some rows at a time. It does not depend on
the machine's memory, because the last bits of correlations depend on the way in which a table is read."""


def is_streamed(shape: tuple[int, ...]) -> bool:
    """Return whether a table of this shape is read some rows at a time."""
    return len(shape) == 2 and shape[0] > shape[1] and 8 * shape[0] * shape[1] >= STREAMED_BYTES


def open_stream(path: Path) -> tuple[RowStream, list[str] | None] | None:
    """Return the rows of an ``.npy`` or ``.parquet`` file and the variables' names.

    Returns:
        None if the table is read as a whole: it is small, has columns without numbers, or cannot be read, which the
        reader of whole files reports.

    Raises:
        DataError: two names are equal, or one is empty.
        OSError: the file cannot be opened.
    """
    opener = {".npy": _numpy, ".parquet": _parquet}.get(path.suffix.lower())
    return None if opener is None else opener(path)


def _numpy(path: Path) -> tuple[RowStream, None] | None:
    try:
        values = load_array(path, mapped=True)
    except ValueError:
        return None
    return (RowStream.of(values), None) if is_streamed(values.shape) and values.dtype.kind in "biuf" else None


def _parquet(path: Path) -> tuple[RowStream, list[str]] | None:
    with open_regular(path):
        pass
    try:
        from pyarrow import parquet, types

        with parquet.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
            index = (schema.pandas_metadata or {}).get("index_columns", [])
            places = [k for k, name in enumerate(schema.names) if name not in index]
            numeric = all(types.is_integer(schema.types[k]) or types.is_floating(schema.types[k]) for k in places)
    except Exception:  # pyarrow is absent, or damaged files raise many types of exceptions.
        return None
    shape = rows, len(places)
    if not numeric or not is_streamed(shape):
        return None

    def read() -> Iterator[np.ndarray]:
        # A buffer without prefetching reads the pages of a group of rows, which may hold gigabytes, as they are needed.
        with parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:
            for batch in file.iter_batches(_rows_at_once(shape[1])):
                part = np.empty((batch.num_rows, shape[1]))
                for k, place in enumerate(places):
                    part[:, k] = batch.column(place).to_numpy(zero_copy_only=False)
                yield part

    return RowStream(shape, _naming(path, read)), checked_names([schema.names[k] for k in places], path)


def _naming(path: Path, read: Callable[[], Iterator[np.ndarray]]) -> Callable[[], Iterator[np.ndarray]]:
    """Return a reader of pieces that names the file when a package cannot read one of them, with a DataError."""

    def named() -> Iterator[np.ndarray]:
        try:
            yield from read()
        except Exception as error:  # Damaged files raise many types of exceptions.
            raise DataError(f"{path} is not a readable {path.suffix} file: {type(error).__name__}: {error}") from error

    return named


def _rows_at_once(width: int) -> int:
    return max(1, mapped.PIECE_BYTES // (8 * width))
