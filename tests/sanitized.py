"""What the tests that run kernels under sanitizers share."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from gpupc_impl.backends import KernelSource
from gpupc_impl.backends.simt import build
from tests import headers

SANITIZERS = [kinds for kinds in ("address,undefined", "thread") if not build.missing_sanitizer(kinds.split(","))]
NEEDS_ONE = pytest.mark.skipif(not SANITIZERS, reason="the compiler has no sanitizers")


def run_python(program: str, sanitizers: str, *arguments: str | Path) -> subprocess.CompletedProcess:
    """Run a program of Python in a process of its own, in which kernels are compiled with sanitizers."""
    environment = build.sanitizer_environment(sanitizers)
    environment["CXX"] = shlex.join(headers.command(*sanitizers.split(",")))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


def check(
    program: str,
    folder: Path,
    kernels: Iterable[KernelSource],
    *arguments: str | Path,
    room: str = "",
    every_variant: bool = False,
) -> None:
    """Nothing that a program launches is out of bounds, undefined or a race.

    Args:
        folder: for the libraries of kernels.
        kernels: that the program must launch.
        room: of the package, whose kernels are looked at for races.
        every_variant: whether to look for races in each of the kernels that differ only in types and levels, or in one.
    """
    required = [(str(kernel.source), kernel.expression) for kernel in kernels]
    for sanitizers in SANITIZERS:
        install = (
            f"from tests import grouped\ngrouped.install({required!r}, {str(folder)!r}, {room!r}, {every_variant})"
        )
        done = run_python(f"{install}\n{program}\ngrouped.check_launched()", sanitizers, *arguments)
        assert done.returncode == 0, done.stderr
