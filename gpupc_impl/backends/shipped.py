"""Kernels that were compiled ahead of their use and come with a wheel: one archive for each target.

A target is a level of x86-64 or another processor for the host backend, and an architecture for the CUDA backend.
``make wheel`` writes the archives (workflow/lib/shipped.py); a checkout has none and compiles on first use.

A binary is found by the digest of its sources, declarations, flags and target, not by its name. So a binary of other
sources is never loaded. The digest leaves the compiler out, because every compiler makes the same bits. What an archive
has is unpacked into the cache of compiled kernels, whose checks of owner and contents hold for it too. An archive is a
zip file with a member for each source file, in which the binaries of all its kernels lie one after the other: they are
alike, and compressed together take a fifth of the room. Its ``index.json`` says where each begins."""

import dataclasses
import functools
import hashlib
import json
import lzma
import os
import platform
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpupc_impl.backends.base import PACKAGE_ROOT
from gpupc_impl.backends.machine import cpu_facts
from gpupc_impl.backends.simt import build
from gpupc_impl.backends.sources import KernelSource, file_stamp, sources_of
from gpupc_impl.ownership import open_regular

INDEX = "index.json"
MAX_BYTES = 1 << 28  # upper bound on the bytes of an archive, and of each of its members
_UNREADABLE = (OSError, ValueError, LookupError, TypeError, EOFError, zipfile.BadZipFile, lzma.LZMAError)


class DamagedArchive(Exception):
    """An archive cannot be read, or its contents have changed."""


def folder() -> Path:
    """Where the archives lie: ``GPUPC_SHIPPED_DIR``, else the folder ``shipped`` of the installed package."""
    return _path(os.environ.get("GPUPC_SHIPPED_DIR") or f"{PACKAGE_ROOT}/shipped")


_path = functools.cache(Path)  # Every search asks for the same few paths, and to make one takes microseconds.


def content_digest(*material: Any) -> str:
    """The digest by which a binary is found."""
    return hashlib.sha256(repr(material).encode()).hexdigest()


@dataclasses.dataclass(frozen=True)
class Entry:
    """One binary of an archive: the member in which it lies, from byte `first` to `end`, the digest of its contents,
    and of a GPU image the kernels as the cache's index describes them; of a library none."""

    member: str
    first: int
    end: int
    sha256: str
    kernels: dict[str, Any]


class Archive:
    """The binaries of one target."""

    def __init__(self, path: Path):
        self._path = path
        try:
            index = json.loads(self._read(INDEX))
            self.compiler: str = index["compiler"]
            self.entries = {digest: Entry(**entry) for digest, entry in index["entries"].items()}
        except _UNREADABLE as error:
            raise DamagedArchive(f"{path}: {error}") from error
        self._lock = threading.Lock()  # Threads may request a member at the same time; it is unpacked once.
        self._member = functools.lru_cache(maxsize=8)(self._read)

    def content(self, digest: str) -> bytes:
        entry = self.entries[digest]
        try:
            with self._lock:
                content = self._member(entry.member)[entry.first : entry.end]
        except _UNREADABLE as error:
            raise DamagedArchive(f"{self._path}: {error}") from error
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            raise DamagedArchive(f"{self._path}: a binary of {entry.member} has changed")
        return content

    def _read(self, member: str) -> bytes:
        with open_regular(self._path, MAX_BYTES) as file, zipfile.ZipFile(file) as archive:
            if (size := archive.getinfo(member).file_size) > MAX_BYTES:
                raise ValueError(f"{member} declares {size:,} bytes, over the limit of {MAX_BYTES:,}")
            return archive.read(member)


def write_archive(path: Path, compiler: str, binaries: Mapping[str, tuple[str, bytes, dict[str, Any]]]) -> None:
    """Write a target's archive of binaries by content digest: source's name, binary, and `Entry.kernels`."""
    members: dict[str, bytearray] = {}
    entries = {}
    for digest, (source, content, kernels) in sorted(binaries.items(), key=lambda item: (item[1][0], item[0])):
        member = members.setdefault(source, bytearray())
        first = member.find(content)  # All kernels of a source that are no templates are in the same image.
        if first < 0:
            first = len(member)
            member += content
        end = first + len(content)
        entries[digest] = dataclasses.asdict(Entry(source, first, end, hashlib.sha256(content).hexdigest(), kernels))
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".writing")
    with zipfile.ZipFile(scratch, "w", zipfile.ZIP_LZMA) as archive:
        index = json.dumps({"compiler": compiler, "entries": entries}).encode()
        for name, data in [*members.items(), (INDEX, index)]:
            archive.writestr(zipfile.ZipInfo(name), bytes(data), zipfile.ZIP_LZMA)
    os.replace(scratch, path)


def archive_of(target: str) -> Archive | None:
    """The archive of a target; None if there is none, or if it cannot be read."""
    path = archive_path(target)
    try:
        return _archive_as_of(path, *file_stamp(path))
    except (OSError, DamagedArchive):
        return None


def archive_path(target: str) -> Path:
    return _path(f"{folder()}/{target}.zip")


@functools.lru_cache(maxsize=16)
def _archive_as_of(path: Path, modified: int, size: int) -> Archive:
    return Archive(path)


# --- libraries of the host backend -----------------------------------------------------------------------------------
_V2 = frozenset({"cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3"})
_V3 = _V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
_V4 = _V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
TARGETS: Mapping[str, Mapping[str, frozenset[str]]] = {
    "x86_64": {"x86-64-v4": _V4, "x86-64-v3": _V3, "x86-64-v2": _V2},
    "aarch64": {"armv8-a": frozenset()},
}
"""By the machine's architecture: the values of ``-march``, the best first, with the flags that Linux must list."""

_RUNTIME = build.SIMT / "runtime.cpp"
_FLAGS = (
    *build.BASE_FLAGS,
    "-O3",
    "-shared",
    "-s",
    "-ffunction-sections",  # so that the linker can leave out a source's other kernels
    "-Wl,--gc-sections,--as-needed,-z,noseparate-code",
)


def target() -> str | None:
    """The best target that this machine's CPU can run and that has an archive."""
    return next((name for name in runnable_targets() if archive_of(name) is not None), None)


def runnable_targets() -> list[str]:
    """The targets that this machine's CPU can run, the best first."""
    return [name for name, features in TARGETS.get(platform.machine(), {}).items() if features <= _features()]


def compiler() -> str | None:
    """The compiler of the libraries for this machine's CPU, and their target; None if there is no archive."""
    name = target()
    archive = name and archive_of(name)
    return f"{archive.compiler}, ahead for {name}" if archive else None


@functools.cache
def _features() -> frozenset[str]:
    return frozenset.intersection(*(frozenset(line.split()) for line in cpu_facts("flags") or [""]))


def library(kernel: KernelSource | None) -> Path | None:
    """A kernel's library, or the runtime's for None, unpacked into the cache; None if no fitting archive has it."""
    name = target()
    archive = name and archive_of(name)
    if not name or not archive or (digest := library_digest(kernel, name)) not in archive.entries:
        return None

    label = kernel.label if kernel else "the runtime"
    try:
        return build.cached(label, [digest], lambda output: output.write_bytes(archive.content(digest)), "unpacked")
    except DamagedArchive:
        return None


def library_digest(kernel: KernelSource | None, target: str) -> str:
    """The content digest of the library of a kernel, or of the runtime for None."""
    if kernel is None:
        return content_digest(target, _FLAGS, sources_of(_RUNTIME))
    return content_digest(target, _FLAGS, build.kernel_unit(kernel), sources_of(*build.BESIDE_KERNELS, kernel.path))


def compile_library(kernel: KernelSource | None, target: str, output: Path) -> None:
    """Compile the library of a kernel, or of the runtime for None, for an archive."""
    flags = (*_FLAGS, f"-march={target}", "-o", str(output))
    if kernel is None:
        build.run_compiler((*flags, "-ftls-model=initial-exec", str(_RUNTIME)))
    else:
        build.compile_text(build.kernel_unit(kernel), flags)
