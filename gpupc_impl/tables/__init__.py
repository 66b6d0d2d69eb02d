"""Users' tables: files become matrices. Nothing is guessed or imputed; what is ambiguous is an error.

There is a reader of text and one of binary files; both check names and numbers in the same way.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpupc_impl.tables.binary import FRAMES, read_frame, read_numpy
from gpupc_impl.tables.checks import DataError as DataError
from gpupc_impl.tables.text import read_text, read_text_of_any_kind

if TYPE_CHECKING:
    import pandas


def read_table(
    path: Path,
    header: bool | None = None,
    row_names: bool = False,
    labels: bool | None = False,
    missing: bool = False,
    transpose: bool = False,
) -> tuple[np.ndarray | pandas.DataFrame, list[str] | None]:
    """Read a file of numbers, of labels or of both.

    Args:
        path: ``.npy`` or ``.npz`` (see `read_numpy`), ``.parquet``, ``.xlsx`` or ``.h5ad`` (see `read_frame`); any
            other file is a text table.
        header, row_names, missing, transpose: as `read_text` takes them.
        labels: whether the cells are labels; None infers it column by column: a column without a number holds labels.

    Returns:
        What `read_text` returns; for inferred labels and for the files in `FRAMES` a DataFrame whose columns have types
        of their own.

    Raises:
        DataError, OSError: as `read_text` raises them.
    """
    suffix = path.suffix.lower()
    if suffix in (".npy", ".npz"):
        values, names = read_numpy(path, missing=missing)
        return (np.ascontiguousarray(values.T), None) if transpose else (values, names)
    if suffix in FRAMES:
        frame = read_frame(path, header, row_names, transpose)
        return frame, list(frame.columns)
    if labels is None:
        return read_text_of_any_kind(path, header, row_names, missing, transpose)
    return read_text(path, header, row_names, labels, missing=missing, transpose=transpose)
