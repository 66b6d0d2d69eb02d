"""Source files of kernels: how they are named, what they include, and what a process has made of them."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from gpupc_impl.backends.base import PACKAGE_ROOT

Made = TypeVar("Made")

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


@functools.cache
def source_name(path: Path) -> str:
    """How other sources name a file: from the include root where it lies below, else by its full path."""
    return path.relative_to(PACKAGE_ROOT).as_posix() if path.is_relative_to(PACKAGE_ROOT) else path.as_posix()


def includes_of(path: Path) -> list[Path]:
    """The files that a source includes by quotes: each beside it, else below the include root."""
    return _read(path)[1]


def _read(path: Path) -> tuple[str, list[Path]]:
    """A file's contents and the files that it includes. Every search loads kernels that share most of their files, so
    one is read again only when it has changed."""
    return _read_as_of(path, *file_stamp(path))


def file_stamp(path: Path | str) -> tuple[int, int]:
    """What changes when somebody writes to a file."""
    found = os.stat(path)
    return found.st_mtime_ns, found.st_size


@functools.lru_cache(maxsize=1024)
def _read_as_of(path: Path, modified: int, size: int) -> tuple[str, list[Path]]:
    text, found = path.read_text(), []
    for target in _INCLUDE.findall(text):
        candidates = (path.parent / target, PACKAGE_ROOT / target)
        found += [candidate.resolve() for candidate in candidates if candidate.is_file()][:1]
    return text, found


def sources_of(*paths: Path) -> dict[str, str]:
    """Source files and, recursively, all that they include by quotes: name to contents, in the order of the names."""
    return dict(sorted((source_name(path), text) for path, text in _with_included(paths).items()))


def _with_included(paths: Iterable[Path]) -> dict[Path, str]:
    """Source files and, recursively, all that they include by quotes, with their contents."""
    found: dict[Path, str] = {}
    pending = list(paths)
    while pending:
        current = pending.pop()
        if current not in found:
            found[current], included = _read(current)
            pending += included
    return found


class MadeOfSources(Generic[Made]):
    """What a process has made of sources, for as long as none of the files is written to.

    To find a compiled kernel on disk takes a millisecond, since every file that went into it is hashed. Whole searches
    take a few, and each opens a backend that asks for ten kernels.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[dict[str, tuple[int, int]], Made]] = {}

    def get(self, key: Hashable, sources: Iterable[Path], make: Callable[[], Made]) -> Made:
        """What is known by a key, or made now of these sources and all that they include; what is made of sources that
        are not there is not kept."""
        if (known := self._known.get(key)) is not None:
            stamps, made = known
            with contextlib.suppress(OSError):
                if all(file_stamp(path) == stamp for path, stamp in stamps.items()):
                    return made
        try:
            stamps = {str(path): file_stamp(path) for path in _with_included(sources)}
        except OSError:
            return make()
        made = make()
        self._known[key] = stamps, made
        return made
