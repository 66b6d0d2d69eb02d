"""Numba's compiler, with a cache on disk that several processes may fill at once.

Numba keeps an index of which file has the code for which types, and adds to it by reading and rewriting it (module
`numba.core.caching`, 0.68). Two processes that do so at the same time may give code for different types the same name,
and a third process then runs code for the wrong types. A file lock makes the index's updates exclusive.
"""

from __future__ import annotations

import fcntl
import functools
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core import caching

__all__ = ["njit"]


def _exclusive(save: Callable[[Any, Any, Any], None]) -> Callable[[Any, Any, Any], None]:
    @functools.wraps(save)
    def locked(cache: Any, key: Any, data: Any) -> None:
        with open(f"{cache._index_path}.lock", "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            save(cache, key, data)

    return locked


caching.IndexDataCacheFile.save = _exclusive(caching.IndexDataCacheFile.save)
