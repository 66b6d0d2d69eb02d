"""Times over the size of generated data: cuPC's Fig. 10, GPU-CMIknn's searches, and our own method `pair-scan`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.reporting import style
from gpupc_impl.reporting.catalogue import CsvRows, Sweeps, figure
from gpupc_impl.reporting.cells import label, number
from gpupc_impl.reporting.figures import HEADING, Drawing, canvas, footer, key, log_axis, points, swatch, tick_number
from gpupc_impl.reporting.lines import csv_row
from gpupc_impl.reporting.papers import cmiknn, cupc
from gpupc_impl.reporting.papers.cupc import CUPC
from gpupc_impl.reporting.papers.cupc_claims import size_of
from gpupc_impl.reporting.runs import Runs, VerifiedRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMES = {"n": "number of variables n", "m": "number of samples m", "d": "density d"}
"""What cuPC's Fig. 10 varies."""


def swept(runs: Runs, sweeps: Sweeps) -> list[dict[str, Any]]:
    """Return the rows of a figure's CSV: a row for each run, by the panel in which it is shown."""
    return [
        {"panel": name, "value": graphs[run.dataset], **csv_row(run)}
        for name, graphs in sweeps.items()
        for run in runs
        if run.dataset in graphs
    ]


@figure("cupc_fig10", "Fig. 10: scalability", paper=cupc.PAPER, experiments=("cupc_fig10",))
def cupc_fig10(runs: Runs, sweeps: Sweeps, reported: CsvRows) -> Drawing:
    """The figure shows the runtime of cuPC-E and cuPC-S on random graphs with different (a) numbers of variables, (b)
    numbers of samples and (c) densities, as cuPC's Fig. 10, with a logarithmic axis. A box shows the quartiles over the
    graphs of one kind, the whiskers reach to the last point within 1.5 IQR, and circles are outliers; triangles mark an
    exceeded time limit. A panel's title states what all its graphs have in common. The diamond is the only runtime that
    the paper's text states, of cuPC-E at n = 1000, m = 10000 and d = 0.1; panels of other sizes do not show it. The
    paper (GTX 1080, ten graphs of each size) states that cuPC-S is always faster, and that the runtime grows with n,
    linearly with m, and almost linearly with d from 0.2 to 0.5. The heading compares the two methods on our graphs. The
    data of such graphs are nearly degenerate: many correlations are almost one (``docs/errata.md``).
    ``results/tables/cupc_fig10.csv`` has the numbers.
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
    return Drawing(figure, swept(runs, sweeps))


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


SEARCHES = {"n": "number of samples n", "p": "number of variables p", "k_cmi": "k_CMI"}
"""What the searches of GPU-CMIknn vary."""


@figure(
    "cmiknn_scaling",
    "Scaling: search time against n, p and k_CMI",
    paper=cmiknn.PAPER,
    experiments=("cmiknn_scaling",),
)
def cmiknn_scaling(runs: Runs, sweeps: Sweeps) -> Drawing:
    """The figure shows the seconds of a whole search against the number of samples, the number of variables and k_CMI,
    on graphs generated as in section 5.1 of GPU-CMIknn; both axes are logarithmic. The number below a point is the
    number of tests, which depends on n, p and k as well. Triangles mark an exceeded time limit. The paper has no such
    figure. ``results/tables/cmiknn_scaling.csv`` has the numbers.
    """
    figure, grid = canvas(1, len(sweeps), (style.PAGE_WIDTH, 2.7), sharey=True)
    settings = list(dict.fromkeys((run.setting, run.backend) for run in runs))
    for axes, (name, graphs) in zip(grid[0], sweeps.items(), strict=True):
        here = [run for run in runs if run.dataset in graphs]
        for setting, backend in settings:
            its = [run for run in here if (run.setting, run.backend) == (setting, backend)]
            first = (setting, backend) == settings[0]
            look = {"marker": style.MARKERS[backend], "linestyle": "-" if first else "--", "markersize": 3}
            if its:
                points(
                    axes, its, graphs, {**look, "color": style.colour(its[0].method), "label": label(setting, backend)}
                )
            for run in (run for run in its if first and run.counts):
                lowest = min(other.median for other in here if other.dataset == run.dataset and other.counts)
                spot = {"xytext": (0, -4), "textcoords": "offset points", "ha": "left", "va": "top", "fontsize": 6}
                axes.annotate(f"{run.tests:,}", (graphs[run.dataset], lowest), **spot)
        axes.set(xscale="log", yscale="log", xlabel=SEARCHES.get(name, name))
        axes.margins(x=0.15, y=0.12)  # This leaves room for the numbers.
        values = sorted(set(graphs.values()))
        axes.set_xticks(values, [f"{value / 1000:g}k" if value >= 1000 else f"{value:g}" for value in values])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(tick_number)
    grid[0][0].set_ylabel("seconds")
    handles = {line.get_label(): line for axes in grid[0] for line in axes.get_legend_handles_labels()[0]}
    if handles:
        figure.legend(list(handles.values()), list(handles), loc="outside lower right", ncols=2)
    over = "; triangles: over the time limit" if any(run.status == "timeout" for run in runs) else ""
    figure.suptitle(f"Numbers below the points: CI tests{over}", fontsize=7, x=0.01, ha="left")
    footer(figure, runs, share=0.35)
    return Drawing(figure, swept(runs, sweeps))


def _level_1(run: VerifiedRecord) -> float:
    return statistics.median(levels[1] for levels in run.time_s.levels)


@figure(
    "pair_scan_scaling",
    "Time against variables",
    paper="pair-scan",
    experiments=("pair_scan_scaling",),
    reported="ooc_table1.csv",
)
def pair_scan_scaling(runs: Runs, sweeps: Sweeps, reported: CsvRows) -> Drawing:
    """The figure shows the time of levels 0 and 1 of ``pair-scan`` over the number of variables, on wide data of 3,189
    samples (fewer in the default config), from the samples in host memory to the result there. Both axes are
    logarithmic, and the heading has the exponent of the power law through the points (least squares of the logarithms).
    The cross is the time that the Out-of-Core paper reports for its block-based version on TCGA, 55,572 variables, on a
    V100. ``results/tables/pair_scan_scaling.csv`` has the numbers.
    """
    from matplotlib.ticker import LogLocator, NullLocator

    (variables,) = sweeps.values()
    figure, [[axes]] = canvas(1, 1, (style.COLUMN_WIDTH, 2.6))
    heading = []
    for part, form, clock in (("whole", "o-", lambda run: run.median), ("level 1", "s--", _level_1)):
        look = {"marker": form[0], "linestyle": form[1:], "markersize": 3, "color": style.colour("pair-scan")}
        points(axes, runs, variables, {**look, "label": part}, clock)
        times = [(variables[run.dataset], clock(run)) for run in runs if run.counts]
        if len(times) > 1:
            heading.append(f"{part}: time grows as p to the power of {number(exponent(times))}")
    rows = swept(runs, sweeps)
    for row, run in zip(rows, runs, strict=True):
        row["level_1_s"] = _level_1(run) if run.counts else None
    paper = next(row for row in reported if row["method"] == "GPU Block-Based")
    hours, at = float(paper["value"]), int(paper["variables"])
    axes.plot(at, 3600 * hours, "x", color=style.OTHER_COLOUR, label=f"{label('out-of-core-block')}, paper (V100)")
    axes.set(xscale="log", yscale="log", xlabel="variables p", ylabel="seconds")
    axes.xaxis.set_major_formatter(tick_number)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(tick_number)
    axes.legend(frameon=True, framealpha=1, edgecolor="white")  # The grid does not cross its words.
    figure.suptitle("\n".join(heading), **HEADING)
    footer(figure, runs)
    return Drawing(figure, rows)


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """Return the exponent of the power law through (x, y) points, by least squares of the logarithms."""
    x, y = np.log(np.transpose(points))
    return float(np.polyfit(x, y, 1)[0])
