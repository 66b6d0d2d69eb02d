"""Checks of tables in memory that the packages they are passed to would not survive or not explain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.tables.columns import Place, check_cells
from gpupc_impl.tables.guards import frame_of_anndata

if TYPE_CHECKING:
    import pandas

ONE_VALUE = "give each row one number or label for each variable"


def anndata_frame(data: Any) -> pandas.DataFrame:
    """Return the matrix ``X`` of an AnnData object as a DataFrame; raises InvalidProblem if a sparse one is damaged."""
    try:
        return frame_of_anndata(data)
    except ValueError as error:
        raise InvalidProblem(f"data is an AnnData object that cannot be read: {error}") from error


def check_rows(data: Any) -> None:
    """Refuse a list of rows from which NumPy makes no array.

    Raises:
        InvalidProblem: the message names the row.
    """
    first: tuple[int, ...] | None = None
    for row, cells in enumerate(data if isinstance(data, (list, tuple)) else ()):
        try:
            shape = np.shape(cells)
        except ValueError:
            raise InvalidProblem(f"row {row} of data holds lists beside other values; {ONE_VALUE}") from None
        first = shape if first is None else first
        if shape != first:
            raise InvalidProblem(f"row {row} of data has the shape {shape}, and row 0 {first}; {ONE_VALUE}")


def check_objects(data: Any, place: Place) -> None:
    """Refuse cells of a list of rows, or of an array of objects, that are neither a number nor a label.

    Raises:
        DataError: see `check_cells`.
    """
    objects = np.asarray(data) if isinstance(data, (list, tuple, np.ndarray)) else np.empty(0)
    if objects.dtype.kind == "O" and objects.ndim == 2:
        for k in range(objects.shape[1]):
            check_cells(objects[:, k], k, place)


def check_shape(data: Any) -> None:
    """Refuse a table without rows or without columns; the header of a file of 128 bytes may declare 10^12 of the other.

    Raises:
        InvalidProblem: the message has both numbers.
    """
    if np.ndim(data) == 2 and 0 in np.shape(data):
        n, p = np.shape(data)
        raise InvalidProblem(f"data has {n:,} samples (rows) and {p:,} variables (columns); give at least one of each")
