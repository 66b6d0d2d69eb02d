"""Computes an order of the variables by community, and positions of boxes that do not overlap."""

import math
from collections.abc import Sequence

import networkx
import numpy as np

GAP = 0.3, 0.26
"""The horizontal and vertical distances between boxes, in inches."""

ROUNDS = 300
"""The upper bound on the rounds in which overlapping boxes are pushed apart."""


def communities(graph: networkx.Graph) -> list[list[int]]:
    """Return the nodes by community, in descending order of size.

    Communities are found by Louvain's method with a fixed seed; inside a community, the reverse Cuthill-McKee order
    places neighbours near each other.
    """
    if not graph:
        return []
    groups = networkx.community.louvain_communities(graph, weight="weight", seed=0)
    ordered = sorted((sorted(nodes) for nodes in groups), key=lambda nodes: (-len(nodes), nodes))
    return [list(networkx.utils.reverse_cuthill_mckee_ordering(graph.subgraph(nodes))) for nodes in ordered]


def places(
    graph: networkx.Graph, arrows: Sequence[tuple[int, int]], boxes: np.ndarray, extra: float = 0.0
) -> np.ndarray:
    """Return the centres, (k, 2), of the nodes 0 to k - 1, whose boxes have (k, 2) widths and heights; y points
    upwards.

    Each connected component is laid out on its own (by the springs of Kamada and Kawai) and rotated so that arrows
    point down; then overlapping boxes are pushed apart, and the components are packed.

    Args:
        extra: the additional length of edges in inches, as room for labels.
    """
    centres = np.zeros((len(boxes), 2))
    components = sorted(map(sorted, networkx.connected_components(graph)), key=lambda nodes: (-len(nodes), nodes))
    for component in components:
        centres[component] = _component_places(graph.subgraph(component), component, arrows, boxes[component], extra)
    _pack(components, centres, boxes, sorted(map(sorted, graph.edges)))
    return centres


def _component_places(
    graph: networkx.Graph, nodes: list[int], arrows: Sequence[tuple[int, int]], boxes: np.ndarray, extra: float
) -> np.ndarray:
    """Return the centres of the boxes of one connected component."""
    if len(nodes) == 1:
        return np.zeros((1, 2))
    # Nodes and edges are added in ascending order, so that equal graphs have equal pictures.
    ordered = networkx.Graph()
    ordered.add_nodes_from(nodes)
    ordered.add_edges_from(sorted(map(sorted, graph.edges)))
    positions = networkx.kamada_kawai_layout(ordered, pos=networkx.circular_layout(ordered))
    centres = np.array([positions[node] for node in nodes])
    number = {node: k for k, node in enumerate(nodes)}
    centres = _arrows_down(centres, [(number[i], number[j]) for i, j in arrows if i in number and j in number])
    lengths = [np.linalg.norm(centres[number[i]] - centres[number[j]]) for i, j in ordered.edges]
    # The factor is 1 up to a mean degree of 2, which is that of a ring.
    density = 1 + 0.4 * max(0.0, 2 * ordered.number_of_edges() / len(nodes) - 2)
    length = density * (0.6 * float(np.median(boxes[:, 0])) + 0.45) + extra
    scaled = centres * length / max(float(np.median(lengths)), 1e-9)
    # Boxes are wider than high, so the layout is compressed vertically.
    return _apart(scaled * (1.0, 0.85), boxes, np.array([GAP[0] + extra, GAP[1] + 0.6 * extra]))


def _arrows_down(centres: np.ndarray, arrows: Sequence[tuple[int, int]]) -> np.ndarray:
    """Rotate the centres so that the arrows point down on average; without arrows, so that the longest axis is
    horizontal."""
    centred = centres - centres.mean(axis=0)
    if arrows:
        tails, heads = np.array(arrows).T
        down = (centred[heads] - centred[tails]).sum(axis=0)
        angle = -math.pi / 2 - math.atan2(down[1], down[0])
    else:
        _, axes = np.linalg.eigh(centred.T @ centred)
        angle = -math.atan2(axes[1, -1], axes[0, -1])
    rotation = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    return centred @ rotation.T


def _apart(centres: np.ndarray, boxes: np.ndarray, gap: np.ndarray) -> np.ndarray:
    """Push overlapping boxes apart, each pair along the axis of the smaller overlap, and return the centres."""
    centres = centres.copy()
    distances = (boxes[:, None] + boxes[None]) / 2 + gap
    for _ in range(ROUNDS):
        offsets = centres[:, None] - centres[None]
        overlap = distances - np.abs(offsets)
        overlapping = np.triu((overlap > 1e-6).all(axis=2), 1)
        if not overlapping.any():
            break
        for i, j in np.argwhere(overlapping):
            axis = int(np.argmin(overlap[i, j]))
            sign = 1.0 if offsets[i, j, axis] >= 0 else -1.0
            push = 0.5 * overlap[i, j, axis] * sign
            centres[i, axis] += push
            centres[j, axis] -= push
    return centres


CELL = 0.2
"""The width in inches of a cell of the grid on which components are packed."""


def _pack(
    components: Sequence[Sequence[int]], centres: np.ndarray, boxes: np.ndarray, edges: Sequence[Sequence[int]]
) -> None:
    """Move each component, the largest first, to the free position at which the picture grows least."""
    from scipy.signal import fftconvolve

    masks = [_mask(component, centres, boxes, edges) for component in components]
    rows, columns = (sum(mask.shape[axis] for mask in masks) for axis in (0, 1))
    occupied = np.zeros((max(rows, 1), max(columns, 1)), bool)
    height = width = 0
    for component, mask in zip(components, masks, strict=True):
        blocked = fftconvolve(occupied, mask[::-1, ::-1].astype(float), mode="valid") > 0.5
        bottom = np.maximum(np.arange(blocked.shape[0]) + mask.shape[0], height)[:, None]
        right = np.maximum(np.arange(blocked.shape[1]) + mask.shape[1], width)[None]
        cost = np.maximum(bottom * 1.25, right) + 1e-3 * (bottom + right)  # A page is wider than high.
        row, column = np.unravel_index(np.argmin(np.where(blocked, np.inf, cost)), blocked.shape)
        occupied[row : row + mask.shape[0], column : column + mask.shape[1]] |= mask
        height, width = max(height, row + mask.shape[0]), max(width, column + mask.shape[1])
        centres[component] += np.array([column, -row]) * CELL


def _mask(nodes: Sequence[int], centres: np.ndarray, boxes: np.ndarray, edges: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the cells that a component covers, the top row first; its upper left corner is moved to the origin."""
    low, high = (centres[nodes] - boxes[nodes] / 2).min(axis=0), (centres[nodes] + boxes[nodes] / 2).max(axis=0)
    centres[nodes] += (-low[0], -high[1])
    mask = np.zeros(np.ceil((high - low)[::-1] / CELL).astype(int) + 1, bool)
    for (x, y), (width, height) in zip(centres[nodes], boxes[nodes], strict=True):
        left, right, top, bottom = x - width / 2, x + width / 2, -y - height / 2, -y + height / 2
        mask[int(top / CELL) : int(bottom / CELL) + 2, int(left / CELL) : int(right / CELL) + 2] = True
    members = set(nodes)
    for i, j in edges:
        if i in members:
            points = centres[i] + np.linspace(0, 1, 200)[:, None] * (centres[j] - centres[i])
            mask[(-points[:, 1] / CELL).astype(int), (points[:, 0] / CELL).astype(int)] = True
    return mask
