"""What the tests that run kernels under sanitizers share."""

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
from gpupc_impl.integers import ceil_div
from tests import grouped, headers

NO_ADDRESSES = build.missing_sanitizer(("address", "undefined"))
NO_THREADS = build.missing_sanitizer(("thread",))
TYPE = re.compile(r"\b(unsigned char|unsigned short|short|float|double|[2-9])\b")
"""What kernels that differ in it do alike: a type, or a level beyond the first."""
MOST_LAUNCHES = 8
"""Launches of a kernel that are looked at for races, spread evenly over all, where not every variant is."""
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


def one_of_each(kernels: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Of kernels, as (source, expression), the first of those that differ only in types and levels beyond the first."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for source, expression in kernels:
        found.setdefault((source, TYPE.sub("T", expression)), (source, expression))
    return set(found.values())


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
        every_variant: whether to look for races in all launches of each of the kernels that differ only in types and
            levels, or in a few launches of one.
    """
    environment = os.environ if NO_ADDRESSES else address_environment()
    required = [(str(kernel.source), kernel.expression) for kernel in kernels]
    copies = launches.with_name("kernels")
    grouped_program = f"from tests import grouped\ngrouped.install({required!r}, {str(copies)!r})\n{program}"
    run_search(grouped_program, {**environment, "GPUPC_RECORD_LAUNCHES": str(launches)}, *arguments)
    if NO_THREADS:
        return
    launched: dict[Path, tuple[str, str]] = {}
    for path in launches.glob("*.json"):
        described = json.loads(path.read_text())
        launched[path] = described["source"], described["expression"]
    missed = set(required) - set(launched.values())
    assert not missed, f"not launched: {sorted(missed)}"
    replayed = [*required, *sorted(launched.values())]  # what is required comes first
    chosen = set(replayed) if every_variant else one_of_each(replayed)
    for kernel in set(launched.values()):
        paths = sorted(path for path in launched if launched[path] == kernel)
        most = len(paths) if every_variant else MOST_LAUNCHES
        kept = paths[:: ceil_div(len(paths), most)] if room in kernel[0] and kernel in chosen else []
        for path in set(paths) - set(kept):
            path.unlink()
    groups = grouped.Groups(
        [kernel for kernel in dict.fromkeys(replayed) if kernel in chosen and room in kernel[0]], copies
    )
    with (
        mock.patch.dict(os.environ, {"CXX": shlex.join(headers.command("thread"))}),
        mock.patch.object(build, "build_replay", groups.build_replay),
    ):
        results = replay.replay(launches)
    assert len(results) >= len(chosen & set(required))
    for result in results:
        assert result.clean, f"{result.kernel}\n{result.report}"
