"""Figs. 1 and 2 and Table 1 of the Out-of-Core paper, drawn from records and a recorded timeline only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullFormatter

from gpupc_impl.measurement.record import band
from gpupc_impl.reporting import style
from gpupc_impl.reporting.experiments import Drawing, Run
from gpupc_impl.reporting.figures import NUMBERS, footer
from gpupc_impl.reporting.measured import Measured, datasets_of, label, number, speedup
from gpupc_impl.reporting.tables import Table, mark, places, remarks, time_cell

UM, BLOCK = "out-of-core-um", "out-of-core-block"
LEVELS = (0, 1)
PAPER_NAMES = {"GPU UM": UM, "GPU Block-Based": BLOCK}


# --- Fig. 2 ----------------------------------------------------------------------------------------------------------


def ooc_fig2(
    runs: Sequence[Run], reported: Sequence[Mapping[str, str]], sweeps: Mapping[str, Mapping[str, float]]
) -> Drawing:
    """Times of levels 0 and 1 over the number of variables: a panel a level, a line a setting, a row a backend.

    A vertical line marks where the in-core data structures fill the device memory (or its budget).

    Args:
        reported: rows of results/reported/ooc_fig2.csv: what the paper's text states.
        sweeps: by name, the number of variables by graph.
    """
    style.use()
    sizes = {graph: int(value) for sweep in sweeps.values() for graph, value in sweep.items()}
    runs = [run for run in runs if run.measured.dataset in sizes and run.measured.method in (UM, BLOCK)]
    backends = sorted({run.measured.backend for run in runs})
    shape = (style.PAGE_WIDTH, 2.4 * len(backends) + 0.5)
    figure, grid = plt.subplots(len(backends), len(LEVELS), figsize=shape, squeeze=False)
    rows, limits = [], {}
    for line, backend in zip(grid, backends, strict=True):
        here = [run for run in runs if run.measured.backend == backend]
        limits[backend] = memory_limit(here, sizes)
        for axes, level in zip(line, LEVELS, strict=True):
            for setting in _settings(here):
                mine = [run for run in here if run.measured.setting == setting]
                rows += _line(axes, sorted(mine, key=lambda run: sizes[run.measured.dataset]), level, sizes)
            if limits[backend] is not None:
                axes.axvline(limits[backend], color="#0072B2", linewidth=1)
            axes.set_yscale("log")
            low, high = axes.get_ylim()
            axes.yaxis.set_major_formatter(NUMBERS)
            axes.yaxis.set_minor_formatter(NUMBERS if high < 10 * low else NullFormatter())
            axes.set_xlabel("number of variables")
            axes.set_title(f"level {level}" + (f", {backend}" if len(backends) > 1 else ""), loc="left")
        line[0].set_ylabel("seconds")
    handles = [
        Line2D([], [], **_look(setting, method), label=label(method) if setting == method else setting)
        for setting, method in _settings(runs).items()
    ]
    if any(limits.values()):
        handles.append(Line2D([], [], color="#0072B2", linewidth=1, label="device memory limit"))
    figure.legend(handles=handles, loc="outside lower right", ncols=3)
    figure.suptitle("\n".join(_statements(rows, reported)), fontsize=6.5, x=0.01, ha="left")
    footer(figure, [run.measured for run in runs])
    return Drawing(figure, rows)


def _settings(runs: Iterable[Run]) -> dict[str, str]:
    """The methods of the settings, by name; those named as their method are the ones that are compared."""
    return {run.measured.setting: run.measured.method for run in runs}


def _look(setting: str, method: str) -> dict[str, Any]:
    """A colour a method; what is not named as its method is dashed."""
    marker = {UM: "o", BLOCK: "s"}[method]
    look = {"color": style.colour(method), "marker": marker, "markersize": 3}
    return look if setting == method else look | {"linestyle": "--", "markerfacecolor": "none"}


def level_seconds(run: Run, level: int) -> tuple[float | None, float | None, float | None]:
    """20 % quantile, median and 80 % quantile of a level's time over the warm runs; Nones where there is none."""
    levels = run.record["time_s"]["levels"] if run.measured.median is not None else []
    return band([times[level] for times in levels if len(times) > level])


def memory_limit(runs: Iterable[Run], sizes: Mapping[str, int]) -> float | None:
    """The number of variables at which the in-core data structures fill the device memory; None when that is unknown.

    What they need is the most that the unified-memory method took on the largest problem that it finished, scaled with
    the square of the variables, as the matrices that it consists of.
    """
    finished = [run for run in runs if run.measured.method == UM and run.record["peak_bytes"]["device"]]
    if not finished:
        return None
    largest = max(finished, key=lambda run: sizes[run.measured.dataset])
    limit = largest.record["limits"]["device_memory_bytes"]
    if limit is None:
        limit = (largest.record["environment"]["device"] or {}).get("memory_bytes")
    if limit is None:
        return None
    return sizes[largest.measured.dataset] * math.sqrt(limit / largest.record["peak_bytes"]["device"])


def _line(axes: Axes, runs: Sequence[Run], level: int, sizes: Mapping[str, int]) -> list[dict[str, Any]]:
    """One setting's medians with their bands; triangles at the time limit, crosses at the bottom for other failures."""
    rows, points = [], []
    for run in runs:
        m, record = run.measured, run.record
        low, median, high = level_seconds(run, level)
        if median is not None:
            points.append((sizes[m.dataset], low, median, high))
        elif m.status == "timeout":
            axes.plot(sizes[m.dataset], m.limit, "^", color=style.colour(m.method), markerfacecolor="none")
        else:
            where = {"transform": axes.get_xaxis_transform(), "clip_on": False}
            axes.plot(sizes[m.dataset], 0.02, "x", color=style.colour(m.method), **where)
        tests, edges = (
            record["result"][name] if record["result"] else [] for name in ("tests_per_level", "edges_per_level")
        )
        rows.append(
            {"level": level, "variables": sizes[m.dataset], "dataset": m.dataset, "setting": m.setting}
            | {"method": m.method}
            | {"backend": m.backend, "median_s": median, "low_s": low, "high_s": high}
            | {"tests": tests[level] if len(tests) > level else None}
            | {"edges_left": edges[level] if len(edges) > level else None}
            | {"device_bytes": record["peak_bytes"]["device"]}
            | {"device_limit_bytes": record["limits"]["device_memory_bytes"]}
            | {"status": m.status, "verification": m.verification}
        )
    if points:
        x, low, median, high = zip(*points, strict=True)
        look = _look(runs[0].measured.setting, runs[0].measured.method)
        axes.fill_between(x, low, high, color=look["color"], alpha=0.25, linewidth=0)
        axes.plot(x, median, **look)
    return rows


def _statements(rows: Sequence[Mapping[str, Any]], reported: Sequence[Mapping[str, str]]) -> list[str]:
    """How many times faster the paper's faster method is, by level: ours at both ends, beside the paper's numbers."""
    seconds: dict[tuple[int, str, int], dict[str, float]] = {}
    for row in rows:
        if row["median_s"] and row["setting"] == row["method"]:
            place = row["level"], row["backend"], row["variables"]
            seconds.setdefault(place, {})[row["method"]] = row["median_s"]
    lines = []
    for level in LEVELS:
        theirs = [row for row in reported if (row["level"], row["quantity"]) == (str(level), "runtime")]
        fast, slow = PAPER_NAMES[theirs[0]["method"]], PAPER_NAMES[theirs[0]["over"]]
        ratios = {
            place[1:]: times[slow] / times[fast]
            for place, times in seconds.items()
            if place[0] == level and len(times) == 2
        }
        ends = [choose(ratios, key=lambda place: place[1]) for choose in (min, max)] if ratios else []
        ours = ", ".join(f"{number(ratios[place])}× at {place[1]:,}" for place in dict.fromkeys(ends))
        paper = ", ".join(f"{_reported(row)}× at {int(row['variables']):,}" for row in theirs)
        lines.append(f"Level {level}, {label(fast)} over {label(slow)}: here {ours or 'not measured'}; paper {paper}")
    removed = {row["dataset"] for row in rows if row["edges_left"] is not None and not _complete(row)}
    if removed:
        lines.append(f"Not fully connected, edges were removed: {', '.join(sorted(removed))}")
    return lines


def _reported(row: Mapping[str, str]) -> str:
    """A value, or the bound that the paper gives instead."""
    if not row["low"]:
        return f"up to {row['high']}"
    return row["low"] if row["low"] == row["high"] else f"{row['low']} to {row['high']}"


def _complete(row: Mapping[str, Any]) -> bool:
    return row["edges_left"] == row["variables"] * (row["variables"] - 1) // 2


# --- Table 1 ---------------------------------------------------------------------------------------------------------


def ooc_table1(runs: Sequence[Run], reported: Sequence[Mapping[str, str]]) -> Table:
    """Times of levels 0 and 1 on wide data, ours above the paper's: a row a data set and backend.

    Args:
        reported: rows of results/reported/ooc_table1.csv.
    """
    measured = [run.measured for run in runs]
    rows, plain = [], []
    for dataset in datasets_of(measured):
        here = [run for run in runs if run.measured.dataset == dataset]
        reference = next((run for run in here if run.measured.reference), None)
        for backend in sorted({run.measured.backend for run in here if run.measured.method in (UM, BLOCK)}):
            um, block = (
                next((r for r in here if (r.measured.method, r.measured.backend) == (method, backend)), None)
                for method in (UM, BLOCK)
            )
            times = [None if run is None else run.measured for run in (reference, um, block)]
            facts = here[0].record["problem"] or {}
            rows.append(
                [
                    dataset,
                    f"ours: {backend}",
                    *(f"{facts[key]:,}" if key in facts else "–" for key in ("n_variables", "n_samples")),
                    _left_after(block or um),
                    *map(time_cell, times),
                    _ratio(times[1], times[2]),
                    _ratio(times[0], times[2]),
                    _device_memory(block),
                ]
            )
            plain += [_plain(run, facts) for run in (reference, um, block) if run is not None]
    references = dict.fromkeys(label(m.method) for m in measured if m.reference)
    about = reported[0]
    stated = {PAPER_NAMES.get(row["method"], "cpu"): float(row["value"]) for row in reported}
    hours = [stated[who] for who in ("cpu", UM, BLOCK)]
    rows.append(
        [
            about["dataset"],
            "paper",
            f"{int(about['variables']):,}",
            f"{int(about['samples']):,}",
            "67 %",
            *(f"{number(3600 * value)} ({value:g} h)" for value in hours),
            f"{hours[1] / hours[2]:.0f}×",
            f"{hours[0] / hours[2]:.0f}×",
            "–",
        ]
    )
    plain += [
        {"dataset": row["dataset"], "source": "paper", "method": row["method"], "machine": row["hardware"]}
        | {"variables": row["variables"], "samples": row["samples"], "median_s": 3600 * float(row["value"])}
        for row in reported
    ]
    header = ["data set", "", "variables", "samples", "edges left by level 0", "CPU, s", "UM, s", "block-based, s"]
    header += ["block over UM", "block over CPU", "device memory of block-based"]
    notes = [
        "Levels 0 and 1. Ours: median of the warm runs; CPU is our "
        f"{' or '.join(references) or 'reference'}, the paper's is pcalg's stable.fast. "
        "The paper's hardware is not ours: compare ratios, not times.",
        *(f"Paper, {row['method']}: {row['hardware']}." for row in reported),
        "Its ratios are those of the hours in its table; its text has 95 and 236, from 27.35 minutes for block-based.",
        *places(measured),
        *remarks(measured, {m.setting for m in measured}),
        f"Paper: {about['citation']}.",
    ]
    columns = list(dict.fromkeys(name for row in plain for name in row))
    plain = [{name: row.get(name) for name in columns} for row in plain]
    return Table("Levels 0 and 1 on wide data (Out-of-Core, Table 1)", header, rows, notes, plain)


def _ratio(slow: Measured | None, fast: Measured | None) -> str:
    ratio = speedup(slow, fast)
    return str(ratio) + (mark(slow, fast) if ratio.value is not None else "")


def _left_after(run: Run | None) -> str:
    """Edges that level 0 left, in percent."""
    if run is None or not run.record["result"]:
        return "–"
    p = run.record["problem"]["n_variables"]
    return f"{100 * run.record['result']['edges_per_level'][0] / (p * (p - 1) / 2):.3g} %"


def _device_memory(run: Run | None) -> str:
    """What was used, and of how much."""
    if run is None or run.record["peak_bytes"]["device"] is None:
        return "–"
    limit = run.record["limits"]["device_memory_bytes"]
    used = f"{number(run.record['peak_bytes']['device'] / 1e6)} MB"
    return used if limit is None else f"{used} of {number(limit / 1e6)} MB"


def _plain(run: Run, facts: Mapping[str, Any]) -> dict[str, Any]:
    m, result = run.measured, run.record["result"] or {}
    return {
        "dataset": m.dataset,
        "source": "ours",
        "method": m.method,
        "backend": m.backend,
        "machine": m.machine,
        "variables": facts.get("n_variables"),
        "samples": facts.get("n_samples"),
        "median_s": m.median,
        "low_s": m.low,
        "high_s": m.high,
        "limit_s": m.limit,
        "edges_per_level": " ".join(map(str, result.get("edges_per_level", []))),
        "tests_per_level": " ".join(map(str, result.get("tests_per_level", []))),
        "device_bytes": run.record["peak_bytes"]["device"],
        "device_limit_bytes": run.record["limits"]["device_memory_bytes"],
        "process_bytes": run.record["peak_bytes"]["process"],
        "status": m.status,
        "verification": m.verification,
    }


# --- Fig. 1 ----------------------------------------------------------------------------------------------------------

STEPS = {"extract": "extraction (CPU)", "transfer": "transfer", "kernel": "kernel", "merge": "merging (CPU)"}
STREAM_COLOURS = ("#0072B2", "#E69F00", "#009E73")
SHOWN = 12
"""Blocks of a level that are drawn; all of them are in the CSV."""


def ooc_fig1(rows: Sequence[Mapping[str, str]], title: str) -> Drawing:
    """Extraction, transfers, kernels and merging over time: a panel a level, a lane a step, a colour a stream.

    Args:
        rows: ``level, block, step, stream, start_s, end_s`` of a block-based run, as it writes them; none if it failed.
        title: what ran where.
    """
    style.use()
    steps = [
        {"level": int(row["level"]), "block": int(row["block"]), "step": row["step"], "stream": int(row["stream"])}
        | {"start_s": float(row["start_s"]), "end_s": float(row["end_s"])}
        for row in rows
    ]
    levels = sorted({row["level"] for row in steps})
    heading = [title]
    size = (style.PAGE_WIDTH, 1.3 * max(1, len(levels)) + 0.7)
    figure, grid = plt.subplots(max(1, len(levels)), figsize=size, squeeze=False)
    for axes, level in zip(grid[:, 0], levels, strict=False):
        here = [row for row in steps if row["level"] == level]
        blocks = sorted({row["block"] for row in here})
        _lanes(axes, [row for row in here if row["block"] in blocks[:SHOWN]])
        shown = (
            f"the first {SHOWN} of {len(blocks)} blocks"
            if len(blocks) > SHOWN
            else f"{len(blocks)} block{'s' * (len(blocks) > 1)}"
        )
        axes.set_title(f"level {level}: {shown}", loc="left")
        hidden = hidden_share(here)
        if hidden is not None:
            heading.append(f"Level {level}: {100 * hidden:.0f} % of extraction, transfers and merging beside a kernel")
    grid[-1, 0].set_xlabel("seconds since the first block began")
    streams = sorted({row["stream"] for row in steps})
    handles = [Patch(facecolor=STREAM_COLOURS[number], label=f"stream {number}") for number in streams]
    figure.legend(handles=handles, loc="outside lower right", ncols=len(STREAM_COLOURS))
    figure.suptitle("\n".join(heading), fontsize=6.5, x=0.01, ha="left")
    return Drawing(figure, steps or [dict.fromkeys(("level", "block", "step", "stream", "start_s", "end_s"))])


def _lanes(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """A bar a step of a block, with the block's number where there is room."""
    start = min(row["start_s"] for row in rows)
    whole = max(row["end_s"] for row in rows) - start
    for row in rows:
        lane, left, width = list(STEPS).index(row["step"]), row["start_s"] - start, row["end_s"] - row["start_s"]
        colour = STREAM_COLOURS[row["stream"]]
        axes.barh(lane, width, left=left, height=0.8, color=colour, edgecolor="white", linewidth=0.2)
        if width > 0.025 * whole:
            axes.annotate(str(row["block"]), (left + width / 2, lane), ha="center", va="center", fontsize=5)
    axes.set_yticks(range(len(STEPS)), STEPS.values())
    axes.set_ylim(len(STEPS) - 0.5, -0.5)
    axes.grid(visible=False)


def hidden_share(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """How much of the time of all other steps passes while a kernel runs, as a share; None without such steps."""
    kernels = _union([(row["start_s"], row["end_s"]) for row in rows if row["step"] == "kernel"])
    others = _union([(row["start_s"], row["end_s"]) for row in rows if row["step"] != "kernel"])
    total = sum(end - start for start, end in others)
    if not total:
        return None
    beside = sum(
        max(0.0, min(end, kernel_end) - max(start, kernel_start))
        for start, end in others
        for kernel_start, kernel_end in kernels
    )
    return beside / total


def _union(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans of time that overlap, joined."""
    joined: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
