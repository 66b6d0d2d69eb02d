"""Draws a graph as boxes and arrows, or an excerpt of a graph that is too large for a picture."""

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

import networkx
import numpy as np
import pandas
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path

from gpupc_impl.integers import ceil_div
from gpupc_impl.views.plots import BOX, COLOURS, LINE, Axes, drawing, shown_name
from gpupc_impl.views.plots.heatmap import heatmap
from gpupc_impl.views.plots.layout import places
from gpupc_impl.views.result import LOOKS, Result, degrees_of, edges_of, numbered_edges, skeleton_of

MAX_NODES = 100  # the upper bound on the variables with an edge that are drawn as boxes
EXCERPT_NODES = 50  # the upper bound on the variables that are drawn around a hub
MAX_ISOLATED = 30  # the upper bound on the variables without an edge that are listed below a graph
# In inches, the height of a box, the width of a letter in it, and the width of a box beyond that of its letters.
ROW, LETTER, MARGIN = 0.24, 0.072, 0.16
LABEL = 0.4  # the additional length in inches of edges that have labels
ROUNDING = 0.05  # the radius of a box's corners, in inches
GAP = 0.06  # the room for a circle between a box and the end of an edge, in inches
WIDEST = 15.0  # the upper bound on the sides of a figure, in inches; a larger graph is scaled down
COLUMNS = 3  # of a legend
CIRCLES = {kind: tuple(map(int, look["circles"].split())) for kind, look in LOOKS.items()}
CURVE_POINTS = 257  # of an edge
# The ratios of the height of an edge's arc to its length, in the order in which they are tried.
BENDS = (0.0, 0.15, -0.15, 0.3, -0.3, 0.5, -0.5)


class DrawnEdge(NamedTuple):
    """An edge of a picture between two variables, of a kind in `COLOURS`, with the width of its line in points."""

    source: int
    target: int
    kind: str
    width: float = 1.1
    label: str = ""


def plot(result: Result, ax: Axes | None = None, *, max_nodes: int = MAX_NODES, title: str | None = None) -> Axes:
    """See `core.result_views.ResultViews.plot`."""
    skeleton = skeleton_of(result)
    if has_many_variables(result, max_nodes):
        return heatmap(result, ax, title=title)
    edges = [DrawnEdge(i, j, kind) for i, j, kind in numbered_edges(result)]
    title = f"{len(skeleton.names):,} variables, {len(edges):,} edges" if title is None else title
    return draw(skeleton.names, edges, ax, title)


def frequencies(names: Sequence[str], edges: pandas.DataFrame, ax: Axes | None, title: str) -> Axes:
    """Draw the edges of `Bootstrap.to_frame` as a graph."""
    number = {name: k for k, name in enumerate(names)}
    thin, thick = 0.6, 3.0  # the line widths in points for the frequencies 0 and 1
    drawn_edges = []
    for row in edges.itertuples(index=False):
        kind = "directed" if row.directed > row.frequency / 2 else "undirected"
        label = f"{row.frequency:.0%}" if row.frequency < 1 else ""
        width = thin + (thick - thin) * row.frequency
        drawn_edges.append(DrawnEdge(number[row.source], number[row.target], kind, width, label))
    return draw(names, drawn_edges, ax, title)


def overview(result: Result) -> Axes:
    """Draw the graph or, if it is too large, the variables nearest to the one with the most neighbours."""
    if not has_many_variables(result):
        return plot(result)
    names, nodes = skeleton_of(result).names, _around_hub(edges_of(result))
    number = {node: k for k, node in enumerate(nodes)}
    edges = [DrawnEdge(number[i], number[j], kind) for i, j, kind in numbered_edges(result) if {i, j} <= number.keys()]
    title = f"Around the hub {shown_name(names[nodes[0]])}: {len(nodes)} of {len(names):,} variables"
    return draw([names[node] for node in nodes], edges, None, title)


def _around_hub(edges: np.ndarray) -> list[int]:
    """Up to `EXCERPT_NODES` variables in breadth-first order from the one with the most neighbours; variables with more
    neighbours come first."""
    degrees = np.bincount(edges.reshape(-1))
    nodes = [int(degrees.argmax())]
    for node in nodes:  # the loop extends `nodes`
        neighbours = np.sort(edges[(edges == node).any(axis=1)].sum(axis=1) - node)
        new = [k for k in neighbours[np.argsort(-degrees[neighbours], kind="stable")].tolist() if k not in nodes]
        nodes += new[: EXCERPT_NODES - len(nodes)]
    return nodes


def has_many_variables(result: Result, max_nodes: int = MAX_NODES) -> bool:
    """Return whether too many variables have an edge for a drawing of boxes and arrows."""
    return int(np.count_nonzero(degrees_of(result))) > max_nodes


def draw(names: Sequence[str], edges: Sequence[DrawnEdge], ax: Axes | None, title: str) -> Axes:
    """Draw a graph; variables without an edge are listed below it."""
    connected = sorted({end for edge in edges for end in edge[:2]})
    number = {node: k for k, node in enumerate(connected)}
    edges = [edge._replace(source=number[edge.source], target=number[edge.target]) for edge in edges]
    graph = networkx.empty_graph(len(connected))
    graph.add_edges_from(edge[:2] for edge in edges)
    labels = [shown_name(names[node]) for node in connected]
    boxes = np.array([(LETTER * len(label) + MARGIN, ROW) for label in labels]).reshape(-1, 2)
    arrows = [edge[:2] for edge in edges if edge.kind in ("directed", "circle-arrow")]
    centres, routes = places(graph, arrows, boxes, LABEL if any(edge.label for edge in edges) else 0.0)
    curves = [_edge_curve(edge, routes.get((min(edge[:2]), max(edge[:2]))), centres, boxes) for edge in edges]
    drawn = np.concatenate([centres - boxes / 2, centres + boxes / 2, *curves])
    low, high = drawn.min(axis=0, initial=0.0) - 0.1, drawn.max(axis=0, initial=0.0) + 0.1
    size = np.maximum(high - low, (3.2, 0.6))
    size *= min(1.0, WIDEST / size.max())
    note = _isolated_note([name for k, name in enumerate(names) if k not in number], size[0])
    kinds = {edge.kind for edge in edges}
    legend_rows = ceil_div(len(kinds), COLUMNS) if len(kinds) > 1 else 0
    below = 0.15 * note.count("\n") + 0.2 * max(0, legend_rows - 1)
    with drawing(ax, (size[0] + 0.1, size[1] + 0.75 + below)) as axes:
        axes.set(xticks=[], yticks=[], xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
        axes.spines[:].set_visible(False)
        width = axes.get_window_extent().width / axes.figure.dpi if ax is not None else size[0]
        font_size = 8 * min(1.0, width / (high - low)[0])
        for edge, curve in zip(edges, curves, strict=True):
            _draw_edge(axes, edge, curve, centres, boxes)
        for label, centre, box in zip(labels, centres, boxes, strict=True):
            corner, shape = centre - box / 2 + ROUNDING, f"round,pad={ROUNDING}"
            style = {"boxstyle": shape, "fc": BOX, "ec": LINE, "lw": 0.7, "zorder": 3}
            axes.add_patch(FancyBboxPatch(corner, *(box - 2 * ROUNDING), **style))
            axes.text(*centre, label, ha="center", va="center", size=font_size, zorder=4, parse_math=False)
        axes.set_title(title, parse_math=False)
        if len(kinds) > 1:
            lines = [
                Line2D([], [], color=COLOURS[kind], ls="--" if kind == "conflict" else "-", lw=1.2, label=kind)
                for kind in COLOURS
                if kind in kinds
            ]
            place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "ncols": COLUMNS}
            axes.legend(handles=lines, frameon=False, fontsize=7.5, **place)
        if note:
            axes.set_xlabel(note, size=7.5, color=LINE, parse_math=False, labelpad=7 + 13 * legend_rows)
    return axes


def _isolated_note(names: Sequence[str], width: float) -> str:
    """The text about variables without an edge, in lines for a width in inches; empty if there are none."""
    if not names:
        return ""
    shown = ", ".join(map(shown_name, names[:MAX_ISOLATED]))
    more = f", … ({len(names):,} in all)" if len(names) > MAX_ISOLATED else ""
    return textwrap.fill(f"without an edge: {shown}{more}", max(int(width / 0.062), 40))


def _edge_curve(edge: DrawnEdge, route: np.ndarray | None, centres: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Return the points of an edge between the centres of its boxes, (points, 2). Without a route it has the first bend
    with which it crosses no other box, or else the one with which it crosses the fewest."""
    source, target = edge.source, edge.target
    if route is not None:
        return _through(route if source < target else route[::-1])
    others, curves, crossed = np.delete(np.arange(len(boxes)), [source, target]), [], []
    for bend in BENDS:
        curves.append(_curve(centres[source], centres[target], bend))
        distance = np.abs(curves[-1][:, None] - centres[others]) - boxes[others] / 2 - 0.04
        crossed.append(int((distance <= 0).all(axis=2).any(axis=0).sum()))
        if not crossed[-1]:
            break
    return curves[int(np.argmin(crossed))]


def _draw_edge(axes: Axes, edge: DrawnEdge, curve: np.ndarray, centres: np.ndarray, boxes: np.ndarray) -> None:
    source, target = edge.source, edge.target
    gaps = [GAP if end in CIRCLES[edge.kind] else 0.0 for end in (0, -1)]
    start = _points_inside(curve, centres[source], boxes[source] + gaps[0])
    stop = _points_inside(curve[::-1], centres[target], boxes[target] + gaps[1])
    points = curve[start : len(curve) - stop] if start + stop < len(curve) - 1 else curve
    dashes = (0, (4, 2.5)) if edge.kind == "conflict" else "-"
    style = {"mutation_scale": 8 + edge.width, "lw": edge.width, "ls": dashes, "color": COLOURS[edge.kind]}
    arrow = LOOKS[edge.kind]["arrow"]
    axes.add_patch(FancyArrowPatch(path=Path(points), arrowstyle=arrow, joinstyle="miter", zorder=2, **style))
    for end in CIRCLES[edge.kind]:
        axes.plot(*points[end], marker="o", ms=4.5, mfc="white", mec=COLOURS[edge.kind], mew=edge.width, zorder=2.6)
    if edge.label:
        background = {"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.85}
        style = {"size": 6.5, "color": COLOURS[edge.kind], "bbox": background, "zorder": 2.5}
        axes.text(*points[len(points) // 2], edge.label, ha="center", va="center", parse_math=False, **style)


def _curve(start: np.ndarray, end: np.ndarray, bend: float) -> np.ndarray:
    """Return the points of a parabola between two points: (points, 2)."""
    along = np.linspace(0, 1, CURVE_POINTS)[:, None]
    across = np.array([start[1] - end[1], end[0] - start[0]])
    return start + along * (end - start) + 4 * bend * along * (1 - along) * across


def _through(route: np.ndarray) -> np.ndarray:
    """Return the points of a smooth curve through points whose y ascend or descend: (points, 2)."""
    from scipy.interpolate import pchip_interpolate

    x, y = route.T
    along = np.linspace(y[0], y[-1], CURVE_POINTS)
    sign = np.sign(y[-1] - y[0])
    return np.stack([pchip_interpolate(sign * y, x, sign * along), along], axis=1)


def _points_inside(curve: np.ndarray, centre: np.ndarray, box: np.ndarray) -> int:
    """Return the number of points at the start of a curve that lie in a box; 0 if all points do."""
    inside = (np.abs(curve - centre) <= box / 2).all(axis=1)
    return int(np.argmin(inside)) if not inside.all() else 0
