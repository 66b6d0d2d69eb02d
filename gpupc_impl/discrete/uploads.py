"""Uploads several small arrays in one copy."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend
from gpupc_impl.integers import ceil_div

ALIGNMENT = 256
"""Alignment in bytes of the arrays that are uploaded in one copy."""


def upload_all(backend: Backend, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Upload host arrays of 32 or 64 bits in one copy; returns them by name, each flat, as parts of one device
    array."""
    places, end = {}, 0  # in 64-bit words
    for name, array in arrays.items():
        places[name] = end
        end += _words(array)
    words = np.zeros(end, np.uint64)
    for name, array in arrays.items():
        words[places[name] :].view(array.dtype)[: array.size] = array.reshape(-1)
    device = backend.upload(words)
    return {name: device[places[name] :].view(array.dtype)[: array.size] for name, array in arrays.items()}


def _words(array: np.ndarray) -> int:
    """Return the number of 64-bit words that `upload_all` takes for an array."""
    return ceil_div(array.nbytes, ALIGNMENT) * (ALIGNMENT // 8)


def uploaded_bytes(arrays: Mapping[str, np.ndarray]) -> int:
    """Return the device memory in bytes that `upload_all` takes for arrays."""
    return 8 * sum(map(_words, arrays.values()))
