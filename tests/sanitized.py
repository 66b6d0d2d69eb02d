"""What the tests that run kernels under sanitizers share."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from gpupc_impl.backends import KernelSource, replay
from gpupc_impl.backends.simt import build

NO_ADDRESSES = build.missing_sanitizer(("address", "undefined"))
NO_THREADS = build.missing_sanitizer(("thread",))
NEEDS_ONE = pytest.mark.skipif(None not in (NO_ADDRESSES, NO_THREADS), reason=f"{NO_ADDRESSES}; {NO_THREADS}")


def run_search(program: str, environment: Mapping[str, str], *arguments: str | Path) -> None:
    """Run a program of Python that searches, in a process of its own: sanitizers are loaded before Python."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


def address_environment() -> dict[str, str]:
    """In which Python runs kernels under the address and undefined-behaviour sanitizers, and the compiler without: it
    would take three times as long."""
    compiler = shlex.join(["env", "-u", "LD_PRELOAD", *build.find_compiler().command])
    return build.sanitizer_environment("address,undefined") | {"CXX": compiler}


def check(
    program: str, launches: Path, kernels: Iterable[KernelSource], *arguments: str | Path, room: str = ""
) -> None:
    """Nothing of a program's kernels is out of bounds or undefined, and what it launches does not race.

    Args:
        launches: folder for what is launched.
        kernels: that must be among them.
        room: of the package, whose kernels are looked at for races.
    """
    environment = os.environ if NO_ADDRESSES else address_environment()
    run_search(program, {**environment, "GPUPC_RECORD_LAUNCHES": str(launches)}, *arguments)
    if NO_THREADS:
        return
    results = [result for result in replay.replay(launches) if room in result.kernel]
    missed = {kernel.expression for kernel in kernels} - {result.kernel.split(" of ")[0] for result in results}
    assert not missed, f"not launched: {sorted(missed)}"
    for result in results:
        assert result.clean, f"{result.kernel}\n{result.report}"
