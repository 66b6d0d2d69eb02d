"""The command ``compile`` fills the kernel cache in advance, for containers and for the nodes of a cluster."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gpupc_impl.backends import BackendUnavailable, KernelSource, compilations, nvrtc, open_backend
from gpupc_impl.backends.machine import available_cores
from gpupc_impl.backends.simt.build import cache_folder
from gpupc_impl.cli.output import Outcome
from gpupc_impl.core.family import families, get_family
from gpupc_impl.core.registry import listed_kernels
from gpupc_impl.views.progress import compile_report


def fill_cache(args: argparse.Namespace) -> Outcome:
    """Compile all kernels of one family or of all, for this machine or for a GPU architecture."""
    kernels = _kernels(args.family, args.max_level)
    if args.arch is not None:
        target = args.arch
        _compile_for(kernels, args.arch)
    else:
        backend = open_backend(args.backend)
        target = f"backend {backend.name}"
        with compilations.reported(compile_report(True)):
            backend.prefetch(kernels)
            for kernel in kernels:
                backend.kernel(*kernel)
    text = f"{len(kernels)} kernels for {target} are in {cache_folder()}"
    return Outcome(text, {"kernels": len(kernels), "target": target, "folder": cache_folder()})


def _kernels(family: str | None, max_level: int) -> list[KernelSource]:
    """Return the kernels of a family's methods up to a level, as the module `device` of each package lists them; those
    of all families, if no family is named."""
    chosen = families(None).values() if family is None else [get_family(family)]
    packages = dict.fromkeys(package for each in chosen for package in each.packages)
    return listed_kernels(filter(importlib.util.find_spec, packages), max_level)


def _compile_for(kernels: list[KernelSource], architecture: str) -> None:
    compiler = _nvrtc()
    known = sorted(compiler.getSupportedArchs())
    if architecture not in {f"sm_{number}" for number in known}:
        names = ", ".join(f"sm_{number}" for number in known)
        raise BackendUnavailable(f"architecture {architecture!r} is not known to this NVRTC; choose one of: {names}")

    def compile_one(kernel: KernelSource) -> None:
        nvrtc.compile_image(compiler, kernel, architecture)

    with ThreadPoolExecutor(available_cores()) as threads:
        list(threads.map(compile_one, kernels))


def _nvrtc() -> Any:
    try:
        return importlib.import_module("cupy.cuda.nvrtc")
    except ImportError as error:
        raise BackendUnavailable(
            f"--arch needs CuPy and NVRTC ({error}); pip install cupy-cuda12x nvidia-cuda-nvrtc-cu12"
        ) from error
