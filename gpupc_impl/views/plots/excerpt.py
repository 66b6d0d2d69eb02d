"""An excerpt of a graph that is too large for a picture: its largest component, or a hub and the variables near it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpupc_impl.views.plots import shown_name
from gpupc_impl.views.plots.graph import DrawnEdge, draw, has_many_variables, plot
from gpupc_impl.views.result import Result, adjacency_of, numbered_edges, skeleton_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NODES = 50
"""Upper bound on the variables of an excerpt."""


def overview(result: Result) -> Axes:
    """Draw the graph or, if it has too many variables for that, an excerpt."""
    if not has_many_variables(result):
        return plot(result)
    names = skeleton_of(result).names
    nodes, title = _excerpt(result)
    number = {node: k for k, node in enumerate(nodes)}
    edges = [DrawnEdge(number[i], number[j], kind) for i, j, kind in numbered_edges(result) if {i, j} <= number.keys()]
    return draw([names[node] for node in nodes], edges, None, title)


def components(adjacency: np.ndarray) -> list[np.ndarray]:
    """The variables of each connected component of at least two, the largest component first.

    Inside a component, variables with more neighbours come first.
    """
    from scipy import sparse

    _, labels = sparse.csgraph.connected_components(sparse.csr_array(adjacency), directed=False)
    degrees = adjacency.sum(axis=1)
    order = np.lexsort((-degrees, labels))
    groups = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
    return sorted((group for group in groups if len(group) > 1), key=len, reverse=True)


def _excerpt(result: Result) -> tuple[list[int], str]:
    """The variables that are drawn, and the title that says which they are."""
    adjacency, names = adjacency_of(result), skeleton_of(result).names
    largest = components(adjacency)[0].tolist()
    if len(largest) <= NODES:
        return largest, f"The largest component: {len(largest):,} of {len(names):,} variables"
    hub = largest[0]
    nodes = _nearest(adjacency, hub)
    name = shown_name(names[hub])
    return nodes, f"Around the hub {name}: {len(nodes)} of the {len(largest):,} variables of the largest component"


def _nearest(adjacency: np.ndarray, hub: int) -> list[int]:
    """Up to `NODES` variables in breadth-first order from a hub; variables with more neighbours come first."""
    degrees = adjacency.sum(axis=1)
    nodes, seen = [hub], {hub}
    for node in nodes:  # the loop extends `nodes`
        neighbours = np.flatnonzero(adjacency[node])
        for other in neighbours[np.argsort(-degrees[neighbours], kind="stable")].tolist():
            if len(nodes) < NODES and other not in seen:
                seen.add(other)
                nodes.append(other)
    return nodes
