"""Folders for temporary files of a compiler, which are removed however the process ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpupc_impl.backends.errors import KernelCompilationError

PREFIX = "building-"

NEW = 60.0
"""The time in seconds within which a new folder may not have been locked yet by the process that made it."""


@contextlib.contextmanager
def scratch_folder(cache: Path) -> Iterator[Path]:
    """Yield a new folder in a cache, which is removed at the end of the block, even if SIGTERM ends the process.

    The process locks the folder. Unlocked folders belonged to processes that SIGKILL ended, and are removed as well.

    Raises:
        KernelCompilationError: the folder cannot be made.
    """
    try:
        _remove_abandoned(cache)
        folder = tempfile.TemporaryDirectory(dir=cache, prefix=PREFIX)
    except OSError as error:
        raise KernelCompilationError(
            f"compiled kernels cannot be kept in {cache}: {error}; set GPUPC_CACHE_DIR to a folder that can be "
            "written by you alone"
        ) from error
    with _termination_as_exception(), folder as name, _locked(Path(name)):
        yield Path(name)


class _Terminated(BaseException):
    """Raised when SIGTERM arrives."""


@contextlib.contextmanager
def _termination_as_exception() -> Iterator[None]:
    """Let SIGTERM unwind the block before it ends the process, unless the program handles SIGTERM already."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def unwind(*_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # A second SIGTERM would interrupt the removal.
        raise _Terminated

    signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    except _Terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_abandoned(cache: Path) -> None:
    for folder in cache.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # Another process removes the folder at the same time, or has locked it.
            if time.time() - folder.stat().st_mtime > NEW:
                descriptor = os.open(folder, os.O_RDONLY)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)
                finally:
                    os.close(descriptor)
