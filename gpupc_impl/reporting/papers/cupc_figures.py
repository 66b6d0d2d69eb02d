"""Figures 5 to 10 of cuPC (doi:10.1109/TPDS.2019.2939126), from records only."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.reporting import sharing as shared_sets
from gpupc_impl.reporting import style
from gpupc_impl.reporting.catalogue import CsvRows, Sweeps
from gpupc_impl.reporting.cells import csv_row, label, levels_speedup, number, rows_of_sweeps, speedup, status_word
from gpupc_impl.reporting.figures import HEADING, SMALL_PRINT, Drawing, canvas, key, log_axis, name_datasets, swatch
from gpupc_impl.reporting.papers.cupc import BASELINES, CUPC, runs_of, size_of
from gpupc_impl.reporting.runs import Runs, VerifiedRecord, by_dataset, datasets_of, kernels_of, of_settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WHOLE_CALL: dict[str, Any] = {"markersize": 3, "color": "black", "markerfacecolor": "white", "markeredgewidth": 0.6}
"""The look of the diamonds of whole calls, beside bars of the levels alone."""

SIDES = dict(zip(CUPC, (-0.2, 0.2), strict=True))  # the distance of a method from the middle of its place on the X axis


def cupc_fig5(runs: Runs, reported: CsvRows) -> Drawing:
    from matplotlib.ticker import LogLocator

    by_method = {method: by_dataset(runs_of(runs, method)) for method in CUPC + BASELINES}
    backend = kernels_of(runs)
    its_runs = [run for run in runs if run.backend == backend]
    compared = [run for run in its_runs if run.method in BASELINES and run.status != "skipped"]
    datasets = datasets_of(compared or its_runs)
    figure, panels = canvas(2, 1, (style.PAGE_WIDTH, 3.9), sharex=True, sharey=True)
    for axes, baseline in zip(panels[:, 0], BASELINES, strict=True):
        for method, side in SIDES.items():
            colour = style.colour(method)
            for x, dataset in enumerate(datasets):
                _bar(axes, x + side, by_method[baseline].get(dataset), by_method[method].get(dataset), colour)
            for line in (line for line in reported if (line["over"], line["method"]) == (baseline, method)):
                low, high = (float(line[end]) for end in ("low", "high"))
                bottom, text = (1, number(high)) if low == high else (low, f"{low:g}–\n{high:g}")
                bar = axes.bar(len(datasets) + side, high - bottom, 0.36, bottom=bottom, fill=False, edgecolor=colour)
                axes.bar_label(bar, [text], fontsize=6)
        axes.axvline(len(datasets) - 0.5, color="black", linewidth=0.6)
        axes.axhline(1, color="black", linewidth=0.6)
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_locator(LogLocator(base=4, numticks=20))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.margins(y=0.15)
        name_datasets(axes, [*datasets, "paper"])
        axes.set_title(f"Over {label(baseline)}, backend {backend}", loc="left")
        axes.set_ylabel("times faster")
    panels[0, 0].tick_params(axis="x", labelbottom=False)
    handles = [swatch(label(method), color=style.colour(method)) for method in CUPC]
    handles.append(key("whole call", "D", **WHOLE_CALL))
    paper = "paper: range over six data sets (cuPC-E), DREAM5-Insilico (cuPC-S)"
    handles.append(swatch(paper, facecolor="none", edgecolor="black"))
    figure.legend(handles=handles, loc="outside upper center", ncols=2)
    return Drawing(figure)


def _bar(axes: Axes, x: float, slow: VerifiedRecord | None, fast: VerifiedRecord | None, colour: str) -> None:
    """Draw the ratio of the levels as a bar, or that of whole calls where levels have no times, and the ratio of whole
    calls as a diamond; without a ratio the reason stands there."""
    whole, levels = speedup(slow, fast), levels_speedup(slow, fast)
    ratio = levels if levels.value is not None else whole
    around = {"textcoords": "offset points", "ha": "center", "fontsize": 6}
    if ratio.value is None:
        axes.annotate(ratio.why, (x, 1), (0, 3), rotation=90, **around)
        return
    axes.bar(x, ratio.value - 1, 0.36, bottom=1, color=colour)
    ends = [ratio.value]
    if ratio is levels and whole.value is not None:
        axes.plot(x, whole.value, "D", **WHOLE_CALL)
        ends.append(whole.value)
    wrong = any(run is not None and run.verification == "unexplained" for run in (slow, fast))
    text = ratio.bound + number(ratio.value, 2 if ratio.value < 1 else 3) + " ✗" * wrong
    end, shift, va = (min(ends), -2.5, "top") if ratio.value < 1 else (max(ends), 2.5, "bottom")
    axes.annotate(text, (x, end), (0, shift), va=va, **around)


LEVELS_SHOWN = 5  # the number of levels with a colour of their own; all higher levels share one colour


def cupc_fig6(runs: Runs) -> Drawing:
    from matplotlib import colormaps

    chosen = {method: by_dataset(runs_of(runs, method)) for method in CUPC}
    runs = of_settings(runs, [its.values() for its in chosen.values()])
    datasets = datasets_of(runs)
    figure, panels = canvas(2, 1, (style.COLUMN_WIDTH, 4.6), sharex=True, sharey=True)
    colours = colormaps["viridis_r"](np.linspace(0.05, 0.95, LEVELS_SHOWN + 1))
    parts = [*(f"level {level}" for level in range(LEVELS_SHOWN)), f"levels ≥ {LEVELS_SHOWN}"]
    rows = []
    for axes, method, letter in zip(panels[:, 0], CUPC, "ab", strict=True):
        heights = np.zeros((len(parts), len(datasets)))
        for x, dataset in enumerate(datasets):
            run = chosen[method].get(dataset)
            if run is None or run.levels_median is None:
                word = status_word(run.status) if run else "not measured"
                axes.annotate(word, (x, 2), rotation=90, ha="center", va="bottom", fontsize=6)
                continue
            of_repeats = [[100 * level / sum(levels) for level in levels] for levels in run.time_s.levels]
            shares = np.median(of_repeats, axis=0)
            whole = run.levels_median / run.median
            axes.annotate(f"{100 * whole:.0f}", (x, 101), ha="center", va="bottom", fontsize=6, annotation_clip=False)
            for level, share in enumerate(shares):
                heights[min(level, LEVELS_SHOWN), x] += 100 * share / sum(shares)
                rows.append({**csv_row(run), "part": level, "percent": share, "percent_of_call": share * whole})
        for part, (its, colour) in enumerate(zip(heights, colours, strict=True)):
            bottom = heights[:part].sum(axis=0)
            bars = axes.bar(range(len(datasets)), its, 0.75, bottom, color=colour, edgecolor="white", linewidth=0.3)
            words = [f"{height:.0f}" if height >= 8 else "" for height in its]
            axes.bar_label(bars, words, label_type="center", fontsize=6, color="white" if part >= 2 else "black")
        axes.set_title(f"({letter}) {label(method)}", loc="left", pad=10)
        axes.set(ylabel="% of the levels", ylim=(0, 100))
        axes.grid(visible=False)
        name_datasets(axes, datasets, rotation=90)
    panels[0, 0].tick_params(axis="x", labelbottom=False)
    handles = [swatch(part, facecolor=colour) for colour, part in zip(colours, parts, strict=True)]
    title = "Above the bars: the levels in % of the whole call"
    figure.legend(handles=handles, loc="outside upper left", ncols=3, title=title, title_fontsize=6.5)
    return Drawing(figure, rows)


WIDTHS = (1, 2, 4, 5, 8, 10, 20, 40)  # of bins; they divide 40, so that the paper's 40 rows are a whole number of bins

MOST_BINS = 24


def cupc_fig9(sharing: CsvRows, reported: CsvRows) -> Drawing:
    figure, [[axes]] = canvas(1, 1, (style.COLUMN_WIDTH, 2.4))
    shown = shared_sets.largest(shared_sets.load(sharing))
    if shown is None:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "no data set has a conditioning set\nin more than one row", ha="center", va="center")
        return Drawing(figure)
    paper = reported[0]
    most, percent = int(paper["rows_at_most"]), float(paper["percent"])
    width = next((w for w in WIDTHS if shown.rows[-1] / w <= MOST_BINS), WIDTHS[-1])
    starts = np.arange(1, shown.rows[-1] + 1, width)
    heights = [shown.percent_within(start, start + width - 1) for start in starts]
    axes.bar(starts - 0.5, heights, width, align="edge", color=style.colour("cupc-s"), edgecolor="white")
    axes.axvline(most + 0.5, color=style.colour("baseline-2"), linestyle="--")
    axes.set_xlim(0.5, max(starts[-1] + width, most + 2 * width) - 0.5)
    axes.margins(y=0.2)
    axes.yaxis.set_major_formatter("{x:g}%")
    axes.set_xlabel("rows of A'$_G$ that share a set" + f" (bins of {width})" * (width > 1))
    axes.set_ylabel("redundant sets S")
    axes.set_title(f"{shown.dataset}\nlevel 2: {shown.redundant:,} redundant sets", loc="left")
    here = shown.percent_within(2, most)
    share = "100%" if here == 100 else "> 99.9%" if here >= 99.95 else f"{here:.1f}%"  # 100 is exactly 100.
    text = f"at most {most} rows:\n{share} here,\nabout {percent:g}% in the paper\n({paper['label']})"
    side = ("right", -4) if most > 0.6 * axes.get_xlim()[1] else ("left", 4)  # The side with more room.
    where = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points", "ha": side[0], "va": "top"}
    axes.annotate(text, (most + 0.5, 0.98), (side[1], 0), fontsize=6.5, **where)
    source = f"graph at the start of level 2, from the verified skeleton of {label(shown.setting)}"
    figure.supxlabel(source, **SMALL_PRINT)
    return Drawing(figure)


GREEK = {"beta": "β", "gamma": "γ", "theta": "θ", "delta": "δ"}
ACROSS = {1: 1, 2: 2, 4: 2}  # the panels in a row for a number of panels; three for other numbers

PANEL = {"cupc-e": (2.35, 2.3), "cupc-s": (1.75, 1.75)}  # the size of a panel in inches


def heatmaps(runs: Runs, reported: CsvRows) -> Drawing:
    """Draw how many times faster each configuration is than the selected one, in a panel for each data set: over the
    first parameter (Y) and the second. `reported` has the selected one and the paper's range of ratios."""
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import MaxNLocator

    (paper,), names = reported, list(runs[0].params)[:2]
    panel, method = PANEL[paper["method"]], label(paper["method"])
    ys, xs = (sorted({run.params[name] for run in runs}) for name in names)
    selected = tuple(map(int, paper["selected"].split("-")))
    datasets = datasets_of(runs)
    cells, rows = {}, []
    for dataset in datasets:
        its = {tuple(run.params[name] for name in names): run for run in runs if run.dataset == dataset}
        cells[dataset] = {at: (run, speedup(its.get(selected), run)) for at, run in its.items()}
        for at, (run, ratio) in cells[dataset].items():
            rows.append({**csv_row(run), **dict(zip(names, at, strict=True)), **ratio.facts})
    values = [row["speedup"] for row in rows if row["speedup"] is not None and not row["bound"]]
    reach = max(1.0, *(abs(math.log2(value)) for value in (*values, float(paper["low"]), float(paper["high"]))))
    columns = ACROSS.get(len(datasets), 3)
    lines = math.ceil(len(datasets) / columns)
    # A single small panel stands beside the colour scale and under a heading, which need the width of a column.
    width = max(panel[0] * columns + 0.6, 3.3)
    figure, grid = canvas(lines, columns, (width, panel[1] * lines + 0.9))
    for axes, dataset in zip(grid.flat, datasets, strict=False):
        powers = np.full((len(ys), len(xs)), np.nan)
        for (y, x), (run, ratio) in cells[dataset].items():
            place, text, ink = (xs.index(x), ys.index(y)), status_word(run.status), "black"
            if run.median is not None and ratio.value is not None and not ratio.bound:
                power = powers[place[::-1]] = math.log2(ratio.value)
                text = _short(ratio.value) + "✗" * (not run.counts)
                ink = "white" if abs(power) > 0.6 * reach else "black"
            axes.annotate(text, place, ha="center", va="center", color=ink, fontsize=5)
            if (y, x) == selected:
                axes.add_patch(Rectangle((place[0] - 0.5, place[1] - 0.5), 1, 1, fill=False, linewidth=1, zorder=3))
        look = {"cmap": "RdBu", "vmin": -reach, "vmax": reach, "edgecolors": "white", "linewidth": 0.4}
        drawn = axes.pcolormesh(range(len(xs)), range(len(ys)), powers, **look)
        axes.set_title(textwrap.fill(dataset, int(14 * width / columns)), fontsize=6)
        axes.set_xticks(range(len(xs)), xs, fontsize=6 if len(xs) < 8 else 5)
        axes.set_yticks(range(len(ys)), ys, fontsize=6)
        axes.set(aspect="equal", xlabel=GREEK.get(names[1], names[1]), ylabel=GREEK.get(names[0], names[0]))
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
    for axes in grid.flat[len(datasets) :]:
        axes.remove()
    bar = figure.colorbar(drawn, ax=figure.axes, aspect=30, pad=0.02, ticks=MaxNLocator(integer=True))
    bar.ax.yaxis.set_major_formatter(lambda power, _: f"{2**power:g}×")
    bar.outline.set_linewidth(0.4)
    bar.ax.tick_params(labelsize=6)
    ours = f"{_short(min(values))} to {_short(max(values))}×" if values else "nothing measured"
    heading = f"{method} against {method}-{paper['selected']} (> 1: faster)\n"
    heading += f"ours: {ours}; paper: {paper['low']} to {paper['high']}×"
    figure.suptitle(heading, **HEADING)
    return Drawing(figure, rows)


def _short(value: float) -> str:
    """Format a ratio in at most four characters."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


NAMES = {"n": "number of variables n", "m": "number of samples m", "d": "density d"}
"""What cuPC's Fig. 10 varies."""


def cupc_fig10(runs: Runs, sweeps: Sweeps, reported: CsvRows) -> Drawing:
    figure, [line] = canvas(1, len(sweeps), (style.PAGE_WIDTH, 2.7), sharey="row")
    shows_printed = False
    for axes, letter, (name, graphs) in zip(line, "abcdefgh", sweeps.items(), strict=False):
        shown = [run for run in runs if run.dataset in graphs]
        _boxes(axes, shown, graphs)
        fixed, values = _fixed(shown, name), sorted(set(graphs.values()))
        at_fixed = [row for row in reported if all(fixed.get(k) == float(row[k]) for k in NAMES if k != name)]
        for row in (row for row in at_fixed if float(row[name]) in values):
            x = values.index(float(row[name])) + SIDES[row["method"]]
            axes.plot(x, float(row["value"]), color=style.colour(row["method"]), **PRINTED_TIME)
            shows_printed = True
        axes.set_xlabel(NAMES.get(name, name))
        words = ", ".join(f"{symbol} = {value:g}" for symbol, value in fixed.items())
        axes.set_title(f"({letter}) {words}", loc="left")
        axes.label_outer()
    line[0].set_ylabel("seconds")
    log_axis(line[0])
    handles = [swatch(label(method), facecolor=style.colour(method)) for method in CUPC]
    handles += [key("paper, GTX 1080", **{**PRINTED_TIME, "color": "black"})] * shows_printed
    figure.legend(handles=handles, loc="outside upper right", ncols=3)
    e, s = ({run.dataset: run.median for run in runs if run.counts and run.method == method} for method in CUPC)
    both = e.keys() & s.keys()
    faster = sum(s[name] < e[name] for name in both)
    figure.suptitle(f"cuPC-S faster than cuPC-E: ours on {faster} of {len(both)} graphs; paper: always", **HEADING)
    return Drawing(figure, rows_of_sweeps(runs, sweeps, "value"))


PRINTED_TIME: dict[str, Any] = {"marker": "D", "markersize": 4, "markerfacecolor": "none", "linestyle": "none"}


def _fixed(shown: Runs, varied: str) -> dict[str, float]:
    """Return those of n, m and d that are not varied and the same in all graphs of a panel."""
    sizes = [size for run in shown if (size := size_of(run))]
    values = {name: {size[name] for size in sizes} for name in NAMES if name != varied}
    return {name: found.pop() for name, found in values.items() if len(found) == 1}


def _boxes(axes: Axes, shown: Runs, graphs: Mapping[str, float]) -> None:
    """Draw for each value and method quartiles, whiskers within 1.5 IQR, dots, and triangles at an exceeded limit."""
    values = sorted(set(graphs.values()))
    thin = {"linewidth": 0.6}
    for method, side in SIDES.items():
        colour = style.colour(method)
        look = {
            **{"boxprops": {"facecolor": colour, **thin}, "medianprops": {"color": "black"}, "whiskerprops": thin},
            **{"capprops": thin, "widths": 0.34, "patch_artist": True, "showfliers": False, "manage_ticks": False},
        }
        for x, value in enumerate(values):
            here = [run for run in shown if run.method == method and graphs[run.dataset] == value]
            seconds = [run.median for run in here if run.counts]
            axes.boxplot([seconds], positions=[x + side], **look)
            axes.plot([x + side] * len(seconds), seconds, "o", color=colour, markersize=2, zorder=3)
            over = [run.limits.time_s for run in here if run.status == "timeout"]
            axes.plot([x + side] * len(over), over, "^", color=colour, markerfacecolor="none")
            if failed := len(here) - len(seconds) - len(over):
                text = f"{failed} of {len(here)} without a time"
                spot = {"xycoords": axes.get_xaxis_transform(), "rotation": 90, "va": "bottom", "ha": "center"}
                axes.annotate(text, (x + side, 0.02), fontsize=6, **spot)
    axes.set_yscale("log")
    axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
    axes.set_xlim(-0.6, len(values) - 0.4)
