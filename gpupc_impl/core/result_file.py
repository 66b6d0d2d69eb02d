"""Writes the arrays of results."""

import zipfile
from collections.abc import Mapping
from typing import IO, Any

import numpy as np


def write_arrays(file: IO[bytes], arrays: Mapping[str, Any]) -> None:
    """Write an ``.npz`` as numpy.savez_compressed, but at zlib's fastest level: a quarter larger and four times as
    fast."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)
