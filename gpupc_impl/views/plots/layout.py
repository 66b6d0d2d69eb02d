"""Where things go: an order of the variables by community, and places for boxes that do not cover each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import networkx
import numpy as np

GAP = 0.3, 0.26
"""Inches between boxes beside and below each other."""

ROUNDS = 300
"""Of pushing boxes apart; it ends earlier when none covers another."""


def communities(graph: networkx.Graph) -> list[list[int]]:
    """The nodes by community, large ones first, neighbours near each other inside of one (Louvain with a fixed seed;
    reverse Cuthill-McKee)."""
    if not graph:
        return []
    weight = "weight"
    found = networkx.community.louvain_communities(graph, weight=weight, seed=0)
    ordered = sorted((sorted(nodes) for nodes in found), key=lambda nodes: (-len(nodes), nodes))
    return [list(networkx.utils.reverse_cuthill_mckee_ordering(graph.subgraph(nodes))) for nodes in ordered]


def places(
    graph: networkx.Graph, arrows: Sequence[tuple[int, int]], boxes: np.ndarray, room: float = 0.0
) -> np.ndarray:
    """(k, 2) centres of the nodes 0 to k - 1 with boxes of (k, 2) width and height, y upwards.

    Each connected part is laid out by itself (Kamada and Kawai's springs) and turned so that arrows point down, boxes
    are pushed apart, and each further part takes the free place nearest to the corner.

    Args:
        room: what an edge is to be longer, for a text.
    """
    centres = np.zeros((len(boxes), 2))
    parts = sorted((sorted(part) for part in networkx.connected_components(graph)), key=lambda part: (-len(part), part))
    for part in parts:
        centres[part] = _part(graph.subgraph(part), part, arrows, boxes[part], room)
    _pack(parts, centres, boxes, sorted(map(sorted, graph.edges)))
    return centres


def _part(
    graph: networkx.Graph, part: list[int], arrows: Sequence[tuple[int, int]], boxes: np.ndarray, room: float
) -> np.ndarray:
    """Centres of one connected part."""
    if len(part) == 1:
        return np.zeros((1, 2))
    own = networkx.Graph()  # nodes in one order, so that the same graph has the same picture
    own.add_nodes_from(part)
    own.add_edges_from(sorted(map(sorted, graph.edges)))
    found = networkx.kamada_kawai_layout(own, pos=networkx.circular_layout(own))
    centres = np.array([found[node] for node in part])
    number = {node: k for k, node in enumerate(part)}
    heads = [(number[i], number[j]) for i, j in arrows if i in number and j in number]
    centres = _arrows_down(centres, heads)
    lengths = [np.linalg.norm(centres[number[i]] - centres[number[j]]) for i, j in own.edges]
    wanted = 0.6 * float(np.median(boxes[:, 0])) + 0.45 + room
    scaled = centres * wanted / max(float(np.median(lengths)), 1e-9)
    return _apart(
        scaled * (1.0, 0.85), boxes, np.array([GAP[0] + room, GAP[1] + 0.6 * room])
    )  # boxes are wider than high


def _arrows_down(centres: np.ndarray, arrows: Sequence[tuple[int, int]]) -> np.ndarray:
    """Turned, or mirrored, so that most arrows point down; an undirected graph is laid broadside."""
    centred = centres - centres.mean(axis=0)
    if arrows:
        tails, heads = np.array(arrows).T
        down = (centred[heads] - centred[tails]).sum(axis=0)
        angle = -math.pi / 2 - math.atan2(down[1], down[0])
    else:
        _, axes = np.linalg.eigh(centred.T @ centred)
        angle = -math.atan2(axes[1, -1], axes[0, -1])
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    return centred @ turn.T


def _apart(centres: np.ndarray, boxes: np.ndarray, gap: np.ndarray) -> np.ndarray:
    """Boxes pushed apart, along the axis where less is needed, until none covers another."""
    centres = centres.copy()
    needed = (boxes[:, None] + boxes[None]) / 2 + gap
    for _ in range(ROUNDS):
        away = centres[:, None] - centres[None]
        over = needed - np.abs(away)
        covered = np.triu((over > 1e-6).all(axis=2), 1)
        if not covered.any():
            break
        for i, j in np.argwhere(covered):
            axis = int(np.argmin(over[i, j]))
            side = 1.0 if away[i, j, axis] >= 0 else -1.0
            push = 0.5 * over[i, j, axis] * side
            centres[i, axis] += push
            centres[j, axis] -= push
    return centres


CELL = 0.2
"""Inches: the raster on which parts are set beside each other."""


def _pack(
    parts: Sequence[Sequence[int]], centres: np.ndarray, boxes: np.ndarray, edges: Sequence[Sequence[int]]
) -> None:
    """Move the parts, large ones first, each to the free place that makes the picture grow least."""
    from scipy.signal import fftconvolve

    masks = [_mask(part, centres, boxes, edges) for part in parts]
    rows, columns = (sum(mask.shape[axis] for mask in masks) for axis in (0, 1))
    taken = np.zeros((max(rows, 1), max(columns, 1)), bool)
    height = width = 0
    for part, mask in zip(parts, masks, strict=True):
        met = fftconvolve(taken, mask[::-1, ::-1].astype(float), mode="valid") > 0.5
        bottom = np.maximum(np.arange(met.shape[0]) + mask.shape[0], height)[:, None]
        right = np.maximum(np.arange(met.shape[1]) + mask.shape[1], width)[None]
        cost = np.maximum(bottom * 1.25, right) + 1e-3 * (bottom + right)  # a page is wider than high
        row, column = np.unravel_index(np.argmin(np.where(met, np.inf, cost)), met.shape)
        taken[row : row + mask.shape[0], column : column + mask.shape[1]] |= mask
        height, width = max(height, row + mask.shape[0]), max(width, column + mask.shape[1])
        centres[part] += np.array([column, -row]) * CELL


def _mask(part: Sequence[int], centres: np.ndarray, boxes: np.ndarray, edges: Sequence[Sequence[int]]) -> np.ndarray:
    """The cells that a part covers, top row first; it is moved so that its upper left corner is the origin."""
    low, high = (centres[part] - boxes[part] / 2).min(axis=0), (centres[part] + boxes[part] / 2).max(axis=0)
    centres[part] += (-low[0], -high[1])
    mask = np.zeros(np.ceil((high - low)[::-1] / CELL).astype(int) + 1, bool)
    for (x, y), (width, height) in zip(centres[part], boxes[part], strict=True):
        left, right, top, bottom = x - width / 2, x + width / 2, -y - height / 2, -y + height / 2
        mask[int(top / CELL) : int(bottom / CELL) + 2, int(left / CELL) : int(right / CELL) + 2] = True
    inside = set(part)
    for i, j in edges:
        if i in inside:
            points = centres[i] + np.linspace(0, 1, 200)[:, None] * (centres[j] - centres[i])
            mask[(-points[:, 1] / CELL).astype(int), (points[:, 0] / CELL).astype(int)] = True
    return mask
