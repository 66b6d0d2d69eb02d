"""Compares our methods with the programs that the papers' authors published (docs/peers.md), from records only."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

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

CLOCKS: Mapping[str, Callable[..., Speedup]] = {"whole": speedup, "levels": levels_speedup}


class Comparison(NamedTuple):
    """An authors' program and one of our methods on one data set; `kind` is "like for like" or "fastest"."""

    theirs: VerifiedRecord
    kind: str
    ours: VerifiedRecord | None


def like(theirs: VerifiedRecord, ours: Runs) -> VerifiedRecord | None:
    """Return the one of our runs that implements the same algorithm as a program; first-come sets are preferred."""
    method, params = LIKE[theirs.method]
    if theirs.params.get("search") == "single":
        method = SINGLE

    def distance(run: VerifiedRecord) -> tuple[bool, bool, bool]:
        return run.median is None, not params.items() <= run.params.items(), run.separating_sets != "first-come"

    return min((run for run in ours if run.method == method), key=distance, default=None)


def compare(runs: Runs) -> list[Comparison]:
    """Compare every program on every data set with our method of the same algorithm, and with our fastest method."""
    found = []
    for theirs in (run for run in runs if run.method in LIKE):
        beside = [run for run in runs if run.dataset == theirs.dataset and run.backend == theirs.backend]
        ours = [run for run in beside if run.method not in LIKE]
        fastest = min((run for run in ours if run.counts), key=lambda run: run.median, default=None)
        found += [Comparison(theirs, "like for like", like(theirs, ours)), Comparison(theirs, "fastest", fastest)]
    return sorted(found, key=lambda each: (each.theirs.family, each.theirs.setting, each.kind == "fastest"))


@table("peers", "Ours over the authors' programs", paper="Authors' programs", family=EVERY)
def peers(runs: Runs) -> Table:
    """The table shows how many times faster our methods are than the programs that the papers' authors published,
    measured in the same run. It compares each program with our method of the same algorithm and with our fastest
    method, by the time of the whole call from host memory to host memory, and by the time of the levels if the program
    reports it. Means are geometric, over the data sets on which both results are verified. A program that was not run
    on a data set has no row for it; the notes give the reason.
    """
    rows, plain = [], []
    for (setting, kind), its in itertools.groupby(compare(runs), lambda each: (each.theirs.setting, each.kind)):
        verified: dict[str, list[float]] = {clock: [] for clock in CLOCKS}
        for theirs, _, ours in its:
            ratios = {clock: of(theirs, ours) for clock, of in CLOCKS.items()}
            row = {"program": setting, "kind": kind, **csv_row(theirs), "differing_edges": theirs.differing_edges}
            row |= {f"{clock}_speedup": ratio.value for clock, ratio in ratios.items()}
            row |= {"bound": ratios["whole"].bound, "test": conventions_of(theirs, ours), "why": theirs.why}
            plain.append(row | {f"our_{name}": value for name, value in (csv_row(ours) if ours else {}).items()})
            if theirs.status != "skipped":
                cells = [theirs.dataset, *_times(theirs), kind, label(ours.setting) if ours else "–", *_times(ours)]
                cells += [str(ratios["whole"]) + mark(theirs, ours), str(ratios["levels"])]
                cells += [f"{count(theirs.edges)} / {count(ours.edges if ours else None)}", _differing(theirs)]
                rows.append([label(setting), *cells, conventions_of(theirs, ours)])
            if ours and theirs.counts and ours.counts:
                for clock, ratio in ratios.items():
                    verified[clock] += [ratio.value] * (ratio.value is not None)
        if any(verified.values()):
            means, used = {c: geometric_mean(values) for c, values in verified.items()}, len(verified["whole"])
            shown = [f"{number(mean)}×" if mean else "–" for mean in means.values()]
            rows.append([label(setting), f"geometric mean of {used}", "", "", kind, "", "", "", *shown, "", "", ""])
            row = {"program": setting, "dataset": "geometric mean", "kind": kind, "datasets": used}
            plain.append(row | {f"{clock}_speedup": mean for clock, mean in means.items()})
    header = ["program", "data set", "its ms", "its levels, ms", "beside", "ours", "our ms", "our levels, ms"]
    header += ["whole call", "levels", "edges, its / ours", "its edges against the reference's", "test"]
    theirs = [run for run in runs if run.method in LIKE]
    explained = [
        "Milliseconds: medians of the warm runs. Whole call: from the prepared input in host memory to adjacency and "
        "separating sets in host memory, including allocations and transfers but not the translation of the program's "
        "answer. Levels: the search loop alone; a program that does not time it has a dash.",
        "Like for like: our method of the same algorithm, with the papers' rule for separating sets (first-come) if "
        "that was measured, since the programs use it. Fastest: the fastest of our methods with a verified skeleton.",
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
