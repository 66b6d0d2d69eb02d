"""Folders in which a compiler works, and which are removed however its process ends."""

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
"""Seconds within which a folder may not have been locked yet by the process that made it."""


@contextlib.contextmanager
def scratch_folder(cache: Path) -> Iterator[Path]:
    """A new folder in a cache, removed at the end of the block, also where SIGTERM ends the process.

    Its process locks it. What is not locked was left by one that SIGKILL ended, and is removed as well.

    Raises:
        KernelCompilationError: it cannot be made.
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
    """SIGTERM came."""


@contextlib.contextmanager
def _termination_as_exception() -> Iterator[None]:
    """Let SIGTERM unwind the block before it ends the process, where nobody else handles it."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def unwind(*_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would interrupt the cleaning
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
        with contextlib.suppress(OSError):  # another process removes it meanwhile, or it is locked
            if time.time() - folder.stat().st_mtime > NEW:
                descriptor = os.open(folder, os.O_RDONLY)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)
                finally:
                    os.close(descriptor)
