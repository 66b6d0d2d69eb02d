"""Figures 7 and 8 of cuPC (doi:10.1109/TPDS.2019.2939126): the configurations of its two algorithms."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpupc_impl.reporting import style
from gpupc_impl.reporting.catalogue import CsvRows, figure
from gpupc_impl.reporting.cells import Speedup, csv_row, label, speedup
from gpupc_impl.reporting.figures import Drawing, footer, panels_of, unavailable
from gpupc_impl.reporting.papers.cupc import PAPER
from gpupc_impl.reporting.runs import Runs, VerifiedRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREEK = {"beta": "β", "gamma": "γ", "theta": "θ", "delta": "δ"}
ACROSS = {1: 1, 2: 2, 4: 2}
"""The panels in a row for a number of panels; three for other numbers."""

HATCH = {"facecolor": "white", "edgecolor": "#888888", "hatch": "//////", "linewidth": 0}


@figure("cupc_fig7", "Fig. 7: configurations of cuPC-E", paper=PAPER, experiments=("cupc_fig7",))
def cupc_fig7(runs: Runs, reported: CsvRows) -> Drawing:
    """The figure shows how many times faster configurations of cuPC-E are than the selected configuration (framed:
    beta = 2, gamma = 32), as cuPC's Fig. 7 does for 30 configurations: ratios of median runtimes on one machine and
    backend. The Y axis is beta, the edges of a block; the X axis is gamma, the threads of an edge. Hatched
    configurations failed or exceeded the time limit; grey ones were not run. The lines beside the scale are our range
    and that of the paper (GTX 1080), which states that larger gamma is faster on dense graphs, and smaller gamma on
    sparse ones. {% if config["backend"] == "host" %}On the host backend every thread of a block costs time, whether it
    has work or not, so small gamma is fastest.{% endif %} ``results/tables/cupc_fig7.csv`` has the numbers.
    """
    return heatmaps(runs, reported[0], panel=(2.35, 2.3))


@figure("cupc_fig8", "Fig. 8: configurations of cuPC-S", paper=PAPER, experiments=("cupc_fig8",))
def cupc_fig8(runs: Runs, reported: CsvRows) -> Drawing:
    """The figure shows how many times faster configurations of cuPC-S are than the selected configuration (framed:
    theta = 64, delta = 2), as cuPC's Fig. 8 does for 16 configurations: ratios of median runtimes on one machine and
    backend. The Y axis is theta, the threads of a block; the X axis is delta, the blocks of a row. Hatched
    configurations failed or exceeded the time limit; grey ones were not run. The lines beside the scale are our range
    and that of the paper (GTX 1080), which states that cuPC-S varies less with its configuration than cuPC-E.
    ``results/tables/cupc_fig8.csv`` has the numbers.
    """
    return heatmaps(runs, reported[0], panel=(1.1, 1.35))


def heatmaps(runs: Runs, reported: Mapping[str, str], panel: tuple[float, float]) -> Drawing:
    """Draw how many times faster each configuration is than the selected one, in a panel for each data set.

    The first parameter of the configurations is the Y axis, the second the X axis.

    Args:
        reported: the selected configuration and the range of the ratios that the paper states.
        panel: the size of one panel in inches.
    """
    import matplotlib.pyplot as plt
    from matplotlib.colors import Normalize
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import MaxNLocator

    style.use()
    y_name, x_name, *_ = runs[0].params
    ys, xs = (sorted({run.params[name] for run in runs}) for name in (y_name, x_name))
    panels = panels_of(runs)
    columns = ACROSS.get(len(panels), 3)
    # A single small panel stands beside the colour scale and under a heading, which need the width of a column.
    size = (max(panel[0] * columns + 0.6, style.COLUMN_WIDTH), panel[1] * math.ceil(len(panels) / columns) + 0.9)
    figure, grid = plt.subplots(
        math.ceil(len(panels) / columns), columns, figsize=size, sharex=True, sharey=True, squeeze=False
    )
    selected = tuple(map(int, reported["selected"].split("-")))
    cells, rows = [], []
    for place in panels:
        here = [run for run in runs if (run.dataset, run.backend) == place]
        shown = {(run.params[y_name], run.params[x_name]): run for run in here}
        ratios = {(y, x): speedup(shown.get(selected), run) for (y, x), run in shown.items()}
        cells.append((shown, ratios))
        rows += [
            csv_row(shown[y, x], "dataset backend method")
            | {y_name: y, x_name: x}
            | csv_row(shown[y, x], "median_s low_s high_s")
            | {"ratio": ratio.value, "bound": ratio.bound}
            | csv_row(shown[y, x], "status verification")
            for (y, x), ratio in ratios.items()
        ]
    values = [row["ratio"] for row in rows if row["ratio"] is not None and not row["bound"]]
    stated = [float(reported[end]) for end in ("low", "high")]
    reach = max([1.0, *(abs(math.log2(value)) for value in (*values, *stated))])
    colours = plt.cm.ScalarMappable(Normalize(-reach, reach), "RdBu")
    for axes, title, (shown, ratios) in zip(grid.flat, panels.values(), cells, strict=False):
        _panel(axes, xs, ys, shown, ratios, colours)
        if selected in shown and shown[selected].status != "skipped":
            corner = (xs.index(selected[1]) - 0.5, ys.index(selected[0]) - 0.5)
            axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="black", linewidth=1, zorder=3))
        axes.set_title(textwrap.fill(title, int(14 * size[0] / columns)), fontsize=6)
        axes.label_outer()
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    for axes in grid[:, 0]:
        axes.set_ylabel(GREEK.get(y_name, y_name))
    for axes in grid.flat[max(0, len(panels) - columns) : len(panels)]:
        axes.set_xlabel(GREEK.get(x_name, x_name))
        axes.tick_params(axis="x", labelbottom=True)
    bar = figure.colorbar(colours, ax=figure.axes, aspect=30, pad=0.02, ticks=MaxNLocator(integer=True))
    bar.ax.yaxis.set_major_formatter(lambda power, _: f"{2**power:g}×")
    bar.outline.set_linewidth(0.4)
    bar.ax.tick_params(labelsize=6)
    _extent(bar.ax, 5, stated, "paper", "#666666")
    if values:
        _extent(bar.ax, 18, values, "ours", "black")
    method = label(reported["method"])
    ours = f"{_short(min(values))} to {_short(max(values))}×" if values else "nothing measured"
    heading = f"{method} against {method}-{reported['selected']} (> 1: faster)\n"
    heading += f"ours: {ours}; paper: {reported['low']} to {reported['high']}×"
    figure.suptitle(heading, fontsize=7, x=0.01, ha="left")
    _heatmap_legend(figure, runs)
    footer(figure, runs)
    return Drawing(figure, rows)


def _extent(scale: Axes, points: float, values: Sequence[float], text: str, colour: str) -> None:
    """Draw the range of some ratios on the left of the colour scale, in a distance in points."""
    from matplotlib.transforms import ScaledTranslation

    def left(distance: float) -> dict[str, Any]:
        shift = ScaledTranslation(-distance / 72, 0, scale.get_figure().dpi_scale_trans)
        return {"transform": scale.get_yaxis_transform() + shift, "clip_on": False}

    ends = [math.log2(min(values)), math.log2(max(values))]
    scale.plot([0, 0], ends, "_-", color=colour, markersize=4, linewidth=0.8, **left(points))
    middle = {"rotation": 90, "ha": "right", "va": "center", "fontsize": 6, "color": colour}
    scale.text(0, sum(ends) / 2, text, **middle, **left(points + 2))


def _panel(
    axes: Axes,
    xs: Sequence[int],
    ys: Sequence[int],
    shown: Mapping[tuple[int, int], VerifiedRecord],
    ratios: Mapping[tuple[int, int], Speedup],
    colours: Any,
) -> None:
    """Draw the configurations of one data set, or why it is not there."""
    if why := unavailable(list(shown.values())):
        middle = {"xycoords": "axes fraction", "ha": "center", "va": "center", "fontsize": 5, "zorder": 4}
        axes.annotate(textwrap.fill(why, 5 * max(4, len(xs) // 2)), (0.5, 0.5), **middle)
    for (y, x), ratio in ratios.items():
        _cell(axes, (xs.index(x), ys.index(y)), shown[y, x], ratio, colours)
    axes.set(xlim=(-0.5, len(xs) - 0.5), ylim=(-0.5, len(ys) - 0.5), aspect="equal")
    axes.set_xticks(range(len(xs)), xs, fontsize=6 if len(xs) < 8 else 5)
    axes.set_yticks(range(len(ys)), ys, fontsize=6)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def _cell(axes: Axes, place: tuple[int, int], run: VerifiedRecord, ratio: Speedup, colours: Any) -> None:
    """Draw one configuration: its ratio; hatched if it failed, grey if it was not run or has no ratio."""
    from matplotlib.patches import Rectangle

    x, y = place
    if run.median is not None and ratio.value is not None and not ratio.bound:
        fill = {"facecolor": colours.to_rgba(math.log2(ratio.value)), "edgecolor": "white", "linewidth": 0.4}
        dark = abs(math.log2(ratio.value)) > 0.6 * colours.norm.vmax
        ink = "white" if dark else "black"
        text = _short(ratio.value) + ("" if run.counts else "✗")
        axes.annotate(text, (x, y), ha="center", va="center", color=ink, fontsize=5)
    elif run.status in ("skipped", "ok"):
        fill = {"facecolor": "#BBBBBB", "edgecolor": "white", "linewidth": 0.4}
    else:
        fill = HATCH
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, **fill))


def _short(value: float) -> str:
    """Format a ratio in at most four characters."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def _heatmap_legend(figure: Figure, shown: Runs) -> None:
    from matplotlib.patches import Patch

    handles = []
    if any(run.status not in ("ok", "skipped") for run in shown):
        handles.append(Patch(label="failed, or over the time limit", **HATCH))
    if any(run.status == "skipped" for run in shown):
        handles.append(Patch(facecolor="#BBBBBB", label="not run"))
    if handles:
        figure.legend(handles=handles, loc="outside lower right", fontsize=6)
