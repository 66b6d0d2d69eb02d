"""Outputs that belong to no paper: every setting on every data set, and what was measured where, with what."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpupc_impl.reporting import style
from gpupc_impl.reporting.catalogue import EVERY, figure, table
from gpupc_impl.reporting.cells import count, label, number, time_cell
from gpupc_impl.reporting.figures import Drawing, canvas, footer, key, log_axis, name_datasets, unavailable
from gpupc_impl.reporting.lines import csv_row
from gpupc_impl.reporting.notes import places, remarks
from gpupc_impl.reporting.runs import Runs, VerifiedRecord, datasets_of, kernels_of
from gpupc_impl.reporting.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@figure("overview", "Runtimes of all methods", paper="Runtimes", family=EVERY, numbers=False)
def overview(runs: Runs) -> Drawing:
    """The figure shows the runtime of every method on every data set, with a panel for each family of tests: the median
    of the warm runs of the method's fastest setting, on a logarithmic axis. Hollow triangles mark an exceeded time
    limit, and other hollow markers a result that is not verified. A cross marks a data set on which the method has no
    time although it has one on others. "not available" stands where the file of a data set could not be read. The table
    "Every setting on every data set" lists all settings, and gives the reason for each one without a time.
    """
    groups = {family: [run for run in runs if run.family == family] for family in dict.fromkeys(r.family for r in runs)}
    figure, panels = canvas(len(groups), 1, (style.PAGE_WIDTH, 1.75 * len(groups) + 0.2))
    for axes, (family, group) in zip(panels[:, 0], groups.items(), strict=True):
        _overview_panel(axes, group)
        kernels = f"backend {kernels_of(group)}, CPU references on the same machine"
        axes.set_title(f"{family.capitalize()}: {kernels}", loc="left")
    footer(figure, runs)
    return Drawing(figure)


def _overview_panel(axes: Axes, group: Runs) -> None:
    datasets = datasets_of(group)
    timed = {run.method for run in group if run.median is not None}
    drawn = timed | {run.method for run in group if run.status == "timeout"}
    methods = [method for method in dict.fromkeys(run.method for run in group) if method in drawn]
    width = 0.8 / max(1, len(methods))
    lacking = {name: why for name in datasets if (why := unavailable([run for run in group if run.dataset == name]))}
    used = set()
    for position, method in enumerate(methods):
        mine = [run for run in group if run.method == method]
        colour = style.colour(method)
        marker, face = (style.MARKERS[mine[0].backend], colour) if method in timed else ("^", "none")
        axes.plot([], [], marker, color=colour, markerfacecolor=face, label=label(method))
        for dataset in (dataset for dataset in datasets if dataset not in lacking):
            x = datasets.index(dataset) + (position - (len(methods) - 1) / 2) * width
            run = _best([run for run in mine if run.dataset == dataset])
            if run is None:
                continue
            if run.median is not None:
                axes.plot(x, run.median, marker, color=colour, markerfacecolor=colour if run.counts else "white")
                used.add("ok" if run.counts else "not verified")
            elif run.status == "timeout":
                axes.plot(x, run.limits.time_s, "^", color=colour, markerfacecolor="none")
                used.add("late")
            else:
                axes.plot(x, 0.04, "x", color=colour, markersize=3, transform=axes.get_xaxis_transform())
                used.add("absent")
    for dataset, why in lacking.items():
        spot = {"xycoords": axes.get_xaxis_transform(), "rotation": 90, "ha": "center", "va": "bottom"}
        axes.annotate(why, (datasets.index(dataset), 0.03), fontsize=6, color=style.GREY, **spot)
    for boundary in range(1, len(datasets)):
        axes.axvline(boundary - 0.5, color="#DDDDDD", linewidth=0.4)
    axes.margins(y=0.1)
    log_axis(axes)
    axes.set_ylabel("seconds")
    name_datasets(axes, datasets)
    handles = axes.get_legend_handles_labels()[0]
    handles += [key("over the time limit", "^", markerfacecolor="none")] * ("late" in used)
    handles += [key("not verified", "o", markerfacecolor="white")] * ("not verified" in used)
    handles += [key("no time (not run, or failed)", "x", markersize=3)] * ("absent" in used)
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=6, labelspacing=0.3)


def _best(runs: Runs) -> VerifiedRecord | None:
    """Return the fastest run, preferably one that counts, else one that reached its time limit, else any."""
    return min(runs, key=lambda run: (not run.counts, run.median or math.inf, run.status != "timeout"), default=None)


@table("methods_by_dataset", "Every setting on every data set", paper="Runtimes", family=EVERY)
def methods_by_dataset(runs: Runs) -> Table:
    """The table shows runtime, edges, levels, tests, tests per second and the verification of every setting on every
    data set. Notes below the table give the reason for each setting without a time.
    """
    also = ("family", "reference", "why", "repeats", "levels", "tests", "known_difference", "commit")
    rows, plain = [], []
    for run in runs:
        rate = run.tests / run.median if run.median and run.tests is not None else None
        facts = {name: getattr(run, name) for name in also}
        plain.append(csv_row(run) | facts | {"cold_s": run.time_s.cold, "tests_per_s": rate})
        cold = "–" if run.time_s.cold is None else number(run.time_s.cold)
        speed = "–" if rate is None else f"{number(rate / 1e6)} M" if rate >= 1e5 else number(rate)
        counts = map(count, (run.edges, run.levels, run.tests))
        times = (time_cell(run), cold, str(run.repeats or "–"))
        rows.append([run.dataset, label(run.setting), run.backend, *times, *counts, speed, run.verification])
    header = ["data set", "setting", "backend", "seconds (20–80 %)", "cold s", "runs", "edges", "levels"]
    header += ["tests", "tests/s", "verification"]
    notes = [
        "Seconds: median of the warm runs. Cold: the first run of a fresh process, compilation included.",
        *places(runs),
        *remarks(runs),
    ]
    return Table("Every setting on every data set", header, rows, notes, plain, left=(0, 1, 2, 10))


@table("provenance", "Machine, software and code", paper="Provenance", family=EVERY)
def provenance(runs: Runs) -> Table:
    """The table shows the machine, software and code of the records behind every table and figure, with a column for
    each distinct environment, and the days of measurement if they were recorded."""
    environments: dict[str, dict[str, str]] = {}
    days: dict[str, set[str]] = {}
    for run in (run for run in runs if run.status != "skipped"):
        # CPU references have neither a device nor a GPU.
        facts = {name: value for name, value in _flat(run.environment) if name not in ("measured_at", "device", "gpu")}
        place = str([run.backend, facts])
        environments.setdefault(place, {"backend": run.backend, **facts})
        days.setdefault(place, set()).update([run.date] if run.date else [])
    for place, facts in environments.items():
        if on := sorted(days[place]):
            facts["measured"] = " to ".join(dict.fromkeys([on[0], on[-1]]))
    names = list(dict.fromkeys(name for facts in environments.values() for name in facts))
    rows = [[name, *(facts.get(name, "–") for facts in environments.values())] for name in names]
    header = ["fact", *(facts["backend"] for facts in environments.values())]
    ran = [run for run in runs if run.status != "skipped"]
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
