"""Outputs that belong to no paper: every setting on every data set, and the provenance of records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpupc_impl.reporting import style
from gpupc_impl.reporting.catalogue import EVERY, figure, table
from gpupc_impl.reporting.cells import count, csv_row, label, number, places, remarks, time_cell
from gpupc_impl.reporting.figures import Drawing, footer, name_datasets, tick_number, unavailable
from gpupc_impl.reporting.runs import Runs, VerifiedRecord, datasets_of, device_backends, on_backend
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
    import matplotlib.pyplot as plt

    style.use()
    groups = {family: [run for run in runs if run.family == family] for family in dict.fromkeys(r.family for r in runs)}
    shown = [(family, backend) for family in groups for backend in device_backends(groups[family]) or ["cpu"]]
    figure, panels = plt.subplots(len(shown), figsize=(style.PAGE_WIDTH, 1.75 * len(shown) + 0.2), squeeze=False)
    for axes, (family, backend) in zip(panels[:, 0], shown, strict=True):
        _overview_panel(axes, on_backend(groups[family], backend))
        axes.set_title(f"{family.capitalize()}: backend {backend}, CPU references on the same machine", loc="left")
    footer(figure, runs)
    return Drawing(figure)


def _overview_panel(axes: Axes, group: Runs) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.ticker import LogLocator, NullFormatter

    datasets = datasets_of(group)
    timed = {run.method for run in group if run.median is not None}
    drawn = timed | {run.method for run in group if run.status == "timeout"}
    methods = [method for method in dict.fromkeys(run.method for run in group) if method in drawn]
    width = 0.8 / max(1, len(methods))
    reasons = {dataset: unavailable([run for run in group if run.dataset == dataset]) for dataset in datasets}
    lacking = {dataset: why for dataset, why in reasons.items() if why}
    absent = False
    for position, method in enumerate(methods):
        mine = [run for run in group if run.method == method]
        colour, marker = style.colour(method), style.MARKERS[mine[0].backend]
        look = (marker, colour) if method in timed else ("^", "none")
        axes.plot([], [], look[0], color=colour, markerfacecolor=look[1], label=label(method))
        for dataset in (dataset for dataset in datasets if dataset not in lacking):
            x = datasets.index(dataset) + (position - (len(methods) - 1) / 2) * width
            run = _best([run for run in mine if run.dataset == dataset])
            if run is not None and run.median is not None:
                axes.plot(x, run.median, marker, color=colour, markerfacecolor=colour if run.counts else "white")
            elif run is not None and run.status == "timeout":
                axes.plot(x, run.limits.time_s, "^", color=colour, markerfacecolor="none")
            elif run is not None:
                absent = True
                axes.plot(x, 0.04, "x", color=colour, markersize=3, transform=axes.get_xaxis_transform())
    for dataset, why in lacking.items():
        spot = {"xycoords": axes.get_xaxis_transform(), "rotation": 90, "ha": "center", "va": "bottom"}
        axes.annotate(why, (datasets.index(dataset), 0.03), fontsize=6, color="#666666", **spot)
    for boundary in range(1, len(datasets)):
        axes.axvline(boundary - 0.5, color="#DDDDDD", linewidth=0.4)
    axes.set_yscale("log")
    axes.margins(y=0.1)
    axes.yaxis.set_major_formatter(tick_number)
    axes.yaxis.set_minor_formatter(NullFormatter())
    low, high = axes.get_ylim()
    if high < 100 * low:  # The axis has few powers of ten.
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.set_ylabel("seconds")
    name_datasets(axes, datasets)
    handles = axes.get_legend_handles_labels()[0]
    grey = {"color": "#666666", "linestyle": "none"}
    if any(run.status == "timeout" for run in group):
        handles.append(Line2D([], [], marker="^", markerfacecolor="none", label="over the time limit", **grey))
    if any(run.median is not None and not run.counts for run in group):
        handles.append(Line2D([], [], marker="o", markerfacecolor="white", label="not verified", **grey))
    if absent:
        handles.append(Line2D([], [], marker="x", markersize=3, label="no time (not run, or failed)", **grey))
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=6, labelspacing=0.3)


def _best(runs: Runs) -> VerifiedRecord | None:
    """Return the fastest run, preferably one that counts, else one that reached its time limit, else any."""
    return min(runs, key=lambda run: (not run.counts, run.median or math.inf, run.status != "timeout"), default=None)


@table("methods_by_dataset", "Every setting on every data set", paper="Runtimes", family=EVERY)
def methods_by_dataset(runs: Runs) -> Table:
    """The table shows runtime, edges, levels, tests, tests per second and the verification of every setting on every
    data set. Notes below the table give the reason for each setting without a time.
    """
    columns = "family dataset setting method reference backend status why median low high repeats cold limit edges "
    columns += "levels tests verification known_difference machine commit"
    rows, plain = [], []
    for run in runs:
        rate = run.tests / run.median if run.median and run.tests is not None else None
        plain.append(csv_row(run, columns) | {"tests_per_s": rate})
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
    warnings: dict[str, None] = {}
    for run in runs:
        if run.status == "skipped":
            continue
        facts = _flat(run.environment)
        for name in ("measured_at", "device", "gpu"):  # CPU references have neither of the latter two.
            facts.pop(name, None)
        warnings |= dict.fromkeys(run.environment["warnings"])
        place = str([run.backend, facts])
        environments.setdefault(place, {"backend": run.backend, **facts})
        days.setdefault(place, set()).update([run.date] if run.date else [])
    for place, facts in environments.items():
        if on := sorted(days[place]):
            facts["measured"] = on[0] if len(on) == 1 else f"{on[0]} to {on[-1]}"
    names = list(dict.fromkeys(name for facts in environments.values() for name in facts))
    rows = [[name, *(facts.get(name, "–") for facts in environments.values())] for name in names]
    header = ["fact", *(facts["backend"] for facts in environments.values())]
    notes = [f"Warning: {warning}." for warning in warnings]
    plain = [{"fact": row[0], **{f"{n}": value for n, value in enumerate(row[1:])}} for row in rows]
    return Table("Machine, software and code", header, rows, notes, plain or [{"fact": ""}], left=range(len(header)))


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested facts as texts, by dotted name."""
    found: dict[str, str] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        elif name != "warnings":
            found[prefix + name] = "–" if value is None else str(value)
    return found
