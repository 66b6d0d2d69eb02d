"""Fuzzing at will: ``python -m tests.fuzz.run --minutes 60`` damages files until the time is up (``make fuzz``).

Targets take turns. Each turn is a process of its own with a limit of memory and of time an input, so that a crash, a
hang or a file that asks for too much is one more fault, and not the end. What was found is written after each turn to
a JSON summary, and each input that is a fault to a file beside it; a summary that is there is added to.

``--atheris TARGET`` hands one target to Google's Atheris instead, which is guided by what the code covers; it is no
dependency of the project (``pip install atheris``).
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

MEMORY_BYTES = 1 << 30
"""Address space that a turn may take beyond what it has when it begins."""

SECONDS = 10
"""What one input may take."""


class TooLong(BaseException):
    """An input took more than `SECONDS`; no reader catches it."""


def turn(name: str, seconds: float, seed: int, folder: Path) -> None:
    """Try damaged files on one target, in this process; what came of it goes to FOLDER/turn.json."""
    from tests.fuzz.targets import TARGETS

    target, chance = TARGETS[name], random.Random(f"{name} {seed}")
    warnings.simplefilter("ignore")  # NumPy's of odd headers
    target.input(random.Random(0))  # makes the seeds, within no limit
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY_BYTES,) * 2)
    signal.signal(signal.SIGALRM, _too_long)
    counts = {"inputs": 0, "answers": 0, "slowest_s": 0.0, "faults": []}
    before, end = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic() + seconds
    while time.monotonic() < end:
        content, suffix = target.input(chance)
        path = folder / f"input{suffix}"
        path.write_bytes(content)
        began = time.monotonic()
        try:
            with limited():
                counts["answers"] += target.accepts(path)
        except BaseException as error:
            fault = f"{type(error).__name__}: {error}"
            where = traceback.extract_tb(error.__traceback__)[-1]
            counts["faults"].append(
                {"what": fault[:300], "where": f"{Path(where.filename).name}:{where.name}", "suffix": suffix}
            )
            path.rename(folder / f"fault-{len(counts['faults'])}")
        counts["inputs"] += 1
        counts["slowest_s"] = max(counts["slowest_s"], time.monotonic() - began)
        path.unlink(missing_ok=True)
    counts["memory_growth_bytes"] = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    (folder / "turn.json").write_text(json.dumps(counts))


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """`SECONDS` for the block."""
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def _too_long(*_: Any) -> None:
    raise TooLong(f"no answer within {SECONDS} s")


def take_turns(names: Sequence[str], minutes: float, slice_s: float, summary: Path) -> int:
    """Let the targets take turns until the time is up; returns the number of faults found in all."""
    found: dict[str, Any] = json.loads(summary.read_text()) if summary.exists() else {"targets": {}}
    found |= {"commit": _commit(), "python": sys.version.split()[0], "seconds": found.get("seconds", 0)}
    summary.parent.mkdir(parents=True, exist_ok=True)
    context, began = multiprocessing.get_context("spawn"), time.monotonic()
    number = sum(counts["turns"] for counts in found["targets"].values())
    earlier = found["seconds"]
    while (left := 60 * minutes - (time.monotonic() - began)) > 0:
        name = names[number % len(names)]
        with tempfile.TemporaryDirectory() as folder:
            process = context.Process(target=turn, args=(name, min(slice_s, left), number, Path(folder)))
            process.start()
            process.join(min(slice_s, left) + 10 * SECONDS + 60)
            if process.is_alive():
                process.kill()
                process.join()
            _add(found["targets"], name, Path(folder), process.exitcode, summary.parent)
        number += 1
        found["seconds"] = round(earlier + time.monotonic() - began, 1)
        summary.write_text(json.dumps(found, indent=1) + "\n")
    for name, counts in found["targets"].items():
        kinds = len(counts["faults"])
        print(f"{name}: {counts['inputs']:,} inputs, {counts['answers']:,} answers, {kinds} kinds of fault")
    return sum(len(counts["faults"]) for counts in found["targets"].values())


def _add(targets: dict[str, Any], name: str, folder: Path, exit_code: int | None, keep: Path) -> None:
    """Add a turn's counts to those of its target, and keep the inputs of new kinds of fault."""
    new = {"turns": 0, "inputs": 0, "answers": 0, "slowest_s": 0.0, "memory_growth_bytes": 0, "faults": {}}
    total = targets.setdefault(name, new)
    total["turns"] += 1
    result = folder / "turn.json"
    if not result.exists():  # it crashed or hung in compiled code, on the file that is still there
        paths = list(folder.glob("input*")) or [Path(os.devnull)]
        faults = [{"what": f"the process ended with {exit_code}", "where": "", "suffix": paths[0].suffix}]
    else:
        counts = json.loads(result.read_text())
        total["inputs"] += counts["inputs"]
        total["answers"] += counts["answers"]
        for largest in ("slowest_s", "memory_growth_bytes"):
            total[largest] = max(total[largest], counts[largest])
        faults = counts["faults"]
        paths = [folder / f"fault-{number}" for number in range(1, len(faults) + 1)]
    for fault, path in zip(faults, paths, strict=False):
        kind = f"{fault['what'].partition(':')[0]} in {fault['where']}"
        if kind not in total["faults"]:
            content = path.read_bytes()
            kept = keep / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}{fault['suffix']}"
            kept.write_bytes(content)
            total["faults"][kind] = {"what": fault["what"], "input": kept.name, "count": 0}
            print(f"{name}: {fault['what']} ({fault['where']}): {kept}", flush=True)
        total["faults"][kind]["count"] += 1


def _commit() -> str | None:
    said = subprocess.run(["git", "describe", "--always", "--dirty=+"], capture_output=True, text=True)
    return said.stdout.strip() or None


def guided(name: str, arguments: Sequence[str]) -> None:
    """Run Atheris on one target; ends the process.

    Args:
        arguments: libFuzzer's, ``-max_total_time=3600`` for an hour.
    """
    import atheris

    with atheris.instrument_imports(include=["gpupc_impl", "datasets", "workflow"]):
        from tests.fuzz.targets import TARGETS, seeds
    target, corpus = TARGETS[name], Path("build/fuzz/corpus") / name  # what covers more is kept for the next call
    corpus.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(seeds(target)):
        (corpus / str(number)).write_bytes(content)
    folder = Path(tempfile.mkdtemp())

    def one(content: bytes) -> None:
        path = folder / f"input{target.suffixes[0]}"
        path.write_bytes(content)
        target.accepts(path)

    one_input: Callable[[bytes], None] = one
    atheris.Setup([sys.argv[0], f"-timeout={SECONDS}", "-rss_limit_mb=2048", *arguments, str(corpus)], one_input)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", help="which targets (default: all)")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--slice-seconds", type=float, default=15, help="length of a turn (default: 15)")
    parser.add_argument("--summary", type=Path, default=Path("build/fuzz/summary.json"))
    parser.add_argument("--atheris", metavar="TARGET", help="guide one target by coverage")
    options, others = parser.parse_known_args()
    if options.atheris:
        guided(options.atheris, others)
    if others:
        parser.error(f"unknown: {' '.join(others)}")
    from tests.fuzz.targets import TARGETS

    unknown = set(options.targets) - TARGETS.keys()
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}; known: {', '.join(TARGETS)}")
    os.nice(10)
    faults = take_turns(options.targets or list(TARGETS), options.minutes, options.slice_seconds, options.summary)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
