"""What the tests that run kernels under sanitizers share."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from unittest import mock

import pytest

from gpupc_impl.backends import KernelSource, replay
from gpupc_impl.backends.simt import build
from tests import headers

NO_ADDRESSES = build.missing_sanitizer(("address", "undefined"))
NO_THREADS = build.missing_sanitizer(("thread",))
TYPE = re.compile(r"\b(unsigned char|unsigned short|short|float|double|[2-9])\b")
"""What kernels that differ in it do alike: a type, or a level beyond the first."""
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
    compiler = shlex.join(["env", "-u", "LD_PRELOAD", *headers.command("address", "undefined")])
    return build.sanitizer_environment("address,undefined") | {"CXX": compiler}


def one_of_each(kernels: Iterable[KernelSource]) -> list[KernelSource]:
    """The first of those kernels that differ only in types and levels beyond the first."""
    found: dict[tuple[str, str], KernelSource] = {}
    for kernel in kernels:
        found.setdefault((kernel.source, TYPE.sub("T", kernel.expression)), kernel)
    return list(found.values())


def check(
    program: str,
    launches: Path,
    kernels: Iterable[KernelSource],
    *arguments: str | Path,
    room: str = "",
    every_variant: bool = False,
) -> None:
    """Nothing of a program's kernels is out of bounds or undefined, and what it launches does not race.

    Args:
        launches: folder for what is launched.
        kernels: that must be among them.
        room: of the package, whose kernels are looked at for races.
        every_variant: whether to look for races in each of the kernels that differ only in types and levels, or in one.
    """
    environment = os.environ if NO_ADDRESSES else address_environment()
    run_search(program, {**environment, "GPUPC_RECORD_LAUNCHES": str(launches)}, *arguments)
    if NO_THREADS:
        return
    kernels = list(kernels)
    replayed = kernels if every_variant else one_of_each(kernels)
    left_out = {kernel[:2] for kernel in kernels} - {kernel[:2] for kernel in replayed}
    launched = set()
    for path in launches.glob("*.json"):
        described = json.loads(path.read_text())
        kernel = described["source"], described["expression"]
        launched.add(kernel)
        if room not in described["source"] or kernel in left_out:
            path.unlink()
    missed = {kernel[:2] for kernel in kernels} - launched
    assert not missed, f"not launched: {sorted(missed)}"
    with mock.patch.dict(os.environ, {"CXX": shlex.join(headers.command("thread"))}):
        results = replay.replay(launches)
    assert len(results) >= len(replayed)
    for result in results:
        assert result.clean, f"{result.kernel}\n{result.report}"
