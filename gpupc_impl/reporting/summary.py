"""Outputs that belong to no paper: every setting on every data set, and what was measured where, with what."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from gpupc_impl.reporting import style
from gpupc_impl.reporting.catalogue import EVERY, figure, table
from gpupc_impl.reporting.cells import count, csv_row, label, number, places, remarks, speedup, time_cell
from gpupc_impl.reporting.figures import Drawing, canvas, footer, key
from gpupc_impl.reporting.peers import LIKE
from gpupc_impl.reporting.runs import Runs, VerifiedRecord, by_dataset, datasets_of
from gpupc_impl.reporting.tables import Table


@figure("overview", "Times faster", paper="Runtimes", family=EVERY, experiments=("ooc_table1",), numbers=False)
def overview(runs: Runs) -> Drawing:
    """The figure shows how many times faster our fastest method is than CPU references (diamonds) and than other
    programs, the authors' own among them (squares: on the same GPU), on every data set, by family of tests: ratios of
    the medians of whole calls, on a logarithmic axis. On the right are our fastest method and its time. An arrow marks
    a bound, since the other one reached its time limit, and another hollow marker a result that is not verified. The
    table "Every setting on every data set" has all times, and the reason for each one that is missing.
    """
    from matplotlib.ticker import NullFormatter

    ours = [run for run in runs if run.counts and run.backend != "cpu" and run.method not in LIKE]
    slower = [run for run in runs if run.backend == "cpu" or run.method in LIKE]
    fastest = by_dataset(sorted(ours, key=lambda run: -run.median))
    wide = {run.dataset for run in ours if run.method.startswith("out-of-core")}
    families = list(dict.fromkeys(run.family for run in runs))
    shown = [fastest[name] for name in datasets_of(runs) if name in fastest]
    groups: dict[str, list[VerifiedRecord]] = {}
    for run in sorted(shown, key=lambda run: families.index(run.family)):
        where = " beyond device memory" if run.dataset in wide else ""
        groups.setdefault(f"{run.family.capitalize()}{where}, backend {run.backend}", []).append(run)
    heights = [len(group) + 0.5 for group in groups.values()] or [1]
    size = (5.2, 0.13 * sum(heights) + 0.25 * len(heights) + 0.9)
    figure, panels = canvas(len(heights), 1, size, sharex=True, gridspec_kw={"height_ratios": heights})
    handles = {}
    for axes, (title, group) in zip(panels[:, 0], groups.items(), strict=False):
        for y, fast in enumerate(group):
            others = [run for run in slower if run.dataset == fast.dataset]
            for method in dict.fromkeys(run.method for run in others):
                slow = min((run for run in others if run.method == method), key=_rank)
                ratio, known = speedup(slow, fast), {"-serial": "CPU, one core", "-parallel": "CPU, all cores"}
                look = {"marker": style.MARKERS[slow.backend], "color": style.colour(method)}
                if ratio.value is None:
                    continue
                face = look["color"] if slow.counts else "white"
                marker = {"marker": ">"} if ratio.bound else {}
                axes.plot(ratio.value, y, **look | marker, markerfacecolor=face)
                name = next((text for end, text in known.items() if method.endswith(end)), label(method))
                handles.setdefault(name, key(name, **look))
            text = f"{label(fast.setting)}, {number(1000 * fast.median)} ms"
            axes.annotate(text, (1.01, y), xycoords=axes.get_yaxis_transform(), va="center", fontsize=6)
        axes.axvline(1, color="black", linewidth=0.6)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}×")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_yticks(range(len(group)), [run.dataset for run in group])
        axes.set_ylim(len(group) - 0.4, -0.6)
        axes.grid(axis="x")
        axes.set_title(title, loc="left")
    panels[0, 0].set_xlim(right=max(10, panels[0, 0].get_xlim()[1]))  # The axis has two numbers at least.
    figure.legend(handles=list(handles.values()), loc="outside upper center", ncols=3)
    footer(figure, runs)
    return Drawing(figure)


def _rank(run: VerifiedRecord) -> tuple[bool, float, bool]:
    """Return what orders runs of a method: those that count, by time; else those that reached a time limit first."""
    return not run.counts, run.median or math.inf, run.status != "timeout"


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
