"""Readers of tables in binary files: NumPy files, and Parquet, Excel and AnnData files, which need further packages."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpupc_impl.core.files import check_array, open_arrays
from gpupc_impl.ownership import open_regular
from gpupc_impl.tables.checks import DataError, checked_names, finite, only_table
from gpupc_impl.tables.guards import check_extent, check_hdf5, check_inflation, frame_of_anndata

if TYPE_CHECKING:
    import pandas

FRAMES: Mapping[str, tuple[str, str]] = {
    ".parquet": ("pyarrow", "parquet"),
    ".xlsx": ("openpyxl", "excel"),
    ".xlsm": ("openpyxl", "excel"),
    ".h5ad": ("anndata", "anndata"),
}
"""The module that reads a file and the extra of this project that installs the module, by the file's suffix."""


def read_numpy(path: Path, array: str | None = None, missing: bool = False) -> tuple[np.ndarray, list[str] | None]:
    """Read an ``.npy`` file, or a matrix of an ``.npz`` archive, which may hold the variables' names as ``names``.

    Args:
        array: the key of the matrix in an archive; None means the only two-dimensional array.
        missing: whether values may be missing; a missing value is NaN.

    Returns:
        (samples, variables) C-contiguous float64 without infinite values; and the names, or None if the file has none.

    Raises:
        DataError: the content cannot be used; the message names the row and the column (both counted from 1) of a bad
            value.
        OSError: the file cannot be opened.
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
            raise DataError(f"{path} is not a readable {path.suffix} file: {error}") from error
    values = only_table(arrays, array, path)
    names = None if stored_names is None else checked_names(stored_names, path)
    return finite(values, names, path, missing), names


def read_frame(
    path: Path, header: bool | None = None, row_names: bool = False, transpose: bool = False
) -> pandas.DataFrame:
    """Read a Parquet file, the first sheet of an Excel file, or the matrix ``X`` of an AnnData file, whose observations
    are the samples.

    Args:
        header: whether the first line of a sheet holds names; None means true.
        row_names: whether the first column of a sheet names the rows.
        transpose: whether variables are in rows; the row names are then the variables' names.

    Returns:
        A DataFrame whose columns have distinct names, which are text.

    Raises:
        DataError: the package that reads the file is not installed, or cannot read it.
        OSError: the file cannot be opened.
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
            check_inflation(path)
            with pandas.ExcelFile(path, engine=module) as file:
                with file.book.worksheets[0]._get_source() as sheet:  # The part that holds it has no public name.
                    check_extent(sheet)
                frame = pandas.read_excel(
                    file,
                    header=None if header is False else 0,
                    index_col=0 if row_names else None,
                    dtype=object,  # `typed` determines types and missing values.
                    keep_default_na=False,
                )
        else:
            check_hdf5(path)
            frame = frame_of_anndata(importlib.import_module(module).read_h5ad(path))
    except Exception as error:  # Damaged files raise many types of exceptions.
        raise DataError(f"{path} is not a readable {path.suffix} file: {type(error).__name__}: {error}") from error
    if transpose:
        frame = frame.T.infer_objects()
    if header is False or (transpose and isinstance(frame.columns, pandas.RangeIndex)):
        frame.columns = [f"V{k}" for k in range(frame.shape[1])]
    frame.columns = checked_names(list(frame.columns), path)
    return frame
