"""Builds kernels for the host: finds a C++ compiler, runs it, and caches the results. The name of a cache entry is the
digest of everything that it depends on: sources with their includes, flags, compiler, and the features of the CPU. The
entry ends with the digest of its contents, so that a damaged entry is detected and made again. Loaded code runs with
the caller's rights, so a cache folder that another user may have written is not used (ownership.py). A finished entry
is renamed into place, so any number of processes may share a cache."""

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
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpupc_impl.backends.base import PACKAGE_ROOT
from gpupc_impl.backends.compilations import compiling
from gpupc_impl.backends.errors import BackendUnavailable, KernelCompilationError
from gpupc_impl.backends.machine import cpu_facts
from gpupc_impl.backends.sources import ASSERTIONS, KernelSource, declaration_checks, source_name, sources_of
from gpupc_impl.ownership import fault_of_folder

log = logging.getLogger("gpupc_impl.host")

SIMT = PACKAGE_ROOT / "backends" / "simt"
BESIDE_KERNELS = (SIMT / "simt.hpp", SIMT / "export.hpp", PACKAGE_ROOT / ASSERTIONS)
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
_HOW_TO_GET_ONE = "install one (apt install g++, conda install cxx-compiler, or pip install ziglang) or name it in CXX"
_WAY_OUT = "set GPUPC_CACHE_DIR to a folder that can be written by you alone"
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: its command, and the first line of its version text."""

    command: tuple[str, ...]
    version: str


def find_compiler() -> Compiler:
    """Return the compiler in ``CXX``, else c++, g++ or clang++ on the path, else the compiler in the ziglang wheel."""
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
        process = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, timeout=120, env=_environment()
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if process.returncode != 0 or not process.stdout.strip():
        return None
    return Compiler(command, process.stdout.splitlines()[0].strip())


def _environment() -> dict[str, str]:
    """Return the environment of compilers, which do without the sanitizer that may be loaded before this process."""
    sanitized = bool(os.environ.get("GPUPC_SANITIZE"))
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD" or not sanitized}


def parse_sanitizers(text: str) -> tuple[str, ...]:
    """Return ``"address,undefined"`` as a sorted tuple of names."""
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
    """Return this process's environment with the variables for running kernels under sanitizers. BackendUnavailable is
    raised if the compiler lacks such a sanitizer. For the thread sanitizer each CUDA thread is a thread, and only what
    CUDA orders is ordered: accesses before and after __syncthreads, __syncwarp, fences, and the end of a launch."""
    names = parse_sanitizers(kinds if isinstance(kinds, str) else ",".join(kinds))
    if reason := missing_sanitizer(names):
        raise BackendUnavailable(reason)
    environment = {**os.environ, "GPUPC_SANITIZE": ",".join(names)}
    environment["UBSAN_OPTIONS"] = "halt_on_error=1:print_stacktrace=1"
    if "address" in names:
        # Leak detection is off, because the interpreter itself does not free all memory.
        environment["ASAN_OPTIONS"] = "detect_leaks=0:detect_stack_use_after_return=0:allocator_may_return_null=1"
        environment["LD_PRELOAD"] = str(_sanitizer_library("address"))
    if "thread" in names:
        # Only kernels are looked at; Python forks with more locks held than the detector of deadlocks counts.
        environment["TSAN_OPTIONS"] = (
            "halt_on_error=1:ignore_noninstrumented_modules=1:detect_deadlocks=0:history_size=4"
        )
        environment["LD_PRELOAD"] = str(_sanitizer_library("thread"))
        # There may be more threads than cores, since the sanitizer also detects races that do not happen in this run.
        environment |= {"GPUPC_HOST_THREADS": "4", "GPUPC_HOST_STACK_KIB": "1024"}
    return environment


def _sanitizer_library(kind: str) -> Path:
    """Return the path of a sanitizer's runtime library; a bare name if the compiler does not have it."""
    name = {"address": "libasan.so", "undefined": "libubsan.so", "thread": "libtsan.so"}[kind]
    command = [*find_compiler().command, f"-print-file-name={name}"]
    process = subprocess.run(command, capture_output=True, text=True, env=_environment())
    path = Path(process.stdout.strip())
    return path.resolve() if path.is_absolute() else path


def kernel_unit(kernel: KernelSource) -> str:
    return (
        '#include "backends/simt/simt.hpp"\n'
        f'#include "{source_name(kernel.path)}"\n'
        f"{declaration_checks([kernel])}"
        '#include "backends/simt/export.hpp"\n'
        f"SIMT_EXPORT({kernel.expression})\n"
    )


def build_kernel(kernel: KernelSource, sanitizers: tuple[str, ...] = ()) -> Path:
    flags = (*BASE_FLAGS, *_optimisation(sanitizers), "-shared")
    return _built(kernel.label, kernel.path, flags, kernel_unit(kernel))


def build_runtime(sanitizers: tuple[str, ...] = ()) -> Path:
    """Return the shared library of the runtime, from the cache or compiled now. The thread sanitizer does not see into
    it, because it switches stacks; it tells the sanitizer what it does."""
    optimisation = ("-O2", "-g", "-DGPUPC_TSAN") if "thread" in sanitizers else _optimisation(sanitizers)
    flags = (*BASE_FLAGS, *optimisation, "-shared", "-ftls-model=initial-exec")
    return _built("the runtime", SIMT / "runtime.cpp", flags)


def _built(label: str, source: Path, flags: tuple[str, ...], unit: str = "") -> Path:
    def make(output: Path) -> None:
        arguments = (*flags, *for_this_cpu(find_compiler()), "-o", str(output))
        if unit:
            compile_text(unit, arguments)
        else:
            run_compiler((str(source), *arguments))

    return cached(label, _material(unit, source, flags), make)


def _optimisation(sanitizers: tuple[str, ...]) -> tuple[str, ...]:
    if not sanitizers:
        return ("-O3",)
    flags = {
        "address": ("-DGPUPC_ASAN",),
        "undefined": ("-fno-sanitize-recover=undefined",),
        "thread": ("-DGPUPC_TSAN",),
    }
    own = (flag for kind in sanitizers for flag in flags[kind])
    # Optimisation is reduced for the address and undefined sanitizers, since it takes longer than such short tests.
    level = "-O1" if "thread" in sanitizers else "-O0"
    return (level, "-g1", "-fno-omit-frame-pointer", f"-fsanitize={','.join(sanitizers)}", *own)


def compile_text(unit: str, arguments: tuple[str, ...]) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".cpp", prefix="kernel-") as file:
        file.write(unit)
        file.flush()
        run_compiler((file.name, *arguments))


@compiling()
def run_compiler(arguments: Iterable[str]) -> None:
    """Run the compiler with the package as include root."""
    command = [*find_compiler().command, "-I", str(PACKAGE_ROOT), *arguments]
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.run(command, stdin=subprocess.DEVNULL, errors="replace", env=_environment(), **options)
    if status := process.returncode:
        how = f"failed with exit status {status}" if status > 0 else f"was ended by {signal.Signals(-status).name}"
        raise KernelCompilationError(f"the C++ compiler {how}\n{shlex.join(command)}\n{process.stdout.strip()}")


# --- the cache ----------------------------------------------------------------------------------------------------
def cache_folder() -> Path:
    """Return the folder for compiled kernels: ``GPUPC_CACHE_DIR``, else gpupc in the user's cache folder."""
    if folder := os.environ.get("GPUPC_CACHE_DIR"):
        return Path(folder)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpupc"
    except RuntimeError as error:
        raise KernelCompilationError(
            "compiled kernels cannot be kept: this user has no home folder; set GPUPC_CACHE_DIR, or HOME"
        ) from error


def open_cache(kind: str) -> Path:
    """Return the cache's folder for a kind of entries, in which only the caller can write; it is made if missing."""
    cache = cache_folder()
    folder = cache / kind
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        for place in (cache, folder):
            if fault := fault_of_folder(place):
                raise KernelCompilationError(f"kernels in {place} are not used: {fault}; {_WAY_OUT}")
    except OSError as error:
        raise KernelCompilationError(f"compiled kernels cannot be kept in {folder}: {error}; {_WAY_OUT}") from error
    return folder


def cached(label: str, material: Iterable[str], make: Callable[[Path], Any], verb: str = "compiled") -> Path:
    """Return the cache's library for this material; if missing or damaged, `make` writes it. `verb` is for the log."""
    digest = hashlib.sha256()
    for part in material:
        digest.update(part.encode())
        digest.update(b"\0")
    folder = open_cache("host")
    path = folder / f"{digest.hexdigest()}.so"
    if is_whole(path):
        return path
    if path.exists():
        log.warning("the cache entry of %s is damaged; building it again", label)
    started = time.perf_counter()
    try:
        scratch = tempfile.TemporaryDirectory(dir=folder, prefix="building-")
    except OSError as error:
        raise KernelCompilationError(f"compiled kernels cannot be kept in {folder}: {error}; {_WAY_OUT}") from error
    with scratch as place:
        output = Path(place) / "output"
        make(output)
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


def _material(unit: str, source: Path, flags: Iterable[str]) -> list[str]:
    compiler = find_compiler()
    files = sources_of(*BESIDE_KERNELS, source)
    return [
        unit,
        *(part for file in files.items() for part in file),
        *flags,
        *compiler.command,
        compiler.version,
        _cpu_features(),
    ]


@functools.cache
def for_this_cpu(_compiler: Compiler) -> tuple[str, ...]:
    """Return the flag for this machine's CPU, if the compiler takes it."""
    native = "-march=native"
    with tempfile.TemporaryDirectory() as folder:
        try:
            compile_text("int main() { return 0; }\n", (native, "-c", "-o", f"{folder}/probe.o"))
        except KernelCompilationError:
            return ()
    return (native,)


@functools.cache
def _cpu_features() -> str:
    """Return the features of the CPU that ``-march=native`` uses; a library for one CPU must not run on another."""
    return "\n".join(cpu_facts("flags", "Features", "model name"))
