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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

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
    make = CudaCompiler(target) if target.startswith("sm_") else HostCompiler(target)
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
    wanted = [*make.first, *kernels]
    started = told = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        for done, (digest, made) in enumerate(pool.map(binary, wanted), 1):
            binaries[digest] = made
            if (now := time.monotonic()) >= told + TELL_SECONDS:
                told, left = now, (now - started) * (len(wanted) - done) / done
                print(f"{target}: {done} of {len(wanted)} binaries, about {left:.0f} s left", flush=True)
    shipped.write_archive(path, make.version, binaries)
    return path


class HostCompiler:
    """Compiles libraries of the host backend for one target.

    Attributes:
        version: the compiler, as the archive names it.
        first: what is compiled beside kernels: None stands for the runtime.
    """

    first: tuple[KernelSource | None, ...] = (None,)

    def __init__(self, target: str):
        self.target, self.version = target, build.find_compiler().version

    def digest(self, kernel: KernelSource | None) -> str:
        return shipped.library_digest(kernel, self.target)

    def binary(self, kernel: KernelSource | None) -> Binary:
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "library.so"
            shipped.compile_library(kernel, self.target, output)
            return "runtime" if kernel is None else kernel.source, output.read_bytes(), {}


class CudaCompiler:
    """Compiles images for one architecture of GPUs; attributes as of `HostCompiler`."""

    first: tuple[KernelSource | None, ...] = ()

    def __init__(self, target: str):
        path = find_library()
        if path is None:
            raise BackendUnavailable(f"{target} needs NVRTC; pip install nvidia-cuda-nvrtc-cu12")
        self._nvrtc, self.target = NvrtcLibrary(path), target
        self.version = ".".join(map(str, self._nvrtc.getVersion()))
        if int(target.removeprefix("sm_")) not in self._nvrtc.getSupportedArchs():
            raise BackendUnavailable(f"NVRTC {self.version} does not compile for {target}; install a newer one")

    def digest(self, kernel: KernelSource) -> str:
        return nvrtc.content_digest(kernel, self.target)

    def binary(self, kernel: KernelSource) -> Binary:
        image, compiled, _ = nvrtc.compile_source(self._nvrtc, [kernel], self.target)
        return kernel.source, image, nvrtc.described(compiled)


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
            seconds = time.perf_counter() - started
            size = path.stat().st_size / 1e6
            print(f"{path.name}: {len(kernels)} kernels, {size:.1f} MB, {seconds:.0f} s", flush=True)
    except (BackendUnavailable, KernelCompilationError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
