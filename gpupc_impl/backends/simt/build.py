"""Builds kernels for the host: finds a C++ compiler, runs it, and caches the results.

The name of a cache entry is the digest of everything that it depends on: sources with their includes, flags, compiler,
and the features of the CPU. The entry ends with the digest of its contents, so that a damaged entry is detected and
made again. This digest does not protect against attackers, and loaded code runs with the caller's rights; folders and
entries that another user may have written are therefore not used (ownership.py). A finished entry is renamed into
place, so any number of processes may share a cache.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpupc_impl.backends.arguments import ASSERTIONS, Struct, declaration_checks
from gpupc_impl.backends.base import PACKAGE_ROOT
from gpupc_impl.backends.compiling import compiling
from gpupc_impl.backends.errors import BackendUnavailable, KernelCompilationError
from gpupc_impl.backends.machine import cpu_facts
from gpupc_impl.backends.simt.scratch import current, run, scratch_folder
from gpupc_impl.backends.sources import source_name, sources_of
from gpupc_impl.ownership import fault_of_folder, is_own

log = logging.getLogger("gpupc_impl.host")

SIMT = PACKAGE_ROOT / "backends" / "simt"
BESIDE_KERNELS = (SIMT / "simt.hpp", SIMT / "export.hpp", PACKAGE_ROOT / ASSERTIONS)
"""Sources that are compiled with every kernel."""

SANITIZERS = ("address", "undefined", "thread")

BASE_FLAGS = (
    "-std=c++17",
    "-fPIC",
    "-pthread",
    "-fvisibility=hidden",
    "-ffp-contract=off",  # This option gives the same bits with every compiler.
    "-fno-math-errno",  # This option compiles sqrt to one instruction.
    "-U_FORTIFY_SOURCE",  # With fortification, longjmp refuses to change stacks.
)
_NATIVE = "-march=native"
_HOW_TO_GET_ONE = "install one (apt install g++, conda install cxx-compiler, or pip install ziglang) or name it in CXX"
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: its command, and the first line of its version text."""

    command: tuple[str, ...]
    version: str


def find_compiler() -> Compiler:
    """Return the compiler in ``CXX``, else c++, g++ or clang++ on the path, else the compiler in the ziglang wheel.

    Raises:
        BackendUnavailable: no compiler was found.
    """
    return _find_compiler(os.environ.get("CXX", ""), os.environ.get("PATH", ""))


@functools.cache
def _find_compiler(cxx: str, _path: str) -> Compiler:
    if cxx.strip():
        compiler = _try_compiler(tuple(shlex.split(cxx)))
        if compiler is None:
            raise BackendUnavailable(f"the C++ compiler named in CXX ({cxx!r}) does not run; unset CXX or correct it")
        return compiler
    for name in ("c++", "g++", "clang++"):
        if compiler := _try_compiler((name,)):
            return compiler
    if importlib.util.find_spec("ziglang") and (compiler := _try_compiler((sys.executable, "-m", "ziglang", "c++"))):
        return compiler
    raise BackendUnavailable(f"no C++ compiler found; {_HOW_TO_GET_ONE}")


def _try_compiler(command: tuple[str, ...]) -> Compiler | None:
    if shutil.which(command[0]) is None:
        return None
    try:
        process = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if process.returncode != 0 or not process.stdout.strip():
        return None
    return Compiler(command, process.stdout.splitlines()[0].strip())


def parse_sanitizers(text: str) -> tuple[str, ...]:
    """Return ``"address,undefined"`` as a sorted tuple of names.

    Raises:
        ValueError: a name is unknown, or thread is combined with address.
    """
    kinds = tuple(sorted({kind.strip() for kind in text.split(",") if kind.strip()}))
    unknown = [kind for kind in kinds if kind not in SANITIZERS]
    if unknown:
        raise ValueError(f"GPUPC_SANITIZE: unknown sanitizer {unknown[0]!r}; choose among {', '.join(SANITIZERS)}")
    if {"address", "thread"} <= set(kinds):
        raise ValueError("GPUPC_SANITIZE: address and thread cannot be combined; run them one after the other")
    return kinds


def missing_sanitizer(kinds: Iterable[str]) -> str | None:
    """Return the reason why the compiler cannot build with these sanitizers, as a sentence; None if it can."""
    compiler = find_compiler()
    for kind in kinds:
        if "clang" in compiler.version or not _sanitizer_library(kind).is_absolute():
            return f"the {kind} sanitizer needs g++ and its runtime library (set CXX=g++), not {compiler.version}"
    return None


def sanitizer_environment(kinds: str | Iterable[str]) -> dict[str, str]:
    """Return this process's environment with the variables that a Python process needs to run kernels under sanitizers.

    Args:
        kinds: ``"address,undefined"`` or one of the two; the thread sanitizer needs ``replay`` instead.

    Raises:
        BackendUnavailable: the compiler does not have such a sanitizer.
    """
    names = parse_sanitizers(kinds if isinstance(kinds, str) else ",".join(kinds))
    if "thread" in names:
        raise ValueError("the thread sanitizer cannot run inside Python; record launches and replay them")
    if reason := missing_sanitizer(names):
        raise BackendUnavailable(reason)
    environment = {**os.environ, "GPUPC_SANITIZE": ",".join(names)}
    environment["UBSAN_OPTIONS"] = "halt_on_error=1:print_stacktrace=1"
    if "address" in names:
        # Leak detection is off, because the interpreter itself does not free all memory.
        environment["ASAN_OPTIONS"] = "detect_leaks=0:detect_stack_use_after_return=0:allocator_may_return_null=1"
        environment["LD_PRELOAD"] = str(_sanitizer_library("address"))
    return environment


def _sanitizer_library(kind: str) -> Path:
    """Return the path of a sanitizer's runtime library; a bare name if the compiler does not have it."""
    name = {"address": "libasan.so", "undefined": "libubsan.so", "thread": "libtsan.so"}[kind]
    process = subprocess.run([*find_compiler().command, f"-print-file-name={name}"], capture_output=True, text=True)
    path = Path(process.stdout.strip())
    return path.resolve() if path.is_absolute() else path


def kernel_unit(source: Path, expression: str, checks: str = "") -> str:
    """Return the translation unit that compiles a file and exports one of its kernels."""
    return (
        '#include "backends/simt/simt.hpp"\n'
        f'#include "{source_name(source)}"\n'
        f"{checks}"
        '#include "backends/simt/export.hpp"\n'
        f"SIMT_EXPORT({expression})\n"
    )


def build_kernel(
    source: Path,
    expression: str,
    structs: Sequence[Struct] = (),
    sanitizers: tuple[str, ...] = (),
    constants: Mapping[str, int] | None = None,
) -> Path:
    """Return the shared library of one kernel with these structs and constants, from the cache or compiled now."""
    unit = kernel_unit(source, expression, declaration_checks({expression: structs}, constants))
    flags = (*BASE_FLAGS, *_optimisation(sanitizers), "-shared")

    def make(output: Path, native: tuple[str, ...]) -> None:
        compile_text(unit, (*flags, *native, "-o", str(output)))

    label = f"{expression} of {source_name(source)}"
    return cached(label, _material(unit, [source], flags), make, ".so")


def build_runtime(sanitizers: tuple[str, ...] = ()) -> Path:
    """Return the shared library of the runtime, from the cache or compiled now."""
    source = SIMT / "runtime.cpp"
    flags = (*BASE_FLAGS, *_optimisation(sanitizers), "-shared", "-ftls-model=initial-exec")

    def make(output: Path, native: tuple[str, ...]) -> None:
        run_compiler((*flags, *native, str(source), "-o", str(output)))

    return cached("the runtime", _material("", [source], flags), make, ".so")


def build_replay(source: Path, expression: str) -> Path:
    """Return a program that replays recorded launches of one kernel under the thread sanitizer."""
    if reason := missing_sanitizer(["thread"]):
        raise BackendUnavailable(reason)
    unit = kernel_unit(source, expression)
    flags = (*BASE_FLAGS, *_optimisation(("thread",)))
    # The runtime is not instrumented, because it switches stacks; it tells the sanitizer what it does.
    objects = [_build_object(SIMT / name, "-O2", "-g", "-DGPUPC_TSAN") for name in ("runtime.cpp", "replay.cpp")]

    def make(output: Path, native: tuple[str, ...]) -> None:
        compile_text(unit, (*flags, *native, *map(str, objects), "-o", str(output)))

    label = f"the replay of {expression} of {source_name(source)}"
    own = [SIMT / "runtime.cpp", SIMT / "replay.cpp"]
    return cached(label, _material(unit, [source, *own], flags), make, "")


def _build_object(source: Path, *more: str) -> Path:
    flags = (*BASE_FLAGS, *more, "-c")

    def make(output: Path, native: tuple[str, ...]) -> None:
        run_compiler((*flags, *native, str(source), "-o", str(output)))

    return cached(source_name(source), _material("", [source], flags), make, ".o")


def _optimisation(sanitizers: tuple[str, ...]) -> tuple[str, ...]:
    if not sanitizers:
        return ("-O3",)
    flags = {
        "address": ("-DGPUPC_ASAN",),
        "undefined": ("-fno-sanitize-recover=undefined",),
        "thread": ("-DGPUPC_TSAN",),
    }
    own = (flag for kind in sanitizers for flag in flags[kind])
    # Optimisation is reduced for the address and undefined sanitizers, since optimising takes longer than running such
    # short tests.
    level = "-O1" if "thread" in sanitizers else "-O0"
    return (level, "-g1", "-fno-omit-frame-pointer", f"-fsanitize={','.join(sanitizers)}", *own)


def compile_text(unit: str, arguments: tuple[str, ...]) -> None:
    """Run the compiler on a translation unit given as text."""
    with tempfile.NamedTemporaryFile("w", suffix=".cpp", prefix="kernel-", dir=current.get()) as file:
        file.write(unit)
        file.flush()
        run_compiler((file.name, *arguments))


class _CompilerEnded(KernelCompilationError):
    """A signal ended the compiler, so its exit does not mean that the source or the flags are wrong."""


@compiling()
def run_compiler(arguments: Iterable[str]) -> None:
    """Run the compiler with the package as include root.

    Raises:
        KernelCompilationError: the compilation failed; the message contains the command and the compiler's output.
    """
    command = [*find_compiler().command, "-I", str(PACKAGE_ROOT), *arguments]
    status, output = run(command)
    if status < 0:
        raise _CompilerEnded(f"the C++ compiler was ended by {signal.Signals(-status).name}\n{shlex.join(command)}")
    if status != 0:
        raise KernelCompilationError(
            f"the C++ compiler failed with exit status {status}\n{shlex.join(command)}\n{output.strip()}"
        )


# --- the cache ----------------------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Return the folder in which compiled kernels are kept: ``GPUPC_CACHE_DIR``, else gpupc in the user's cache folder.

    Raises:
        KernelCompilationError: the user has no home folder, and no environment variable names a folder.
    """
    if folder := os.environ.get("GPUPC_CACHE_DIR"):
        return Path(folder)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpupc"
    except RuntimeError as error:
        raise KernelCompilationError(
            "compiled kernels cannot be kept: this user has no home folder; set GPUPC_CACHE_DIR, or HOME"
        ) from error


def open_cache(kind: str) -> Path:
    """Return the cache's folder for a kind of entries, in which only the caller can write; it is created if necessary.

    Raises:
        KernelCompilationError: the folder cannot be created, belongs to another user, or other users may write to it.
    """
    way_out = "set GPUPC_CACHE_DIR to a folder that can be written by you alone"
    cache = cache_folder()
    folder = cache / kind
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        for place in (cache, folder):
            if fault := fault_of_folder(place):
                raise KernelCompilationError(f"kernels in {place} are not used: {fault}; {way_out}")
    except OSError as error:
        raise KernelCompilationError(f"compiled kernels cannot be kept in {folder}: {error}; {way_out}") from error
    return folder


Make = Callable[[Path, tuple[str, ...]], None]


def cached(label: str, material: Iterable[str], make: Make, suffix: str, verb: str = "compiled") -> Path:
    """The cache entry for this material, made now if it is missing or damaged.

    Args:
        label: the name of the entry in the log.
        material: everything that determines the contents.
        make: writes the file to a path, given the flags for this machine's CPU.
        suffix: the end of the file's name.
        verb: how it is made, for the log.
    """
    digest = hashlib.sha256()
    for part in material:
        digest.update(part.encode())
        digest.update(b"\0")
    folder = open_cache("host")
    path = folder / f"{digest.hexdigest()}{suffix}"
    if is_own(path) and is_whole(path):
        return path
    if os.path.lexists(path):
        why = "is damaged" if is_own(path) else "may be somebody else's"
        log.warning("the cache entry of %s %s; building it again", label, why)
    started = time.perf_counter()
    with scratch_folder(folder) as place:
        output = place / "output"
        try:
            make(output, (_NATIVE,))
        except _CompilerEnded:
            raise
        except KernelCompilationError:
            if _accepts(find_compiler(), _NATIVE):
                raise
            make(output, ())
        if not output.is_file():
            raise KernelCompilationError(
                f"the C++ compiler {shlex.join(find_compiler().command)} reports success and has written nothing; name "
                "another one in CXX"
            )
        content = output.read_bytes()
        # The digest may follow the contents, because loaders and linkers ignore bytes after the last section.
        with output.open("ab") as file:
            file.write(hashlib.sha256(content).digest())
        output.chmod(0o700)
        os.replace(output, path)
    log.info("%s %s in %.2f s", verb, label, time.perf_counter() - started)
    return path


def is_whole(path: Path) -> bool:
    """Return whether a cache entry exists and is undamaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    return hashlib.sha256(content[:-_DIGEST_BYTES]).digest() == content[-_DIGEST_BYTES:]


def _material(unit: str, sources: Iterable[Path], flags: Iterable[str]) -> list[str]:
    compiler = find_compiler()
    files = sources_of(*BESIDE_KERNELS, *sources)
    return [
        unit,
        *(part for file in files.items() for part in file),
        *flags,
        *compiler.command,
        compiler.version,
        _cpu_features(),
    ]


@functools.cache
def _accepts(_compiler: Compiler, flag: str) -> bool:
    """Return whether the compiler supports a flag."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            compile_text("int main() { return 0; }\n", (flag, "-c", "-o", f"{folder}/probe.o"))
        except KernelCompilationError:
            return False
    return True


@functools.cache
def _cpu_features() -> str:
    """Return the features of the CPU that ``-march=native`` uses, since a library for one CPU must not be loaded on
    another."""
    return "\n".join(cpu_facts("flags", "Features", "model name"))
