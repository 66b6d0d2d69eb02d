"""The growth of the time of our own method `pair-scan` with the number of variables, as a figure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.reporting import style
from gpupc_impl.reporting.catalogue import CsvRows, Sweeps, figure
from gpupc_impl.reporting.cells import csv_row, label, number
from gpupc_impl.reporting.figures import HEADING, Drawing, footer, tick_number
from gpupc_impl.reporting.runs import Runs, VerifiedRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = {"whole": ("o", "-"), "level 1": ("s", "--")}
"""The times that are drawn, with their marks."""


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
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullLocator

    style.use()
    (variables,) = sweeps.values()
    figure, axes = plt.subplots(figsize=(style.COLUMN_WIDTH, 2.6))
    rows: list[dict[str, Any]] = []
    heading = []
    backends = sorted({run.backend for run in runs})
    for backend in backends:
        done = sorted(
            (run for run in runs if run.backend == backend and run.counts), key=lambda r: variables[r.dataset]
        )
        for part, (mark, line) in SHOWN.items():
            points = [(variables[run.dataset], _seconds(run, part)) for run in done]
            shown = f"{part}, {backend}" if len(backends) > 1 else part
            _draw(axes, points, mark, line, shown, style.colour("pair-scan"))
            if len(points) > 1:
                heading.append(f"{shown}: time grows as p to the power of {number(exponent(points))}")
        rows += [
            {"variables": variables[run.dataset]}
            | csv_row(run, "dataset method backend median_s low_s high_s")
            | {"level_1_s": _seconds(run, "level 1") if run.counts else None}
            | csv_row(run, "edges_per_level tests_per_level device_bytes process_bytes status verification machine")
            for run in runs
            if run.backend == backend
        ]
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
    return Drawing(figure, rows, columns=("variables", "dataset", "median_s", "level_1_s"))


def _seconds(run: VerifiedRecord, part: str) -> float:
    assert run.median is not None
    return run.median if part == "whole" else statistics.median(levels[1] for levels in run.time_s.levels)


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """Return the exponent of the power law through (x, y) points, by least squares of the logarithms."""
    x, y = np.log(np.transpose(points))
    return float(np.polyfit(x, y, 1)[0])


def _draw(axes: Axes, points: Sequence[tuple[float, float]], mark: str, line: str, shown: str, colour: str) -> None:
    if points:
        axes.plot(*zip(*points, strict=True), line, marker=mark, markersize=3, color=colour, label=shown)
