"""Figure 2 of the Out-of-Core paper: levels 0 and 1 against the number of variables, from records only."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpupc_impl.reporting import style
from gpupc_impl.reporting.catalogue import CsvRows, Sweeps, figure
from gpupc_impl.reporting.cells import csv_row, label, number
from gpupc_impl.reporting.figures import HEADING, Drawing, footer, tick_number
from gpupc_impl.reporting.papers.managed_memory import BLOCK, LEVELS, UM, Rates, modelled_level
from gpupc_impl.reporting.papers.out_of_core import PAPER, PAPER_NAMES, compared
from gpupc_impl.reporting.runs import Runs, VerifiedRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LIMIT = "#0072B2"
MODELLED = {"color": style.colour(UM), "marker": "o", "markersize": 3, "markerfacecolor": "white", "linestyle": ":"}
PAPER_LOOK = {"color": "black", "marker": "D", "markersize": 3.5, "markerfacecolor": "none", "linestyle": "none"}
"""The appearance of the line of the memory limit, of modelled times, and of the paper's numbers."""


@figure("ooc_fig2", "Fig. 2: unified memory and blocks", paper=PAPER, experiments=("ooc_fig2",))
def ooc_fig2(runs: Runs, reported: CsvRows, sweeps: Sweeps, rates: Rates = None) -> Drawing:
    """The figure shows the runtime of level 0 (left) and level 1 (right) over the number of variables, as the
    Out-of-Core paper's Fig. 2: medians with the 20–80 % band, on a logarithmic axis. All possible CI tests are made,
    because alpha is so close to one that no edge is removed. Below are the ratios of the two methods. Each layout of
    blocks has a line in the style of its times; the line is dotted where unified memory is modelled. Diamonds are the
    ratios that the paper (V100, 32 GB) states. The vertical line marks the number of variables at which the in-core
    data structures fill the device memory, or the budget that the config sets instead. Beyond that limit unified memory
    is modelled (``docs/out-of-core.md``) unless it was run; a cross marks a size without a time. {% if
    config["backend"] == "host" %}On the host backend managed memory is plain memory, so nothing is migrated and the
    runtime does not jump at the limit.{% endif %} Block-based uses the paper's square blocks, and unified memory uses
    the same kernels, so the solid ratio measures only memory management. Dashed lines are other settings, such as
    block-based with the layout that moves less data. ``results/tables/ooc_fig2.csv`` has the numbers.
    """
    import matplotlib.pyplot as plt

    style.use()
    sizes = {graph: int(value) for sweep in sweeps.values() for graph, value in sweep.items()}
    runs = [run for run in runs if run.dataset in sizes and run.method in (UM, BLOCK)]
    backends, main = sorted({run.backend for run in runs}), compared(runs)
    shape, heights = (style.PAGE_WIDTH, 3.5 * len(backends) + 0.5), {"height_ratios": [3, 2] * len(backends)}
    figure, grid = plt.subplots(
        2 * len(backends), len(LEVELS), figsize=shape, sharex="col", squeeze=False, gridspec_kw=heights
    )
    rows, limits, shows_paper = [], {}, False
    for times, ratios, backend in zip(grid[::2], grid[1::2], backends, strict=True):
        here = [run for run in runs if run.backend == backend]
        limits[backend] = memory_limit(here, sizes)
        for upper, lower, level in zip(times, ratios, LEVELS, strict=True):
            of_level = []
            for setting in _settings(here):
                mine = [run for run in here if run.setting == setting]
                of_level += _line(
                    upper, sorted(mine, key=lambda run: sizes[run.dataset]), level, sizes, setting in main
                )
            _modelled(upper, of_level, here, level, rates)
            shows_paper |= _ratio_panel(lower, of_level, main, level, reported)
            for axes in (upper, lower):
                if limits[backend] is not None:
                    axes.axvline(limits[backend], color=LIMIT, linewidth=1)
                _log_axis(axes)
            upper.set_title(f"level {level}" + (f", {backend}" if len(backends) > 1 else ""), loc="left")
            lower.locator_params(axis="x", nbins=5)
            lower.set_xlabel("number of variables")
            rows += of_level
        times[0].set_ylabel("seconds")
    _legend(figure, runs, main, rows, any(limits.values()), shows_paper)
    figure.suptitle("\n".join(_statements(rows, main, reported)), **HEADING)
    footer(figure, runs)
    return Drawing(figure, rows)


def _log_axis(axes: Axes) -> None:
    """Set a logarithmic axis, with numbers between the powers of ten if it has few of these."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    axes.set_yscale("log")
    if math.isinf(axes.dataLim.minposy):  # nothing is drawn
        axes.set_ylim(0.1, 10)
    low, high = axes.get_ylim()
    if high < 5 * low:
        axes.yaxis.set_major_locator(MaxNLocator(4))
    elif high < 100 * low:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(tick_number)
    axes.yaxis.set_minor_formatter(NullFormatter())


def _legend(
    figure: Figure,
    runs: Runs,
    main: Collection[str],
    rows: Sequence[Mapping[str, Any]],
    limit: bool,
    paper: bool,
) -> None:
    """Add a legend with an entry for each kind of mark that is drawn."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], **_look(method, setting in main), label=label(setting))
        for setting, method in _settings(runs).items()
    ]
    if any(row["modelled_s"] for row in rows):
        handles.append(Line2D([], [], label=f"{label(UM)}, modelled", **MODELLED))
    if limit:
        handles.append(Line2D([], [], color=LIMIT, linewidth=1, label="device memory limit"))
    failed = {row["status"] == "timeout" for row in rows if row["median_s"] is None}
    black = {"color": "black", "linestyle": "none"}
    if True in failed:
        handles.append(Line2D([], [], marker="^", markerfacecolor="none", label="over the time limit", **black))
    if False in failed:
        handles.append(Line2D([], [], marker="x", label="not run, or failed", **black))
    if paper:
        handles.append(Line2D([], [], label="paper (V100)", **PAPER_LOOK))
    figure.legend(handles=handles, loc="outside lower right", ncols=3)


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
            | {"median_s": median, "low_s": low, "high_s": high, "modelled_s": None}
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


def _modelled(axes: Axes, rows: Sequence[dict[str, Any]], runs: Runs, level: int, rates: Rates) -> None:
    """Draw the modelled times of unified memory where a run was refused, and add them to the rows."""
    for row in rows:
        run = next(run for run in runs if (run.dataset, run.setting) == (row["dataset"], row["setting"]))
        if run.method == UM and run.status == "oom" and run.problem:
            blocks = [each for each in runs if (each.dataset, each.method) == (run.dataset, BLOCK)]
            row["modelled_s"] = modelled_level(run, blocks, level, rates)
    shown = sorted((row["variables"], row["modelled_s"]) for row in rows if row["modelled_s"])
    if shown:
        axes.plot(*zip(*shown, strict=True), **MODELLED)


def _stated(reported: CsvRows, level: int) -> tuple[CsvRows, str, str]:
    """Return the paper's rows about a level, and the faster and the slower method in them."""
    rows = [row for row in reported if (row["level"], row["quantity"]) == (str(level), "runtime")]
    return rows, PAPER_NAMES[rows[0]["method"]], PAPER_NAMES[rows[0]["over"]]


def _ratios(
    rows: Sequence[Mapping[str, Any]], main: Collection[str], blocks: str, fast: str, clock: str = "median_s"
) -> dict[int, float]:
    """Return how many times faster a method is in a level on one backend, by number of variables.

    Args:
        blocks: the setting of blocks that is compared with the main one of unified memory.
        fast: the method whose times are the divisors.
        clock: the column of the times of unified memory, which may be modelled.
    """
    managed = {row["variables"]: row[clock] for row in rows if row["method"] == UM and row["setting"] in main}
    of_blocks = {row["variables"]: row["median_s"] for row in rows if row["setting"] == blocks}
    pairs = {size: (managed[size], of_blocks[size]) for size in sorted(managed.keys() & of_blocks.keys())}
    if fast == UM:
        pairs = {size: pair[::-1] for size, pair in pairs.items()}
    return {size: slow / divisor for size, (slow, divisor) in pairs.items() if slow and divisor}


def _ratio_panel(
    axes: Axes, rows: Sequence[Mapping[str, Any]], main: Collection[str], level: int, reported: CsvRows
) -> bool:
    """Draw our ratios in a level, a line for each setting of blocks. The paper's are diamonds, up to twice our largest
    number of variables; returns whether there are any."""
    theirs, fast, _ = _stated(reported, level)
    axes.axhline(1, color="black", linewidth=0.6)
    for blocks in dict.fromkeys(row["setting"] for row in rows if row["method"] == BLOCK):
        look = {**_look(BLOCK, blocks in main), "marker": "o", "color": style.colour(fast)}
        ratios = _ratios(rows, main, blocks, fast)
        axes.plot(list(ratios), list(ratios.values()), **look)
        if modelled := _ratios(rows, main, blocks, fast, "modelled_s"):
            # The line begins at the last measured ratio, which shows what it continues.
            line = dict([*list(ratios.items())[-1:], *modelled.items()])
            look = {**MODELLED, "color": style.colour(fast), "markevery": slice(len(line) - len(modelled), None)}
            axes.plot(list(line), list(line.values()), **look)
    reach = 2 * max((row["variables"] for row in rows), default=0)
    shown = [row for row in theirs if int(row["variables"]) <= reach]
    for row in shown:
        place = int(row["variables"]), float(row["high"])
        axes.plot(*place, **PAPER_LOOK)
        # A text beside a ratio of one would be on the line of one.
        spot, side = ((-4, -3), ("right", "top")) if place[1] == 1 else ((5, 0), ("left", "center"))
        ha, va = side
        axes.annotate(_reported(row), place, spot, textcoords="offset points", ha=ha, va=va, fontsize=6)
    axes.set_ylabel(f"{label(fast)},\ntimes faster", fontsize=7)
    return bool(shown)


def _statements(rows: Sequence[Mapping[str, Any]], main: Collection[str], reported: CsvRows) -> list[str]:
    """Return a line for each level with speedups of the method that is faster in the paper: ours for the smallest and
    the largest problem, and those that the paper states. A last line names data sets that lost edges."""
    lines = []
    for level in LEVELS:
        theirs, fast, slow = _stated(reported, level)
        ends = {}
        for backend in dict.fromkeys(row["backend"] for row in rows):
            here = [row for row in rows if (row["level"], row["backend"]) == (level, backend)]
            blocks = next((row["setting"] for row in here if row["method"] == BLOCK and row["setting"] in main), "")
            ratios = _ratios(here, main, blocks, fast)
            ends |= {(backend, size): ratios[size] for size in (list(ratios)[:1] + list(ratios)[-1:])}
        ours = ", ".join(f"{number(ratio)}× at {size:,}" for (_, size), ratio in ends.items())
        paper = ", ".join(f"{_reported(row)}× at {int(row['variables']):,}" for row in theirs)
        lines.append(f"Level {level}, {label(fast)} over {label(slow)}: ours {ours or 'not measured'}; paper {paper}")
    if removed := {r["dataset"] for r in rows if r["edges_left"] not in (None, math.comb(r["variables"], 2))}:
        lines.append(f"Not fully connected, edges were removed: {', '.join(sorted(removed))}")
    return lines


def _reported(row: Mapping[str, str]) -> str:
    """Format a value of the paper, or the range or the bound that the paper states instead."""
    if not row["low"]:
        return f"up to {row['high']}"
    return row["low"] if row["low"] == row["high"] else f"{row['low']} to {row['high']}"
