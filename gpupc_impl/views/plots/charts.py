"""Charts: numbers of neighbours, and edges against alpha."""

from collections.abc import Sequence

import numpy as np

from gpupc_impl.views.plots import COLOURS, LINE, Axes, drawing
from gpupc_impl.views.result import Result, degrees_of


def degrees(result: Result) -> Axes:
    """Draw a histogram of the variables' numbers of neighbours."""
    counts = np.bincount(degrees_of(result))
    with drawing(None, (3.6, 2.3)) as axes:
        axes.bar(range(len(counts)), counts, width=0.8, color=COLOURS["directed"])
        axes.set(xlabel="neighbours", ylabel="variables")
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
        axes.set(xlabel="alpha", ylabel="edges", ylim=(0, 1.12 * max(*edges, 1)))
        axes.grid(axis="y")
        axes.set_title(title, parse_math=False)
        style = {"xytext": (0, 5), "textcoords": "offset points", "ha": "center", "size": 7, "color": LINE}
        for alpha, count in zip(alphas, edges, strict=True):
            if len(alphas) <= 12:
                axes.annotate(f"{count:,}", (alpha, count), **style)
    return axes
