"""Readers of tables in binary files: NumPy files, and Parquet, Excel and AnnData files, which need further packages.

A table of numbers in an ``.npy`` or ``.parquet`` file that is larger than memory is read some rows at a time.
"""

from __future__ import annotations

import importlib
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core import mapped_arrays
from gpupc_impl.core.files import check_array, load_array, open_arrays
from gpupc_impl.core.rows import RowStream
from gpupc_impl.ownership import open_regular
from gpupc_impl.tables.checks import DataError, checked_names, finite, only_table

if TYPE_CHECKING:
    import pandas

# Module that reads a file, and the extra that installs it, by suffix.
FRAMES: Mapping[str, tuple[str, str]] = {
    ".parquet": ("pyarrow", "parquet"),
    ".xlsx": ("openpyxl", "excel"),
    ".xlsm": ("openpyxl", "excel"),
    ".h5ad": ("anndata", "anndata"),
}

STREAMED_BYTES = 1 << 30  # as float64; fixed, since the last bits of correlations depend on how a table is read
MAX_SHEET_BYTES = 1 << 30  # to which an Excel file decompresses
MAX_ROWS, MAX_CELLS = 1 << 20, 1 << 24  # of a sheet, and of the rectangle that holds all of its values


def is_streamed(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and shape[0] > shape[1] and 8 * shape[0] * shape[1] >= STREAMED_BYTES


def read_numpy(path: Path, array: str | None = None, missing: bool = False) -> tuple[np.ndarray, list[str] | None]:
    """Read an ``.npy`` file, or the matrix `array` (None: the only one) of an ``.npz``, which may hold ``names``.

    `missing` says whether values may be NaN. Returns (samples, variables) C-contiguous float64, and the names or None.
    """
    with open_regular(path) as file:
        try:
            if path.suffix.lower() == ".npz":
                with open_arrays(file) as stored:
                    arrays = {name: array for name, array in stored.items() if isinstance(array, np.ndarray)}
            else:
                check_array(file, os.fstat(file.fileno()).st_size, path.name)
                file.seek(0)
                arrays = {path.stem: np.load(file, allow_pickle=False)}
            stored_names = arrays.pop("names").ravel().tolist() if "names" in arrays else None
        except Exception as error:  # Damaged, encrypted or unusually compressed files raise many types of exceptions.
            raise _unreadable(path, error) from error
    values = only_table(arrays, array, path)
    names = None if stored_names is None else checked_names(stored_names, path)
    return finite(values, names, path, missing), names


def read_frame(
    path: Path, header: bool | None, row_names: bool, transpose: bool, sheet: str | None = None
) -> pandas.DataFrame:
    """Read a Parquet file, a sheet of an Excel file (None: the first), or the matrix ``X`` of an AnnData file.

    A sheet has names in its first line (`header`) and first column (`row_names`). With `transpose`, variables are in
    rows, whose names are then theirs. The columns of the result have distinct names, which are text.
    """
    import pandas

    module, extra = FRAMES[path.suffix.lower()]
    with open_regular(path):  # If the file does not exist, this raises OSError instead of an error of the package.
        pass
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise DataError(
            f"{path}: reading it needs {module}, which is not installed; pip install {module} (the extra {extra})"
        ) from error
    try:
        if module == "pyarrow":
            frame = pandas.read_parquet(path, engine=module)
        elif module == "openpyxl":
            frame = _sheet(path, header is not False, row_names, sheet)
        else:
            frame = frame_of_anndata(importlib.import_module(module).read_h5ad(path))
    except Exception as error:  # Damaged files raise many types of exceptions.
        raise _unreadable(path, error) from error
    if transpose:
        frame = frame.T.infer_objects()
    if header is False or (transpose and isinstance(frame.columns, pandas.RangeIndex)):
        frame.columns = [f"V{k}" for k in range(frame.shape[1])]
    frame.columns = checked_names(list(frame.columns), path)
    return frame


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} is not a readable {path.suffix} file: {type(error).__name__}: {error}")


def _sheet(path: Path, header: bool, row_names: bool, name: str | None) -> pandas.DataFrame:
    import pandas

    with zipfile.ZipFile(path) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size > MAX_SHEET_BYTES:
        raise ValueError(f"it decompresses to {size:,} bytes, over the limit of {MAX_SHEET_BYTES:,}; save it as .csv")
    book = importlib.import_module("openpyxl").load_workbook(path, read_only=True, data_only=True)
    try:
        sheets = {each.title: each for each in book.worksheets}
        if name is not None and name not in sheets:
            raise ValueError(f"it has no sheet {name!r}; it has: {', '.join(map(repr, sheets))}")
        sheet = book.worksheets[0] if name is None else sheets[name]
        sheet.reset_dimensions()  # Those that the file declares may be wrong.
        rows: list[list[Any]] = []
        width = 0
        for row in sheet.iter_rows(values_only=True):
            length = next((k for k in range(len(row), 0, -1) if row[k - 1] is not None), 0)
            rows.append(list(row[:length]))
            width = max(width, length)
            if len(rows) > MAX_ROWS or len(rows) * width > MAX_CELLS:
                raise ValueError(
                    f"its sheet has more than {MAX_ROWS:,} rows or {MAX_CELLS:,} cells; delete those far from "
                    "the table, or save it as .csv"
                )
    finally:
        book.close()
    while rows and not rows[-1]:
        rows.pop()
    rows = [row + [None] * (width - len(row)) for row in rows]
    names = ["" if cell is None else cell for cell in rows.pop(0)] if header and rows else list(range(width))
    frame = pandas.DataFrame(rows, columns=pandas.Index(names, dtype=object), dtype=object)
    return frame.set_index(frame.columns[0]) if row_names else frame


def frame_of_anndata(data: Any) -> pandas.DataFrame:
    from scipy import sparse

    if sparse.issparse(data.X):
        try:
            getattr(data.X, "check_format", lambda full_check: None)(full_check=True)
        except ValueError as error:
            raise ValueError(
                f"its matrix X of shape {data.X.shape} is sparse, and its indices do not fit that shape ({error}); "
                "write it anew from the data it was made of"
            ) from error
    frame: pandas.DataFrame = data.to_df()
    return frame


# --- large tables ----------------------------------------------------------------------------------------------------


def open_stream(path: Path) -> tuple[RowStream, list[str] | None] | None:
    """Return the rows of an ``.npy`` or ``.parquet`` file and the names; None if the reader of whole files takes it."""
    if path.suffix.lower() == ".parquet":
        return _parquet(path)
    if path.suffix.lower() == ".npy":
        try:
            values = load_array(path, mapped=True)
        except ValueError:
            return None
        if is_streamed(values.shape) and values.dtype.kind in "biuf":
            return RowStream.of(values), None
    return None


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
        try:
            # Without prefetching, the pages of a group of rows, which may hold gigabytes, are read as they are needed.
            with parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:
                for batch in file.iter_batches(max(1, mapped_arrays.PIECE_BYTES // (8 * shape[1]))):
                    part = np.empty((batch.num_rows, shape[1]))
                    for k, place in enumerate(places):
                        part[:, k] = batch.column(place).to_numpy(zero_copy_only=False)
                    yield part
        except Exception as error:  # Damaged files raise many types of exceptions.
            raise _unreadable(path, error) from error

    return RowStream(shape, read), checked_names([schema.names[k] for k in places], path)
