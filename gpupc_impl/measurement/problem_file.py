"""The file of a problem while methods run that could change it."""

from __future__ import annotations

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


class ProblemFile:
    """A problem's file, which must be the same for every method; see `kept`.

    Attributes:
        path: the file.
        fingerprint: the problem's.
    """

    def __init__(self, path: Path, problem: Problem, copy: BufferedRandom):
        self.path, self.fingerprint = path, problem.fingerprint
        arrays = problem.mapped_arrays
        self._beside = [Path(array.filename) for array in arrays if array.filename is not None]
        self._copy = copy
        with open(path, "rb") as file:
            shutil.copyfileobj(file, copy)
        self._seen = self._states()

    def put_back(self) -> str | None:
        """What happened to the file since the last call, as a sentence; None when nothing did. It is then as it was.

        A matrix in a file of its own, too large for a copy, is not put back; opening it tells then.
        """
        states = self._states()
        if states == self._seen:
            return None
        what = None
        if states[0] != self._seen[0] and not self._is_the_same():
            what = f"it changed the problem's file {self.path.name}"
            self._copy.seek(0)
            with write_whole(self.path) as temporary, open(temporary, "wb") as file:
                shutil.copyfileobj(self._copy, file)
        elif states[1:] != self._seen[1:]:
            what = f"it changed the matrix that lies beside the problem's file {self.path.name}"
        self._seen = self._states()
        return what

    def _is_the_same(self) -> bool:
        self._copy.seek(0)
        try:
            with open(self.path, "rb") as file:
                digests = [hashlib.file_digest(each, "sha256").digest() for each in (file, self._copy)]
        except OSError:
            return False
        return digests[0] == digests[1]

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
    """A problem's file with a copy for the length of the block: in this folder, nameless, so gone with this process."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as copy:
        yield ProblemFile(path, problem, copy)
