"""Figures 5, 6, 9 and 10 of cuPC (doi:10.1109/TPDS.2019.2939126), from records only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.reporting import sharing as shared_sets
from gpupc_impl.reporting import style
from gpupc_impl.reporting.catalogue import CsvRows, Sweeps, figure
from gpupc_impl.reporting.cells import Speedup, csv_row, label, levels_speedup, number, speedup, status_word
from gpupc_impl.reporting.figures import HEADING, SMALL_PRINT, Drawing, footer, name_datasets, panels_of, tick_number
from gpupc_impl.reporting.papers.cupc import BASELINES, CUPC, PAPER, runs_of
from gpupc_impl.reporting.runs import Runs, VerifiedRecord, by_backend, datasets_of, device_backends, of_settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WHOLE_CALL = {"marker": "D", "markersize": 3, "color": "black", "markerfacecolor": "white", "markeredgewidth": 0.6}
"""The marker of ratios of whole calls, beside bars of the levels alone."""

PRINTED = "paper, GTX 1080: cuPC-E from lowest to highest of six data sets, cuPC-S on DREAM5-Insilico"


@figure(
    "cupc_fig5", "Fig. 5: cuPC over the baselines", paper=PAPER, family="gaussian", methods=BASELINES, numbers=False
)
def cupc_fig5(runs: Runs, reported: CsvRows) -> Drawing:
    """The figure shows the speedup of cuPC-E and cuPC-S over the two baseline GPU algorithms, as cuPC's Fig. 5: ratios
    of median runtimes on one machine and backend. Bars are the ratios of the levels alone, in which the methods differ
    and which make up the paper's runtimes (its Fig. 6); diamonds are those of whole calls. Hollow bars show what the
    paper's text states for a GTX 1080 (for cuPC-E the range over its six data sets, for cuPC-S the value for
    DREAM5-Insilico). Hatched bars are bounds of whole calls from a time limit. Data sets on which no baseline was run
    are left out.
    """
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    style.use()
    chosen = {method: by_backend(runs_of(runs, method)) for method in CUPC + BASELINES}
    backends = device_backends(runs) or ["host"]
    size = (style.PAGE_WIDTH, 3.9)
    figure, panels = plt.subplots(2, len(backends), figsize=size, sharex="col", sharey=True, squeeze=False)
    for column, backend in enumerate(backends):
        its_runs = [run for run in runs if run.backend == backend]
        compared = [run for run in its_runs if run.method in BASELINES and run.status != "skipped"]
        datasets = datasets_of(compared or its_runs)
        by_method = {method: its.get(backend, {}) for method, its in chosen.items()}
        for row, baseline in enumerate(BASELINES):
            axes = panels[row, column]
            printed = [line for line in reported if line["over"] == baseline]
            _fig5_panel(axes, datasets, by_method, baseline, printed)
            axes.set_title(f"Over {label(baseline)}, backend {backend}", loc="left")
        panels[0, column].tick_params(axis="x", labelbottom=False)
    for axes in panels[:, 0]:
        axes.set_ylabel("times faster")
    handles = [Patch(color=style.colour(method), label=label(method)) for method in CUPC]
    handles.append(Line2D([], [], label="whole call", linestyle="none", **WHOLE_CALL))
    handles.append(Patch(facecolor="none", edgecolor="black", label=PRINTED))
    figure.legend(handles=handles, loc="outside upper center", ncols=4)
    footer(figure, [run for run in runs if run.method in CUPC + BASELINES])
    return Drawing(figure)


def _fig5_panel(
    axes: Axes,
    datasets: Sequence[str],
    by_method: Mapping[str, Mapping[str, VerifiedRecord]],
    baseline: str,
    printed: CsvRows,
) -> None:
    from matplotlib.ticker import LogLocator

    for x, dataset in enumerate(datasets):
        slow = by_method[baseline].get(dataset)
        for side, method in zip((-0.2, 0.2), CUPC, strict=True):
            fast = by_method[method].get(dataset)
            verified = all(run is None or run.verification != "unexplained" for run in (slow, fast))
            whole, levels = speedup(slow, fast), levels_speedup(slow, fast)
            _bar(axes, x + side, Speedup(levels) if levels else whole, style.colour(method), verified)
            if levels:
                axes.plot(x + side, whole.value, **WHOLE_CALL)
    place = len(datasets)
    for line in printed:
        x = place + (-0.2 if line["method"] == "cupc-e" else 0.2)
        low, high = float(line["low"]), float(line["high"])
        bottom = 1 if low == high else low
        edge = {"facecolor": "none", "edgecolor": style.colour(line["method"])}
        axes.bar(x, high - bottom, 0.36, bottom=bottom, **edge)
        text = number(high) if low == high else f"{low:g}–{high:g}"
        axes.annotate(text, (x, high), (0, 1), textcoords="offset points", ha="center", va="bottom", fontsize=5.5)
    axes.axvline(place - 0.5, color="black", linewidth=0.6)
    axes.axhline(1, color="black", linewidth=0.6)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_locator(LogLocator(base=4, numticks=20))
    axes.yaxis.set_major_formatter(tick_number)
    axes.margins(y=0.15)
    name_datasets(axes, [*datasets, "paper"])


def _bar(axes: Axes, x: float, ratio: Speedup, colour: str, verified: bool) -> None:
    """Draw one ratio as a solid bar, or hatched if it is a bound; without a ratio, write the reason."""
    if ratio.value is None:
        axes.annotate(ratio.why, (x, 1), (0, 3), textcoords="offset points", ha="center", rotation=90, fontsize=5.5)
        return
    hatch = {"facecolor": "white", "edgecolor": colour, "hatch": "////"} if ratio.bound else {"facecolor": colour}
    axes.bar(x, ratio.value - 1, 0.36, bottom=1, **hatch)
    text = ratio.bound + number(ratio.value) + ("" if verified else " ✗")
    below = ratio.value < 1
    axes.annotate(
        text,
        (x, ratio.value),
        (0, -1 if below else 1),
        textcoords="offset points",
        ha="center",
        va="top" if below else "bottom",
        fontsize=5.5,
    )


LEVELS_SHOWN = 5
"""The number of levels with a colour of their own; all higher levels share one colour."""


@figure("cupc_fig6", "Fig. 6: share of each level", paper=PAPER, family="gaussian", methods=CUPC)
def cupc_fig6(runs: Runs, reported: CsvRows) -> Drawing:
    """The figure shows the share that each level takes of the time of all levels in cuPC-E and cuPC-S, as cuPC's
    Fig. 6: medians over the warm runs. A level includes the compaction of the graph before it. A number above a bar
    is the percentage that the levels take of the whole call; the rest are transfers and the collection of sets. The
    paper (GTX 1080) states that level 1 takes 49 to 83 % on its first five data sets and less than 10 % on
    DREAM5-Insilico, on which levels 2 to 5 take 90 % (cuPC-E) and 70 % (cuPC-S). The heading shows our numbers.
    ``results/tables/cupc_fig6.csv`` has all of them.
    """
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    style.use()
    chosen = {method: by_backend(runs_of(runs, method)) for method in CUPC}
    runs = of_settings(runs, [runs_of(runs, method) for method in CUPC])
    bars = panels_of(runs)
    figure, (upper, lower) = plt.subplots(2, figsize=(style.COLUMN_WIDTH, 4.2), sharex=True, sharey=True)
    parts = [f"level {level}" for level in range(LEVELS_SHOWN)] + [f"levels ≥ {LEVELS_SHOWN}"]
    colours = list(plt.get_cmap("viridis_r")(np.linspace(0.05, 0.95, LEVELS_SHOWN + 1)))
    rows = []
    for axes, method, letter in zip((upper, lower), CUPC, "ab", strict=True):
        for x, (dataset, backend) in enumerate(bars):
            run = chosen[method].get(backend, {}).get(dataset)
            shares = run and level_shares(run)
            if not shares:
                word = status_word(run.status) if run else "not measured"
                axes.annotate(word, (x, 2), rotation=90, ha="center", va="bottom", fontsize=6)
            else:
                _stack(axes, x, _grouped(shares), colours)
                of_call = f"{100 * run.levels_median / run.median:.0f}"
                axes.annotate(of_call, (x, 101), ha="center", va="bottom", fontsize=5.5, annotation_clip=False)
            for part, share in shares.items() if shares else [("", None)] * bool(run):
                rows.append(
                    csv_row(run, "dataset backend method")
                    | {"part": part, "percent": share}
                    | {"percent_of_call": share and share * run.levels_median / run.median}
                    | csv_row(run, "status verification")
                )
        axes.set_title(f"({letter}) {label(method)}", loc="left", pad=10)
        axes.set_ylabel("% of the levels")
        axes.set_ylim(0, 100)
        axes.grid(visible=False)
    name_datasets(lower, list(bars.values()))
    upper.tick_params(axis="x", labelbottom=False)
    handles = [Patch(facecolor=colour, label=part) for colour, part in zip(colours, parts, strict=True)]
    figure.legend(handles=handles[::-1], loc="outside right center")
    lines = [
        f"Level 1 in {', '.join(line['datasets'].split())}:\n"
        f"paper {line['low']} to {line['high']} %; ours {_level_one(rows, line['datasets'].split())}"
        for line in reported
        if line["level"] == "1"
    ]
    figure.suptitle("\n".join([*lines, "Above the bars: the levels in % of the whole call"]), **HEADING)
    footer(figure, runs)
    columns = ("dataset", "backend", "method", "part", "percent", "percent_of_call", "status", "verification")
    return Drawing(figure, rows, columns=columns)


def _level_one(rows: Sequence[Mapping[str, Any]], datasets: Sequence[str]) -> str:
    """Return the range of level 1's share over the measured ones of some data sets."""
    percents = {(row["dataset"], row["method"]): row["percent"] for row in rows if row["part"] == "1"}
    shares = [share for (dataset, _), share in percents.items() if dataset in datasets]
    count = len({dataset for dataset, _ in percents if dataset in datasets})
    return f"{min(shares):.0f} to {max(shares):.0f} % in {count} of {len(datasets)}" if shares else "not measured"


def level_shares(run: VerifiedRecord) -> dict[str, float] | None:
    """Return the median percentage of each level of the time of all levels; None without a time of the levels."""
    if run.levels_median is None:
        return None
    shares = [[100 * level / sum(levels) for level in levels] for levels in run.time_s.levels]
    return {str(level): float(median) for level, median in enumerate(np.median(shares, axis=0))}


def _grouped(shares: Mapping[str, float]) -> list[float]:
    levels = [*shares.values(), *[0.0] * (LEVELS_SHOWN - len(shares))]
    return [*levels[:LEVELS_SHOWN], sum(levels[LEVELS_SHOWN:])]


def _stack(axes: Axes, x: float, heights: Sequence[float], colours: Sequence[Any]) -> None:
    bottom = 0.0
    for position, (height, colour) in enumerate(zip(heights, colours, strict=True)):
        axes.bar(x, height, 0.75, bottom=bottom, color=colour, edgecolor="white", linewidth=0.3)
        if height >= 7:
            ink = "white" if position >= 2 else "black"
            axes.annotate(f"{height:.0f}", (x, bottom + height / 2), ha="center", va="center", color=ink, fontsize=5.5)
        bottom += height


WIDTHS = (1, 2, 4, 5, 8, 10, 20, 40)
"""The possible widths of a bin. They divide 40, so that the paper's 40 rows are a whole number of bins."""

MOST_BINS = 24


@figure("cupc_fig9", "Fig. 9: shared conditional sets", paper=PAPER, family="gaussian", numbers=False)
def cupc_fig9(sharing: CsvRows, reported: CsvRows) -> Drawing:
    """The figure shows how many rows of A'_G share a conditional set in level 2, as cuPC's Fig. 9, in percent
    of the redundant sets (those that appear in more than one row), on the real data set with the most sets. The rows
    are counted exactly in the graph at the start of level 2 at alpha = {{ config["alpha"] }}. The dashed line marks the
    paper's "about 95 % [...] in at most 40 rows", which refers to DREAM5-Insilico. ``results/sharing.csv`` has all data
    sets.
    """
    import matplotlib.pyplot as plt
    from matplotlib.ticker import PercentFormatter

    style.use()
    figure, axes = plt.subplots(figsize=(style.COLUMN_WIDTH, 2.4))
    shown = shared_sets.largest(shared_sets.load(sharing))
    if shown is None:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "no data set has a conditional set\nin more than one row", ha="center", va="center")
        return Drawing(figure)
    paper = reported[0]
    most, percent = int(paper["rows_at_most"]), float(paper["percent"])
    width = next((w for w in WIDTHS if shown.rows[-1] / w <= MOST_BINS), WIDTHS[-1])
    starts = np.arange(1, shown.rows[-1] + 1, width)
    axes.bar(
        starts - 0.5,
        [shown.percent_within(start, start + width - 1) for start in starts],
        width,
        align="edge",
        color=style.colour("cupc-s"),
        edgecolor="white",
    )
    axes.axvline(most + 0.5, color=style.colour("baseline-2"), linestyle="--")
    axes.set_xlim(0.5, max(starts[-1] + width, most + 2 * width) - 0.5)
    axes.margins(y=0.2)
    axes.yaxis.set_major_formatter(PercentFormatter(decimals=0))
    axes.set_xlabel(f"rows of A'$_G$ that share a set (bins of {width})" if width > 1 else "rows that share a set")
    axes.set_ylabel("redundant sets S")
    axes.set_title(f"{shown.dataset}, level 2: {shown.redundant:,} redundant sets", loc="left")
    right = most > 0.6 * axes.get_xlim()[1]  # The annotation is put on the side with more room.
    axes.annotate(
        f"at most {most} rows:\n{shown.percent_within(2, most):.1f}% here,\n"
        f"about {percent:g}% in the paper\n({paper['label']})",
        (most + 0.5, 0.98),
        (-4 if right else 4, 0),
        xycoords=axes.get_xaxis_transform(),
        textcoords="offset points",
        ha="right" if right else "left",
        va="top",
        fontsize=6.5,
    )
    source = f"graph at the start of level 2, from the verified skeleton of {label(shown.setting)}"
    figure.supxlabel(source, **SMALL_PRINT)
    return Drawing(figure)


SWEEPS = {"n": "number of variables n", "m": "number of samples m", "d": "density d"}


@figure("cupc_fig10", "Fig. 10: scalability", paper=PAPER, experiments=("cupc_fig10",))
def cupc_fig10(runs: Runs, sweeps: Sweeps, reported: CsvRows) -> Drawing:
    """The figure shows the runtime of cuPC-E and cuPC-S on random graphs with different (a) numbers of variables, (b)
    numbers of samples and (c) densities, as cuPC's Fig. 10, with a logarithmic axis. A box shows the quartiles over the
    graphs of one kind, the whiskers reach to the last point within 1.5 IQR, and circles are outliers; triangles mark an
    exceeded time limit. The diamond is the one runtime that the paper's text states, of cuPC-E at n = 1000, m = 10000
    and d = 0.1. The paper (GTX 1080, ten graphs of 1000 to 4000 variables) states that cuPC-S is always faster, and
    that the runtime grows with n, linearly with m, and almost linearly with d from 0.2 to 0.5. The heading compares the
    two methods on our graphs. Such graphs are nearly degenerate, see ``docs/errata.md``.
    ``results/tables/cupc_fig10.csv`` has the numbers.
    """
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    style.use()
    backends = sorted({run.backend for run in runs})
    size = (style.PAGE_WIDTH, 2.3 * len(backends) + 0.4)
    figure, grid = plt.subplots(len(backends), len(sweeps), figsize=size, sharey="row", squeeze=False)
    rows, shows_printed = [], False
    for line, backend in zip(grid, backends, strict=True):
        for axes, letter, (name, graphs) in zip(line, "abcdefgh", sweeps.items(), strict=False):
            shown = [run for run in runs if run.dataset in graphs and run.backend == backend]
            _boxes(axes, shown, graphs)
            shows_printed |= _printed_times(axes, name, sorted(set(graphs.values())), reported)
            axes.set_xlabel(SWEEPS.get(name, name))
            axes.set_title(f"({letter})" + (f" {backend}" if len(backends) > 1 else ""), loc="left")
            axes.label_outer()
            rows += [
                {"panel": name, "value": graphs[run.dataset], "graph": run.dataset}
                | csv_row(run, "method backend median_s status limit_s verification")
                for run in shown
            ]
        line[0].set_ylabel("seconds")
    handles = [Patch(facecolor=style.colour(method), label=label(method)) for method in CUPC]
    if shows_printed:
        printed = {**PRINTED_TIME, "color": "black"}
        handles.append(Line2D([], [], label="paper, GTX 1080", **printed))
    figure.legend(handles=handles, loc="outside upper right", ncols=3)
    figure.suptitle(_faster(runs), fontsize=7, x=0.01, ha="left")
    footer(figure, runs)
    return Drawing(figure, rows)


PRINTED_TIME = {"marker": "D", "markersize": 4, "markerfacecolor": "none", "linestyle": "none"}


def _printed_times(axes: Axes, varied: str, values: Sequence[float], reported: CsvRows) -> bool:
    """Draw the runtimes that the paper states for values on the panel's axis; returns whether there are any."""
    shown = [row for row in reported if float(row[varied]) in values]
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
    for side, method in zip((-0.2, 0.2), CUPC, strict=True):
        colour = style.colour(method)
        for x, value in enumerate(values):
            here = [run for run in shown if run.method == method and graphs[run.dataset] == value]
            seconds = [run.median for run in here if run.counts]
            if len(seconds) < LEAST_IN_A_BOX:
                axes.plot([x + side] * len(seconds), seconds, "s", color=colour, markersize=5)
            else:
                axes.boxplot(
                    [seconds],
                    positions=[x + side],
                    widths=0.34,
                    whis=1.5,
                    patch_artist=True,
                    boxprops={"facecolor": colour, "linewidth": 0.6},
                    medianprops={"color": "black", "linewidth": 1},
                    whiskerprops={"linewidth": 0.6},
                    capprops={"linewidth": 0.6},
                    flierprops={"marker": "o", "markersize": 3, "markeredgecolor": colour, "markerfacecolor": "none"},
                    manage_ticks=False,
                )
            over = [run.limits.time_s for run in here if run.status == "timeout"]
            axes.plot([x + side] * len(over), over, "^", color=colour, markerfacecolor="none")
            if failed := len(here) - len(seconds) - len(over):
                text = f"{failed} of {len(here)} without a time"
                spot = {"xycoords": axes.get_xaxis_transform(), "rotation": 90, "va": "bottom", "ha": "center"}
                axes.annotate(text, (x + side, 0.02), fontsize=5, **spot)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(tick_number)
    axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
    axes.set_xlim(-0.6, len(values) - 0.4)


def _faster(runs: Runs) -> str:
    """Return a sentence on how many graphs cuPC-S is faster than cuPC-E; the paper states that it always is."""
    pairs: dict[tuple[str, str], dict[str, float]] = {}
    for run in runs:
        if run.counts and run.method in CUPC:
            pairs.setdefault((run.dataset, run.backend), {})[run.method] = run.median
    both = [pair for pair in pairs.values() if len(pair) == len(CUPC)]
    faster = sum(pair["cupc-s"] < pair["cupc-e"] for pair in both)
    return f"cuPC-S faster than cuPC-E: ours on {faster} of {len(both)} graphs; paper: always"
