"""Readers of users' tables: text files, binary files and objects in memory. No value is imputed, and ambiguous content
is an error. The cells of a column determine its type, whatever holds them (`gpupc_impl.tables.columns`)."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core import mapped_arrays
from gpupc_impl.core.files import shortened
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.rows import RowStream
from gpupc_impl.tables import binary
from gpupc_impl.tables.binary import FRAMES, read_numpy
from gpupc_impl.tables.columns import DataError, Place, checked_names, missing_numbers, typed
from gpupc_impl.tables.text import TableFormat, read_numbers, read_text

if TYPE_CHECKING:
    import pandas

__all__ = ["FRAMES", "DataError", "Table", "TableFormat", "is_frame", "read_numbers", "read_numpy", "read_table"]

ONE_VALUE = "give each row one number or label for each variable"
UNREAD = {
    **dict.fromkeys((".xls", ".xlsb", ".ods"), "in the program that wrote it, or by pandas.read_excel"),
    **dict.fromkeys((".dta", ".sav", ".sas7bdat", ".xpt"), "by pandas.read_stata, read_spss or read_sas"),
    **dict.fromkeys((".feather", ".arrow", ".orc", ".hdf", ".h5"), "by pandas.read_feather, read_orc or read_hdf"),
    **dict.fromkeys((".rds", ".rda", ".rdata"), "by R's write.csv"),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """The user's table, of which `gpupc_impl.intake` finds out the last three fields. `values` are (samples, variables)
    numbers, a DataFrame with a type for each column, a `RowStream` of numbers, or a list of completed tables."""

    values: Any
    names: Sequence[str] | None
    place: Place  # names a cell of `values` in an error
    remark: str = ""  # the unusual ways in which numbers are written, such as decimal commas
    counts: bool = False  # whether the numbers are known to be counts, such as genotypes, and not codes of categories
    kind: str = "numbers"  # or "labels" of categories; "both", some columns of each; "correlation"
    label_columns: tuple[str, ...] = ()  # names of the columns of a DataFrame that hold labels
    summary: str = ""  # a description in one line


def read_table(
    data: Any,
    names: Sequence[str] | None = None,
    *,
    form: TableFormat | None = None,
    kind: str | None = None,
    transpose: bool = False,
    streamed: bool = False,
) -> Table:
    """Read a table of numbers, of labels or of both; a missing value becomes NaN, or None in a column of text. `data`
    and `transpose` are as for `gpupc_impl.skeleton`, with ``-`` for the standard input; `names` replace those of the
    data; `kind` is that of the columns, if it is known; with `streamed`, a large table of numbers may become a
    `RowStream`. DataError or OSError is raised if a file or a column of text cannot be used, and InvalidProblem if an
    object in memory is no table."""
    form = form or TableFormat()
    if isinstance(data, (str, os.PathLike)):
        if re.match(r"[a-z][a-z\d+.-]+:/|.*\n", str(data), re.IGNORECASE):
            raise DataError(f"{shortened(repr(str(data)), 60)} is an address or a text; give the path to a file")
        table = _from_file(Path(data), form, kind, transpose, streamed and not (transpose or form.missing_values))
    else:
        values = _from_memory(data, names, transpose, streamed)
        table = Table(values, getattr(values, "columns", None), _place("", getattr(values, "columns", names), 0))
    values, remark = table.values, ""
    if is_frame(values):
        values, remark = typed(values, kind, table.place, form.decimal, form.missing_values)
    elif isinstance(values, np.ndarray) and (codes := missing_numbers(form.missing_values)):
        values = np.where(np.isin(values, codes), np.nan, values)
    return dataclasses.replace(table, values=values, names=table.names if names is None else names, remark=remark)


def _from_file(path: Path, form: TableFormat, kind: str | None, transpose: bool, streamed: bool) -> Table:
    suffix, counts = path.suffix.lower(), False
    if suffix in UNREAD:
        raise DataError(f"{path}: {suffix} files are not read; write it as .csv or .parquet ({UNREAD[suffix]})")
    if form.sheet is not None and suffix not in (".xlsx", ".xlsm"):
        raise DataError(f"{path} has no sheets; leave sheet out (--sheet)")
    if streamed and suffix in (".npy", ".parquet") and (stream := binary.open_stream(path)) is not None:
        values, names = stream
    elif suffix == ".bed":
        values, names = binary.open_genotypes(path)
        values, counts = values if streamed and binary.is_streamed(values.shape) else np.asarray(values), True
    elif suffix in (".npy", ".npz"):
        values, names = read_numpy(path, missing=True)
    elif suffix in FRAMES:
        frame = binary.read_frame(path, form)
        frame = _turned(frame) if transpose else frame
        names = frame.columns = checked_names(list(frame.columns), path)
        return Table(frame, names, _place(f"{path}, ", names, 1))
    else:
        return Table(*read_text(path, form, kind, transpose))
    if transpose:
        values, names = np.ascontiguousarray(np.asarray(values).T), None
    return Table(values, names, _place(f"{path}, ", names, 1), counts=counts)


def _place(source: str, names: Sequence[Any] | None, start: int) -> Place:
    def place(row: int, column: int) -> str:
        if source and names is None:
            return f"{source}row {row + 1}, column {column + 1}"
        name = f"V{column}" if names is None else str(names[column])
        return f"{source}row {row + start} of column {name!r}"

    return place


def is_frame(data: Any) -> bool:
    """Return whether data is a DataFrame, without importing pandas."""
    return hasattr(data, "columns") and hasattr(data, "iloc")


def _turned(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Return a DataFrame with its rows as columns, whose names are those of the rows, or V0, V1, ... without any."""
    import pandas

    turned = frame.T.infer_objects()
    if isinstance(frame.index, pandas.RangeIndex):
        turned.columns = [f"V{k}" for k in range(turned.shape[1])]
    return turned


def _from_memory(data: Any, names: Sequence[str] | None, transpose: bool, streamed: bool) -> Any:
    """Return an array of numbers, a DataFrame of text or of objects, or a `RowStream` of a large mapped array."""
    data = _native(data)
    if is_frame(data):
        return _turned(data) if transpose else data
    array = _array(data)
    array = array.T if transpose else array
    if array.dtype.names:
        raise InvalidProblem("data is a structured array; give a table, such as pandas.DataFrame(data)")
    if streamed and mapped_arrays.base_memmap(array) is not None and binary.is_streamed(array.shape):
        return RowStream.of(array)
    if array.ndim == 2 and array.dtype.kind in "OUSMmc":
        import pandas

        p = array.shape[1]
        columns = names if names is not None and len(names) == p else [f"V{k}" for k in range(p)]
        return pandas.DataFrame(array.astype(object), columns=list(columns))
    return array


def _native(data: Any) -> Any:
    """Return an array, a list or a DataFrame of pandas in place of another package's table."""
    if isinstance(data, np.ndarray):
        return data
    import pandas
    from scipy import sparse

    package = type(data).__module__.partition(".")[0]
    try:
        if hasattr(data, "obs_names") and hasattr(data, "to_df"):
            return binary.frame_of_anndata(data)
        if sparse.issparse(data):
            return data.toarray()
        for lazy in ("collect", "compute"):  # of polars and of dask
            if hasattr(data, lazy) and package != "xarray":
                return _native(getattr(data, lazy)())
        if isinstance(data, dict) or (isinstance(data, list) and data and isinstance(data[0], dict)):
            return pandas.DataFrame(data)
        if hasattr(data, "data_vars"):
            return data.to_dataframe()
        if hasattr(data, "to_pandas"):
            try:
                return data.to_pandas()
            except ImportError:  # polars needs pyarrow for it.
                return pandas.DataFrame({name: data[name].to_list() for name in data.columns})
    except Exception as error:  # Other packages raise many types of exceptions.
        raise InvalidProblem(f"data ({package}.{type(data).__name__}) cannot be read as a table: {error}") from error
    if hasattr(data, "read") or isinstance(data, (bytes, set, frozenset)) or not hasattr(data, "__len__"):
        raise InvalidProblem(f"data is a {type(data).__name__}; give a path, a DataFrame of pandas, or an array")
    return data


def _array(data: Any) -> np.ndarray:
    """Return an array; a masked value is NaN, and a number beside text in a list remains a number."""
    if type(data) is np.ndarray:
        return data
    if isinstance(data, np.ma.MaskedArray):
        return np.ma.filled(data.astype(np.float64), np.nan)
    if not isinstance(data, (list, tuple)):
        try:
            return np.asarray(data) if isinstance(data, np.matrix) else np.asanyarray(data)
        except ValueError as error:
            raise InvalidProblem(f"data is a {type(data).__name__} and no table: {error}") from error
    shapes = []
    for row, cells in enumerate(data):
        try:
            shapes.append(np.shape(cells))
        except ValueError:
            raise InvalidProblem(f"row {row} of data holds lists beside other values; {ONE_VALUE}") from None
        if shapes[row] != shapes[0]:
            raise InvalidProblem(f"row {row} of data has the shape {shapes[row]}, and row 0 {shapes[0]}; {ONE_VALUE}")
    array = np.asarray(data)
    return np.array(data, object) if array.dtype.kind in "US" else array
