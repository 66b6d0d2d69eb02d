"""Folders for temporary files of a compiler, which are removed however the process ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path

from gpupc_impl.backends.errors import KernelCompilationError

PREFIX = "building-"

NEW = 60.0
"""The time in seconds within which a new folder may not have been locked yet by the process that made it."""


current: ContextVar[Path | None] = ContextVar("current", default=None)
"""The scratch folder of this thread, if it has one."""


@contextlib.contextmanager
def scratch_folder(cache: Path) -> Iterator[Path]:
    """Make a folder in a cache, which is removed at the end of the block, or when a signal ends the process during
    `run`.

    This process locks the folder. Folders that no process locks remain from processes that were killed, and are removed
    as well.

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
    with folder as name, _locked(Path(name)):
        token = current.set(Path(name))
        try:
            yield Path(name)
        finally:
            current.reset(token)


def run(command: Sequence[str]) -> tuple[int, str]:
    """Run a compiler, and return its exit status and its output.

    A shell runs beside the compiler, and waits for the end of its own input, which comes when this process ends; it
    then removes the scratch folder of this thread. A signal handler could not do so: Python runs handlers only in the
    main thread, and compilers run in other threads.
    """
    folder = current.get()
    kept = [] if folder is None else ["/bin/sh", "-c", _KEEPER, str(folder)]
    with subprocess.Popen(
        [*kept, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        output = process.stdout.read()
    return process.returncode, output


_KEEPER = """exec 3<&0 </dev/null
{ read -r line <&3 || rm -rf "$0"; } >/dev/null 2>&1 &
"$@" 3<&-
status=$?
kill $!
wait $! 2>/dev/null
exit $status"""
"""A shell script that runs its arguments beside a process that removes the folder ``$0`` at the end of the standard
input."""


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
