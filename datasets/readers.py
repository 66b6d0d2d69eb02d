"""Files to matrices: CSV, npz and R data. Nothing is guessed, dropped or filled in: what is unclear is an error.

Each reader returns ``(values, names)``: values (samples, variables) float64, all finite; names one a variable, all
different and not empty, V0, V1, ... where the file has none. Each raises `DataError` naming the file, and the row
and the column where there is one, and OSError when the file cannot be opened.
"""

from __future__ import annotations

import collections
import csv
import gzip
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from datasets.dataset import DataError

if TYPE_CHECKING:
    import pandas as pd

Matrix = tuple[np.ndarray, tuple[str, ...]]
Header = bool | Literal["auto"]

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "."})


def read_table(path: str | Path, header: Header = "auto") -> pd.DataFrame:
    """A user's own file as a DataFrame (samples x variables) of float64.

    Args:
        path: .csv, .tsv (either may end in .gz), .npz (see `read_npz`), .RData or .rda (see `read_rdata`).
        header: for .csv and .tsv, whether the first row holds the names; "auto": it does when it holds no number.

    Raises:
        DataError: the file's kind or content cannot be used.
        OSError: the file cannot be opened.
    """
    import pandas as pd

    path = Path(path)
    kind = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if kind in ("csv", "tsv"):
        values, names = read_csv(path, header, delimiter="," if kind == "csv" else "\t")
    elif kind == "npz":
        values, names = read_npz(path)
    elif kind in ("rdata", "rda"):
        values, names = read_rdata(path)
    else:
        raise DataError(f"{path}: unknown kind of file; use .csv, .tsv, .csv.gz, .tsv.gz, .npz, .RData or .rda")
    return pd.DataFrame(values, columns=list(names))


def read_csv(path: str | Path, header: Header = "auto", delimiter: str = ",") -> Matrix:
    """A UTF-8 text table, gzipped when its name ends in .gz, samples in rows.

    `header="auto"` takes the first row for names when it holds text and no number, for data when it holds no text.
    """
    path = Path(path)
    names: tuple[str, ...] | None = None
    rows: list[np.ndarray] = []
    opener = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            for line, cells in _lines(csv.reader(file, delimiter=delimiter, skipinitialspace=True, strict=True), path):
                if names is None:
                    if _is_header(cells, path) if header == "auto" else header:
                        names = _checked_names(cells, path)
                        continue
                    names = _default_names(len(cells))
                if len(cells) != len(names):
                    raise DataError(f"{path}, line {line}: {len(cells)} cells where the first line has {len(names)}")
                rows.append(_numbers(cells, names, f"{path}, line {line}"))
    except (UnicodeDecodeError, csv.Error, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a readable text table: {error}") from error
    if names is None:
        raise DataError(f"{path} is empty")
    if not rows:
        raise DataError(f"{path} has a header and no data")
    return np.array(rows), names


def read_npz(path: str | Path, array: str | None = None) -> Matrix:
    """A numpy archive: the matrix is `array`, by default the only two-dimensional one; names from array ``names``."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (ValueError, AttributeError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is not a readable npz archive: {error}") from error
    names = arrays.pop("names", None)
    values = _the_table({key: value for key, value in arrays.items() if value.ndim == 2}, array, path)
    names = _default_names(values.shape[1]) if names is None else _checked_names(names.ravel().tolist(), path)
    return _finite(values, names, path), names


def read_rdata(path: str | Path, table: str | None = None, transpose: bool = False) -> Matrix:
    """An R workspace (.RData, .rda).

    Args:
        path: the file.
        table: the matrix or data frame to take, a member of a list written ``list$member``; by default the only one.
        transpose: the file has variables in rows.
    """
    tables = dict(_r_tables(_r_workspace(path)))
    found = _the_table(tables, table, path)
    if hasattr(found, "columns"):  # a data frame
        names = list(found.columns)
        values = np.column_stack([_r_numbers(found[name], name, path) for name in names])
    else:  # an array, or an xarray with R's dimnames as coordinates
        coordinates = getattr(found, "coords", {})
        dimension = "dim_0" if transpose else "dim_1"
        names = coordinates[dimension].values.tolist() if dimension in coordinates else None
        values = np.ma.filled(np.ma.asarray(getattr(found, "values", found), dtype=np.float64), np.nan)
    values = values.T if transpose else values
    names = _default_names(values.shape[1]) if names is None else _checked_names(names, path)
    return _finite(values, names, path), names


READERS = {"csv": read_csv, "npz": read_npz, "rdata": read_rdata}


def _lines(reader: Any, path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of every line; blank ones are allowed at the end only."""
    blank = None
    for cells in reader:
        if len(cells) < 2 and not "".join(cells).strip():
            blank = blank or reader.line_num
            continue
        if blank is not None:
            raise DataError(f"{path}, line {blank}: a blank line before the end")
        yield reader.line_num, cells


def _cell_kind(cell: str) -> str:
    text = cell.strip().lower()
    if text in MISSING:
        return "missing"
    if "_" in text:  # Python reads 1_0 as 10
        return "text"
    try:
        return "number" if np.isfinite(float(text)) else "infinite"
    except ValueError:
        return "text"


def _is_header(cells: list[str], path: Path) -> bool:
    example = {_cell_kind(cell): cell for cell in cells}
    if {"text", "number"} <= example.keys():
        raise DataError(
            f"{path}, line 1 holds both text ({example['text']!r}) and numbers ({example['number']!r}), so it may or "
            "may not be a header: say which (header=True or False; --header or --no-header)"
        )
    return "text" in example


def _numbers(cells: list[str], names: tuple[str, ...], where: str) -> np.ndarray:
    """One row as float64; the first bad cell is an error."""
    try:
        row = np.array(cells, dtype=np.float64)
        if np.isfinite(row).all() and not any("_" in cell for cell in cells):
            return row
    except ValueError:
        pass  # found and named below
    kinds = zip(map(_cell_kind, cells), cells, names, strict=True)
    kind, cell, name = next(found for found in kinds if found[0] != "number")
    what = {"missing": "missing value", "infinite": "infinite value", "text": "not a number:"}[kind]
    raise DataError(f"{where}, column {name!r}: {what} {cell!r}")


def _default_names(p: int) -> tuple[str, ...]:
    return tuple(f"V{i}" for i in range(p))


def _checked_names(names: list[Any], path: str | Path) -> tuple[str, ...]:
    stripped = tuple(str(name).strip() for name in names)
    if "" in stripped:
        raise DataError(
            f"{path}: column {stripped.index('') + 1} has no name; name it, or remove it if it holds row names"
        )
    repeated = [name for name, count in collections.Counter(stripped).items() if count > 1]
    if repeated:
        more = f" and {len(repeated) - 5} more" if len(repeated) > 5 else ""
        raise DataError(f"{path}: variable names must differ; repeated: {', '.join(repeated[:5])}{more}")
    return stripped


def _finite(values: np.ndarray, names: tuple[str, ...], path: str | Path) -> np.ndarray:
    """The matrix as float64, C-contiguous; the first value that is not a finite number is an error."""
    if values.dtype.kind not in "biuf":
        raise DataError(f"{path}: the matrix holds {values.dtype}, not numbers")
    if values.shape[1] != len(names):
        raise DataError(f"{path}: {len(names)} names for {values.shape[1]} variables")
    values = np.ascontiguousarray(values, dtype=np.float64)
    bad = np.argwhere(~np.isfinite(values))
    if bad.size:
        row, column = bad[0]
        what = "missing" if np.isnan(values[row, column]) else "infinite"
        raise DataError(f"{path}, row {row + 1}, column {names[column]!r}: {what} value")
    return values


def _the_table(tables: Mapping[str, Any], wanted: str | None, path: str | Path) -> Any:
    """The table of that name, or the only one."""
    held = f"it holds {', '.join(tables)}" if tables else "it holds none"
    if wanted is not None:
        if wanted not in tables:
            raise DataError(f"{path} has no two-dimensional table {wanted!r}; {held}")
        return tables[wanted]
    if len(tables) != 1:
        raise DataError(f"{path} must hold exactly one two-dimensional table; {held}")
    return next(iter(tables.values()))


def _r_workspace(path: str | Path) -> dict[str, Any]:
    try:
        import rdata
    except ImportError as error:
        raise DataError(f"{path}: reading R data needs the package rdata, which is not installed") from error
    from rdata.conversion import DEFAULT_CLASS_MAP, dataframe_constructor

    def data_frame(columns: Any, attributes: Mapping[str, Any]) -> Any:
        # R allows a matrix as a column of a data frame (riboflavin's x), pandas does not: then a plain dict.
        if any(np.ndim(column) > 1 for column in columns.values()):
            return dict(columns)
        return dataframe_constructor(columns, attributes)

    Path(path).stat()  # an absent file is an OSError, not a parser's complaint
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # R classes rdata has no constructor for come as plain arrays
            return rdata.read_rda(path, constructor_dict={**DEFAULT_CLASS_MAP, "data.frame": data_frame})
    except Exception as error:  # the parser raises nearly anything on a damaged file
        raise DataError(f"{path} is not a readable R workspace: {error}") from error


def _r_tables(contents: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every matrix and data frame, lists searched, as (name, table)."""
    for key, value in contents.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _r_tables(value, f"{name}$")
        elif np.ndim(value) == 2:
            yield name, value


def _r_numbers(column: pd.Series, name: str, path: str | Path) -> np.ndarray:
    from pandas.api.types import is_numeric_dtype

    if not is_numeric_dtype(column.dtype):
        raise DataError(f"{path}, column {str(name)!r} is not numeric ({column.dtype})")
    return column.to_numpy(dtype=np.float64, na_value=np.nan)
