"""The file of a problem while methods run that could change it."""

from __future__ import annotations

import contextlib
import filecmp
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gpupc_impl.core.files import write_whole
from gpupc_impl.core.problem import Problem


class ProblemFile:
    """A problem's file, which must be the same for every method; see `kept`.

    Attributes:
        path: the file.
        fingerprint: the problem's.
    """

    def __init__(self, path: Path, problem: Problem, copy: Path):
        self.path, self.fingerprint = path, problem.fingerprint
        arrays = problem.mapped_arrays
        self._beside = [Path(array.filename) for array in arrays if array.filename is not None]
        self._copy = copy  # made here, empty
        shutil.copyfile(path, copy)
        self._seen = self._states()

    def put_back(self) -> str | None:
        """What happened to the file since the last call, as a sentence; None when nothing did. It is then as it was.

        A matrix in a file of its own, too large for a copy, is not put back; opening it tells then.
        """
        states = self._states()
        if states == self._seen:
            return None
        what = None
        if states[0] != self._seen[0] and not (states[0] and filecmp.cmp(self.path, self._copy, shallow=False)):
            what = f"it changed the problem's file {self.path.name}"
            with write_whole(self.path) as temporary:
                shutil.copyfile(self._copy, temporary)
        elif states[1:] != self._seen[1:]:
            what = f"it changed the matrix that lies beside the problem's file {self.path.name}"
        self._seen = self._states()
        return what

    def _states(self) -> list[tuple[int, ...] | None]:
        """Of each file what changes with every write, and cannot be set back as its times can; None without one."""
        states: list[tuple[int, ...] | None] = []
        for path in (self.path, *self._beside):
            try:
                found = os.stat(path)
                states.append((found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
            except OSError:
                states.append(None)
        return states


@contextlib.contextmanager
def kept(path: Path, problem: Problem, folder: Path) -> Iterator[ProblemFile]:
    """A problem's file, with a hidden copy in a folder for the length of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    handle, copy = tempfile.mkstemp(prefix=".problem-", suffix=".npz", dir=folder)
    os.close(handle)
    try:
        yield ProblemFile(path, problem, Path(copy))
    finally:
        Path(copy).unlink(missing_ok=True)
