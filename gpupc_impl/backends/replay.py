"""Replays recorded kernel launches under the thread sanitizer.

The sanitizer's runtime cannot be loaded into Python. Therefore the host backend records launches (set
``GPUPC_RECORD_LAUNCHES`` to a folder), and this program repeats them outside of Python::

    python -m gpupc_impl.backends.replay FOLDER

For the sanitizer each CUDA thread is a thread, and only what CUDA orders is ordered: accesses before and after
__syncthreads, __syncwarp, fences, and the end of a launch. The exit status is 1 if a kernel has a race, crashes or
deadlocks.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from gpupc_impl.backends.base import PACKAGE_ROOT
from gpupc_impl.backends.errors import BackendUnavailable, KernelCompilationError
from gpupc_impl.backends.simt import build


@dataclass(frozen=True)
class Replay:
    """The result of replaying the launches of one kernel."""

    kernel: str
    launches: int
    status: int
    report: str

    @property
    def clean(self) -> bool:
        """Whether no launch had a race, crashed or deadlocked."""
        return self.status == 0


def replay(folder: Path) -> list[Replay]:
    """Replay all launches recorded in a folder, kernel by kernel."""
    launches: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for path in sorted(folder.glob("*.json")):
        description = json.loads(path.read_text())
        launches[description["source"], description["expression"]].append(folder / description["launch"])
    if not launches:
        raise FileNotFoundError(f"no recorded launches in {str(folder)!r}; set GPUPC_RECORD_LAUNCHES to it and run")
    results = []
    for (source, expression), files in launches.items():
        program = build.build_replay(PACKAGE_ROOT / source, expression)
        process = subprocess.run(
            [str(program), *map(str, files)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, "TSAN_OPTIONS": "exitcode=66:history_size=4:atexit_sleep_ms=0"},
        )
        results.append(Replay(f"{expression} of {source}", len(files), process.returncode, process.stdout))
    return results


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m gpupc_impl.backends.replay", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where GPUPC_RECORD_LAUNCHES wrote launches")
    try:
        results = replay(parser.parse_args(arguments).folder)
    except (FileNotFoundError, BackendUnavailable, KernelCompilationError) as error:
        print(error, file=sys.stderr)
        return 2
    for result in results:
        verdict = "clean" if result.clean else f"exit status {result.status}"
        print(f"{result.kernel}: {result.launches} launches, {verdict}")
        if result.report:
            print(result.report.rstrip())
    return 0 if all(result.clean for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
