"""Figures 1 and 2 and Table 1 of the Out-of-Core paper, from records and a recorded timeline only."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpupc_impl.reporting import style
from gpupc_impl.reporting.catalogue import CsvRows, Sweeps, figure, table
from gpupc_impl.reporting.cells import csv_row, label, mark, number, places, remarks, speedup, time_cell
from gpupc_impl.reporting.figures import HEADING, Drawing, footer, tick_number
from gpupc_impl.reporting.papers.managed_memory import BLOCK, LEVELS, UM
from gpupc_impl.reporting.runs import Runs, VerifiedRecord, datasets_of, of_method
from gpupc_impl.reporting.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAPER = "Out-of-Core"
AS_PUBLISHED = {UM: {"level_one": "pairs"}, BLOCK: {"layout": "blocks"}}
PAPER_NAMES = {"GPU UM": UM, "GPU Block-Based": BLOCK}


def compared(runs: Runs) -> set[str]:
    """Return the paper's two settings: square blocks, and unified memory with the same kernels."""
    return {run.setting for method, params in AS_PUBLISHED.items() for run in of_method(runs, method, **params)}


@figure("ooc_fig2", "Fig. 2: unified memory and blocks", paper=PAPER, experiments=("ooc_fig2",))
def ooc_fig2(runs: Runs, reported: CsvRows, sweeps: Sweeps) -> Drawing:
    """The figure shows the runtime of level 0 (left) and level 1 (right) over the number of variables, as the
    Out-of-Core paper's Fig. 2: medians with the 20–80 % band, on a logarithmic axis. All possible CI tests are made,
    because alpha is so close to one that no edge is removed. The vertical line marks the number of variables at which
    the in-core data structures fill the device memory, or the budget that the config sets instead. The paper (V100, 32
    GB) states that unified memory is 15 to 4.4 times faster in level 0, and that beyond the limit block-based is 12.4
    times (40,000 variables) to 34 times (55,000) faster in level 1. {% if config["backend"] == "host" %}On the host
    backend managed memory is plain memory, so nothing is migrated and the runtime does not jump at the limit.{% endif
    %} Block-based uses the paper's square blocks, and unified memory uses the same kernels, so the ratio measures only
    memory management. Dashed lines are other settings, such as block-based with the layout that moves less data.
    ``results/tables/ooc_fig2.csv`` has the numbers.
    """
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.ticker import NullFormatter

    style.use()
    sizes = {graph: int(value) for sweep in sweeps.values() for graph, value in sweep.items()}
    runs = [run for run in runs if run.dataset in sizes and run.method in (UM, BLOCK)]
    backends, main = sorted({run.backend for run in runs}), compared(runs)
    shape = (style.PAGE_WIDTH, 2.4 * len(backends) + 0.5)
    figure, grid = plt.subplots(len(backends), len(LEVELS), figsize=shape, squeeze=False)
    rows, limits = [], {}
    for line, backend in zip(grid, backends, strict=True):
        here = [run for run in runs if run.backend == backend]
        limits[backend] = memory_limit(here, sizes)
        for axes, level in zip(line, LEVELS, strict=True):
            for setting in _settings(here):
                mine = [run for run in here if run.setting == setting]
                rows += _line(axes, sorted(mine, key=lambda run: sizes[run.dataset]), level, sizes, setting in main)
            if limits[backend] is not None:
                axes.axvline(limits[backend], color="#0072B2", linewidth=1)
            axes.set_yscale("log")
            low, high = axes.get_ylim()
            axes.yaxis.set_major_formatter(tick_number)
            axes.yaxis.set_minor_formatter(tick_number if high < 10 * low else NullFormatter())
            axes.set_xlabel("number of variables")
            axes.set_title(f"level {level}" + (f", {backend}" if len(backends) > 1 else ""), loc="left")
        line[0].set_ylabel("seconds")
    handles = [
        Line2D([], [], **_look(method, setting in main), label=label(method) if setting in main else setting)
        for setting, method in _settings(runs).items()
    ]
    if any(limits.values()):
        handles.append(Line2D([], [], color="#0072B2", linewidth=1, label="device memory limit"))
    figure.legend(handles=handles, loc="outside lower right", ncols=3)
    figure.suptitle("\n".join(_statements(rows, main, reported)), **HEADING)
    footer(figure, runs)
    return Drawing(figure, rows)


def _settings(runs: Iterable[VerifiedRecord]) -> dict[str, str]:
    """Return the method of each setting."""
    return {run.setting: run.method for run in runs}


def _look(method: str, is_main: bool) -> dict[str, Any]:
    """Return the style of a setting; a setting that does not stand for its method is dashed."""
    marker = {UM: "o", BLOCK: "s"}[method]
    look = {"color": style.colour(method), "marker": marker, "markersize": 3}
    return look if is_main else look | {"linestyle": "--", "markerfacecolor": "none"}


def memory_limit(runs: Iterable[VerifiedRecord], sizes: Mapping[str, int]) -> float | None:
    """Return the number of variables at which the in-core data structures fill the device memory, if known.

    The memory that they need is extrapolated from the unified-memory run on the largest problem that finished: its peak
    is scaled with the square of the variables, because the data structures are matrices.
    """
    finished = [run for run in runs if run.method == UM and run.peak_bytes.device]
    if not finished:
        return None
    largest = max(finished, key=lambda run: sizes[run.dataset])
    apparent = 1_000_000 * largest.params.get("device_mb", 0)  # the memory that the device appears to have
    of_device = (largest.environment["device"] or {}).get("memory_bytes")
    limit = apparent or largest.limits.device_memory_bytes or of_device
    return limit and sizes[largest.dataset] * math.sqrt(limit / largest.peak_bytes.device)


def _line(axes: Axes, runs: Runs, level: int, sizes: Mapping[str, int], is_main: bool) -> list[dict[str, Any]]:
    """Draw a setting's medians with bands, triangles at an exceeded time limit, crosses for other failures."""
    rows, points = [], []
    for run in runs:
        size, colour = sizes[run.dataset], style.colour(run.method)
        low, median, high = run.level_band(level)
        if median is not None:
            points.append((size, low, median, high))
        elif run.status == "timeout":
            axes.plot(size, run.limits.time_s, "^", color=colour, markerfacecolor="none")
        else:
            axes.plot(size, 0.02, "x", color=colour, transform=axes.get_xaxis_transform(), clip_on=False)
        tests, edges = (run.result.tests_per_level, run.result.edges_per_level) if run.result else ((), ())
        rows.append(
            {"level": level, "variables": size}
            | csv_row(run, "dataset setting method backend")
            | {"median_s": median, "low_s": low, "high_s": high}
            | {"tests": tests[level] if len(tests) > level else None}
            | {"edges_left": edges[level] if len(edges) > level else None}
            | csv_row(run, "device_bytes device_limit_bytes status verification")
        )
    if points:
        x, low, median, high = zip(*points, strict=True)
        look = _look(runs[0].method, is_main)
        axes.fill_between(x, low, high, color=look["color"], alpha=0.25, linewidth=0)
        axes.plot(x, median, **look)
    return rows


def _statements(rows: Sequence[Mapping[str, Any]], main: Collection[str], reported: CsvRows) -> list[str]:
    """Return the speedups of the paper's faster method in each level: ours at both ends, and the paper's."""
    seconds: dict[tuple[int, str, int], dict[str, float]] = {}
    for row in rows:
        if row["median_s"] and row["setting"] in main:
            place = row["level"], row["backend"], row["variables"]
            seconds.setdefault(place, {})[row["method"]] = row["median_s"]
    lines = []
    for level in LEVELS:
        theirs = [row for row in reported if (row["level"], row["quantity"]) == (str(level), "runtime")]
        fast, slow = PAPER_NAMES[theirs[0]["method"]], PAPER_NAMES[theirs[0]["over"]]
        both = ((place, times) for place, times in seconds.items() if place[0] == level and len(times) == 2)
        ratios = {place[1:]: times[slow] / times[fast] for place, times in both}
        ends = [choose(ratios, key=lambda place: place[1]) for choose in (min, max)] if ratios else []
        ours = ", ".join(f"{number(ratios[place])}× at {place[1]:,}" for place in dict.fromkeys(ends))
        paper = ", ".join(f"{_reported(row)}× at {int(row['variables']):,}" for row in theirs)
        lines.append(f"Level {level}, {label(fast)} over {label(slow)}: ours {ours or 'not measured'}; paper {paper}")
    if removed := {r["dataset"] for r in rows if r["edges_left"] not in (None, math.comb(r["variables"], 2))}:
        lines.append(f"Not fully connected, edges were removed: {', '.join(sorted(removed))}")
    return lines


def _reported(row: Mapping[str, str]) -> str:
    """Format a value, or the bound that the paper states instead."""
    if not row["low"]:
        return f"up to {row['high']}"
    return row["low"] if row["low"] == row["high"] else f"{row['low']} to {row['high']}"


@table("ooc_table1", "Table 1: wide data", paper=PAPER, experiments=("ooc_table1",))
def ooc_table1(runs: Runs, reported: CsvRows) -> Table:
    """The table shows levels 0 and 1 at alpha = 0.01 on wide data, as the Out-of-Core paper's Table 1: a CPU reference,
    unified memory and block-based, with the paper's numbers for TCGA (55,572 genes, 3,189 samples) below ours. The TCGA
    matrix is not public in one file; generated data replace it, see ``docs/experiments.md``.
    """
    rows, plain = [], []
    for dataset in datasets_of(runs):
        here = [run for run in runs if run.dataset == dataset]
        reference = next((run for run in here if run.reference), None)
        for backend in sorted({run.backend for run in here if run.method in (UM, BLOCK)}):
            on_it = [run for run in here if run.backend == backend]
            um = next(iter(of_method(on_it, UM, **AS_PUBLISHED[UM])), None)
            blocks = [run for run in on_it if run.method == BLOCK]
            # The paper's blocks come before other layouts.
            blocks.sort(key=lambda run: run.params.get("layout") != "blocks")
            facts = here[0].problem or {}
            shape = [f"{facts[key]:,}" if key in facts else "–" for key in ("n_variables", "n_samples")]
            for block in blocks or [None]:
                who = f"ours: {backend}" + (f", {block.setting}" if len(blocks) > 1 else "")
                times = map(time_cell, (reference, um, block))
                ratios = _ratio(um, block), _ratio(reference, block)
                rows.append([dataset, who, *shape, _left_after(block or um), *times, *ratios, _device_memory(block)])
            plain += [
                {"dataset": dataset, "source": "ours"}
                | csv_row(run, "setting method backend machine")
                | {"variables": facts.get("n_variables"), "samples": facts.get("n_samples")}
                | csv_row(run, "median_s low_s high_s limit_s edges_per_level tests_per_level")
                | csv_row(run, "device_bytes device_limit_bytes process_bytes status verification")
                for run in (reference, um, *blocks)
                if run is not None
            ]
    references = dict.fromkeys(label(run.method) for run in runs if run.reference)
    about = reported[0]
    stated = {PAPER_NAMES.get(row["method"], "cpu"): float(row["value"]) for row in reported}
    hours = [stated[who] for who in ("cpu", UM, BLOCK)]
    shape = [f"{int(about[key]):,}" for key in ("variables", "samples")]
    times = [f"{number(3600 * value)} ({value:g} h)" for value in hours]
    ratios = [f"{hours[k] / hours[2]:.0f}×" for k in (1, 0)]
    rows.append([about["dataset"], "paper", *shape, "67 %", *times, *ratios, "–"])
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
        "The paper's ratios are those of the hours in its table; its text states 95 and 236, with 27.35 minutes for "
        "block-based.",
        *places(runs),
        *remarks(runs),
        f"Paper: {about['citation']}.",
    ]
    return Table("Levels 0 and 1 on wide data (Out-of-Core, Table 1)", header, rows, notes, plain)


def _ratio(slow: VerifiedRecord | None, fast: VerifiedRecord | None) -> str:
    ratio = speedup(slow, fast)
    return str(ratio) + (mark(slow, fast) if ratio.value is not None else "")


def _left_after(run: VerifiedRecord | None) -> str:
    """Return the percentage of edges that level 0 left."""
    if run is None or not run.result:
        return "–"
    p = run.problem["n_variables"]
    return f"{100 * run.result.edges_per_level[0] / (p * (p - 1) / 2):.3g} %"


def _device_memory(run: VerifiedRecord | None) -> str:
    """Format the memory that was used, and its limit."""
    if run is None or run.peak_bytes.device is None:
        return "–"
    used, limit = f"{number(run.peak_bytes.device / 1e6)} MB", run.limits.device_memory_bytes
    return used if limit is None else f"{used} of {number(limit / 1e6)} MB"


STEPS = {"extract": "extraction (CPU)", "transfer": "transfer", "kernel": "kernel", "merge": "merging (CPU)"}
STREAM_COLOURS = ("#0072B2", "#E69F00", "#009E73")
SHOWN = 12
"""The upper bound on the blocks of a level that the figure shows; the CSV has all of them."""


@figure("ooc_fig1", "Fig. 1: overlap of transfers and kernels", paper=PAPER, experiments=("ooc_table1",))
def ooc_fig1(timeline: CsvRows, ran: str) -> Drawing:
    """The figure shows when each block of a real run went through extraction and merging on the CPU, transfers, and
    kernels, as the Out-of-Core paper's Fig. 1 sketches it; the numbers in the bars identify the blocks. {% if
    config["backend"] == "host" %}On the host backend streams run in order, so nothing overlaps.{% endif %}
    ``results/tables/ooc_fig1.csv`` has the numbers.
    """
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    style.use()
    steps = [
        {"level": int(row["level"]), "block": int(row["block"]), "step": row["step"], "stream": int(row["stream"])}
        | {"start_s": float(row["start_s"]), "end_s": float(row["end_s"])}
        for row in timeline
    ]
    levels = sorted({row["level"] for row in steps})
    heading = [f"Block-based, {ran}"]
    size = (style.PAGE_WIDTH, 1.3 * max(1, len(levels)) + 0.7)
    figure, grid = plt.subplots(max(1, len(levels)), figsize=size, squeeze=False)
    for axes, level in zip(grid[:, 0], levels, strict=False):
        here = [row for row in steps if row["level"] == level]
        blocks = sorted({row["block"] for row in here})
        _bars(axes, [row for row in here if row["block"] in blocks[:SHOWN]])
        number_of_blocks = f"{len(blocks)} block{'s' * (len(blocks) > 1)}"
        shown = f"the first {SHOWN} of {number_of_blocks}" if len(blocks) > SHOWN else number_of_blocks
        axes.set_title(f"level {level}: {shown}", loc="left")
        hidden = hidden_share(here)
        if hidden is not None:
            heading.append(f"Level {level}: {100 * hidden:.0f} % of the other steps' time overlaps with a kernel")
    grid[-1, 0].set_xlabel("seconds since the first block began")
    streams = sorted({row["stream"] for row in steps})
    handles = [Patch(facecolor=STREAM_COLOURS[number], label=f"stream {number}") for number in streams]
    figure.legend(handles=handles, loc="outside lower right", ncols=len(STREAM_COLOURS))
    figure.suptitle("\n".join(heading), **HEADING)
    return Drawing(figure, steps, columns=("level", "block", "step", "stream", "start_s", "end_s"))


def _bars(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw a bar for each step of a block, with the block's number if there is room."""
    start = min(row["start_s"] for row in rows)
    whole = max(row["end_s"] for row in rows) - start
    for row in rows:
        row_number, left, width = list(STEPS).index(row["step"]), row["start_s"] - start, row["end_s"] - row["start_s"]
        colour = STREAM_COLOURS[row["stream"]]
        axes.barh(row_number, width, left=left, height=0.8, color=colour, edgecolor="white", linewidth=0.2)
        if width > 0.025 * whole:
            axes.annotate(str(row["block"]), (left + width / 2, row_number), ha="center", va="center", fontsize=5)
    axes.set_yticks(range(len(STEPS)), STEPS.values())
    axes.set_ylim(len(STEPS) - 0.5, -0.5)
    axes.grid(visible=False)


def hidden_share(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the share of the other steps' time that passes while a kernel runs; None without other steps."""
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
    """Merge overlapping spans of time."""
    joined: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
