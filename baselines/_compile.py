"""Compiles with numba and a cache on disk that processes may fill at once and other users cannot write. Numba's cache
has an index of which file contains the code for which types, and numba adds an entry by reading and rewriting the whole
index (module `numba.core.caching`, 0.68). Two processes that do this at once may give code for different types one
name, and a third then runs code for the wrong types. A file lock makes the index's updates exclusive. Numba unpickles
the files in its cache, which can execute any code. A folder or file that another user may have written, such as one
below a shared ``NUMBA_CACHE_DIR``, is therefore neither read nor written; the code is compiled instead."""

import fcntl
import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import caching

from gpupc_impl.ownership import fault_of_folder, is_own

log = logging.getLogger("baselines")


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` with these options; without a cache if there is no folder to which Numba can write."""

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(**options)(function)
        except RuntimeError as error:  # Numba raises "cannot cache function ...: no locator available".
            _warn(f"Numba finds no folder for its cache ({error}); set NUMBA_CACHE_DIR")
            return numba.njit(**{**options, "cache": False})(function)

    return compiled


@functools.cache
def _warn(message: str) -> None:
    log.warning("%s; compiled code is not kept", message)


def _is_safe(cache: Any) -> bool:
    """Return whether only the caller can have written the cache of a function; warn of a folder that is not safe."""
    index = Path(cache._index_path)
    try:
        fault = fault_of_folder(index.parent)
    except OSError as error:
        fault = str(error)
    if fault is not None:
        _warn(f"Numba's cache in {index.parent} is not used: {fault}; set NUMBA_CACHE_DIR to a folder of yours alone")
    return fault is None and all(map(is_own, index.parent.glob(f"{index.stem}.*")))


def _load_safely(load: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    @functools.wraps(load)
    def loaded(cache: Any, key: Any) -> Any:
        if not _is_safe(cache):
            return None
        try:
            return load(cache, key)
        except Exception as error:  # A damaged file can raise almost any exception.
            index = Path(cache._index_path)
            log.warning("Numba's cache %s is damaged (%s), so it is removed and filled again", index, error)
            index.unlink(missing_ok=True)
            return None

    return loaded


def _exclusive(save: Callable[[Any, Any, Any], None]) -> Callable[[Any, Any, Any], None]:
    @functools.wraps(save)
    def locked(cache: Any, key: Any, data: Any) -> None:
        if not _is_safe(cache):
            return
        try:
            lock = Path(f"{cache._index_path}.lock")
            lock.touch(mode=0o600)  # Whoever can open the file can hold its lock.
            with lock.open("ab") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                save(cache, key, data)
        except OSError as error:
            _warn(f"Numba's cache cannot be written ({error}); set NUMBA_CACHE_DIR")

    return locked


caching.IndexDataCacheFile.load = _load_safely(caching.IndexDataCacheFile.load)
caching.IndexDataCacheFile.save = _exclusive(caching.IndexDataCacheFile.save)
compiled = njit(cache=True, nogil=True, error_model="numpy")
inlined = njit(cache=True, nogil=True, error_model="numpy", inline="always")
