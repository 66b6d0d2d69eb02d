"""Computes an order of the variables by community, and positions of boxes that do not overlap."""

from collections.abc import Sequence

import networkx
import numpy as np

GAP = 0.3, 0.26  # the horizontal and vertical distances between boxes, in inches
MOST_IN_LAYERS = 30  # the most nodes of a component in layers, since a larger one would be too wide
LAYER = 0.35  # the additional distance between layers, in inches
SWEEPS = 24  # the number of passes through the layers that move each box to the middle of its neighbours
ROUNDS = 300  # the upper bound on the rounds in which overlapping boxes are pushed apart
CELL = 0.2  # the width in inches of a cell of the grid on which components are packed


def communities(graph: networkx.Graph) -> list[list[int]]:
    """Return the nodes by community, in descending order of size. Communities are found by Louvain's method with a
    fixed seed; inside a community, the reverse Cuthill-McKee order places neighbours near each other."""
    if not graph:
        return []
    groups = networkx.community.louvain_communities(graph, weight="weight", seed=0)
    ordered = sorted((sorted(nodes) for nodes in groups), key=lambda nodes: (-len(nodes), nodes))
    return [list(networkx.utils.reverse_cuthill_mckee_ordering(graph.subgraph(nodes))) for nodes in ordered]


def places(
    graph: networkx.Graph, arrows: Sequence[tuple[int, int]], boxes: np.ndarray, extra: float = 0.0
) -> tuple[np.ndarray, dict[tuple[int, int], np.ndarray]]:
    """Return the centres, (k, 2), of the nodes 0 to k - 1, whose boxes have (k, 2) widths and heights, and the points
    that an edge i < j between layers passes from i to j; y points upwards. Edges are longer by `extra` inches, as room
    for labels. Each connected component is laid out on its own, by the springs of Kamada and Kawai or, if it is small
    and has arrows, in layers, so that they point down. Then the components are packed."""
    gap = np.array([GAP[0] + extra, GAP[1] + 0.6 * extra])
    layer, routes, whole = _layers(graph, arrows), {}, networkx.empty_graph(len(boxes))
    for i, j in sorted(map(sorted, graph.edges)):  # in ascending order, so that equal graphs have equal pictures
        between = range(layer[i], layer[j], 1 if layer[i] < layer[j] else -1)[1:]  # the layers that the edge crosses
        routes[i, j] = [i, *range(len(layer), len(layer) + len(between)), j]
        networkx.add_path(whole, routes[i, j])
        layer += between
    boxes = np.concatenate([boxes, np.zeros((len(layer) - len(boxes), 2))])
    centres = np.zeros((len(boxes), 2))
    components = sorted(map(sorted, networkx.connected_components(whole)), key=lambda nodes: (-len(nodes), nodes))
    for component in components:
        own = whole.subgraph(component)
        if len(component) > 1:
            centres[component] = _springs(own, component, boxes[component], gap, extra)
        if len({layer[node] for node in component}) > 1:
            _move_to_layers(own, layer, centres, boxes, gap)
    _pack(components, centres, boxes, sorted(map(sorted, whole.edges)))
    points = {}
    for (i, j), route in routes.items():
        if layer[i] != layer[j]:
            down = np.sign(layer[j] - layer[i]) * np.array([0.0, 0.5])
            points[i, j] = centres[route]
            points[i, j][[0, -1]] += -down * boxes[i], down * boxes[j]
    return centres[: len(graph)], points


def _layers(graph: networkx.Graph, arrows: Sequence[tuple[int, int]]) -> list[int]:
    """Return the layer of each node, below those of its arrows' tails, and 0 in a component that has no layers. Edges
    without arrows are between layers, too. Arrows in a cycle have no layers."""
    tails, down = (networkx.empty_graph(len(graph), networkx.DiGraph) for _ in range(2))
    tails.add_edges_from(arrows)
    if not networkx.is_directed_acyclic_graph(tails):
        return [0] * len(graph)
    place = {node: k for k, node in enumerate(networkx.topological_sort(tails))}
    down.add_edges_from(sorted(edge, key=place.get) for edge in graph.edges)
    layer = {node: k for k, nodes in enumerate(networkx.topological_generations(down)) for node in nodes}
    for node in reversed(list(networkx.topological_sort(down))):  # as near to its successors as they allow
        layer[node] = min((layer[other] - 1 for other in down[node]), default=layer[node])
    for nodes in networkx.connected_components(graph):
        if len(nodes) > MOST_IN_LAYERS or not nodes & {end for arrow in arrows for end in arrow}:
            layer |= dict.fromkeys(nodes, 0)
    return [layer[node] for node in range(len(graph))]


def _move_to_layers(
    graph: networkx.Graph, layer: Sequence[int], centres: np.ndarray, boxes: np.ndarray, gap: np.ndarray
) -> None:
    """Move boxes to layers, near their neighbours' middle (barycentre method; Sugiyama, Tagawa and Toda 1981)."""
    members = np.array(list(graph))
    numbers = np.array(layer)[members]
    rows = [members[numbers == number] for number in np.unique(numbers)]
    for turn in range(SWEEPS):
        for nodes in rows[:: 1 - 2 * (turn % 2)]:
            wanted = np.array([np.mean(centres[list(graph[node]), 0]) for node in nodes])
            order = np.argsort(wanted, kind="stable")
            ends = np.cumsum(boxes[nodes[order], 0] + gap[0])
            middles = ends - (boxes[nodes[order], 0] + gap[0]) / 2
            centres[nodes[order], 0] = middles + np.mean(wanted[order] - middles)
    for number, nodes in enumerate(rows):
        centres[nodes, 1] = -number * (boxes[:, 1].max() + gap[1] + LAYER)


def _springs(graph: networkx.Graph, nodes: list[int], boxes: np.ndarray, gap: np.ndarray, extra: float) -> np.ndarray:
    """Return the centres of the boxes of a component."""
    positions = networkx.kamada_kawai_layout(graph, pos=networkx.circular_layout(nodes))
    centres = np.array([positions[node] for node in nodes])
    centres -= centres.mean(axis=0)
    _, axes = np.linalg.eigh(centres.T @ centres)
    centres = centres @ axes[:, ::-1]  # so that the longest axis is horizontal
    number = {node: k for k, node in enumerate(nodes)}
    lengths = [np.linalg.norm(centres[number[i]] - centres[number[j]]) for i, j in graph.edges]
    # The factor is 1 up to a mean degree of 2, which is that of a ring.
    density = 1 + 0.4 * max(0.0, 2 * len(lengths) / len(nodes) - 2)
    length = density * (0.6 * float(np.median(boxes[:, 0])) + 0.45) + extra
    scaled = centres * length / max(float(np.median(lengths)), 1e-9)
    # Boxes are wider than high, so the layout is compressed vertically.
    return _apart(scaled * (1.0, 0.85), boxes, gap)


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
            push = 0.5 * overlap[i, j, axis] * (1.0 if offsets[i, j, axis] >= 0 else -1.0)
            centres[i, axis] += push
            centres[j, axis] -= push
    return centres


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
