"""Draws a graph as a matrix whose variables are ordered by community."""

from collections.abc import Sequence

import networkx
import numpy as np
import pandas
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PatchCollection
from matplotlib.colors import Normalize, to_hex
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from gpupc_impl.views.plots import COLOURS, LINE, Axes, drawing, shown_name
from gpupc_impl.views.plots.layout import communities
from gpupc_impl.views.result import Result, numbered_edges, skeleton_of

MAX_NAMED = 60  # the upper bound on the rows of a matrix whose rows and columns have names


def heatmap(result: Result, ax: Axes | None = None, *, title: str | None = None) -> Axes:
    """See `ResultViews.heatmap`; an arrow has one cell, in the row of its tail, and any other edge has two."""
    names = skeleton_of(result).names
    edges = numbered_edges(result)
    cells = [(i, j, COLOURS[kind]) for i, j, kind in edges]
    cells += [(j, i, COLOURS[kind]) for i, j, kind in edges if kind != "directed"]
    title = f"{len(names):,} variables, {len(edges):,} edges" if title is None else title
    graph = networkx.Graph([(i, j) for i, j, _ in edges])
    kinds = [kind for kind in COLOURS if kind in {edge_kind for _, _, edge_kind in edges}]
    legend = [(kind + (": row → column" if kind == "directed" else ""), COLOURS[kind]) for kind in kinds]
    return draw_cells(names, graph, cells, ax, title, legend if len(kinds) > 1 or "directed" in kinds else [])


def frequencies(names: Sequence[str], edges: pandas.DataFrame, ax: Axes | None, title: str) -> Axes:
    """Draw the frequencies of `Bootstrap.to_frame` as a matrix of shades."""
    number = {name: k for k, name in enumerate(names)}
    shades = colormaps["Blues"]
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


def draw_cells(
    names: Sequence[str],
    graph: networkx.Graph,
    cells: Sequence[tuple[int, int, str]],
    ax: Axes | None,
    title: str,
    legend: Sequence[tuple[str, str]] = (),
) -> Axes:
    """Draw cells (row, column, colour), variables ordered by communities; `legend` has text and colour of entries."""
    groups = communities(graph)
    order = [node for group in groups for node in group]
    place = {node: k for k, node in enumerate(order)}
    size = len(order)
    inches = float(np.clip(0.16 * size, 2.5, 7.5))
    named = size <= MAX_NAMED
    with drawing(ax, (inches + 0.9, inches + 0.9 + 0.25 * bool(legend))) as axes:
        axes.set(xlim=(-0.5, max(size, 1) - 0.5), ylim=(max(size, 1) - 0.5, -0.5), aspect="equal")
        side = max(1.0, size / 250)  # A cell narrower than a third of a millimetre would not be visible.
        squares = [Rectangle((place[j] - side / 2, place[i] - side / 2), side, side) for i, j, _ in cells]
        colours = [colour for _, _, colour in cells]
        axes.add_collection(PatchCollection(squares, facecolors=colours, lw=0, rasterized=not named))
        start = 0
        for group in groups:
            corner = (start - 0.5, start - 0.5)
            axes.add_patch(Rectangle(corner, len(group), len(group), fill=False, ec=LINE, lw=0.6))
            start += len(group)
        if named:
            labels = [shown_name(names[node], 16) for node in order]
            font = {"size": 7, "parse_math": False}
            axes.set_xticks(range(size), labels, rotation=90, **font)
            axes.set_yticks(range(size), labels, **font)
            axes.tick_params(length=0)
        else:
            axes.set(xticks=[], yticks=[], xlabel=f"{size:,} variables in {len(groups):,} communities")
        isolated = len(names) - size
        note = f"\n{isolated:,} without an edge left out" if isolated else ""
        axes.set_title(title + note, parse_math=False)
        axes.spines[:].set_visible(True)
        if legend:
            handles = [Line2D([], [], ls="", marker="s", color=colour, label=text) for text, colour in legend]
            if ax is None:
                axes.figure.legend(handles=handles, loc="outside lower center", frameon=False, fontsize=7.5, ncols=3)
            else:
                axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=7.5)
    return axes
