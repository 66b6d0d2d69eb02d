"""NumPy files: ``.npy`` arrays and ``.npz`` archives."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gpupc_impl.core.files import check_array, open_arrays
from gpupc_impl.tables.checks import DataError, checked_names, finite, only_table


def read_numpy(path: Path, array: str | None = None, missing: bool = False) -> tuple[np.ndarray, list[str] | None]:
    """Read a ``.npy`` file, or the matrix of a ``.npz`` archive, which may hold the variables' names as ``names``.

    Args:
        array: the matrix's key in an archive; None takes the only two-dimensional array.
        missing: whether values may be missing, which is written as NaN.

    Returns:
        (samples, variables) C-contiguous float64 without infinite values; and the names, None where the file has none.

    Raises:
        DataError: the content cannot be used; the message names the row and the column (both counted from 1) of a bad
            value.
        OSError: the file cannot be opened.
    """
    with path.open("rb") as file:
        try:
            if path.suffix.lower() == ".npz":
                with open_arrays(file) as stored:
                    arrays = {name: array for name, array in stored.items() if isinstance(array, np.ndarray)}
            else:
                check_array(file, path.stat().st_size, path.name)
                file.seek(0)
                arrays = {path.stem: np.load(file, allow_pickle=False)}
            stored_names = arrays.pop("names").ravel().tolist() if "names" in arrays else None
        except Exception as error:  # a damaged, encrypted or unusually compressed file raises nearly anything
            raise DataError(f"{path} is not a readable {path.suffix} file: {error}") from error
    values = only_table(arrays, array, path)
    names = None if stored_names is None else checked_names(stored_names, path)
    return finite(values, names, path, missing), names
