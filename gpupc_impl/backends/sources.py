"""Source files of kernels: their names, what Python declares of them, their includes, and a cache of products."""

import contextlib
import functools
import itertools
import os
import re
import types
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from gpupc_impl.backends.arguments import Struct
from gpupc_impl.backends.compilations import Compilations

PACKAGE_ROOT = Path(__file__).resolve().parents[1]  # to which sources are relative; kernels' include root
ASSERTIONS = "backends/simt/arguments.cuh"  # what the assertions of `declaration_checks` include
NO_CONSTANTS: Mapping[str, int] = types.MappingProxyType({})
Product = TypeVar("Product")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


class KernelSource(NamedTuple):
    """A kernel of a ``.cu`` file: the arguments of `Backend.kernel`."""

    source: str
    expression: str
    structs: tuple[Struct, ...] = ()
    constants: Mapping[str, int] = NO_CONSTANTS

    @property
    def path(self) -> Path:
        return PACKAGE_ROOT / self.source

    @property
    def label(self) -> str:
        return f"{self.expression} of {source_name(self.path)}"


def declaration_checks(kernels: Sequence[KernelSource]) -> str:
    """Return C++ code that compiles only if Python declares the kernels' structs and constants as the source does."""
    lines = [f'#include "{ASSERTIONS}"']
    declared = itertools.chain.from_iterable(kernel.structs for kernel in kernels)
    for struct in dict.fromkeys(itertools.chain.from_iterable(map(_with_inner, declared))):
        name, size = struct.name, struct.storage.itemsize
        lines.append(f'static_assert(sizeof({name}) == {size}, "{name} has {size} bytes as Python declares it");')
        lines += [
            f"static_assert(gpupc::is_field<decltype({name}::{field}), {kind.cpp}> && "
            f"GPUPC_OFFSET({field}, {name}) == {struct.offsets[field]}, "
            f'"Python declares {field} of {name} as {kind.cpp} at byte {struct.offsets[field]}");'
            for field, kind in struct.fields.items()
        ]
    for kernel in kernels:
        names = [struct.name for struct in kernel.structs]
        lines.append(
            f"static_assert(gpupc::takes_structs<{', '.join((f'decltype(&{kernel.expression})', *names))}>, "
            f'"Python passes these structs to {kernel.expression}: {", ".join(names) or "none"}");'
        )
    lines += [
        f'static_assert({name} == {int(value)}, "Python declares {name} as {int(value)}");'
        for kernel in kernels
        for name, value in kernel.constants.items()
    ]
    return "".join(f"{line}\n" for line in lines)


def _with_inner(struct: Struct) -> Iterator[Struct]:
    for kind in struct.fields.values():
        if isinstance(kind, Struct):
            yield from _with_inner(kind)
    yield struct


@functools.cache
def source_name(path: Path) -> str:
    """Return the name by which other sources include a file: relative to the include root, or the full path."""
    return path.relative_to(PACKAGE_ROOT).as_posix() if path.is_relative_to(PACKAGE_ROOT) else path.as_posix()


def includes_of(path: Path) -> list[Path]:
    """Return the files that a source includes with quotes, from beside it or below the include root."""
    return _read(path)[1]


def file_stamp(path: Path | str) -> tuple[int, int]:
    """Return the time of modification and the size of a file, one of which changes when it is written to."""
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size


def _read(path: Path) -> tuple[str, list[Path]]:
    """Return a file's contents and its includes; the file is read again only after it has changed."""
    return _read_as_of(path, *file_stamp(path))


@functools.lru_cache(maxsize=1024)
def _read_as_of(path: Path, modified: int, size: int) -> tuple[str, list[Path]]:
    text, included = path.read_text(), []
    for target in _INCLUDE.findall(text):
        candidates = (path.parent / target, PACKAGE_ROOT / target)
        included += [candidate.resolve() for candidate in candidates if candidate.is_file()][:1]
    return text, included


def sources_of(*paths: Path) -> dict[str, str]:
    """Return the contents of source files and of all that they include with quotes, sorted by name."""
    return dict(sorted((source_name(path), text) for path, text in _with_included(paths).items()))


def _with_included(paths: Iterable[Path]) -> dict[Path, str]:
    """Return source files and, recursively, all files that they include with quotes, with their contents."""
    contents: dict[Path, str] = {}
    pending = list(paths)
    while pending:
        current = pending.pop()
        if current not in contents:
            contents[current], included = _read(current)
            pending += included
    return contents


def _stamps(sources: Iterable[Path]) -> dict[str, tuple[int, int]]:
    """Return the stamps of source files and of all files that they include, by path."""
    return {str(path): file_stamp(path) for path in _with_included(sources)}


class SourceCache(Generic[Product]):
    """A process's cache of products of source files; a product is valid until one of its source files changes. Finding
    a compiled kernel on disk takes a millisecond, since every source file is hashed, but a whole search takes only a
    few milliseconds, and opens a backend that requests ten kernels."""

    def __init__(self) -> None:
        self.compilations = Compilations()
        self._products: dict[Hashable, tuple[dict[str, tuple[int, int]], Product]] = {}

    def prefetch(self, key: Hashable, sources: Iterable[Path], compile_it: Callable[[], Any]) -> None:
        """Let a thread compile the input of the product with this key, if that is missing."""
        if key not in self._products:
            with contextlib.suppress(OSError):  # `get` reports a source that does not exist.
                self.compilations.prefetch((key, *_stamps(sources).items()), compile_it)

    def is_ready(self, key: Hashable, sources: Iterable[Path]) -> bool:
        """Return whether the product with this key is cached, or can be loaded without compiling."""
        if key in self._products:
            return True
        with contextlib.suppress(OSError):
            return self.compilations.is_ready((key, *_stamps(sources).items()))
        return False

    def get(
        self, key: Hashable, sources: Iterable[Path], compile_it: Callable[[], Any], load: Callable[[Any], Product]
    ) -> Product:
        """Return the product with this key, which is made now if it is missing or if its sources or their includes have
        changed. It is loaded from the result of `compile_it`, which a thread may have computed already (`prefetch`). A
        product is not cached if a source does not exist."""
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
