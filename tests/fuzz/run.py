"""Fuzzing at will: ``python -m tests.fuzz.run --minutes 60`` damages files until the time is up (``make fuzz``).

Targets take turns. Each turn is a process of its own with a limit of memory and of time an input, so that a crash, a
hang or a file that asks for too much is one more fault, and not the end. What was found is written after each turn to
a JSON summary, and each input that is a fault to a file beside it; a summary that is there is added to.

A turn's files depend on its target, the seed and the turn's number. So several calls share the work, each with one
target or a seed of its own and its own ``--summary``; ``--merge A B --summary C`` makes one table of theirs.

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
import platform
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

from gpupc_impl.core.files import save_json

MEMORY_BYTES = 1 << 30
"""Address space that a turn may take beyond what it has when it begins."""

SECONDS = 10
"""What one input may take."""


LARGEST = ("slowest_s", "memory_growth_bytes")
"""What is the largest of all turns in a summary; the other numbers are sums."""


class TooLong(BaseException):
    """An input took more than `SECONDS`; no reader catches it."""


def turn(name: str, seconds: float, seed: int, number: int, folder: Path) -> None:
    """Try damaged files on one target, in this process; what came of it goes to FOLDER/turn.json.

    Args:
        number: of the turn; each has files of its own.
    """
    from tests.fuzz.damage import seeds
    from tests.fuzz.targets import TARGETS

    target, chance = TARGETS[name], random.Random(f"{name} {seed} {number}")
    os.nice(10)
    warnings.simplefilter("ignore")  # NumPy's of odd headers
    for right in seeds(target):  # before the limit: libraries reserve address space when they are first used
        path = folder / f"input{target.suffixes[0]}"
        path.write_bytes(right)
        target.accepts(path)
        path.unlink()
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY_BYTES,) * 2)
    signal.signal(signal.SIGALRM, _too_long)
    counts: dict[str, Any] = {"inputs": 0, "answers": 0, "slowest_s": 0.0, "faults": []}
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    while time.monotonic() < start + seconds:
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
    counts["seconds"] = round(time.monotonic() - start, 3)
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


def read_summary(path: Path) -> dict[str, Any]:
    """What a summary says.

    Raises:
        SystemExit: It is none.
    """
    try:
        found = json.loads(path.read_text())
        if found.keys() == _empty().keys():
            return found
    except (AttributeError, OSError, UnicodeDecodeError, ValueError):
        pass
    sys.exit(f"{path} is no summary of this program; give one that it wrote, or another path")


def _empty() -> dict[str, Any]:
    return {"commits": [], "machines": [], "pythons": [], "targets": {}}


def take_turns(
    names: Sequence[str], minutes: float, slice_s: float, seed: int, summary: Path, commit: str | None = None
) -> int:
    """Let the targets take turns until the time is up; returns the number of kinds of fault found in all."""
    found = read_summary(summary) if summary.exists() else _empty()
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    for name, value in (
        ("commits", commit or _commit()),
        ("machines", machine),
        ("pythons", platform.python_version()),
    ):
        found[name] = sorted({*found[name], value})
    summary.parent.mkdir(parents=True, exist_ok=True)
    context, end = multiprocessing.get_context("spawn"), time.monotonic() + 60 * minutes
    number = sum(counts["turns"] for counts in found["targets"].values())
    while (left := end - time.monotonic()) > 0:
        name = names[number % len(names)]
        with tempfile.TemporaryDirectory() as folder:
            process = context.Process(target=turn, args=(name, min(slice_s, left), seed, number, Path(folder)))
            process.start()
            process.join(min(slice_s, left) + 10 * SECONDS + 60)
            if process.is_alive():
                process.kill()
                process.join()
            _add(found["targets"], name, seed, Path(folder), process.exitcode, summary.parent)
        number += 1
        save_json(found, summary)
    return _said(found)


def merge(paths: Sequence[Path], summary: Path) -> int:
    """Write the sum of several summaries; returns the number of kinds of fault in it.

    Raises:
        SystemExit: One is no summary, or two tried the same files.
    """
    merged = _empty()
    for path in paths:
        found = read_summary(path)
        for name in ("commits", "machines", "pythons"):
            merged[name] = sorted({*merged[name], *found[name]})
        for name, counts in found["targets"].items():
            total = merged["targets"].setdefault(name, _nothing())
            again = sorted(set(total["seeds"]) & set(counts["seeds"]))
            if again:
                sys.exit(f"{path}: {name} with seed {again[0]} is in another summary too, so files would count twice")
            _sum(total, counts)
            for kind, fault in counts["faults"].items():
                total["faults"].setdefault(kind, fault | {"count": 0})["count"] += fault["count"]
    merged["targets"] = dict(sorted(merged["targets"].items()))
    save_json(merged, summary)
    return _said(merged)


def _nothing() -> dict[str, Any]:
    """The counts of a target that had no turn."""
    zeros = dict.fromkeys(("turns", "seconds", "inputs", "answers", *LARGEST), 0)
    return {"seeds": [], **zeros, "faults": {}}


def _sum(total: dict[str, Any], counts: dict[str, Any]) -> None:
    """Add seeds and numbers, not faults."""
    total["seeds"] = sorted({*total["seeds"], *counts["seeds"]})
    for name in ("turns", "inputs", "answers"):
        total[name] += counts[name]
    total["seconds"] = round(total["seconds"] + counts["seconds"], 3)
    for name in LARGEST:
        total[name] = max(total[name], round(counts[name], 3))


def _said(found: dict[str, Any]) -> int:
    """Print what a summary says; returns the number of kinds of fault."""
    kinds = 0
    for name, counts in found["targets"].items():
        kinds += len(counts["faults"])
        print(
            f"{name}: {counts['seconds']:,.0f} s, {counts['inputs']:,} inputs, {counts['answers']:,} answers, "
            f"{len(counts['faults'])} kinds of fault"
        )
    return kinds


def _add(targets: dict[str, Any], name: str, seed: int, folder: Path, exit_code: int | None, keep: Path) -> None:
    """Add a turn's counts to those of its target, and keep the inputs of new kinds of fault."""
    total, result = targets.setdefault(name, _nothing()), folder / "turn.json"
    counts = _nothing()
    if not result.exists():  # it crashed or hung in compiled code, on the file that is still there
        paths = list(folder.glob("input*")) or [Path(os.devnull)]
        faults = [{"what": f"the process ended with {exit_code}", "where": "", "suffix": paths[0].suffix}]
    else:
        counts |= json.loads(result.read_text())
        faults = counts["faults"]
        paths = [folder / f"fault-{number}" for number in range(1, len(faults) + 1)]
    _sum(total, counts | {"seeds": [seed], "turns": 1})
    for fault, path in zip(faults, paths, strict=False):
        kind = f"{fault['what'].partition(':')[0]} in {fault['where']}"
        if kind not in total["faults"]:
            content = path.read_bytes()
            kept = keep / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}{fault['suffix']}"
            kept.write_bytes(content)
            total["faults"][kind] = {"what": fault["what"], "input": kept.name, "count": 0}
            print(f"{name}: {fault['what']} ({fault['where']}): {kept}", flush=True)
        total["faults"][kind]["count"] += 1


def _commit() -> str:
    try:
        said = subprocess.run(["git", "describe", "--always", "--dirty=+"], capture_output=True, text=True).stdout
    except FileNotFoundError:  # a machine without git
        said = ""
    return said.strip() or "unknown"


def guided(name: str, arguments: Sequence[str]) -> None:
    """Run Atheris on one target; ends the process.

    Args:
        arguments: libFuzzer's, ``-max_total_time=3600`` for an hour.
    """
    import atheris

    with atheris.instrument_imports(include=["gpupc_impl", "datasets", "workflow"]):
        from tests.fuzz.damage import seeds
        from tests.fuzz.targets import TARGETS
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


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", help="which targets (default: all)")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0, help="other files for another number (default: 0)")
    parser.add_argument("--slice-seconds", type=float, default=15, help="length of a turn (default: 15)")
    parser.add_argument("--summary", type=Path, default=Path("build/fuzz/summary.json"))
    parser.add_argument("--commit", help="of the code, where its folder is no clone (default: as git says)")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="SUMMARY", help="only sum these up, into --summary")
    parser.add_argument("--atheris", metavar="TARGET", help="guide one target by coverage")
    options, others = parser.parse_known_args(argv)
    if options.atheris:
        guided(options.atheris, others)
    if others:
        parser.error(f"unknown: {' '.join(others)}")
    if options.merge:
        return 1 if merge(options.merge, options.summary) else 0
    from tests.fuzz.targets import TARGETS

    unknown = set(options.targets) - TARGETS.keys()
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}; known: {', '.join(TARGETS)}")
    # The threads that NumPy makes on a machine of many cores would take the address space that a turn may have.
    os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    names = options.targets or list(TARGETS)
    how = options.minutes, options.slice_seconds, options.seed, options.summary, options.commit
    faults = take_turns(names, *how)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
