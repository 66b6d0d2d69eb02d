"""Source files of kernels: how they are named, and what they include."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from gpupc_impl.backends.base import PACKAGE_ROOT

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
    stamp = path.stat()
    return _read_as_of(path, stamp.st_mtime_ns, stamp.st_size)


@functools.lru_cache(maxsize=1024)
def _read_as_of(path: Path, modified: int, size: int) -> tuple[str, list[Path]]:
    text, found = path.read_text(), []
    for target in _INCLUDE.findall(text):
        candidates = (path.parent / target, PACKAGE_ROOT / target)
        found += [candidate.resolve() for candidate in candidates if candidate.is_file()][:1]
    return text, found


def sources_of(*paths: Path) -> dict[str, str]:
    """Source files and, recursively, all that they include by quotes: name to contents, in the order of the names."""
    found: dict[str, str] = {}
    pending = list(paths)
    while pending:
        current = pending.pop()
        name = source_name(current)
        if name not in found:
            found[name], included = _read(current)
            pending += included
    return dict(sorted(found.items()))
