"""Outputs that belong to no paper: what is fastest, every setting, what was measured where, the authors' programs (see
docs/peers.md), and whole calls beside those of other packages."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gpupc_impl.core.pag import MARKS
from gpupc_impl.latent.oracle import IndependenceOracle
from gpupc_impl.measurement.record import day
from gpupc_impl.reporting import cells as c
from gpupc_impl.reporting import style
from gpupc_impl.reporting.catalogue import Facts, Sweeps
from gpupc_impl.reporting.figures import Drawing, canvas, draw_times, footer, key, log_axis
from gpupc_impl.reporting.runs import Runs, VerifiedRecord, by_dataset, by_key, datasets_of
from gpupc_impl.reporting.tables import Table
from gpupc_impl.reporting.true_pag import true_pag
from gpupc_impl.verification.accuracy import dag_of_edges


def overview(runs: Runs) -> Drawing:
    from matplotlib.ticker import NullFormatter

    ours = [run for run in runs if run.counts and run.backend != "cpu" and run.method not in LIKE]
    slower = [run for run in runs if run.backend == "cpu" or run.method in LIKE]
    fastest = by_dataset(sorted(ours, key=lambda run: -run.median))
    where = {run.dataset: " beyond device memory" for run in ours if run.method.startswith("out-of-core")}
    families = list(dict.fromkeys(run.family for run in runs))
    shown = [fastest[name] for name in datasets_of(runs) if name in fastest]
    shown.sort(key=lambda run: families.index(run.family))
    groups = by_key(shown, lambda run: f"{run.family.capitalize()}{where.get(run.dataset, '')}, backend {run.backend}")
    heights = [len(group) + 0.5 for group in groups.values()] or [1]
    size = (5.2, 0.13 * sum(heights) + 0.25 * len(heights) + 1.05)
    figure, panels = canvas(len(heights), 1, size, sharex=True, gridspec_kw={"height_ratios": heights})
    handles = {}
    for axes, (title, group) in zip(panels[:, 0], groups.items(), strict=False):
        for y, fast in enumerate(group):
            others = [run for run in slower if run.dataset == fast.dataset]
            for method in dict.fromkeys(run.method for run in others):
                slow = min((run for run in others if run.method == method), key=_rank)
                ratio, known = c.speedup(slow, fast), {"-serial": "CPU, one core", "-parallel": "CPU, all cores"}
                look = {"marker": style.MARKERS[slow.backend], "color": style.colour(method)}
                if ratio.value is None:
                    continue
                marker = {"marker": ">"} if ratio.bound else {}
                axes.plot(ratio.value, y, **look | marker, markerfacecolor=look["color"] if slow.counts else "white")
                name = next((text for end, text in known.items() if method.endswith(end)), c.label(method))
                handles.setdefault(name, key(name, **look))
            scale, unit = (1, "s") if fast.median >= 1 else (1000, "ms")
            text = f"{c.label(fast.setting)}, {c.number(scale * fast.median)} {unit}"
            axes.annotate(text, (1.01, y), xycoords=axes.get_yaxis_transform(), va="center", fontsize=6)
        axes.axvline(1, color="black", linewidth=0.6)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}×")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_yticks(range(len(group)), [run.dataset for run in group])
        axes.set_ylim(len(group) - 0.4, -0.6)
        axes.grid(axis="x")
        axes.set_title(title, loc="left")
    panels[-1, 0].set_xlabel("time over that of our fastest method, which stands on the right")
    panels[0, 0].set_xlim(right=max(10, panels[0, 0].get_xlim()[1]))  # The axis has two numbers at least.
    figure.legend(handles=list(handles.values()), loc="outside upper center", ncols=3)
    footer(figure, runs)
    return Drawing(figure)


def _rank(run: VerifiedRecord) -> tuple[bool, float, bool]:
    """Return what orders runs of a method: those that count, by time; else those that reached a time limit first."""
    return not run.counts, run.median or math.inf, run.status != "timeout"


def methods_by_dataset(runs: Runs, notes: Sequence[str] = ()) -> Table:
    also = ("family", "reference", "why", "repeats", "levels", "tests", "known_difference", "commit")
    rows, plain = [], []
    for run in runs:
        rate = run.tests / run.median if run.median and run.tests is not None else None
        facts = {name: getattr(run, name) for name in also}
        plain.append(c.csv_row(run) | facts | {"cold_s": run.time_s.cold, "tests_per_s": rate})
        cold = "–" if run.time_s.cold is None else c.number(run.time_s.cold)
        speed = "–" if rate is None else f"{c.number(rate / 1e6)} M" if rate >= 1e5 else c.number(rate)
        counts = map(c.count, (run.edges, run.levels, run.tests))
        times = (c.time_cell(run), cold, str(run.repeats or "–"))
        rows.append([run.dataset, c.label(run.setting), run.backend, *times, *counts, speed, run.verification])
    header = ["data set", "setting", "backend", "seconds (20–80 %)", "cold s", "runs", "edges", "levels"]
    header += ["tests", "tests/s", "verification"]
    notes = [*notes, *c.places(runs), *c.remarks(runs)]
    return Table("Every setting on every data set", header, rows, notes, plain, left=(0, 1, 2, 10))


def provenance(runs: Runs) -> Table:
    environments: dict[str, dict[str, str]] = {}
    days: dict[str, set[str]] = {}
    ran = [run for run in runs if run.status != "skipped"]
    for run in ran:
        # CPU references have neither a device nor a GPU.
        facts = {name: value for name, value in _flat(run.environment) if name not in ("measured_at", "device", "gpu")}
        place = str([run.backend, facts])
        environments.setdefault(place, {"backend": run.backend, **facts})
        days.setdefault(place, set()).update(filter(None, [day(run.environment)]))
    for place, facts in environments.items():
        if on := sorted(days[place]):
            facts["measured"] = " to ".join(dict.fromkeys([on[0], on[-1]]))
    names = list(dict.fromkeys(name for facts in environments.values() for name in facts))
    rows = [[name, *(facts.get(name, "–") for facts in environments.values())] for name in names]
    header = ["fact", *(facts["backend"] for facts in environments.values())]
    notes = [f"Warning: {text}." for text in dict.fromkeys(w for run in ran for w in run.environment["warnings"])]
    plain = [{"fact": row[0], **{f"{n}": value for n, value in enumerate(row[1:])}} for row in rows]
    return Table("Machine, software and code", header, rows, notes, plain or [{"fact": ""}], left=range(len(header)))


def _flat(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested facts as texts, by dotted name."""
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif name != "warnings":
            yield prefix + name, "–" if value is None else str(value)


# --- the authors' programs --------------------------------------------------------------------------------------------
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

SINGLE = "gpucmiknn-single"  # our method that corresponds to GPU-CMIknn's program when that runs the paper's Single

CONVENTIONS = {
    "gaussian": ("df_convention",),
    "discrete": ("test", "df_rule"),
    "nonlinear": ("k_cmi", "permutations", "transform"),
}
"""For each family, the facts of a problem that define its test."""

CLOCKS: Mapping[str, Callable[..., c.Speedup]] = {"whole": c.speedup, "levels": c.levels_speedup}


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


def peers(runs: Runs, notes: Sequence[str] = ()) -> Table:
    rows, plain = [], []
    for (setting, kind), its in itertools.groupby(compare(runs), lambda each: (each.theirs.setting, each.kind)):
        verified: dict[str, list[float]] = {clock: [] for clock in CLOCKS}
        for theirs, _, ours in its:
            ratios = {clock: of(theirs, ours) for clock, of in CLOCKS.items()}
            row = {"program": setting, "kind": kind, **c.csv_row(theirs), "differing_edges": theirs.differing_edges}
            row |= {f"{clock}_speedup": ratio.value for clock, ratio in ratios.items()}
            row |= {"bound": ratios["whole"].bound, "test": conventions_of(theirs, ours), "why": theirs.why}
            plain.append(row | {f"our_{name}": value for name, value in (c.csv_row(ours) if ours else {}).items()})
            if theirs.status != "skipped":
                beside = [kind, c.label(ours.setting) if ours else "–"]
                cells = [theirs.dataset, *_ms_of(theirs), *beside, *_ms_of(ours)]
                cells += [str(ratios["whole"]) + c.mark(theirs, ours), str(ratios["levels"])]
                cells += [f"{c.count(theirs.edges)} / {c.count(ours.edges if ours else None)}", _differing(theirs)]
                rows.append([c.label(setting), *cells, conventions_of(theirs, ours)])
            if ours and theirs.counts and ours.counts:
                for clock, ratio in ratios.items():
                    verified[clock] += [ratio.value] * (ratio.value is not None)
        if any(verified.values()):
            means, used = {clock: c.geometric_mean(them) for clock, them in verified.items()}, len(verified["whole"])
            shown = [f"{c.number(mean)}×" if mean else "–" for mean in means.values()]
            rows.append([c.label(setting), f"geometric mean of {used}", "", "", kind, "", "", "", *shown, "", "", ""])
            row = {"program": setting, "dataset": "geometric mean", "kind": kind, "datasets": used}
            plain.append(row | {f"{clock}_speedup": mean for clock, mean in means.items()})
    header = ["program", "data set", "its ms", "its levels, ms", "beside", "ours", "our ms", "our levels, ms"]
    header += ["whole call", "levels", "edges, its / ours", "its edges against the reference's", "test"]
    missing = "None of the authors' programs was measured; docs/peers.md explains how to build them."
    below = [*notes, *c.places(runs)] if rows else [missing]
    below += c.remarks(run for run in runs if run.method in LIKE)
    plain = plain or [{"program": ""}]
    return Table("Ours over the authors' programs", header, rows, below, plain, left=(0, 1, 4, 5, 11, 12))


def _ms_of(run: VerifiedRecord | None) -> list[str]:
    """Format the times of the whole call and of the levels in milliseconds, or the reason why there is no time."""
    if run is None:
        return ["–", "–"]
    levels = run.levels_median
    whole = f"{c.number(1000 * run.median)}{c.mark(run)}" if run.median is not None else c.status_word(run.status)
    return [whole, "–" if levels is None else c.number(1000 * levels)]


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


# --- other packages --------------------------------------------------------------------------------------------------
TRUTH_AT_MOST = 400  # the upper bound on the observed variables of a graph whose true PAG is computed in seconds

PANELS = {
    **{"pcmci": "PCMCI", "pcmciplus": "PCMCI+", "cmiknn": "PCMCI, CMIknn", "rfci": "RFCI", "fci": "FCI"},
    "p": "PC, Fisher's z",
}
"""The titles of sweeps."""


def times_over_variables(runs: Runs, sweeps: Sweeps) -> Drawing:
    """Draw the time of every setting over the number of variables, in a panel for each sweep."""
    from matplotlib.ticker import NullLocator

    width = style.PAGE_WIDTH if len(sweeps) > 1 else style.COLUMN_WIDTH
    drawn, grid = canvas(1, len(sweeps), (width, 2.7), sharey=True)
    names = {run.setting: run for run in runs if run.median is not None or run.status == "timeout"}
    for axes, (name, graphs) in zip(grid[0], sweeps.items(), strict=True):
        for setting, first in names.items():
            of_panel = [run for run in runs if run.setting == setting and run.dataset in graphs]
            its = [run for run in of_panel if run.counts or run.status == "timeout"]
            look = {"marker": style.MARKERS[first.backend], "markersize": 3, "color": style.colour(first.method)}
            look["label"] = c.label(setting, first.backend)
            draw_times(axes, its, lambda run, graphs=graphs: graphs[run.dataset], None, **look)
        axes.set(xscale="log", xlabel="variables")
        axes.set_title(PANELS.get(name, name), loc="left")
        axes.set_xticks(values := sorted(set(graphs.values())), [f"{value:g}" for value in values])
        axes.xaxis.set_minor_locator(NullLocator())
    grid[0][0].set_ylabel("seconds")
    log_axis(grid[0][0])
    handles = {line.get_label(): line for axes in grid[0] for line in axes.get_legend_handles_labels()[0]}
    drawn.legend(handles=list(handles.values()), loc="outside upper left", ncols=len(sweeps) + 1)
    footer(drawn, runs)
    return Drawing(drawn, c.rows_of_sweeps(runs, sweeps, "variables"))


def _times(title: str, runs: Runs, sweeps: Sweeps, titles: Mapping[str, str], notes: Sequence[str]) -> Table:
    """Return the time of every setting, with a row for each data set."""
    panel = {dataset: titles.get(name, name) for name, graphs in sweeps.items() for dataset in graphs}
    lines = [
        c.Line([panel.get(dataset, ""), dataset], c.times(its, at=lambda run: run.setting))
        for dataset, its in by_key(runs, lambda run: run.dataset).items()
    ]
    columns = {run.setting: c.label(run.setting) for run in runs}
    return c.of_lines(title, ["call", "data set"], columns, lines, [*notes, *_notes(runs)])


def _notes(runs: Runs) -> list[str]:
    """Return notes on the machines and the marks, and one for each package that is not installed."""
    absent = dict.fromkeys(run.why for run in runs if run.status == "skipped" and "not installed" in (run.why or ""))
    return [*c.places(runs), *c.remarks(run for run in runs if run.status != "skipped"), *map(str, absent)]


def time_series_times(runs: Runs, sweeps: Sweeps, notes: Sequence[str] = ()) -> Table:
    return _times("PCMCI and PCMCI+: seconds", runs, sweeps, PANELS, notes)


def packages_times(runs: Runs, sweeps: Sweeps, notes: Sequence[str] = ()) -> Table:
    return _times("PC: seconds", runs, sweeps, {"p": "Fisher's z"}, notes)


def latent_distance(runs: Runs, problems: Facts, sweeps: Sweeps, notes: Sequence[str] = ()) -> Table:
    truths = {}
    for facts in problems:
        edges = tuple(map(tuple, facts.get("edges_with_hidden") or ()))
        truths[facts["name"]] = _true_marks(edges, facts.get("n_variables", 0))
    rows, plain = [], []
    for name, graphs in sweeps.items():
        for run in (run for run in runs if run.dataset in graphs and run.status != "skipped"):
            found = _pag_distance(run, truths.get(run.dataset))
            head = [PANELS.get(name, name), run.dataset, c.label(run.setting, run.backend)]
            rows.append([*head, c.time_cell(run), *map(c.count, found.values())])
            plain.append({"call": name, "variables": graphs[run.dataset], **c.csv_row(run), **found})
    header, notes = ["call", "data set", "method", "seconds", *DISTANCES], [*notes, *_notes(runs)]
    return Table("Distance from the true PAG", header, rows, notes, plain or [{"call": ""}], left=(0, 1, 2))


DISTANCES = ("true edges missing", "edges too many", "marks that differ")


@functools.lru_cache(maxsize=8)  # data sets that differ in the algorithm have the same graph
def _true_marks(edges: tuple[tuple[int, int], ...], p: int) -> dict[tuple[int, int], str] | None:
    """Return the marks of the true PAG of the first p variables of a graph; None if it is unknown or large."""
    if not edges or p > TRUTH_AT_MOST:
        return None
    graph = dag_of_edges(edges, max(p, int(np.max(edges)) + 1))
    pag = true_pag(IndependenceOracle.from_graph(graph, hidden=range(p, len(graph))))
    ends = zip(pag.source.tolist(), pag.target.tolist(), strict=True)
    return {end: MARKS[mark] for end, mark in zip(ends, pag.marks, strict=True)}


def _pag_distance(run: VerifiedRecord, truth: Mapping[tuple[int, int], str] | None) -> dict[str, Any]:
    if truth is None or run.skeleton is None:
        return dict.fromkeys(DISTANCES, "")
    found = {(i, j): mark for i, j, mark, _ in run.skeleton.facts["marks"]}
    missing, extra = (len(one.keys() - other.keys()) // 2 for one, other in ((truth, found), (found, truth)))
    marks = sum(found[end] != truth[end] for end in found.keys() & truth.keys())
    return dict(zip(DISTANCES, (missing, extra, marks), strict=True))
