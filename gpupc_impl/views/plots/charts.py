"""Charts of a run: tests and seconds by level, numbers of neighbours, and edges against alpha."""

from collections.abc import Sequence

import numpy as np

from gpupc_impl.views.plots import COLOURS, LINE, Axes, drawing
from gpupc_impl.views.result import Result, adjacency_of, skeleton_of

SIZE = (3.6, 2.3)
"""The width and height of a figure in inches."""


def tests_per_level(result: Result) -> Axes:
    """Draw the number of tests of each level."""
    skeleton = skeleton_of(result)
    axes = _bars(range(skeleton.levels_run), skeleton.tests_per_level, "level", "tests")
    if max(skeleton.tests_per_level, default=0) > 0:
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.5)
    return axes


def seconds_per_level(result: Result) -> Axes:
    """Draw the duration of each level."""
    skeleton = skeleton_of(result)
    return _bars(range(skeleton.levels_run), skeleton.seconds_per_level, "level", "seconds")


def degrees(result: Result) -> Axes:
    """Draw a histogram of the variables' numbers of neighbours."""
    counts = np.bincount(adjacency_of(result).sum(axis=1))
    return _bars(range(len(counts)), counts, "neighbours", "variables")


def _bars(positions: Sequence[int], heights: Sequence[float] | np.ndarray, x: str, y: str) -> Axes:
    with drawing(None, SIZE) as axes:
        axes.bar(positions, heights, width=0.8, color=COLOURS["directed"])
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.grid(axis="y")
        axes.xaxis.get_major_locator().set_params(integer=True)
    return axes


def edges_against_alpha(alphas: Sequence[float], edges: Sequence[int], ax: Axes | None, title: str) -> Axes:
    """Draw the number of edges against alpha, which has a logarithmic axis."""
    with drawing(ax, (4.6, 3.0)) as axes:
        axes.plot(alphas, edges, marker="o", ms=4, lw=1.2, color=COLOURS["directed"])
        axes.set_xscale("log")
        if len(alphas) <= 8:
            axes.set_xticks(alphas, [f"{alpha:g}" for alpha in alphas])
            axes.xaxis.minorticks_off()
        axes.set_xlabel("alpha")
        axes.set_ylabel("edges")
        axes.set_ylim(0, 1.12 * max(*edges, 1))
        axes.grid(axis="y")
        axes.set_title(title, parse_math=False)
        style = {"xytext": (0, 5), "textcoords": "offset points", "ha": "center", "size": 7, "color": LINE}
        for alpha, count in zip(alphas, edges, strict=True):
            if len(alphas) <= 12:
                axes.annotate(f"{count:,}", (alpha, count), **style)
    return axes
