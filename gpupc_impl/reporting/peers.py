"""Compares our methods with the programs that the papers' authors published (docs/peers.md), from records only."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

from gpupc_impl.reporting.catalogue import EVERY, table
from gpupc_impl.reporting.cells import (
    Speedup,
    count,
    csv_row,
    geometric_mean,
    label,
    levels_speedup,
    mark,
    number,
    places,
    remarks,
    speedup,
    status_word,
)
from gpupc_impl.reporting.runs import Runs, VerifiedRecord
from gpupc_impl.reporting.tables import Table

LIKE: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "cupc-authors": ("cupc-s", {"theta": 64, "delta": 2}),
    "gpucsl": ("cupc-s", {"theta": 64, "delta": 2}),
    "gpucsl-discrete": ("gpupc", {}),
    "gpucmiknn-authors": ("gpucmiknn-parallel", {"selection": "insertion"}),
    "pcalg": ("stable-serial", {}),
    "bnlearn": ("discrete-serial", {}),
    "fastpgm": ("discrete-serial", {}),
}
"""For each authors' program, our method that implements the same algorithm, with its parameters."""

SINGLE = "gpucmiknn-single"
"""Our method that corresponds to GPU-CMIknn's program when that runs the paper's Single."""

CONVENTIONS = {
    "gaussian": ("df_convention",),
    "discrete": ("test", "df_rule"),
    "nonlinear": ("k_cmi", "permutations", "transform"),
}
"""For each family, the facts of a problem that define its test."""

MISSING = "None of the authors' programs was measured; docs/peers.md explains how to build them."
"""The text of a table without rows."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """An authors' program and one of our methods on one data set.

    Attributes:
        kind: ``"like for like"`` or ``"fastest"``.
        ours: the run of our method; None without one.
    """

    theirs: VerifiedRecord
    kind: str
    ours: VerifiedRecord | None

    @property
    def whole(self) -> Speedup:
        """How many times faster our whole call is."""
        return speedup(self.theirs, self.ours)

    @property
    def levels(self) -> float | None:
        """How many times faster our levels are; None if one of the two does not time its levels."""
        return levels_speedup(self.theirs, self.ours)

    @property
    def verified(self) -> bool:
        """Whether both finished with a verified result, so that the mean includes them."""
        return self.theirs.counts and self.ours is not None and self.ours.counts


def like(theirs: VerifiedRecord, ours: Runs) -> VerifiedRecord | None:
    """Return the one of our runs that implements the same algorithm as a program; first-come sets are preferred."""
    method, params = LIKE[theirs.method]
    if theirs.params.get("search") == "single":
        method = SINGLE

    def distance(run: VerifiedRecord) -> tuple[bool, bool, bool]:
        return run.median is None, not params.items() <= run.params.items(), run.separating_sets != "first-come"

    return min((run for run in ours if run.method == method), key=distance, default=None)


def fastest(ours: Runs) -> VerifiedRecord | None:
    """Return the fastest run with a verified result."""
    return min((run for run in ours if run.counts), key=lambda run: run.median, default=None)


def compare(runs: Runs) -> list[Comparison]:
    """Compare every program on every data set with our method of the same algorithm, and with our fastest method."""
    found = []
    for theirs in (run for run in runs if run.method in LIKE):
        beside = [run for run in runs if run.dataset == theirs.dataset and run.backend == theirs.backend]
        ours = [run for run in beside if run.method not in LIKE]
        found += [Comparison(theirs, "like for like", like(theirs, ours)), Comparison(theirs, "fastest", fastest(ours))]
    return found


@table("peers", "Ours over the authors' programs", paper="Authors' programs", family=EVERY)
def peers(runs: Runs) -> Table:
    """The table shows how many times faster our methods are than the programs that the papers' authors published,
    measured in the same run. It compares each program with our method of the same algorithm and with our fastest
    method, by the time of the whole call from host memory to host memory, and by the time of the levels if the program
    reports it. Means are geometric, over the data sets on which both results are verified. A program that was not run
    on a data set has no row for it; the notes give the reason.
    """
    compared = sorted(compare(runs), key=lambda each: (each.theirs.family, each.theirs.setting, each.kind == "fastest"))
    rows, plain = [], []
    for (setting, kind), of_program in itertools.groupby(compared, lambda each: (each.theirs.setting, each.kind)):
        its = list(of_program)
        for each in its:
            plain.append(_plain(each))
            if each.theirs.status != "skipped":
                rows.append([label(setting), each.theirs.dataset, *_times(each.theirs), kind, *_beside(each)])
        means = {"whole": [each.whole.value for each in its if each.verified and each.whole.value is not None]}
        means["levels"] = [each.levels for each in its if each.verified and each.levels is not None]
        if not any(means.values()):
            continue
        shown = [f"{number(mean)}×" if (mean := geometric_mean(means[part])) else "–" for part in means]
        used = len(means["whole"])
        rows.append([label(setting), f"geometric mean of {used}", "", "", kind, "", "", "", *shown, "", "", ""])
        plain.append(
            {"program": setting, "dataset": "geometric mean", "kind": kind, "datasets": used}
            | {f"{part}_speedup": geometric_mean(values) for part, values in means.items()}
        )
    header = ["program", "data set", "its ms", "its levels, ms", "beside", "ours", "our ms", "our levels, ms"]
    header += ["whole call", "levels", "edges, its / ours", "its edges against the reference's", "test"]
    theirs = [run for run in runs if run.method in LIKE]
    any_random = any(run.verification == "random" for run in theirs)
    explained = [
        "Milliseconds: medians of the warm runs. Whole call: from the prepared input in host memory to adjacency and "
        "separating sets in host memory, including allocations and transfers but not the translation of the program's "
        "answer. Levels: the search loop alone; a program that does not time it has a dash.",
        "Like for like: our method of the same algorithm, with the papers' rule for separating sets (first-come) if "
        "that was measured, since the programs use it. Fastest: the fastest of our methods with a verified skeleton.",
        *(["~ The program draws its own random numbers, so edges may differ."] * any_random),
        *places(runs),
    ]
    notes = [*(explained if rows else [MISSING]), *remarks(theirs)]
    plain = plain or [{"program": ""}]
    return Table("Ours over the authors' programs", header, rows, notes, plain, left=(0, 1, 4, 5, 11, 12))


def _times(run: VerifiedRecord | None) -> list[str]:
    """Format the times of the whole call and of the levels in milliseconds, or the reason why there is no time."""
    if run is None:
        return ["–", "–"]
    levels = run.levels_median
    whole = f"{number(1000 * run.median)}{mark(run)}" if run.median is not None else status_word(run.status)
    return [whole, "–" if levels is None else number(1000 * levels)]


def _beside(each: Comparison) -> list[str]:
    ours, theirs = each.ours, each.theirs
    name = "–" if ours is None else label(ours.setting)
    levels = "–" if each.levels is None else f"{number(each.levels)}×"
    edges = f"{count(theirs.edges)} / {count(ours.edges if ours else None)}"
    cells = [name, *_times(ours), str(each.whole) + mark(theirs, ours), levels, edges]
    return [*cells, _differing(theirs), conventions_of(theirs, ours)]


def _differing(run: VerifiedRecord) -> str:
    if run.differing_edges in ("", None):
        return "–"
    return f"{run.differing_edges} differ ({run.verification})" if int(run.differing_edges) else "the same"


def conventions_of(theirs: VerifiedRecord, ours: VerifiedRecord | None) -> str:
    """Return the test that both made, and the rules for separating sets of both."""
    facts = theirs.problem or {}
    stated = [f"{name} = {facts[name]}" for name in CONVENTIONS.get(theirs.family, ()) if name in facts]
    sets = f"separating sets: first-come, ours {ours.separating_sets}" if ours else ""
    return "; ".join(filter(None, [", ".join(stated), sets]))


def _plain(each: Comparison) -> dict[str, Any]:
    theirs, ours = each.theirs, each.ours
    return {
        **{"program": theirs.setting, "dataset": theirs.dataset, "kind": each.kind, "ours": ours and ours.setting},
        **csv_row(theirs, "backend machine"),
        **{"its_s": theirs.median, "its_levels_s": theirs.levels_median},
        **{"ours_s": ours and ours.median, "ours_levels_s": ours and ours.levels_median},
        **{"whole_speedup": each.whole.value, "bound": each.whole.bound, "levels_speedup": each.levels},
        **{"its_edges": theirs.edges, "our_edges": ours and ours.edges, "differing_edges": theirs.differing_edges},
        **{"its_verification": theirs.verification, "our_verification": ours and ours.verification},
        **{"test": conventions_of(theirs, ours), "its_status": theirs.status, "why": theirs.why},
    }
