"""Readers of binary files: NumPy's, Parquet, Excel and AnnData, which need further packages, and PLINK's genotypes.
Large tables of numbers in ``.npy``, ``.parquet`` or ``.bed`` files are read some rows at a time."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core import mapped_arrays
from gpupc_impl.core.files import check_array, load_array, open_arrays, read_bytes
from gpupc_impl.core.rows import RowStream
from gpupc_impl.integers import ceil_div
from gpupc_impl.ownership import open_regular
from gpupc_impl.tables.columns import DataError, checked_names

if TYPE_CHECKING:
    import pandas

    from gpupc_impl.tables.text import TableFormat

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
    """Read an ``.npy`` file, or the matrix `array` (None: the only one) of an ``.npz``, which may hold ``names``:
    (samples, variables) C-contiguous float64, and the names or None. `missing` says whether values may be NaN."""
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


def only_table(tables: Mapping[str, Any], name: str | None, path: Path) -> Any:
    """Return the two-dimensional table of this name, or the only one if the name is None."""
    matrices = {key: table for key, table in tables.items() if np.ndim(table) == 2}
    content = ", ".join(f"{key} {np.shape(table)}" for key, table in tables.items()) or "nothing"
    if name is not None and name not in matrices:
        raise DataError(f"{path} has no two-dimensional array {name!r}; it holds {content}")
    if name is None and len(matrices) != 1:
        raise DataError(f"{path} must hold exactly one two-dimensional array; it holds {content}")
    return matrices[name] if name is not None else next(iter(matrices.values()))


def finite(values: np.ndarray, names: Sequence[str] | None, path: Path, missing: bool = False) -> np.ndarray:
    """Return the matrix as C-contiguous float64; `missing` says whether values may be NaN."""
    if values.dtype.kind not in "biuf":
        raise DataError(f"{path} holds {values.dtype}, not numbers")
    if names is not None and values.shape[1] != len(names):
        raise DataError(f"{path}: {len(names)} names for {values.shape[1]} variables")
    values = np.ascontiguousarray(values, dtype=np.float64)
    bad = np.argwhere(np.isinf(values) if missing else ~np.isfinite(values))
    if len(bad):
        row, column = bad[0]
        name = "" if names is None else f" ({names[column]!r})"
        fault = "missing" if np.isnan(values[row, column]) else "infinite"
        way_out = "; say --missing drop-rows (missing='drop-rows') or impute them" if fault == "missing" else ""
        raise DataError(
            f"{path}, row {row + 1}, column {column + 1}{name}: a value is {fault} ({len(bad)} such in all){way_out}"
        )
    return values


def read_frame(path: Path, form: TableFormat) -> pandas.DataFrame:
    """Read a Parquet file, a sheet of an Excel file, or the matrix ``X`` of an AnnData file."""
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
            frame = _sheet(path, form)
        else:
            frame = frame_of_anndata(importlib.import_module(module).read_h5ad(path))
    except Exception as error:  # Damaged files raise many types of exceptions.
        raise _unreadable(path, error) from error
    if form.header is False:
        frame.columns = [f"V{k}" for k in range(frame.shape[1])]
    return frame


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} is not a readable {path.suffix} file: {type(error).__name__}: {error}")


def _sheet(path: Path, form: TableFormat) -> pandas.DataFrame:
    import pandas

    with zipfile.ZipFile(path) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if size > MAX_SHEET_BYTES:
        raise ValueError(f"it decompresses to {size:,} bytes, over the limit of {MAX_SHEET_BYTES:,}; save it as .csv")
    book = importlib.import_module("openpyxl").load_workbook(path, read_only=True, data_only=True)
    try:
        sheets = {each.title: each for each in book.worksheets}
        if form.sheet is not None and form.sheet not in sheets:
            raise ValueError(f"it has no sheet {form.sheet!r}; it has: {', '.join(map(repr, sheets))}")
        sheet = book.worksheets[0] if form.sheet is None else sheets[form.sheet]
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
    named = form.header is not False and rows
    names = ["" if cell is None else cell for cell in rows.pop(0)] if named else list(range(width))
    frame = pandas.DataFrame(rows, columns=pandas.Index(names, dtype=object), dtype=object)
    return frame.set_index(frame.columns[0]) if form.row_names else frame


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
    return data.to_df()


def open_stream(path: Path) -> tuple[RowStream, list[str] | None] | None:
    """Return the rows of an ``.npy`` or ``.parquet`` file and the names; None if the reader of whole files takes it."""
    if path.suffix.lower() == ".parquet":
        return _parquet(path)
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
        try:
            # Without prefetching, the pages of a group of rows, which may hold gigabytes, are read as they are needed.
            with parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:
                for batch in file.iter_batches(max(1, mapped_arrays.PIECE_BYTES // (8 * shape[1]))):
                    columns = [batch.column(place).to_numpy(zero_copy_only=False) for place in places]
                    yield np.column_stack(columns).astype(np.float64, copy=False)
        except Exception as error:  # Damaged files raise many types of exceptions.
            raise _unreadable(path, error) from error

    return RowStream(shape, read), checked_names([schema.names[k] for k in places], path)


MAGIC, SAMPLE_MAJOR_MAGIC = b"\x6c\x1b\x01", b"\x6c\x1b\x00"
COUNTS = np.array([2.0, np.nan, 1.0, 0.0])  # of allele 1 by the two bits of a genotype; NaN: missing


def open_genotypes(path: Path) -> tuple[RowStream, list[str]]:
    samples = sum(1 for _ in _rows(path.with_suffix(".fam"), (6,)))
    variants = path.with_suffix(".bim")  # Genetic distances, its third column, may be missing.
    try:
        names = [cells[1].decode() for cells in _rows(variants, (5, 6))]
    except UnicodeDecodeError as error:
        raise DataError(f"{variants} is not text in UTF-8: {error}") from error
    shape = samples, len(names)
    with _open_bed(path, shape):  # Errors are raised before anything is read.
        pass
    at_once = 4 * max(1, mapped_arrays.PIECE_BYTES // (32 * max(1, len(names))))

    def read() -> Iterator[np.ndarray]:
        with _open_bed(path, shape) as file:
            for rows in mapped_arrays.pieces(samples, at_once):
                yield _counts(path, file, rows, shape)

    return RowStream(shape, read), checked_names(names, path)


def _rows(path: Path, widths: Collection[int]) -> Iterator[list[bytes]]:
    """Yield every line's cells, always one of these numbers of them; blank lines and those with # are skipped."""
    for number, line in enumerate(read_bytes(path).splitlines(), 1):
        cells = line.split()
        if not cells or cells[0].startswith(b"#"):
            continue
        if len(cells) not in widths:
            known = " or ".join(map(str, widths))
            raise DataError(f"{path}, line {number} has {len(cells)} cells; it must have {known}")
        widths = (len(cells),)
        yield cells


@contextlib.contextmanager
def _open_bed(path: Path, shape: tuple[int, int]) -> Iterator[io.BufferedReader]:
    samples, variants = shape
    with open_regular(path) as file:
        magic = file.read(len(MAGIC))
        if magic != MAGIC:
            other = f"; plink --bfile {path.stem} --make-bed --out NEW writes it anew" * (magic == SAMPLE_MAJOR_MAGIC)
            raise DataError(f"{path} is not a readable .bed file: it begins with {magic.hex(' ') or 'nothing'}{other}")
        size, expected = os.fstat(file.fileno()).st_size, len(MAGIC) + variants * ceil_div(samples, 4)
        if size != expected:
            raise DataError(
                f"{path} has {size:,} bytes, but {variants:,} variants of its .bim and {samples:,} samples of its "
                f".fam take {expected:,}: it is damaged, or the three files do not belong together"
            )
        yield file


def _counts(path: Path, file: io.BufferedReader, rows: slice, shape: tuple[int, int]) -> np.ndarray:
    """Read (samples, variants) float64 counts of allele 1 of some samples, the first of which begins a byte."""
    samples, variants = shape
    first, last = rows.start // 4, ceil_div(rows.stop, 4)
    stored = np.empty((variants, last - first), np.uint8)
    for k in range(variants):
        file.seek(len(MAGIC) + k * ceil_div(samples, 4) + first)
        if file.readinto(stored[k]) != last - first:
            raise DataError(f"{path} became shorter while it was read; leave it unchanged, and read it again")
    stored = np.ascontiguousarray(stored.T)
    counts = np.empty((last - first, 4, variants))
    for k in range(4):
        np.take(COUNTS, stored >> 2 * k & 3, out=counts[:, k])
    counts = counts.reshape(4 * (last - first), variants)
    length = rows.stop - rows.start
    if (counts[length:] != COUNTS[0]).any():
        raise DataError(
            f"{path} has bits after the {samples:,} samples of its .fam that are not zero: the .fam has too few lines, "
            "or the files do not belong together"
        )
    return counts[:length]
