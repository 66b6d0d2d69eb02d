"""Sentences below tables: the machines of runs, what marks mean, why numbers are missing, and the papers' hardware."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpupc_impl.reporting.cells import MARK_NOTES, STALE_NOTE, VERIFICATION_MARKS, label, status_word
from gpupc_impl.reporting.runs import Runs, VerifiedRecord, kernels_of


def grouped(pairs: Iterable[tuple[Any, str]]) -> dict[Any, list[str]]:
    """Group distinct names by key, in the order of the pairs."""
    found: dict[Any, dict[str, None]] = {}
    for key, name in pairs:
        found.setdefault(key, {})[name] = None
    return {key: list(names) for key, names in found.items()}


RATIOS = "The paper's hardware is not ours: compare ratios, not times."


def whole_calls(data: str) -> str:
    """Return the note on what is timed.

    Args:
        data: what a call begins with.
    """
    return (
        "Ours: median of the warm runs, with their 20–80 % band where there are several; from "
        f"{data} in host memory to the skeleton and its separating sets in host memory."
    )


def places(runs: Runs) -> list[str]:
    """Return a note on the machine and the settings that ran on it, one for kernels and one for CPU references. Names
    may contain commas, so slashes separate them."""
    notes = []
    for backend in dict.fromkeys([kernels_of(runs), "cpu"]):
        settings = grouped(
            (run.machine, label(run.setting)) for run in runs if run.backend == backend and run.median is not None
        )
        if settings:
            where = "; ".join(f"{place} ({' / '.join(names)})" for place, names in settings.items())
            notes.append(f"{'CPU references' if backend == 'cpu' else f'Backend {backend}'}: {where}.")
    return notes


def remarks(runs: Iterable[VerifiedRecord]) -> list[str]:
    """Return notes that explain the marks of these runs, and why runs have no time."""
    runs = list(runs)
    used = {VERIFICATION_MARKS.get(run.verification) for run in runs if run.median is not None}
    notes = []
    if any(run.status == "timeout" for run in runs):
        notes.append("† A time limit was reached: the number is a bound, which no mean includes.")
    notes += [f"{mark.strip()} {note}" for mark, note in MARK_NOTES.items() if mark in used]
    explained = [run for run in runs if run.median is not None and run.verification == "explained"]
    differing = grouped((run.known_difference, f"{run.dataset}: {label(run.setting)}") for run in explained)
    for why, where in differing.items():
        notes.append(
            f"≠ {'; '.join(where)}: the skeleton differs from the reference's, and no mean includes it: {why}."
        )
    if any(run.stale for run in runs if run.median is not None):
        notes.append(STALE_NOTE)
    reasons = grouped(
        ((f"{run.dataset} {status_word(run.status)}", run.why), label(run.setting))
        for run in runs
        if run.median is None and run.why
    )
    return notes + [f"{where}: {' / '.join(settings)}: {why}" for (where, why), settings in reasons.items()]


def hardware(reported: Iterable[Mapping[str, str]]) -> list[str]:
    """Return the paper's hardware, one line per machine with its methods."""
    return [
        f"{', '.join(names)}: {where}"
        for where, names in grouped((r["hardware"], r["method"]) for r in reported).items()
    ]


def stated(values: Iterable[tuple[str, Iterable[Any]]]) -> str:
    """Format the symbols that have values, for example "n = 100 or 1,000, perm = 50"."""
    named = ((symbol, " or ".join(f"{value:,}" for value in found)) for symbol, found in values)
    return ", ".join(f"{symbol} = {words}" for symbol, words in named if words)
