"""The graph being oriented: edges with a mark at each end, as arrays of arcs. An edge i - j is two arcs, i -> j and j
-> i, whatever its marks; an arc's mark is that at its target. Rules (rules.py) look at all arcs x -> y -> z at once."""

import functools
from typing import NamedTuple

import numpy as np

from gpupc_impl.core.pag import ARROW, CIRCLE, TAIL
from gpupc_impl.core.pairs import find, gathered

APART, UNTESTED = -1, -2
"""In place of an arc: the variables are not adjacent, and a set separates them; or background knowledge forbids their
edge, so that nothing is known about their independence and no rule infers anything from it."""


class Triples(NamedTuple):
    """All triples x, y, z of distinct variables with edges x - y and y - z, in both directions: (t,) arcs x -> y
    (`into`), y -> z (`out`) and x -> z (`closing`), which is `APART` or `UNTESTED` for an unshielded triple."""

    into: np.ndarray
    out: np.ndarray
    closing: np.ndarray

    def where(self, some: np.ndarray) -> "Triples":
        return Triples(self.into[some], self.out[some], self.closing[some])


class MixedGraph:
    """Edges of p variables with marks, (e, 2) pairs i < j, and (g, 2) `untested` pairs i < j, which are forbidden."""

    def __init__(self, n_variables: int, edges: np.ndarray, untested: np.ndarray):
        edges = np.asarray(edges, np.int64).reshape(-1, 2)
        arcs = np.concatenate([edges, edges[:, ::-1]])
        self.untested = np.asarray(untested, np.int64).reshape(-1, 2)
        self._untested_keys = self.untested @ [n_variables, 1]
        self.n_variables, self._keys = n_variables, np.sort(arcs @ [n_variables, 1])
        self.source, self.target = np.divmod(self._keys, n_variables)  # (2 e,) the ends of each arc, ascending
        self.reverse = np.searchsorted(self._keys, self.target * n_variables + self.source)  # the opposite arcs
        self.starts = np.searchsorted(self.source, np.arange(n_variables + 1))  # where each variable's arcs begin
        self.marks = np.full(len(arcs), CIRCLE, np.uint8)  # the mark at each arc's target
        self.disputed = np.zeros(len(arcs), bool)  # marks claimed as a tail and as an arrow; they stay circles

    @property
    def edges(self) -> np.ndarray:
        """The (e, 2) edges i < j, ascending."""
        ascending = self.source < self.target
        return np.stack([self.source[ascending], self.target[ascending]], axis=1)

    def arcs(self, sources: np.ndarray, targets: np.ndarray | int) -> np.ndarray:
        """Return the arcs from (k,) variables to as many or to one; `APART` or `UNTESTED` where there is no edge."""
        place, known = find(self._keys, np.asarray(sources) * self.n_variables + targets)
        if not len(self.untested):
            return np.where(known, place, APART)
        low, high = np.minimum(sources, targets), np.maximum(sources, targets)
        _, untested = find(self._untested_keys, low * self.n_variables + high)
        return np.where(known, place, np.where(untested, UNTESTED, APART))

    def without(self, edges: np.ndarray) -> "MixedGraph":
        """Return the graph without some edges i < j, (k, 2), whose marks are all circles."""
        removed = np.isin(self.edges @ [self.n_variables, 1], edges @ [self.n_variables, 1])
        return MixedGraph(self.n_variables, self.edges[~removed], self.untested)

    @functools.cached_property
    def triples(self) -> Triples:
        """All triples, ordered by `into`, then by `out`."""
        arcs = np.arange(len(self.marks))
        starts, out = gathered(self.starts, arcs, self.target)
        into = np.repeat(arcs, np.diff(starts))
        apart = self.source[into] != self.target[out]
        into, out = into[apart], out[apart]
        return Triples(into, out, self.arcs(self.source[into], self.target[out]))

    @functools.cached_property
    def unshielded(self) -> np.ndarray:
        """The (u, 3) unshielded triples x, y, z, x < z, whose ends some set separates, ordered by y, then x, then z."""
        triples = self.triples.where(self.triples.closing == APART)
        x, y, z = self.source[triples.into], self.target[triples.into], self.target[triples.out]
        listed = np.stack([x, y, z], axis=1)[x < z]
        return listed[np.argsort(listed @ [self.n_variables, self.n_variables**2, 1])]

    def has(self, arcs: np.ndarray, mark: int) -> np.ndarray:
        """Return which arcs have this mark at their target."""
        return self.marks[arcs] == mark

    @property
    def open(self) -> np.ndarray:
        """Which marks are circles that a rule may replace, (2 e,) bool."""
        return (self.marks == CIRCLE) & ~self.disputed


class Claims:
    """The `tails` and the `arrows`, (2 e,) bool, that one round claims at the targets of arcs; they are set together,
    so that their order does not matter."""

    def __init__(self, graph: MixedGraph):
        self._graph = graph
        self.tails, self.arrows = np.zeros((2, len(graph.marks)), bool)

    def apply(self) -> bool:
        """Set the claimed marks where circles are; returns whether any changed. A mark claimed as both is disputed."""
        graph = self._graph
        tails, arrows = graph.open & self.tails, graph.open & self.arrows
        graph.marks[tails & ~arrows] = TAIL
        graph.marks[arrows & ~tails] = ARROW
        graph.disputed |= tails & arrows
        return bool((tails | arrows).any())
