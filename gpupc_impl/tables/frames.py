"""Files that other packages read as a DataFrame: Parquet, Excel and AnnData."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gpupc_impl.tables.checks import DataError, checked_names

if TYPE_CHECKING:
    import pandas

FRAMES: Mapping[str, tuple[str, str]] = {
    ".parquet": ("pyarrow", "parquet"),
    ".xlsx": ("openpyxl", "excel"),
    ".xlsm": ("openpyxl", "excel"),
    ".h5ad": ("anndata", "anndata"),
}
"""By suffix, the module that reads the file, and the extra of this project that installs it."""


def read_frame(
    path: Path, header: bool | None = None, row_names: bool = False, transpose: bool = False
) -> pandas.DataFrame:
    """Read a Parquet file, the first sheet of an Excel file, or the matrix ``X`` of an AnnData file.

    The observations of an AnnData file are the samples.

    Args:
        header: whether the first line of a sheet holds names; None means yes.
        row_names: whether the first column of a sheet names the rows.
        transpose: whether variables are in rows; they then take the names of the rows.

    Returns:
        A DataFrame whose columns have distinct names, which are text.

    Raises:
        DataError: the package that reads the file is not installed, or cannot read it.
        OSError: the file cannot be opened.
    """
    import pandas

    module, extra = FRAMES[path.suffix.lower()]
    with path.open("rb"):  # so that an absent file is an OSError, and not an error of the package
        pass
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise DataError(
            f"{path}: reading it needs {module}, which is not installed; pip install 'gpupc[{extra}]'"
        ) from error
    try:
        if module == "pyarrow":
            frame = pandas.read_parquet(path, engine=module)
        elif module == "openpyxl":
            frame = pandas.read_excel(
                path, header=None if header is False else 0, index_col=0 if row_names else None, engine=module
            )
        else:
            frame = importlib.import_module(module).read_h5ad(path).to_df()
    except Exception as error:  # a damaged file raises nearly anything
        raise DataError(f"{path} is not a readable {path.suffix} file: {type(error).__name__}: {error}") from error
    if transpose:
        frame = frame.T.infer_objects()
    if header is False or (transpose and isinstance(frame.columns, pandas.RangeIndex)):
        frame.columns = [f"V{k}" for k in range(frame.shape[1])]
    frame.columns = checked_names(list(frame.columns), path)
    return frame
