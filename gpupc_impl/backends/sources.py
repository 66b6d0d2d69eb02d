"""Source files of kernels: their names, what they include, and a cache of what a process has made of them."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

from gpupc_impl.backends.base import PACKAGE_ROOT
from gpupc_impl.backends.compilations import Compilations

Product = TypeVar("Product")

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


@functools.cache
def source_name(path: Path) -> str:
    """How other sources name a file: relative to the include root where it lies below, else by its full path."""
    return path.relative_to(PACKAGE_ROOT).as_posix() if path.is_relative_to(PACKAGE_ROOT) else path.as_posix()


def includes_of(path: Path) -> list[Path]:
    """The files that a source includes by quotes: each beside it, else below the include root."""
    return _read(path)[1]


def file_stamp(path: Path | str) -> tuple[int, int]:
    """The time of modification and the size of a file, which change when somebody writes to it."""
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size


def _read(path: Path) -> tuple[str, list[Path]]:
    """A file's contents and the files that it includes; read again only when the file has changed."""
    return _read_as_of(path, *file_stamp(path))


@functools.lru_cache(maxsize=1024)
def _read_as_of(path: Path, modified: int, size: int) -> tuple[str, list[Path]]:
    text, included = path.read_text(), []
    for target in _INCLUDE.findall(text):
        candidates = (path.parent / target, PACKAGE_ROOT / target)
        included += [candidate.resolve() for candidate in candidates if candidate.is_file()][:1]
    return text, included


def sources_of(*paths: Path) -> dict[str, str]:
    """Source files and, recursively, all that they include by quotes: name to contents, in the order of the names."""
    return dict(sorted((source_name(path), text) for path, text in _with_included(paths).items()))


def _with_included(paths: Iterable[Path]) -> dict[Path, str]:
    """Source files and, recursively, all that they include by quotes, with their contents."""
    contents: dict[Path, str] = {}
    pending = list(paths)
    while pending:
        current = pending.pop()
        if current not in contents:
            contents[current], included = _read(current)
            pending += included
    return contents


def _stamps(sources: Iterable[Path]) -> dict[str, tuple[int, int]]:
    """The stamps of source files and of all that they include, by path."""
    return {str(path): file_stamp(path) for path in _with_included(sources)}


class SourceCache(Generic[Product]):
    """A process's cache of products of source files, each valid until somebody writes to one of its files.

    Finding a compiled kernel on disk takes a millisecond, since every file that went into it is hashed. Whole searches
    take a few milliseconds, and each opens a backend that asks for ten kernels.

    Attributes:
        compilations: what threads compile of the products that are not here yet.
    """

    def __init__(self) -> None:
        self.compilations = Compilations()
        self._products: dict[Hashable, tuple[dict[str, tuple[int, int]], Product]] = {}

    def prefetch(self, key: Hashable, sources: Iterable[Path], compile_it: Callable[[], Any]) -> None:
        """Have a thread compile what the product with this key is loaded from, if it is missing."""
        if key not in self._products:
            with contextlib.suppress(OSError):  # `get` names a source that does not exist
                self.compilations.prefetch((key, *_stamps(sources).items()), compile_it)

    def is_ready(self, key: Hashable, sources: Iterable[Path]) -> bool:
        """Whether the product with this key is here, or can be loaded without compiling."""
        if key in self._products:
            return True
        with contextlib.suppress(OSError):
            return self.compilations.is_ready((key, *_stamps(sources).items()))
        return False

    def get(
        self, key: Hashable, sources: Iterable[Path], compile_it: Callable[[], Any], load: Callable[[Any], Product]
    ) -> Product:
        """The product with this key, made now if it is missing or if its sources or their includes have changed.

        It is loaded from what `compile_it` returns, which a thread may have been asked for before (`prefetch`). A
        product is not cached if a source does not exist.
        """
        if (known := self._products.get(key)) is not None:
            stamps, product = known
            with contextlib.suppress(OSError):
                if all(file_stamp(path) == stamp for path, stamp in stamps.items()):
                    return product
        try:
            stamps = _stamps(sources)
        except OSError:
            return load(compile_it())
        product = load(self.compilations.result((key, *stamps.items()), compile_it))
        self._products[key] = stamps, product
        return product
