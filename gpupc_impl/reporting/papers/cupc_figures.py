"""Figures 5 to 10 of cuPC (doi:10.1109/TPDS.2019.2939126), from records only."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.reporting import sharing as shared_sets
from gpupc_impl.reporting import style
from gpupc_impl.reporting.catalogue import CsvRows, Sweeps, figure
from gpupc_impl.reporting.cells import Speedup, label, levels_speedup, number, speedup, status_word
from gpupc_impl.reporting.figures import (
    HEADING,
    SMALL_PRINT,
    Drawing,
    canvas,
    footer,
    key,
    log_axis,
    name_datasets,
    swatch,
    tick_number,
    unavailable,
)
from gpupc_impl.reporting.lines import csv_row
from gpupc_impl.reporting.papers.cupc import BASELINES, CUPC, PAPER, runs_of, size_of
from gpupc_impl.reporting.quantities import STAND_INS
from gpupc_impl.reporting.runs import Runs, VerifiedRecord, by_dataset, datasets_of, kernels_of, of_settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WHOLE_CALL: dict[str, Any] = {"markersize": 3, "color": "black", "markerfacecolor": "white", "markeredgewidth": 0.6}
"""The look of the diamonds of whole calls, beside bars of the levels alone."""

SIDES = dict(zip(CUPC, (-0.2, 0.2), strict=True))
"""The distance of a method's bar from the middle of its data set."""


@figure(
    "cupc_fig5", "Fig. 5: cuPC over the baselines", paper=PAPER, family="gaussian", methods=BASELINES, numbers=False
)
def cupc_fig5(runs: Runs, reported: CsvRows) -> Drawing:
    """The figure shows the speedup of cuPC-E and cuPC-S over the two baseline GPU algorithms, as cuPC's Fig. 5: ratios
    of median runtimes on one machine and backend. Bars are the ratios of the levels alone, in which the methods differ
    and which make up the paper's runtimes (its Fig. 6); diamonds are those of whole calls. Hollow bars show what the
    paper's text states for a GTX 1080 (for cuPC-E the range over its six data sets, for cuPC-S the value for
    DREAM5-Insilico). A hatched bar is a bound on the ratio of whole calls, since one of the two runs reached its time
    limit. Data sets on which no baseline was run are left out.
    """
    by_method = {method: by_dataset(runs_of(runs, method)) for method in CUPC + BASELINES}
    backend = kernels_of(runs)
    its_runs = [run for run in runs if run.backend == backend]
    compared = [run for run in its_runs if run.method in BASELINES and run.status != "skipped"]
    figure, panels = canvas(2, 1, (style.PAGE_WIDTH, 3.9), sharex=True, sharey=True)
    for axes, baseline in zip(panels[:, 0], BASELINES, strict=True):
        _fig5_panel(axes, datasets_of(compared or its_runs), by_method, baseline, reported)
        axes.set_title(f"Over {label(baseline)}, backend {backend}", loc="left")
        axes.set_ylabel("times faster")
    panels[0, 0].tick_params(axis="x", labelbottom=False)
    handles = [swatch(label(method), color=style.colour(method)) for method in CUPC]
    handles.append(key("whole call", "D", **WHOLE_CALL))
    paper = "paper: range over six data sets (cuPC-E), DREAM5-Insilico (cuPC-S)"
    handles.append(swatch(paper, facecolor="none", edgecolor="black"))
    figure.legend(handles=handles, loc="outside upper center", ncols=2)
    footer(figure, [run for run in runs if run.method in CUPC + BASELINES])
    return Drawing(figure)


def _fig5_panel(
    axes: Axes,
    datasets: Sequence[str],
    by_method: Mapping[str, Mapping[str, VerifiedRecord]],
    baseline: str,
    reported: CsvRows,
) -> None:
    from matplotlib.ticker import LogLocator

    for x, dataset in enumerate(datasets):
        for method, side in SIDES.items():
            _bar(axes, x + side, by_method[baseline].get(dataset), by_method[method].get(dataset), style.colour(method))
    place = len(datasets)
    for line in (line for line in reported if line["over"] == baseline):
        x, low, high = place + SIDES[line["method"]], float(line["low"]), float(line["high"])
        bottom = 1 if low == high else low
        edge = {"facecolor": "none", "edgecolor": style.colour(line["method"])}
        axes.bar(x, high - bottom, 0.36, bottom=bottom, **edge)
        text = number(high) if low == high else f"{low:g}–\n{high:g}"
        axes.annotate(text, (x, high), (0, 1), textcoords="offset points", ha="center", va="bottom", fontsize=6)
    axes.axvline(place - 0.5, color="black", linewidth=0.6)
    axes.axhline(1, color="black", linewidth=0.6)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_locator(LogLocator(base=4, numticks=20))
    axes.yaxis.set_major_formatter(tick_number)
    axes.margins(y=0.15)
    name_datasets(axes, [*datasets, "paper"])


def _bar(axes: Axes, x: float, slow: VerifiedRecord | None, fast: VerifiedRecord | None, colour: str) -> None:
    """Draw the ratio of the levels as a solid bar, and that of whole calls as a diamond, with the ratio beyond both.

    Without times of the levels the bar is that of whole calls, hatched if it is a bound; without a ratio the reason
    stands there.
    """
    around = {"textcoords": "offset points", "ha": "center", "fontsize": 6}
    whole, levels = speedup(slow, fast), levels_speedup(slow, fast)
    ratio = levels if levels.value is not None else whole
    if ratio.value is None:
        axes.annotate(ratio.why, (x, 1), (0, 3), rotation=90, **around)
        return
    hatch = {"facecolor": "white", "edgecolor": colour, "hatch": "////"} if ratio.bound else {"facecolor": colour}
    axes.bar(x, ratio.value - 1, 0.36, bottom=1, **hatch)
    ends, distance = [ratio.value], 1.0
    if ratio is levels and whole.value is not None:
        axes.plot(x, whole.value, "D", **WHOLE_CALL)
        ends, distance = [ratio.value, whole.value], 2.5
    wrong = any(run is not None and run.verification == "unexplained" for run in (slow, fast))
    text = ratio.bound + number(ratio.value, 2 if ratio.value < 1 else 3) + " ✗" * wrong
    if ratio.value < 1:
        axes.annotate(text, (x, min(ends)), (0, -distance), va="top", **around)
    else:
        axes.annotate(text, (x, max(ends)), (0, distance), va="bottom", **around)


LEVELS_SHOWN = 5
"""The number of levels with a colour of their own; all higher levels share one colour."""


@figure("cupc_fig6", "Fig. 6: share of each level", paper=PAPER, family="gaussian", methods=CUPC)
def cupc_fig6(runs: Runs, reported: CsvRows) -> Drawing:
    """The figure shows the share that each level takes of the time of all levels in cuPC-E and cuPC-S, as cuPC's
    Fig. 6: medians over the warm runs. Since medians need not add up to 100 %, each stack is scaled to 100 %; the
    heading and ``results/tables/cupc_fig6.csv`` have the medians themselves. A level includes the compaction of the
    graph before it. A number above a bar is the percentage that the levels take of the whole call; the rest are
    transfers and the collection of sets. The paper (GTX 1080) states that level 1 takes 49 to 83 % on its first five
    data sets and less than 10 % on DREAM5-Insilico, on which levels 2 to 5 take 90 % (cuPC-E) and 70 % (cuPC-S). Where
    DREAM5-Insilico was not measured, the heading compares the simulated data set dream5-like with that statement.
    """
    from matplotlib import colormaps
    from matplotlib.transforms import offset_copy

    chosen = {method: by_dataset(runs_of(runs, method)) for method in CUPC}
    runs = of_settings(runs, [runs_of(runs, method) for method in CUPC])
    datasets = datasets_of(runs)
    figure, panels = canvas(2, 1, (style.COLUMN_WIDTH, 5.0), sharex=True, sharey=True)
    upper, lower = panels[:, 0]
    colours = list(colormaps["viridis_r"](np.linspace(0.05, 0.95, LEVELS_SHOWN + 1)))
    rows = []
    for axes, method, letter in zip((upper, lower), CUPC, "ab", strict=True):
        for x, dataset in enumerate(datasets):
            run = chosen[method].get(dataset)
            if run is None or (shares := level_shares(run)) is None:
                word = status_word(run.status) if run else "not measured"
                axes.annotate(word, (x, 2), rotation=90, ha="center", va="bottom", fontsize=6)
                continue
            _stack(axes, x, shares, colours)
            whole = run.levels_median / run.median
            axes.annotate(f"{100 * whole:.0f}", (x, 101), ha="center", va="bottom", fontsize=6, annotation_clip=False)
            for part, share in shares.items():
                rows.append({**csv_row(run), "part": part, "percent": share, "percent_of_call": share * whole})
        axes.set_title(f"({letter}) {label(method)}", loc="left", pad=10)
        axes.set(ylabel="% of the levels", ylim=(0, 100))
        axes.grid(visible=False)
    name_datasets(lower, ["\n".join(textwrap.wrap(name, 18)) for name in datasets])
    for name in lower.get_xticklabels():
        name.set(rotation=90, va="center", linespacing=1)
    upper.tick_params(axis="x", labelbottom=False)
    parts = [*(f"level {level}" for level in range(LEVELS_SHOWN)), f"levels ≥ {LEVELS_SHOWN}"]
    handles = [swatch(part, facecolor=colour) for colour, part in zip(colours, parts, strict=True)]
    above = {"bbox_to_anchor": (0, 1), "bbox_transform": offset_copy(upper.transAxes, figure, y=23, units="points")}
    upper.legend(handles=handles, loc="lower left", ncols=3, borderaxespad=0, **above)
    lines = [
        f"Level 1 in {', '.join(line['datasets'].split())}:\n"
        f"paper {line['low']} to {line['high']} %; ours {_level_one(rows, line['datasets'].split())}"
        for line in reported
        if line["level"] == "1"
    ]
    figure.suptitle("\n".join([*lines, "Above the bars: the levels in % of the whole call"]), **HEADING)
    footer(figure, runs)
    return Drawing(figure, rows)


def _level_one(rows: Sequence[Mapping[str, Any]], datasets: Sequence[str]) -> str:
    """Return the range of level 1's share over the measured ones of some data sets, or over their stand-ins."""
    percents = {(row["dataset"], row["method"]): row["percent"] for row in rows if row["part"] == "1"}
    measured = {dataset for dataset, _ in percents}
    asked = {name: name if name in measured else STAND_INS.get(name, name) for name in datasets}
    shares = [share for (dataset, _), share in percents.items() if dataset in asked.values()]
    if not shares:
        return "not measured"
    found = measured.intersection(asked.values())
    where = f"{len(found)} of {len(datasets)}"
    where += "".join(f" ({shown} as stand-in)" for name, shown in asked.items() if name != shown and shown in found)
    return f"{min(shares):.0f} to {max(shares):.0f} % in {where}"


def level_shares(run: VerifiedRecord) -> dict[str, float] | None:
    """Return the median percentage of each level of the time of all levels; None without a time of the levels."""
    if run.levels_median is None:
        return None
    shares = [[100 * level / sum(levels) for level in levels] for levels in run.time_s.levels]
    return {str(level): float(median) for level, median in enumerate(np.median(shares, axis=0))}


def _stack(axes: Axes, x: float, shares: Mapping[str, float], colours: Sequence[Any]) -> None:
    """Draw the shares as a stack that is scaled to 100 %, all higher levels together."""
    heights = np.zeros(max(len(shares), LEVELS_SHOWN + 1))
    heights[: len(shares)] = [100 * share / sum(shares.values()) for share in shares.values()]
    bottom = 0.0
    stacked = [*heights[:LEVELS_SHOWN], heights[LEVELS_SHOWN:].sum()]
    for position, (height, colour) in enumerate(zip(stacked, colours, strict=True)):
        axes.bar(x, height, 0.75, bottom=bottom, color=colour, edgecolor="white", linewidth=0.3)
        if height >= 8:
            ink = "white" if position >= 2 else "black"
            middle = {"ha": "center", "va": "center_baseline", "fontsize": 6}
            axes.annotate(f"{height:.0f}", (x, bottom + height / 2), color=ink, **middle)
        bottom += height


WIDTHS = (1, 2, 4, 5, 8, 10, 20, 40)
"""The possible widths of a bin. They divide 40, so that the paper's 40 rows are a whole number of bins."""

MOST_BINS = 24


@figure("cupc_fig9", "Fig. 9: shared conditioning sets", paper=PAPER, family="gaussian", numbers=False)
def cupc_fig9(sharing: CsvRows, reported: CsvRows) -> Drawing:
    """The figure shows how many rows of A'_G (one for the neighbours of each variable) share a conditioning set in
    level 2, as cuPC's Fig. 9, in percent of the redundant sets, which are those that appear in more than one row. It
    shows the real data set with the most sets, or the generated one with the most if no real data set has a redundant
    set; the panel's title names the data set. The rows are counted exactly in the graph at the start of level 2 at
    alpha = {{ config["alpha"] }}. The dashed line marks the paper's "about 95 % [...] in at most 40 rows", which refers
    to DREAM5-Insilico. ``results/sharing.csv`` has all data sets.
    """
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
    text = f"at most {most} rows:\n{_share(shown.percent_within(2, most))} here,\n"
    text += f"about {percent:g}% in the paper\n({paper['label']})"
    right = most > 0.6 * axes.get_xlim()[1]  # The annotation is put on the side with more room.
    side = {"ha": "right" if right else "left", "va": "top", "textcoords": "offset points", "fontsize": 6.5}
    spot, shift = (most + 0.5, 0.98), (-4 if right else 4, 0)
    axes.annotate(text, spot, shift, xycoords=axes.get_xaxis_transform(), **side)
    source = f"graph at the start of level 2, from the verified skeleton of {label(shown.setting)}"
    figure.supxlabel(source, **SMALL_PRINT)
    return Drawing(figure)


def _share(percent: float) -> str:
    """Format a percentage; only an exact 100 % is shown as 100."""
    return "100%" if percent == 100 else "> 99.9%" if percent >= 99.95 else f"{percent:.1f}%"


GREEK = {"beta": "β", "gamma": "γ", "theta": "θ", "delta": "δ"}
ACROSS = {1: 1, 2: 2, 4: 2}
"""The panels in a row for a number of panels; three for other numbers."""

EMPTY: dict[str, Any] = {"facecolor": "#BBBBBB", "edgecolor": "white", "linewidth": 0.4}
HATCH: dict[str, Any] = {"facecolor": "white", "edgecolor": "#888888", "hatch": "//////", "linewidth": 0}


@figure("cupc_fig7", "Fig. 7: configurations of cuPC-E", paper=PAPER, experiments=("cupc_fig7",))
def cupc_fig7(runs: Runs, reported: CsvRows) -> Drawing:
    """The figure shows how many times faster configurations of cuPC-E are than the selected configuration (framed:
    beta = 2, gamma = 32), as cuPC's Fig. 7 does for 30 configurations: ratios of median runtimes on one machine and
    backend. The Y axis is beta, the edges of a block; the X axis is gamma, the threads of an edge. Hatched
    configurations failed or exceeded the time limit; grey ones were not run. The heading has our range and that of the
    paper (GTX 1080), which states that larger gamma is faster on dense graphs, and smaller gamma on sparse ones.
    {% if config["backend"] == "host" %}On the host backend every thread of a block costs time, whether it
    has work or not, so small gamma is fastest.{% endif %} ``results/tables/cupc_fig7.csv`` has the numbers.
    """
    return heatmaps(runs, reported[0], panel=(2.35, 2.3))


@figure("cupc_fig8", "Fig. 8: configurations of cuPC-S", paper=PAPER, experiments=("cupc_fig8",))
def cupc_fig8(runs: Runs, reported: CsvRows) -> Drawing:
    """The figure shows how many times faster configurations of cuPC-S are than the selected configuration (framed:
    theta = 64, delta = 2), as cuPC's Fig. 8 does for 16 configurations: ratios of median runtimes on one machine and
    backend. The Y axis is theta, the threads of a block; the X axis is delta, the blocks of a row. Hatched
    configurations failed or exceeded the time limit; grey ones were not run. The heading has our range and that of the
    paper (GTX 1080). ``results/tables/cupc_fig8.csv`` has the numbers.
    """
    return heatmaps(runs, reported[0], panel=(1.75, 1.75))


def heatmaps(runs: Runs, reported: Mapping[str, str], panel: tuple[float, float]) -> Drawing:
    """Draw how many times faster each configuration is than the selected one, in a panel (in inches) for each data set:
    over the first parameter (Y) and the second. `reported` has the selected one and the paper's range of ratios."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.ticker import MaxNLocator

    names = list(runs[0].params)[:2]
    ys, xs = (sorted({run.params[name] for run in runs}) for name in names)
    selected = tuple(map(int, reported["selected"].split("-")))
    panels = datasets_of(runs)
    columns = ACROSS.get(len(panels), 3)
    lines = math.ceil(len(panels) / columns)
    # A single small panel stands beside the colour scale and under a heading, which need the width of a column.
    width = max(panel[0] * columns + 0.6, 3.3)
    figure, grid = canvas(lines, columns, (width, panel[1] * lines + 0.9), sharex=True, sharey=True)
    shown = {name: _cells_of([run for run in runs if run.dataset == name], names, selected) for name in panels}
    rows = [
        {**csv_row(run), **dict(zip(names, at, strict=True)), **ratio.facts}
        for its in shown.values()
        for at, (run, ratio) in its.items()
    ]
    values = [row["speedup"] for row in rows if row["speedup"] is not None and not row["bound"]]
    stated = [float(reported[end]) for end in ("low", "high")]
    reach = max([1.0, *(abs(math.log2(value)) for value in (*values, *stated))])
    colours = ScalarMappable(Normalize(-reach, reach), "RdBu")
    for axes, name in zip(grid.flat, panels, strict=False):
        _panel(axes, (xs, ys), shown[name], selected, colours)
        axes.set_title(textwrap.fill(name, int(14 * width / columns)), fontsize=6)
        axes.label_outer()
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    for axes in grid[:, 0]:
        axes.set_ylabel(GREEK.get(names[0], names[0]))
    for axes in grid.flat[max(0, len(panels) - columns) : len(panels)]:
        axes.set_xlabel(GREEK.get(names[1], names[1]))
        axes.tick_params(axis="x", labelbottom=True)
    bar = figure.colorbar(colours, ax=figure.axes, aspect=30, pad=0.02, ticks=MaxNLocator(integer=True))
    bar.ax.yaxis.set_major_formatter(lambda power, _: f"{2**power:g}×")
    bar.outline.set_linewidth(0.4)
    bar.ax.tick_params(labelsize=6)
    method = label(reported["method"])
    ours = f"{_short(min(values))} to {_short(max(values))}×" if values else "nothing measured"
    heading = f"{method} against {method}-{reported['selected']} (> 1: faster)\n"
    heading += f"ours: {ours}; paper: {reported['low']} to {reported['high']}×"
    figure.suptitle(heading, fontsize=7, x=0.01, ha="left")
    handles = [swatch("failed, or over the time limit", **HATCH)] * any(r.status not in ("ok", "skipped") for r in runs)
    handles += [swatch("not run", **EMPTY)] * any(run.status == "skipped" for run in runs)
    if handles:
        figure.legend(handles=handles, loc="outside lower right", fontsize=6)
    footer(figure, runs)
    return Drawing(figure, rows)


Cells = Mapping[tuple[int, ...], tuple[VerifiedRecord, Speedup]]
"""The run of each configuration, and how many times faster it is than the selected one."""


def _cells_of(runs: Runs, names: Sequence[str], selected: tuple[int, ...]) -> Cells:
    its = {tuple(run.params[name] for name in names): run for run in runs}
    return {at: (run, speedup(its.get(selected), run)) for at, run in its.items()}


def _panel(
    axes: Axes, steps: tuple[Sequence[int], Sequence[int]], shown: Cells, selected: tuple[int, ...], colours: Any
) -> None:
    """Draw the configurations of one data set, or why it is not there: a ratio in its colour; hatched if the run
    failed, grey if it was not run or has no ratio."""
    from matplotlib.patches import Rectangle

    xs, ys = steps
    if why := unavailable([run for run, _ in shown.values()]):
        middle = {"xycoords": "axes fraction", "ha": "center", "va": "center", "fontsize": 5, "zorder": 4}
        axes.annotate(textwrap.fill(why, 5 * max(4, len(xs) // 2)), (0.5, 0.5), **middle)
    for at, (run, ratio) in shown.items():
        x, y = xs.index(at[1]), ys.index(at[0])
        fill = EMPTY if run.status in ("skipped", "ok") else HATCH
        if run.median is not None and ratio.value is not None and not ratio.bound:
            power = math.log2(ratio.value)
            fill = {**EMPTY, "facecolor": colours.to_rgba(power)}
            ink = "white" if abs(power) > 0.6 * colours.norm.vmax else "black"
            text = _short(ratio.value) + "✗" * (not run.counts)
            axes.annotate(text, (x, y), ha="center", va="center", color=ink, fontsize=5)
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, **fill))
        if at == selected and run.status != "skipped":
            frame = {"fill": False, "edgecolor": "black", "linewidth": 1, "zorder": 3}
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, **frame))
    axes.set(xlim=(-0.5, len(xs) - 0.5), ylim=(-0.5, len(ys) - 0.5), aspect="equal")
    axes.set_xticks(range(len(xs)), xs, fontsize=6 if len(xs) < 8 else 5)
    axes.set_yticks(range(len(ys)), ys, fontsize=6)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def _short(value: float) -> str:
    """Format a ratio in at most four characters."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


NAMES = {"n": "number of variables n", "m": "number of samples m", "d": "density d"}
"""What cuPC's Fig. 10 varies."""


@figure("cupc_fig10", "Fig. 10: scalability", paper=PAPER, experiments=("cupc_fig10",))
def cupc_fig10(runs: Runs, sweeps: Sweeps, reported: CsvRows) -> Drawing:
    """The figure shows the runtime of cuPC-E and cuPC-S on random graphs with different (a) numbers of variables, (b)
    numbers of samples and (c) densities, as cuPC's Fig. 10: quartiles, whiskers within 1.5 IQR and outliers over the
    graphs of one kind; triangles mark an exceeded time limit. The diamond is the only runtime that the paper's text
    states. The paper (GTX 1080, ten graphs of each size) states that cuPC-S is always faster, and that the runtime
    grows with n, linearly with m, and almost linearly with d from 0.2 to 0.5. The data are nearly degenerate
    (``docs/errata.md``). ``results/tables/cupc_fig10.csv`` has the numbers.
    """
    figure, [line] = canvas(1, len(sweeps), (style.PAGE_WIDTH, 2.7), sharey="row")
    shows_printed = False
    for axes, letter, (name, graphs) in zip(line, "abcdefgh", sweeps.items(), strict=False):
        shown = [run for run in runs if run.dataset in graphs]
        _boxes(axes, shown, graphs)
        fixed = _fixed(shown, name)
        shows_printed |= _printed_times(axes, name, sorted(set(graphs.values())), fixed, reported)
        axes.set_xlabel(NAMES.get(name, name))
        axes.set_title(
            f"({letter}) {', '.join(f'{symbol} = {value:g}' for symbol, value in fixed.items())}", loc="left"
        )
        axes.label_outer()
    line[0].set_ylabel("seconds")
    log_axis(line[0])
    handles = [swatch(label(method), facecolor=style.colour(method)) for method in CUPC]
    handles += [key("paper, GTX 1080", **{**PRINTED_TIME, "color": "black"})] * shows_printed
    figure.legend(handles=handles, loc="outside upper right", ncols=3)
    e, s = ({run.dataset: run.median for run in runs if run.counts and run.method == method} for method in CUPC)
    both = e.keys() & s.keys()
    faster = sum(s[name] < e[name] for name in both)
    text = f"cuPC-S faster than cuPC-E: ours on {faster} of {len(both)} graphs; paper: always"
    figure.suptitle(text, fontsize=7, x=0.01, ha="left")
    footer(figure, runs)
    rows = [
        {"panel": name, "value": graphs[run.dataset], **csv_row(run)}
        for name, graphs in sweeps.items()
        for run in runs
        if run.dataset in graphs
    ]
    return Drawing(figure, rows)


PRINTED_TIME: dict[str, Any] = {"marker": "D", "markersize": 4, "markerfacecolor": "none", "linestyle": "none"}


def _fixed(shown: Runs, varied: str) -> dict[str, float]:
    """Return those of n, m and d that are not varied and the same in all graphs of a panel."""
    sizes = [size for run in shown if (size := size_of(run))]
    values = {name: {size[name] for size in sizes} for name in NAMES if name != varied}
    return {name: found.pop() for name, found in values.items() if len(found) == 1}


def _printed_times(
    axes: Axes, varied: str, values: Sequence[float], fixed: Mapping[str, float], reported: CsvRows
) -> bool:
    """Draw the runtimes that the paper states for graphs of the panel; returns whether there are any."""
    shown = [
        row
        for row in reported
        if float(row[varied]) in values and all(fixed.get(k) == float(row[k]) for k in NAMES if k != varied)
    ]
    for row in shown:
        x = values.index(float(row[varied])) + (-0.2 if row["method"] == "cupc-e" else 0.2)
        axes.plot(x, float(row["value"]), color=style.colour(row["method"]), **PRINTED_TIME)
    return bool(shown)


LEAST_IN_A_BOX = 3


def _boxes(axes: Axes, shown: Runs, graphs: Mapping[str, float]) -> None:
    """Draw quartiles, whiskers within 1.5 IQR, outliers as circles, triangles at an exceeded time limit.

    Fewer than `LEAST_IN_A_BOX` graphs are drawn as squares, because their box would be a line without a colour.
    """
    values = sorted(set(graphs.values()))
    thin = {"linewidth": 0.6}
    for side, method in zip((-0.2, 0.2), CUPC, strict=True):
        colour = style.colour(method)
        look = {
            **{"boxprops": {"facecolor": colour, **thin}, "medianprops": {"color": "black", "linewidth": 1}},
            **{"whiskerprops": thin, "capprops": thin, "widths": 0.34, "whis": 1.5, "patch_artist": True},
            "flierprops": {"marker": "o", "markersize": 3, "markeredgecolor": colour, "markerfacecolor": "none"},
        }
        for x, value in enumerate(values):
            here = [run for run in shown if run.method == method and graphs[run.dataset] == value]
            seconds = [run.median for run in here if run.counts]
            if len(seconds) < LEAST_IN_A_BOX:
                axes.plot([x + side] * len(seconds), seconds, "s", color=colour, markersize=5)
            else:
                axes.boxplot([seconds], positions=[x + side], manage_ticks=False, **look)
            over = [run.limits.time_s for run in here if run.status == "timeout"]
            axes.plot([x + side] * len(over), over, "^", color=colour, markerfacecolor="none")
            if failed := len(here) - len(seconds) - len(over):
                text = f"{failed} of {len(here)} without a time"
                spot = {"xycoords": axes.get_xaxis_transform(), "rotation": 90, "va": "bottom", "ha": "center"}
                axes.annotate(text, (x + side, 0.02), fontsize=6, **spot)
    axes.set_yscale("log")
    axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
    axes.set_xlim(-0.6, len(values) - 0.4)
