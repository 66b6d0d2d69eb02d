"""Reads CSV, npz and R data. Nothing is guessed, dropped or filled in: ambiguous content raises an error.

Each reader returns ``(values, names)``: values (samples, variables) float64, all finite; names, one per variable, all
different and not empty; V0, V1, ... if the file has none. Each raises `DataError`, which names the file and, if known,
the line or row and the column, and OSError if the file cannot be opened.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gpupc_impl import tables
from gpupc_impl.tables.binary import finite, only_table
from gpupc_impl.tables.columns import DataError, checked_names

if TYPE_CHECKING:
    import pandas as pd

Matrix = tuple[np.ndarray, tuple[str, ...]]
Header = bool | Literal["auto"]


def read_csv(path: str | Path, header: Header = "auto", delimiter: str = ",") -> Matrix:
    """Read a UTF-8 text table, perhaps compressed, with samples in rows; see `gpupc_impl.tables.read_numbers`. With the
    header "auto" the first row holds the names if it holds text and no number."""
    return _named(*tables.read_numbers(Path(path), None if header == "auto" else header, delimiter))


def read_npz(path: str | Path, array: str | None = None) -> Matrix:
    """Read a numpy archive: the matrix is `array`, by default the only two-dimensional one; names are in ``names``."""
    return _named(*tables.read_numpy(Path(path), array))


def read_rdata(path: str | Path, table: str | None = None, transpose: bool = False) -> Matrix:
    """Read a matrix or data frame of an R workspace (.RData, .rda), by default the only one; ``list$member`` names a
    member of a list. If `transpose`, the file has variables in rows."""
    path = Path(path)
    workspace = _r_workspace(path)
    try:
        return _r_matrix(workspace, table, transpose, path)
    except DataError:
        raise
    except Exception as error:  # R has matrices and columns of text, of lists and of unequal lengths.
        raise DataError(f"{path} holds no matrix of numbers where one is expected: {error}") from error


def _r_matrix(workspace: Mapping[str, Any], table: str | None, transpose: bool, path: Path) -> Matrix:
    matrix = only_table(dict(_r_tables(workspace)), table, path)
    if hasattr(matrix, "columns"):  # a data frame
        names = list(matrix.columns)
        values = np.column_stack([_r_numbers(matrix[name], name, path) for name in names])
    else:  # an array, or an xarray with R's dimnames as coordinates
        coordinates = getattr(matrix, "coords", {})
        dimension = "dim_0" if transpose else "dim_1"
        names = coordinates[dimension].values.tolist() if dimension in coordinates else None
        values = np.ma.asarray(getattr(matrix, "values", matrix))
        if values.dtype.kind not in "biuf":
            raise DataError(f"{path} holds {values.dtype}, not numbers")
        values = np.ma.filled(values.astype(np.float64), np.nan)
    values = values.T if transpose else values
    names = None if names is None else checked_names(names, path)
    return _named(finite(values, names, path), names)


READERS = {"csv": read_csv, "npz": read_npz, "rdata": read_rdata}


def _named(values: np.ndarray, names: Sequence[str] | None) -> Matrix:
    return values, tuple(f"V{k}" for k in range(values.shape[1])) if names is None else tuple(names)


def _r_workspace(path: str | Path) -> dict[str, Any]:
    try:
        import rdata
    except ImportError as error:
        raise DataError(f"{path}: reading R data needs the package rdata, which is not installed") from error
    from rdata.conversion import DEFAULT_CLASS_MAP, dataframe_constructor

    def data_frame(columns: Any, attributes: Mapping[str, Any]) -> Any:
        # R allows a matrix as a column of a data frame (riboflavin's x), which pandas cannot represent.
        if any(np.ndim(column) > 1 for column in columns.values()):
            return dict(columns)
        return dataframe_constructor(columns, attributes)

    Path(path).stat()  # An absent file raises OSError here, since the parser would raise something else.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # R classes without a constructor in rdata become plain arrays.
            return rdata.read_rda(path, constructor_dict={**DEFAULT_CLASS_MAP, "data.frame": data_frame})
    except Exception as error:  # A damaged file can raise almost any exception.
        raise DataError(f"{path} is not a readable R workspace: {error}") from error


def _r_tables(contents: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every matrix and data frame, also those inside lists, as (name, table)."""
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
