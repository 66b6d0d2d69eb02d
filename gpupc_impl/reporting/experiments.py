"""cuPC's Figs. 6, 7, 8 and 10, drawn from records only, each with its numbers."""

from __future__ import annotations

import csv
import dataclasses
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from gpupc_impl.reporting import measured, style
from gpupc_impl.reporting.figures import NUMBERS, footer, name_datasets
from gpupc_impl.reporting.measured import Measured, label, speedup

CUPC = ("cupc-e", "cupc-s")


@dataclasses.dataclass(frozen=True)
class Run:
    """One setting on one data set: what tables need of its record, and the record."""

    measured: Measured
    record: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A figure and the numbers in it, as rows of a CSV."""

    figure: Figure
    rows: Sequence[Mapping[str, Any]]

    def write(self, svg_path: str | Path, png_path: str | Path, csv_path: str | Path) -> None:
        style.save(self.figure, svg_path, png_path)
        with open(csv_path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(self.rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)


def load(record_paths: Sequence[str | Path], verification_path: str | Path) -> list[Run]:
    records = measured.read_json(record_paths)
    return [Run(*pair) for pair in zip(measured.load(record_paths, verification_path), records, strict=True)]


def _panels(runs: Iterable[Run]) -> list[tuple[str, str]]:
    """A panel a data set and backend, whose times are never mixed."""
    return list(dict.fromkeys((run.measured.dataset, run.measured.backend) for run in runs))


def _titles(panels: Sequence[tuple[str, str]]) -> list[str]:
    several = len({backend for _, backend in panels}) > 1
    return [f"{dataset}, {backend}" if several else dataset for dataset, backend in panels]


# --- Fig. 6 ----------------------------------------------------------------------------------------------------------

LEVELS_SHOWN = 5
"""Levels with a colour of their own; those from here on share one."""

OUTSIDE = "transfers"
"""What of the runtime belongs to no level."""


def cupc_fig6(runs: Sequence[Run], reported: Sequence[Mapping[str, str]]) -> Drawing:
    """The share of the runtime that each level takes, in percent: a panel a method, a bar a data set.

    Args:
        reported: rows of results/reported/cupc_fig6.csv: the numbers that the paper's text gives.
    """
    style.use()
    runs = [run for run in runs if run.measured.setting in CUPC]
    panels = _panels(runs)
    figure, (upper, lower) = plt.subplots(2, figsize=(style.COLUMN_WIDTH, 4.2), sharex=True, sharey=True)
    parts = [f"level {level}" for level in range(LEVELS_SHOWN)] + [f"levels ≥ {LEVELS_SHOWN}", OUTSIDE]
    colours = [*plt.get_cmap("viridis_r")(np.linspace(0.05, 0.95, LEVELS_SHOWN + 1)), "#CCCCCC"]
    rows = []
    for axes, method, letter in zip((upper, lower), CUPC, "ab", strict=True):
        for x, (dataset, backend) in enumerate(panels):
            run = next(r for r in runs if (r.measured.dataset, r.measured.setting) == (dataset, method))
            shares = level_shares(run)
            if shares is None:
                word = measured.status_word(run.measured)
                axes.annotate(word, (x, 2), rotation=90, ha="center", va="bottom", fontsize=6)
            else:
                _stack(axes, x, _grouped(shares), colours)
            for part, share in shares.items() if shares else [("", None)]:
                rows.append(
                    {"dataset": dataset, "backend": backend, "method": method, "part": part, "percent": share}
                    | {"status": run.measured.status, "verification": run.measured.verification}
                )
        axes.set_title(f"({letter}) {label(method)}", loc="left")
        axes.set_ylabel("% of the runtime")
        axes.set_ylim(0, 100)
        axes.grid(visible=False)
    name_datasets(lower, _titles(panels))
    upper.tick_params(axis="x", labelbottom=False)
    handles = [Patch(facecolor=colour, label=part) for colour, part in zip(colours, parts, strict=True)]
    figure.legend(handles=handles[::-1], loc="outside right center")
    lines = [
        f"Level 1 in {', '.join(line['datasets'].split())}:\n"
        f"paper {line['low']} to {line['high']} %; here {_level_one(rows, line['datasets'].split())}"
        for line in reported
        if line["level"] == "1"
    ]
    figure.suptitle("\n".join(lines), fontsize=6.5, x=0.01, ha="left")
    footer(figure, [run.measured for run in runs])
    return Drawing(figure, rows)


def _level_one(rows: Sequence[Mapping[str, Any]], datasets: Sequence[str]) -> str:
    """The range of level 1 over those of the data sets that were measured."""
    found = {(row["dataset"], row["method"]): row["percent"] for row in rows if row["part"] == "1"}
    shares = [share for (dataset, _), share in found.items() if dataset in datasets]
    count = len({dataset for dataset, _ in found if dataset in datasets})
    return f"{min(shares):.0f} to {max(shares):.0f} % in {count} of {len(datasets)}" if shares else "not measured"


def level_shares(run: Run) -> dict[str, float] | None:
    """Median percentage of the runtime by level, and of what is no level's; None when there is no time."""
    times = run.record["time_s"]
    if run.measured.median is None:
        return None
    shares = [
        [100 * level / total for level in levels] for levels, total in zip(times["levels"], times["warm"], strict=True)
    ]
    medians = [float(median) for median in np.median(shares, axis=0)]
    return {**{str(level): share for level, share in enumerate(medians)}, OUTSIDE: max(0.0, 100 - sum(medians))}


def _grouped(shares: Mapping[str, float]) -> list[float]:
    levels = [share for part, share in shares.items() if part != OUTSIDE]
    levels += [0.0] * (LEVELS_SHOWN - len(levels))
    return [*levels[:LEVELS_SHOWN], sum(levels[LEVELS_SHOWN:]), shares[OUTSIDE]]


def _stack(axes: Axes, x: float, heights: Sequence[float], colours: Sequence[Any]) -> None:
    bottom = 0.0
    for position, (height, colour) in enumerate(zip(heights, colours, strict=True)):
        axes.bar(x, height, 0.75, bottom=bottom, color=colour, edgecolor="white", linewidth=0.3)
        if height >= 7:
            ink = "white" if 2 <= position <= LEVELS_SHOWN else "black"
            axes.annotate(f"{height:.0f}", (x, bottom + height / 2), ha="center", va="center", color=ink, fontsize=5.5)
        bottom += height


# --- Figs. 7 and 8 ---------------------------------------------------------------------------------------------------

GREEK = {"beta": "β", "gamma": "γ", "theta": "θ", "delta": "δ"}
HATCH = {"facecolor": "white", "edgecolor": "#888888", "hatch": "//////", "linewidth": 0}


def cupc_fig7(runs: Sequence[Run], reported: Sequence[Mapping[str, str]]) -> Drawing:
    """Configurations of cuPC-E compared with the selected one; see `heatmaps`."""
    return heatmaps(runs, reported[0], across=3, panel=(2.35, 2.3))


def cupc_fig8(runs: Sequence[Run], reported: Sequence[Mapping[str, str]]) -> Drawing:
    """Configurations of cuPC-S compared with the selected one; see `heatmaps`."""
    return heatmaps(runs, reported[0], across=3, panel=(1.1, 1.35))


def heatmaps(runs: Sequence[Run], reported: Mapping[str, str], across: int, panel: tuple[float, float]) -> Drawing:
    """How many times faster each configuration is than the selected one: a panel a data set.

    The first parameter of the configurations is the Y axis, the second the X axis.

    Args:
        reported: what the paper states: the selected configuration, and the range of the ratios.
        across: panels in a row.
        panel: inches of one panel.
    """
    style.use()
    y_name, x_name = _varied(runs)
    ys, xs = (sorted({run.record["params"][name] for run in runs}) for name in (y_name, x_name))
    panels = _panels(runs)
    columns = min(across, len(panels))
    size = (panel[0] * columns, panel[1] * math.ceil(len(panels) / columns) + 0.6)
    figure, grid = plt.subplots(
        math.ceil(len(panels) / columns), columns, figsize=size, sharex=True, sharey=True, squeeze=False
    )
    selected = tuple(map(int, reported["selected"].split("-")))
    cells, rows = [], []
    for dataset, backend in panels:
        shown = {
            (run.record["params"][y_name], run.record["params"][x_name]): run.measured
            for run in runs
            if (run.measured.dataset, run.measured.backend) == (dataset, backend)
        }
        ratios = {place: speedup(shown.get(selected), m) for place, m in shown.items()}
        cells.append((shown, ratios))
        for (y, x), ratio in ratios.items():
            m = shown[y, x]
            rows.append(
                {"dataset": dataset, "backend": backend, "method": m.method, y_name: y, x_name: x}
                | {"median_s": m.median, "low_s": m.low, "high_s": m.high, "ratio": ratio.value, "bound": ratio.bound}
                | {"status": m.status, "verification": m.verification}
            )
    values = [row["ratio"] for row in rows if row["ratio"] is not None and not row["bound"]]
    reach = max([1.0, *(abs(math.log2(value)) for value in values)])
    colours = plt.cm.ScalarMappable(Normalize(-reach, reach), "RdBu")
    for axes, title, (shown, ratios) in zip(grid.flat, _titles(panels), cells, strict=False):
        for (y, x), ratio in ratios.items():
            _cell(axes, (xs.index(x), ys.index(y)), shown[y, x], ratio, colours)
        if selected in shown:
            place = (xs.index(selected[1]) - 0.5, ys.index(selected[0]) - 0.5)
            axes.add_patch(Rectangle(place, 1, 1, fill=False, edgecolor="black", linewidth=1, zorder=3))
        axes.set(xlim=(-0.5, len(xs) - 0.5), ylim=(-0.5, len(ys) - 0.5), aspect="equal")
        axes.set_xticks(range(len(xs)), xs, fontsize=6)
        axes.set_yticks(range(len(ys)), ys, fontsize=6)
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        axes.set_title(textwrap.fill(title, int(14 * panel[0])), fontsize=6)
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
    method = label(reported["method"])
    ours = f"{_short(min(values))} to {_short(max(values))}×" if values else "nothing measured"
    heading = f"{method} against {method}-{reported['selected']} (> 1: faster)\n"
    heading += f"here: {ours}; paper: {reported['low']} to {reported['high']}×"
    figure.suptitle(heading, fontsize=7, x=0.01, ha="left")
    _heatmap_legend(figure, [run.measured for run in runs])
    footer(figure, [run.measured for run in runs])
    return Drawing(figure, rows)


def _varied(runs: Sequence[Run]) -> tuple[str, str]:
    """The two parameters of the configurations, in the method's order."""
    return tuple(runs[0].record["params"])[:2]


def _cell(axes: Axes, place: tuple[int, int], m: Measured, ratio: measured.Speedup, colours: Any) -> None:
    """One configuration: its ratio; hatched where it failed, grey where it was not run or there is no ratio."""
    x, y = place
    if m.median is not None and ratio.value is not None and not ratio.bound:
        fill = {"facecolor": colours.to_rgba(math.log2(ratio.value)), "edgecolor": "white", "linewidth": 0.4}
        dark = abs(math.log2(ratio.value)) > 0.6 * colours.norm.vmax
        ink = "white" if dark else "black"
        text = _short(ratio.value) + ("" if m.counts else "✗")
        axes.annotate(text, (x, y), ha="center", va="center", color=ink, fontsize=5)
    elif m.status in ("skipped", "ok"):
        fill = {"facecolor": "#BBBBBB", "edgecolor": "white", "linewidth": 0.4}
    else:
        fill = HATCH
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, **fill))


def _short(value: float) -> str:
    """A ratio in at most four characters."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def _heatmap_legend(figure: Figure, shown: Sequence[Measured]) -> None:
    handles = []
    if any(m.status not in ("ok", "skipped") for m in shown):
        handles.append(Patch(label="failed, or over the time limit", **HATCH))
    if any(m.status == "skipped" for m in shown):
        handles.append(Patch(facecolor="#BBBBBB", label="not run"))
    if handles:
        figure.legend(handles=handles, loc="outside lower right", fontsize=6)


# --- Fig. 10 ---------------------------------------------------------------------------------------------------------

SWEEPS = {"n": "number of variables n", "m": "number of samples m", "d": "density d"}


def cupc_fig10(
    runs: Sequence[Run], reported: Sequence[Mapping[str, str]], sweeps: Mapping[str, Mapping[str, float]]
) -> Drawing:
    """Runtimes on random graphs as box plots: a panel a sweep, a box a method and value.

    Args:
        reported: rows of results/reported/cupc_fig10.csv: what the paper's text says.
        sweeps: for each panel, the varied value by graph.
    """
    style.use()
    backends = sorted({run.measured.backend for run in runs})
    size = (style.PAGE_WIDTH, 2.3 * len(backends) + 0.4)
    figure, grid = plt.subplots(len(backends), len(sweeps), figsize=size, sharey="row", squeeze=False)
    rows = []
    for line, backend in zip(grid, backends, strict=True):
        for axes, letter, (name, graphs) in zip(line, "abcdefgh", sweeps.items(), strict=False):
            shown = [run.measured for run in runs if run.measured.dataset in graphs and run.measured.backend == backend]
            _boxes(axes, shown, graphs)
            axes.set_xlabel(SWEEPS.get(name, name))
            axes.set_title(f"({letter})" + (f" {backend}" if len(backends) > 1 else ""), loc="left")
            axes.label_outer()
            rows += [
                {"panel": name, "value": graphs[m.dataset], "graph": m.dataset, "method": m.method}
                | {"backend": m.backend, "median_s": m.median, "status": m.status}
                | {"limit_s": m.limit, "verification": m.verification}
                for m in shown
            ]
        line[0].set_ylabel("seconds")
    handles = [Patch(facecolor=style.colour(method), label=label(method)) for method in CUPC]
    figure.legend(handles=handles, loc="outside upper right", ncols=2)
    figure.suptitle(_faster(runs), fontsize=7, x=0.01, ha="left")
    footer(figure, [run.measured for run in runs])
    return Drawing(figure, rows)


def _boxes(axes: Axes, shown: Sequence[Measured], graphs: Mapping[str, float]) -> None:
    """Quartiles, whiskers to the last point within 1.5 IQR, outliers as circles; triangles at a limit that was hit."""
    values = sorted(set(graphs.values()))
    for side, method in zip((-0.2, 0.2), CUPC, strict=True):
        colour = style.colour(method)
        for x, value in enumerate(values):
            here = [m for m in shown if m.method == method and graphs[m.dataset] == value]
            seconds = [m.median for m in here if m.counts]
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
            over = [m.limit for m in here if m.status == "timeout"]
            axes.plot([x + side] * len(over), over, "^", color=colour, markerfacecolor="none")
            if failed := len(here) - len(seconds) - len(over):
                text = f"{failed} of {len(here)} without a time"
                spot = {"xycoords": axes.get_xaxis_transform(), "rotation": 90, "va": "bottom", "ha": "center"}
                axes.annotate(text, (x + side, 0.02), fontsize=5, **spot)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(NUMBERS)
    axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
    axes.set_xlim(-0.6, len(values) - 0.4)


def _faster(runs: Sequence[Run]) -> str:
    """On how many graphs cuPC-S is faster than cuPC-E; the paper says on all."""
    pairs: dict[tuple[str, str], dict[str, float]] = {}
    for run in runs:
        m = run.measured
        if m.counts and m.method in CUPC:
            pairs.setdefault((m.dataset, m.backend), {})[m.method] = m.median
    both = [pair for pair in pairs.values() if len(pair) == len(CUPC)]
    faster = sum(pair["cupc-s"] < pair["cupc-e"] for pair in both)
    return f"cuPC-S faster than cuPC-E: here on {faster} of {len(both)} graphs; paper: always"
