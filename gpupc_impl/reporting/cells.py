"""Formats cells, notes and CSV rows: numbers, times, speedups with their bounds, labels, and the machines of runs."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Any

from gpupc_impl.reporting.runs import VerifiedRecord
from gpupc_impl.reporting.sources import STALE

INFINITY = "∞"

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
    "cupc-authors": "cuPC-S, authors' program",
    "gpucmiknn-authors": "GPU-CMIknn, authors' program",
    "gpucsl": "GPUCSL",
    "gpucsl-discrete": "GPUCSL",
    "fastpgm": "FastPGM",
    "andrey": "andrey-core",
    "tetrad": "Tetrad",
    "gcastle": "gCastle",
    "paper-blocks": "block-based, as published",
}
"""The names, in tables and figures, of methods that have another name in a paper, and of a setting whose name does not
begin with that of a method."""

QUALIFIERS = {
    "paper": "counting samples",
    "paper-in-kernel": "tables in the kernel",
    "paper-wide": "32-bit codes",
    "pseudo": "Algorithm 7",
}
"""Words for parts of a setting's name that follow the name of its method; parts that are not here stay as they are."""

VERIFICATION_MARKS = {
    **{"alone": " °", "random": " ~", "near-threshold": " ≈", "convention": " ≈"},
    **{"explained": " ≠", "not-verified": " ?", "unexplained": " ✗"},
}
"""The marks of the verification's statuses other than ``equal``, from best to worst."""

MARK_NOTES = {
    " °": "No other setting finished on the data set, so there is no skeleton to compare with.",
    " ≈": "The skeleton differs from the reference's in explained edges; see verification.csv.",
    " ~": "The method draws its own random numbers, and its skeleton differs from the reference's.",
    " ?": "The run's verification is not recorded, so no mean includes it.",
    " ✗": "The skeleton differs from the reference's without an explanation; see verification.csv.",
}

STALE_NOTE = f"{STALE} Stale: the code that made it has changed since."
_MARKS = ["", *VERIFICATION_MARKS.values()]


def label(method: str, backend: str = "cpu") -> str:
    """Return the name of a method or setting in tables and figures, followed by the backend if kernels ran.

    A setting has the name of its method and what its own name adds: ``cupc-e-first-come`` is "cuPC-E, first-come", and
    ``cupc-e-2-32`` is "cuPC-E-2-32", as in the paper. Other names stay as they are.
    """
    where = f" ({backend})" if backend != "cpu" else ""
    known = max((name for name in METHOD_LABELS if f"{method}-".startswith(f"{name}-")), key=len, default=None)
    if known is None or method == known:
        return METHOD_LABELS.get(method, method) + where
    added = method.removeprefix(f"{known}-")
    numbers = added.replace("-", "").isdigit()
    return METHOD_LABELS[known] + (f"-{added}" if numbers else f", {QUALIFIERS.get(added, added)}") + where


# --- cells -----------------------------------------------------------------------------------------------------------


def number(value: float, digits: int = 3) -> str:
    """Format a number with this many significant digits, without exponents: 0.0123, 4.56, 1,297."""
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


class AtLeast(float):
    """A number of ours that is a lower bound, because the slower method hit its time limit."""


def median(values: Sequence[float]) -> float:
    """Return the median, which is a lower bound if a value is one."""
    bounded = any(isinstance(value, AtLeast) for value in values)
    return (AtLeast if bounded else float)(statistics.median(values))


def count(value: Any) -> str:
    """Format an integer; None and the empty text of a CSV become a dash."""
    return "–" if value in (None, "") else f"{int(value):,}"


def status_word(status: str) -> str:
    """Return the word for a status other than ok."""
    return {"skipped": "not run"}.get(status, status)


def time_cell(run: VerifiedRecord | None, **words: str) -> str:
    """Format the median with its band, or the reason why there is none.

    Args:
        words: the text for a status, such as ``oom="∞"``.
    """
    if run is None:
        return "–"
    if (status := "oom" if run.out_of_memory else run.status) in words:
        return words[status]
    if run.status == "timeout":
        return f"> {number(run.limits.time_s)} †"
    if run.median is None:
        return status_word(run.status)
    band = f" ({number(run.low)}–{number(run.high)})" if run.repeats > 1 else ""
    return f"{number(run.median)}{band}{mark(run)}"


def mark(*runs: VerifiedRecord | None) -> str:
    """Return the marks of a cell: for the worst verification other than ``equal`` among its runs, and for a stale run.
    A cell has no number, and therefore no mark, if one of its runs is missing."""
    if None in runs:
        return ""
    shown = [run for run in runs if run and run.median is not None]
    worst = max(("", *(VERIFICATION_MARKS.get(run.verification, "") for run in shown)), key=_MARKS.index)
    return worst + (f" {STALE}" if any(run.stale for run in shown) else "")


@dataclasses.dataclass(frozen=True)
class Speedup:
    """A ratio of two times, which is a bound (``">"`` or ``"<"``) if one of the runs hit its time limit.

    ``value`` is None if there is no ratio; ``why`` is then the reason.
    """

    value: float | None
    bound: str = ""
    why: str = ""

    def __str__(self) -> str:
        if self.value is None:
            return self.why
        return f"{self.bound + ' ' if self.bound else ''}{number(self.value)}×{' †' if self.bound else ''}"

    @property
    def facts(self) -> dict[str, Any]:
        """The columns of a CSV."""
        return {"speedup": "inf" if self.why == INFINITY else self.value, "bound": self.bound}


Pair = tuple[VerifiedRecord | None, VerifiedRecord | None]
"""A slow and a fast run, either of which may be missing."""


def speedup(slow: VerifiedRecord | None, fast: VerifiedRecord | None) -> Speedup:
    """Return how many times faster ``fast`` is than ``slow``."""
    if slow is None or fast is None:
        return Speedup(None, why="–")
    if slow.median is not None and fast.median is not None:
        return Speedup(slow.median / fast.median)
    if slow.status == "timeout" and fast.median is not None:
        return Speedup(slow.limits.time_s / fast.median, ">")
    if fast.status == "timeout" and slow.median is not None:
        return Speedup(slow.median / fast.limits.time_s, "<")
    if slow.status == fast.status == "timeout":
        return Speedup(None, why="–")
    return Speedup(None, why=status_word((fast if fast.median is None else slow).status))


def levels_speedup(slow: VerifiedRecord | None, fast: VerifiedRecord | None) -> Speedup:
    """Return how many times faster the levels of ``fast`` are."""
    both = [run.levels_median if run else None for run in (slow, fast)]
    return Speedup(both[0] / both[1] if both[0] and both[1] else None, why="–")


def geometric_mean(values: Sequence[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None
