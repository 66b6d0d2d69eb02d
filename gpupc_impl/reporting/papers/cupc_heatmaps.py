"""Figures 7 and 8 of cuPC (doi:10.1109/TPDS.2019.2939126): the configurations of its two algorithms."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpupc_impl.reporting.catalogue import CsvRows, figure
from gpupc_impl.reporting.cells import Speedup, label, speedup
from gpupc_impl.reporting.figures import Drawing, canvas, footer, swatch, unavailable
from gpupc_impl.reporting.lines import csv_row
from gpupc_impl.reporting.papers.cupc import PAPER
from gpupc_impl.reporting.runs import Runs, VerifiedRecord, datasets_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    """Draw how many times faster each configuration is than the selected one, in a panel for each data set.

    The first parameter of the configurations is the Y axis, the second the X axis.

    Args:
        reported: the selected configuration and the range of the ratios that the paper states.
        panel: the size of one panel in inches.
    """
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
