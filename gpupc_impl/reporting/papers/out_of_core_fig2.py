"""Figure 2 of the Out-of-Core paper: levels 0 and 1 against the number of variables, from records only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpupc_impl.reporting import style
from gpupc_impl.reporting.catalogue import CsvRows, Sweeps, figure
from gpupc_impl.reporting.cells import label, number
from gpupc_impl.reporting.figures import HEADING, Drawing, canvas, footer, key, log_axis
from gpupc_impl.reporting.lines import csv_row
from gpupc_impl.reporting.papers.out_of_core import BLOCK, PAPER, PAPER_NAMES, UM, compared
from gpupc_impl.reporting.runs import Runs, VerifiedRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVELS = (0, 1)
LIMIT = {"color": "#0072B2", "linewidth": 1}
PAPER_LOOK = {"color": "black", "markersize": 3.5, "markerfacecolor": "none", "linestyle": "none"}


@figure("ooc_fig2", "Fig. 2: unified memory and blocks", paper=PAPER, experiments=("ooc_fig2",))
def ooc_fig2(runs: Runs, reported: CsvRows, sweeps: Sweeps) -> Drawing:
    """The figure shows the runtime of level 0 (left) and level 1 (right) over the number of variables, as the
    Out-of-Core paper's Fig. 2: medians with the 20–80 % band, on a logarithmic axis. All possible CI tests are made,
    because alpha is so close to one that no edge is removed. Below are the ratios of the two methods. Each layout of
    blocks has a line in the style of its times. Diamonds are the ratios that the paper (V100, 32 GB) states. The
    vertical line marks the number of variables at which the in-core data structures fill the device memory, or the
    budget that the config sets instead. Beyond that limit unified memory is not run unless the user allows it, because
    it can hang the machine; a cross marks a size without a time. {% if
    config["backend"] == "host" %}On the host backend managed memory is plain memory, so nothing is migrated and the
    runtime does not jump at the limit.{% endif %} Block-based uses the paper's square blocks, and unified memory uses
    the same kernels, so the solid ratio measures only memory management. Dashed lines are other settings, such as
    block-based with the layout that moves less data. ``results/tables/ooc_fig2.csv`` has the numbers.
    """
    sizes = {graph: int(value) for sweep in sweeps.values() for graph, value in sweep.items()}
    runs = [run for run in runs if run.dataset in sizes and run.method in (UM, BLOCK)]
    runs.sort(key=lambda run: sizes[run.dataset])
    main = compared(runs)
    looks = {run.setting: _look(run, run.setting in main) for run in runs}
    figure, grid = canvas(2, 2, (style.PAGE_WIDTH, 4.0), sharex="col", gridspec_kw={"height_ratios": [3, 2]})
    limit, reach = memory_limit(runs, sizes), 2 * max(sizes.values())
    rows, heading, shows_paper = [], [], False
    for upper, lower, level in zip(*grid, LEVELS, strict=True):
        for setting, look in looks.items():
            rows += _line(upper, [run for run in runs if run.setting == setting], level, sizes, look)
        theirs = [row for row in reported if (row["level"], row["quantity"]) == (str(level), "runtime")]
        fast, slow = (PAPER_NAMES[theirs[0][name]] for name in ("method", "over"))
        ours = _ratios(runs, level, sizes, main, fast)
        shown = [row for row in theirs if int(row["variables"]) <= reach]
        _ratio_panel(lower, ours, {setting: {**looks[setting], "marker": "o"} for setting in ours}, shown, fast)
        shows_paper |= bool(shown)
        heading.append(_statement(level, (fast, slow), next((r for s, r in ours.items() if s in main), {}), theirs))
        for axes in (upper, lower):
            if limit is not None:
                axes.axvline(limit, **LIMIT)
            log_axis(axes)
        upper.set_title(f"level {level}", loc="left")
        lower.locator_params(axis="x", nbins=5)
        lower.set_xlabel("number of variables")
    grid[0, 0].set_ylabel("seconds")
    if removed := {r["dataset"] for r in rows if r["edges_left"] not in (None, math.comb(r["variables"], 2))}:
        heading.append(f"Not fully connected, edges were removed: {', '.join(sorted(removed))}")
    failed = {row["status"] == "timeout" for row in rows if row["median_s"] is None}
    handles = [key(label(setting), **look) for setting, look in looks.items()]
    handles += [key("device memory limit", "", linestyle="-", **LIMIT)] * (limit is not None)
    handles += [key("over the time limit", "^", color="black", markerfacecolor="none")] * (True in failed)
    handles += [key("not run, or failed", "x", color="black")] * (False in failed)
    handles += [key("paper (V100)", "D", **PAPER_LOOK)] * shows_paper
    figure.legend(handles=handles, loc="outside lower right", ncols=3)
    figure.suptitle("\n".join(heading), **HEADING)
    footer(figure, runs)
    return Drawing(figure, rows)


def _look(run: VerifiedRecord, is_main: bool) -> dict[str, Any]:
    """Return the style of a run's setting; a setting that does not stand for its method is dashed."""
    marker = {UM: "o", BLOCK: "s"}[run.method]
    look = {"color": style.colour(run.method), "marker": marker, "markersize": 3, "linestyle": "-"}
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


def _line(
    axes: Axes, runs: Runs, level: int, sizes: Mapping[str, int], look: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Draw a setting's medians with bands, triangles at an exceeded time limit, crosses for other failures; returns the
    rows of the CSV."""
    bands = {sizes[run.dataset]: run.level_band(level) for run in runs}
    done = {size: band for size, band in bands.items() if band[1] is not None}
    if done:
        low, median, high = zip(*done.values(), strict=True)
        axes.fill_between(list(done), low, high, color=look["color"], alpha=0.25, linewidth=0)
        axes.plot(list(done), median, **look)
    rows = []
    for run in runs:
        size, colour = sizes[run.dataset], look["color"]
        low, median, high = bands[size]
        if median is None and run.status == "timeout":
            axes.plot(size, run.limits.time_s, "^", color=colour, markerfacecolor="none")
        elif median is None:
            axes.plot(size, 0.02, "x", color=colour, transform=axes.get_xaxis_transform(), clip_on=False)
        tests, edges = (run.result.tests_per_level, run.result.edges_per_level) if run.result else ((), ())
        times = {"median_s": median, "low_s": low, "high_s": high}
        counts = {"tests": dict(enumerate(tests)).get(level), "edges_left": dict(enumerate(edges)).get(level)}
        rows.append({"level": level, "variables": size, **csv_row(run), **times, **counts})
    return rows


Ratios = Mapping[int, float]
"""How many times faster a method is in a level, by number of variables."""


def _ratios(runs: Runs, level: int, sizes: Mapping[str, int], main: Iterable[str], fast: str) -> dict[str, Ratios]:
    """Return how many times faster the method `fast` is than the other one, for each setting of blocks, by number of
    variables; unified memory is the one of its settings that stands for it."""

    def times(method: str, setting: str | None = None) -> dict[int, float]:
        chosen = main if setting is None else [setting]
        its = [run for run in runs if run.method == method and run.setting in chosen]
        return {sizes[run.dataset]: seconds for run in its if (seconds := run.level_band(level)[1]) is not None}

    managed, found = times(UM), {}
    for setting in dict.fromkeys(run.setting for run in runs if run.method == BLOCK):
        blocks = times(BLOCK, setting)
        slow, divisor = (blocks, managed) if fast == UM else (managed, blocks)
        found[setting] = {size: slow[size] / divisor[size] for size in sorted(slow.keys() & divisor.keys())}
    return found


def _ratio_panel(
    axes: Axes, ours: Mapping[str, Ratios], looks: Mapping[str, Mapping[str, Any]], theirs: CsvRows, fast: str
) -> None:
    """Draw our ratios in a level, a line for each setting of blocks, and the paper's as diamonds."""
    axes.axhline(1, color="black", linewidth=0.6)
    for setting, ratios in ours.items():
        pair = (label(setting), label(UM)) if fast == BLOCK else (label(fast), label(setting))
        look = {**looks[setting], "color": style.colour(fast), "label": " over ".join(pair)}
        axes.plot(list(ratios), list(ratios.values()), **look)
    for row in theirs:
        place = int(row["variables"]), float(row["high"])
        axes.plot(*place, "D", **PAPER_LOOK)
        # A text beside a ratio of one would be on the line of one.
        spot, (ha, va) = ((-4, -3), ("right", "top")) if place[1] == 1 else ((5, 0), ("left", "center"))
        axes.annotate(_reported(row), place, spot, textcoords="offset points", ha=ha, va=va, fontsize=6)
    axes.legend(loc="best", fontsize=6, frameon=True, framealpha=1, edgecolor="white")
    axes.set_ylabel(f"{label(fast)},\ntimes faster", fontsize=7)


def _statement(level: int, methods: Sequence[str], ratios: Ratios, theirs: CsvRows) -> str:
    """Return a line with the speedups of the method that is faster in the paper: ours for the smallest and the largest
    problem, and those that the paper states."""
    ends = {size: ratios[size] for size in (list(ratios)[:1] + list(ratios)[-1:])}
    ours = ", ".join(f"{number(ratio)}× at {size:,}" for size, ratio in ends.items())
    paper = ", ".join(f"{_reported(row)}× at {int(row['variables']):,}" for row in theirs)
    who = " over ".join(map(label, methods))
    return f"Level {level}, {who}: ours {ours or 'not measured'}; paper {paper}"


def _reported(row: Mapping[str, str]) -> str:
    """Format a value of the paper, or the range or the bound that the paper states instead."""
    if not row["low"]:
        return f"up to {row['high']}"
    return row["low"] if row["low"] == row["high"] else f"{row['low']} to {row['high']}"
