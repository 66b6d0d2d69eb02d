"""Draws the frequencies of edges in resamples: as line widths in a graph, and as shades in a matrix."""

from collections.abc import Sequence

import networkx
import pandas
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_hex

from gpupc_impl.views.plots import Axes
from gpupc_impl.views.plots.graph import DrawnEdge, draw
from gpupc_impl.views.plots.heatmap import draw_cells

WIDTHS = 0.6, 3.0
"""The line widths in points for the frequencies 0 and 1."""

SHADES = "Blues"
"""The name of a colour map of matplotlib."""


def plot(names: Sequence[str], edges: pandas.DataFrame, ax: Axes | None, title: str) -> Axes:
    """Draw the edges of `Bootstrap.to_frame` as a graph."""
    number = {name: k for k, name in enumerate(names)}
    thin, thick = WIDTHS
    drawn_edges = [
        DrawnEdge(
            number[row.source],
            number[row.target],
            "directed" if row.directed > row.frequency / 2 else "undirected",
            thin + (thick - thin) * row.frequency,
            f"{row.frequency:.0%}" if row.frequency < 1 else "",
        )
        for row in edges.itertuples(index=False)
    ]
    return draw(names, drawn_edges, ax, title)


def heatmap(names: Sequence[str], edges: pandas.DataFrame, ax: Axes | None, title: str) -> Axes:
    """Draw the frequencies of `Bootstrap.to_frame` as a matrix of shades."""
    number = {name: k for k, name in enumerate(names)}
    shades = colormaps[SHADES]
    graph = networkx.Graph()
    cells = []
    for row in edges.itertuples(index=False):
        i, j = number[row.source], number[row.target]
        graph.add_edge(i, j, weight=row.frequency)
        cells += [(i, j, to_hex(shades(row.frequency))), (j, i, to_hex(shades(row.frequency)))]
    axes = draw_cells(names, graph, cells, ax, title)
    scale = ScalarMappable(Normalize(0, 1), shades)
    axes.figure.colorbar(scale, ax=axes, label="share of resamples with the edge", shrink=0.7)
    return axes
