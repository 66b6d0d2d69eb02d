"""Compiles kernels ahead of their use, into the archives that a wheel contains (`make wheel`).

    python -m workflow.lib.shipped                          every target, into build/shipped
    python -m workflow.lib.shipped x86-64-v3 sm_90          some of them
    python -m workflow.lib.shipped --level 3 --only mixed   up to level 3, those with `mixed` in their names

A C++ compiler is needed for the targets of the host backend, and NVRTC but no GPU for those of the CUDA backend. A
kernel that an archive already has is not compiled again, and binaries of sources that have changed are left out.
"""

import argparse
import contextlib
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from gpupc_impl.backends import BackendUnavailable, KernelCompilationError, KernelSource, nvrtc, shipped
from gpupc_impl.backends.cuda import MIRROR
from gpupc_impl.backends.machine import available_cores
from gpupc_impl.backends.nvrtc import NvrtcLibrary, find_library
from gpupc_impl.backends.simt import build
from gpupc_impl.core.registry import listed_kernels, method_packages

FOLDER = Path(__file__).parents[2] / "build" / "shipped"
ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
TELL_SECONDS = 10
LEVEL = 10  # the level up to which kernels of single levels are compiled ahead
Binary = tuple[str, bytes, dict[str, Any]]  # a binary as `write_archive` takes it


def all_kernels(level: int) -> list[KernelSource]:
    """Return every kernel up to a level: that of the backends, and those that families and other rooms list."""
    return [MIRROR, *listed_kernels(method_packages(), level)]


def build_archive(target: str, kernels: Sequence[KernelSource], into: Path, jobs: int) -> Path:
    """Compile kernels for a target, and write its archive; a line every `TELL_SECONDS` says how far it is."""
    is_cuda = target.startswith("sm_")
    make = cuda_compiler(target) if is_cuda else host_compiler(target)
    path, entries = into / f"{target}.zip", {}
    with contextlib.suppress(shipped.DamagedArchive):
        known = shipped.Archive(path)
        entries = known.entries if known.compiler == make.version else {}

    def binary(kernel: KernelSource | None) -> tuple[str, Binary]:
        digest = make.digest(kernel)
        if entry := entries.get(digest):
            with contextlib.suppress(shipped.DamagedArchive):
                return digest, (entry.member, known.content(digest), entry.kernels)
        return digest, make.binary(kernel)

    binaries: dict[str, Binary] = {}
    wanted = [*kernels] if is_cuda else [None, *kernels]
    started = told = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        for done, (digest, made) in enumerate(pool.map(binary, wanted), 1):
            binaries[digest] = made
            if (now := time.monotonic()) >= told + TELL_SECONDS:
                told, left = now, (now - started) * (len(wanted) - done) / done
                print(f"{target}: {done} of {len(wanted)} binaries, about {left:.0f} s left", flush=True)
    shipped.write_archive(path, make.version, binaries)
    return path


class Compiler(NamedTuple):
    """What compiles for one target: its version, as the archive names it, and functions that return the digest and the
    binary of a kernel. On the host backend, None stands for the runtime, which kernels need."""

    version: str
    digest: Callable[[Any], str]
    binary: Callable[[Any], Binary]


def host_compiler(target: str) -> Compiler:
    def binary(kernel: KernelSource | None) -> Binary:
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "library.so"
            shipped.compile_library(kernel, target, output)
            return "runtime" if kernel is None else kernel.source, output.read_bytes(), {}

    return Compiler(build.find_compiler().version, lambda kernel: shipped.library_digest(kernel, target), binary)


def cuda_compiler(target: str) -> Compiler:
    if (path := find_library()) is None:
        raise BackendUnavailable(f"{target} needs NVRTC; pip install nvidia-cuda-nvrtc-cu12")
    library = NvrtcLibrary(path)
    version = ".".join(map(str, library.getVersion()))
    if int(target.removeprefix("sm_")) not in library.getSupportedArchs():
        raise BackendUnavailable(f"NVRTC {version} does not compile for {target}; install a newer one")

    def binary(kernel: KernelSource) -> Binary:
        image, compiled, _ = nvrtc.compile_source(library, [kernel], target)
        return kernel.source, image, nvrtc.described(compiled)

    return Compiler(version, lambda kernel: nvrtc.content_digest(kernel, target), binary)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    known = [*shipped.TARGETS.get(platform.machine(), ()), *ARCHITECTURES]
    parser = argparse.ArgumentParser(prog="python -m workflow.lib.shipped", description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", default=known, metavar="TARGET", help=f"default: {' '.join(known)}")
    parser.add_argument("--into", type=Path, default=FOLDER, help="the folder of the archives")
    parser.add_argument("--level", type=int, default=LEVEL, help="the deepest level of kernels made for a level")
    parser.add_argument("--only", default="", help="a regular expression for sources and expressions of kernels")
    parser.add_argument("--jobs", type=int, default=available_cores(), help="kernels to compile at once")
    options = parser.parse_args(arguments)
    wanted = re.compile(options.only)
    kernels = [each for each in all_kernels(options.level) if wanted.search(f"{each.source} {each.expression}")]
    try:
        for target in options.targets:
            started = time.perf_counter()
            path = build_archive(target, kernels, options.into, options.jobs)
            size, seconds = path.stat().st_size / 1e6, time.perf_counter() - started
            print(f"{path.name}: {len(kernels)} kernels, {size:.1f} MB, {seconds:.0f} s", flush=True)
    except (BackendUnavailable, KernelCompilationError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
