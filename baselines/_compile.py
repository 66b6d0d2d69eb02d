"""Numba's compiler, with a cache on disk that several processes may fill at once.

To remember which file has the code for which types, Numba reads a list, adds to it and writes it again (its module
`numba.core.caching`, 0.68). Two processes that do so at the same time may give one name to code for different types,
and a third then runs code for types that it does not have, or crashes. Here they take turns.
"""

from __future__ import annotations

import fcntl
import functools
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core import caching

__all__ = ["njit"]


def _in_turn(save: Callable[[Any, Any, Any], None]) -> Callable[[Any, Any, Any], None]:
    @functools.wraps(save)
    def locked(cache: Any, key: Any, data: Any) -> None:
        with open(f"{cache._index_path}.lock", "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            save(cache, key, data)

    return locked


caching.IndexDataCacheFile.save = _in_turn(caching.IndexDataCacheFile.save)
