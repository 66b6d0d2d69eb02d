"""Protects the file of a problem from methods that change it."""

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from io import BufferedRandom
from pathlib import Path

from gpupc_impl.core.files import write_whole
from gpupc_impl.core.problem import Problem
from gpupc_impl.ownership import open_regular


class ProblemFile:
    """A problem's fingerprint and file, which must stay the same for every method; see `kept`."""

    def __init__(self, path: Path, problem: Problem, copy: BufferedRandom):
        self.path, self.fingerprint = path, problem.fingerprint
        arrays = problem.mapped_arrays
        self._beside = [Path(array.filename) for array in arrays if array.filename is not None]
        self._copy = copy
        with open(path, "rb") as file:
            shutil.copyfileobj(file, copy)
        self._last_states = self._states()

    def put_back(self) -> str | None:
        """Restore the file if it was changed since the last call; returns a sentence about the change, or None.

        If the matrix lies in a file of its own, it is too large for a copy and is not restored; opening the problem
        then fails.
        """
        states = self._states()
        if states == self._last_states:
            return None
        change = None
        if states[0] != self._last_states[0] and not self._is_the_same():
            change = f"it changed the problem's file {self.path.name}"
            self._copy.seek(0)
            if self.path.is_dir() and not self.path.is_symlink():
                shutil.rmtree(self.path)
            else:
                self.path.unlink(missing_ok=True)
            with write_whole(self.path) as file:
                shutil.copyfileobj(self._copy, file)
        elif states[1:] != self._last_states[1:]:
            change = f"it changed the matrix that lies beside the problem's file {self.path.name}"
        self._last_states = self._states()
        return change

    def _is_the_same(self) -> bool:
        self._copy.seek(0)
        try:
            with open_regular(self.path) as file:
                digests = [hashlib.file_digest(each, "sha256").digest() for each in (file, self._copy)]
        except OSError:
            return False
        return digests[0] == digests[1]

    def _states(self) -> list[tuple[int, ...] | None]:
        """Return for each file the facts that every write changes, among them the change time, which nobody can reset;
        None if the file is missing."""
        states: list[tuple[int, ...] | None] = []
        for path in (self.path, *self._beside):
            try:
                status = os.stat(path)
                states.append((status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
            except OSError:
                states.append(None)
        return states


@contextlib.contextmanager
def kept(path: Path, problem: Problem, folder: Path) -> Iterator[ProblemFile]:
    """Yield a problem's file with an unnamed copy in a folder, which is deleted when the block or the process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as copy:
        yield ProblemFile(path, problem, copy)
