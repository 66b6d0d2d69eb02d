"""Partial ancestral graphs (PAGs): the results of searches that allow for unmeasured common causes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core.result import SavedResult, Skeleton, causallearn_graph

if TYPE_CHECKING:
    import networkx
    import pandas
    from causallearn.graph.GeneralGraph import GeneralGraph

CIRCLE, ARROW, TAIL = 1, 2, 3  # the codes of marks, which are pcalg's (``amat.pag``); 0 stands for no edge
MARKS = ("none", "circle", "arrow", "tail")

KINDS = {
    ("tail", "arrow"): "directed",
    ("circle", "arrow"): "circle-arrow",
    ("arrow", "arrow"): "bidirected",
    ("circle", "circle"): "circle-circle",
    ("circle", "tail"): "circle-tail",
    ("tail", "circle"): "tail-circle",
    ("tail", "tail"): "undirected",
}
"""The kind of an edge from the marks at its source and its target, as views name it."""

DOT_MARKS = {"circle": "odot", "arrow": "normal", "tail": "none"}


@dataclasses.dataclass(frozen=True, eq=False)
class PAG(SavedResult):
    """A partial ancestral graph (Richardson and Spirtes 2002; Zhang 2008). In every graph that has the same
    independences, an arrow at j of the edge i - j means that j is no cause of i, a tail at j means that j is a cause of
    i or of selection, and a circle leaves this open.

    Attributes:
        edges: (n_edges, 2) int64 index pairs, i < j, ascending.
        edge_marks: (n_edges, 2) uint8: the marks at i and at j: 1 for a circle, 2 for an arrow, 3 for a tail.
        conflicts: (k, 2) int64 pairs (i, j), ascending: the marks at j of edges i - j that rules claimed as a tail and
            as an arrow in the same round; they stay circles.
        skeleton: the skeleton of PC-stable, from which the search for the PAG removed further edges.
        algorithm: ``"rfci"`` or ``"fci"``.
        removed: the separating set of every edge i < j of the skeleton that is not in this graph.
    """

    _fault = "holds no PAG"

    edges: np.ndarray
    edge_marks: np.ndarray
    conflicts: np.ndarray
    skeleton: Skeleton
    algorithm: str
    removed: Mapping[tuple[int, int], tuple[int, ...]]

    @property
    def names(self) -> tuple[str, ...]:
        return self.skeleton.names

    @functools.cached_property
    def marks(self) -> np.ndarray:
        """(p, p) uint8: ``[i, j]`` is the mark at j of the edge i - j, 0 without an edge: pcalg's matrix."""
        marks = np.zeros((len(self.names),) * 2, np.uint8)
        i, j = self.edges.T
        marks[j, i], marks[i, j] = self.edge_marks.T
        return marks

    @property
    def adjacency(self) -> np.ndarray:
        """(p, p) bool, symmetric."""
        return np.asarray(self.marks != 0)

    @property
    def n_edges(self) -> int:
        return len(self.edges)

    def count(self, mark: int) -> int:
        return int(np.count_nonzero(self.edge_marks == mark))

    def __eq__(self, other: object) -> bool:
        """Whether two graphs have the same labelled edges with the same marks."""
        if not isinstance(other, PAG):
            return NotImplemented
        return np.array_equal(self.edges, other.edges) and np.array_equal(self.edge_marks, other.edge_marks)

    def __repr__(self) -> str:
        return (
            f"PAG({len(self.names)} variables, {self.n_edges} edges with {self.count(ARROW)} arrows, "
            f"{self.count(TAIL)} tails and {self.count(CIRCLE)} circles, "
            f"{len(self.conflicts)} conflicts, {self.algorithm})"
        )

    # --- conversions -------------------------------------------------------------------------------------------
    def to_frame(self) -> pandas.DataFrame:
        """A DataFrame with a row per edge: ``source`` and ``target`` by name, and the marks at both, ``mark_source``
        and ``mark_target``: ``"tail"``, ``"arrow"`` or ``"circle"``. A single arrow is at the target."""
        import pandas

        at_i, at_j = self.edge_marks.T
        backward = ((at_i == ARROW) & (at_j != ARROW))[:, None]
        names = np.array(self.names, object)[np.where(backward, self.edges[:, ::-1], self.edges)]
        marks = np.array(MARKS, object)[np.where(backward, self.edge_marks[:, ::-1], self.edge_marks)]
        columns = ("source", "target", "mark_source", "mark_target")
        return pandas.DataFrame(dict(zip(columns, (*names.T, *marks.T), strict=True)))

    def to_networkx(self) -> networkx.DiGraph:
        """Return a ``networkx.DiGraph`` of the names with two opposite arcs for each edge; the attribute ``mark`` of an
        arc is the mark at its head, and ``kind`` is that of the edge in the direction of `to_frame`."""
        import networkx

        graph = networkx.DiGraph()
        graph.add_nodes_from(self.names)
        for source, target, at_source, at_target in self.to_frame().itertuples(index=False):
            kind = KINDS[at_source, at_target]
            graph.add_edge(source, target, mark=at_target, kind=kind)
            graph.add_edge(target, source, mark=at_source, kind=kind)
        return graph

    def to_causallearn(self) -> GeneralGraph:
        """A causal-learn ``GeneralGraph``."""
        rows = self.to_frame().itertuples(index=False, name=None)
        return causallearn_graph(self.names, ((i, j, at_i.upper(), at_j.upper()) for i, j, at_i, at_j in rows))

    to_causal_learn = to_causallearn

    # --- files -------------------------------------------------------------------------------------------------
    def stored_arrays(self) -> dict[str, Any]:
        sets = list(self.removed.values())
        return {
            **self.skeleton.stored_arrays(),
            "edges": self.edges,
            "edge_marks": self.edge_marks,
            "mark_conflicts": self.conflicts,
            "algorithm": self.algorithm,
            "removed_pairs": np.array(list(self.removed), np.int64).reshape(-1, 2),
            "removed_sizes": np.array([len(members) for members in sets], np.int64),
            "removed_members": np.array([k for members in sets for k in members], np.int64),
        }

    @classmethod
    def of_arrays(cls, stored: Mapping[str, Any]) -> PAG:
        names = ("edges", "edge_marks", "mark_conflicts", "algorithm", "removed_pairs", "removed_sizes")
        edges, marks, conflicts, algorithm, pairs, sizes = (stored[name] for name in names)
        parts = np.split(stored["removed_members"], np.cumsum(sizes)[:-1]) if len(sizes) else []
        removed = {(i, j): tuple(part.tolist()) for (i, j), part in zip(pairs.tolist(), parts, strict=True)}
        graph = cls(edges, marks, conflicts, Skeleton.of_arrays(stored), str(algorithm), removed)
        graph.check()
        return graph

    def check(self) -> None:
        """Raise ValueError if an edge is not in the skeleton, or a mark is not a circle, an arrow or a tail."""
        marks, edges = self.edge_marks, self.edges
        if marks.dtype != np.uint8 or marks.shape != edges.shape or not np.isin(marks, (CIRCLE, ARROW, TAIL)).all():
            raise ValueError(
                f"edge_marks are {marks.dtype} {marks.shape}; they must be {edges.shape} codes from {CIRCLE} to {TAIL}"
            )
        numbers, known = (pairs.astype(np.int64) @ [len(self.names), 1] for pairs in (edges, self.skeleton.edges))
        if (np.diff(numbers) <= 0).any() or not np.isin(numbers, known).all():
            raise ValueError("an edge occurs twice, or is not in the skeleton")
        missing = self.skeleton.edges[~np.isin(known, numbers)]
        if sorted(self.removed) != list(map(tuple, missing.tolist())):
            raise ValueError("removed has other pairs than the edges that the skeleton has more")
        if self.conflicts.ndim != 2 or (self.marks[tuple(self.conflicts.T)] != CIRCLE).any():
            raise ValueError("conflicts has a mark that is no circle")
