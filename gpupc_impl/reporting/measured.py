"""What tables and figures need of a record, and the arithmetic of speedups with bounds."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.measurement.record import band

METHOD_LABELS = {
    "cupc-e": "cuPC-E",
    "cupc-s": "cuPC-S",
    "baseline-1": "Baseline 1",
    "baseline-2": "Baseline 2",
    "out-of-core-um": "UM",
    "out-of-core-block": "block-based",
    "gpupc": "gpuPC",
    "disc-cupc": "disc-cuPC",
    "gpucmiknn-single": "GPU-CMIknn-Single",
    "gpucmiknn-single-racing": "GPU-CMIknn-Single, racing",
    "gpucmiknn-parallel": "GPU-CMIknn-Parallel",
}
"""How tables and figures name the methods that a paper names otherwise than we do."""


def label(method: str) -> str:
    return METHOD_LABELS.get(method, method)


def read_json(paths: Iterable[str | Path]) -> list[dict[str, Any]]:
    return [json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]


def read_csv(path: str | Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@dataclasses.dataclass(frozen=True)
class Measured:
    """One setting on one data set.

    Attributes:
        median, low, high: seconds of the warm runs, with their 20-80 % band; None unless the status is ok.
        limit: the time limit, in seconds.
        verification: the status in verification.csv.
        machine: what ran it: the GPU's name, or the processor's with the number of threads.
    """

    family: str
    dataset: str
    setting: str
    method: str
    reference: bool
    backend: str
    status: str
    why: str | None
    median: float | None
    low: float | None
    high: float | None
    repeats: int
    cold: float | None
    limit: float | None
    edges: int | None
    levels: int | None
    tests: int | None
    verification: str
    machine: str
    commit: str | None

    @property
    def counts(self) -> bool:
        """Finished with a verified result: fit for a mean."""
        return self.median is not None and self.verification != "unexplained"


def load(record_paths: Iterable[str | Path], verification_path: str | Path) -> list[Measured]:
    """All records, in the order of their paths."""
    verified = {(row["dataset"], row["setting"]): row["status"] for row in read_csv(verification_path)}
    return [_measured(record, verified) for record in read_json(record_paths)]


def _measured(record: dict[str, Any], verified: dict[tuple[str, str], str]) -> Measured:
    low, median, high = band(record["time_s"]["warm"]) if record["status"] == "ok" else (None, None, None)
    result, environment = record["result"] or {}, record["environment"]
    dataset, setting = record["dataset"]["name"], record["setting"]
    workers = record.get("params", {}).get("workers")
    threads = 1 if record["method"].endswith("-serial") else workers or environment["threads"]
    machine = f"{environment['cpu']}, {threads} thread{'s' if threads > 1 else ''}"
    if record["backend"] == "cuda" and environment["device"]:
        machine = environment["device"]["device"]
    commit = environment["git_commit"]
    return Measured(
        family=record["family"],
        dataset=dataset,
        setting=setting,
        method=record["method"],
        reference=record["reference"],
        backend=record["backend"],
        status=record["status"],
        why=record["why"],
        median=median,
        low=low,
        high=high,
        repeats=len(record["time_s"]["warm"]),
        cold=record["time_s"]["cold"],
        limit=record["limits"]["time_s"],
        edges=result.get("edges"),
        levels=result.get("levels_run"),
        tests=sum(result["tests_per_level"]) if result else None,
        verification=verified[dataset, setting],
        machine=machine,
        commit=commit and commit[:10] + ("+" if environment["git_dirty"] else ""),
    )


def find(measured: Iterable[Measured], **wanted: Any) -> Measured | None:
    """The first that has these attributes."""
    return next((m for m in measured if all(getattr(m, name) == value for name, value in wanted.items())), None)


def datasets_of(measured: Iterable[Measured]) -> list[str]:
    return list(dict.fromkeys(m.dataset for m in measured))


def device_backends(measured: Iterable[Measured]) -> list[str]:
    """The backends kernels ran on; their times are never mixed in one row or panel."""
    return sorted({m.backend for m in measured} - {"cpu"})


def on_backend(measured: Iterable[Measured], backend: str) -> list[Measured]:
    """What belongs beside each other: one backend, and the CPU references."""
    return [m for m in measured if m.backend in (backend, "cpu")]


@dataclasses.dataclass(frozen=True)
class Speedup:
    """A ratio of two times: exact, or where one of the two ran into its time limit a bound (``">"`` or ``"<"``).

    ``value`` is None when there is no ratio; ``why`` then says why.
    """

    value: float | None
    bound: str = ""
    why: str = ""

    def __str__(self) -> str:
        if self.value is None:
            return self.why
        return f"{self.bound + ' ' if self.bound else ''}{number(self.value)}×{' †' if self.bound else ''}"


def speedup(slow: Measured | None, fast: Measured | None) -> Speedup:
    """How many times faster ``fast`` is than ``slow``."""
    if slow is None or fast is None:
        return Speedup(None, why="–")
    if slow.median is not None and fast.median is not None:
        return Speedup(slow.median / fast.median)
    if slow.status == "timeout" and fast.median is not None:
        return Speedup(slow.limit / fast.median, ">")
    if fast.status == "timeout" and slow.median is not None:
        return Speedup(slow.median / fast.limit, "<")
    if slow.status == fast.status == "timeout":
        return Speedup(None, why="–")
    return Speedup(None, why=status_word(fast if fast.median is None else slow))


def geometric_mean(values: Sequence[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def status_word(measured: Measured) -> str:
    """How a table names a status that is not ok."""
    return {"skipped": "not run"}.get(measured.status, measured.status)


def number(value: float, digits: int = 3) -> str:
    """A number to so many significant digits, without exponents: 0.0123, 4.56, 1,297."""
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"
