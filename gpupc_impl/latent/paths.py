"""Searches for the paths that rules R4, R5, R9 and R10 of Zhang (2008) name. An uncovered path is one whose vertices
two steps apart are not adjacent. It is searched from arc to arc: x -> y can be followed by y -> z if x and z are not
adjacent. A walk of arcs that is found first by breadth nearly always visits no variable twice, and then is a path;
otherwise all paths are searched in depth."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Iterable, Iterator

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from gpupc_impl.core.pag import ARROW, TAIL
from gpupc_impl.latent.mixed_graph import APART, MixedGraph


class UncoveredPaths:
    """The uncovered paths along arcs that are `usable`, (2 e,) bool. `steps` are (s, 2) arcs, of which the second can
    follow the first, ascending by the first."""

    def __init__(self, graph: MixedGraph, usable: np.ndarray):
        into, out, closing = graph.triples
        some = (closing == APART) & usable[into] & usable[out]
        self.steps = np.stack([into[some], out[some]], axis=1)
        self._graph, self.usable = graph, usable
        self._starts = np.searchsorted(self.steps[:, 0], np.arange(len(usable) + 1))

    def components(self, connection: str) -> np.ndarray:
        """Return a number for each arc; different ones share no path (weak connection), or no closed walk (strong)."""
        n = len(self.usable)
        matrix = sparse.csr_array((np.ones(len(self.steps), bool), tuple(self.steps.T)), shape=(n, n))
        return csgraph.connected_components(matrix, directed=True, connection=connection)[1]

    def reached(
        self, starts: Iterable[int], goals: Collection[int], excluded: Collection[int] = (), one: bool = False
    ) -> set[int]:
        """Return which of the goal arcs end a path that begins with one of the start arcs, all from one variable, and
        visits none of the excluded variables; with `one`, one of these arcs suffices."""
        target, wanted, found = self._graph.target, set(goals), set[int]()
        first, before = list(starts), dict[int, int]()
        avoided = {int(self._graph.source[first[0]]), *excluded} if first else set()
        queue = collections.deque((arc, -1) for arc in first)
        while queue and len(found) < len(wanted):
            arc, previous = queue.popleft()
            if arc in before or int(target[arc]) in avoided:
                continue
            before[arc] = previous
            if arc in wanted and (self._is_path(arc, before) or self._in_depth(first, arc, avoided)):
                found.add(arc)
                if one:
                    return found
            queue.extend((after, arc) for after in self._following(arc))
        return found

    def _following(self, arc: int) -> list[int]:
        return self.steps[self._starts[arc] : self._starts[arc + 1], 1].tolist()

    def _is_path(self, arc: int, before: dict[int, int]) -> bool:
        visited = []
        while arc >= 0:
            visited.append(int(self._graph.target[arc]))
            arc = before[arc]
        return len(set(visited)) == len(visited)

    def _in_depth(self, starts: list[int], goal: int, avoided: Collection[int]) -> bool:
        """Return whether a path, which visits no variable twice, ends with the goal."""
        target = self._graph.target
        pending = [(arc, frozenset(avoided)) for arc in starts]
        while pending:
            arc, visited = pending.pop()
            if int(target[arc]) in visited:
                continue
            if arc == goal:
                return True
            now = visited | {int(target[arc])}
            pending += ((after, now) for after in self._following(arc))
        return False


@dataclasses.dataclass(frozen=True)
class DiscriminatingPaths:
    """All shortest discriminating paths for b between t and c (Zhang 2008, section 2.2), which decide the mark at b of
    the edge b - c; t, the other end, is not adjacent to c. `colliders` are the variables next to b on these paths,
    `edges` the paths' edges, i < j."""

    b: int
    c: int
    t: int
    colliders: list[int]
    edges: set[tuple[int, int]]


def discriminating_paths(graph: MixedGraph, longest: int | None) -> Iterator[DiscriminatingPaths]:
    """Yield the shortest discriminating paths of at most `longest` edges (None: any number) for every edge b - c with
    an open circle at b, for every end t at which a shortest one ends."""
    triples = graph.triples.where(graph.triples.closing >= 0)
    b_to_a, a_to_c, b_to_c = triples
    parents = graph.has(a_to_c, ARROW) & graph.has(graph.reverse[a_to_c], TAIL)
    some = parents & graph.has(b_to_a, ARROW) & graph.open[graph.reverse[b_to_c]]
    b_to_c, a = b_to_c[some], graph.target[b_to_a[some]]
    order = np.argsort(b_to_c, kind="stable")
    targets, firsts = np.unique(b_to_c[order], return_index=True)
    for arc, next_to_b in zip(targets.tolist(), np.split(a[order], firsts[1:]), strict=False):
        yield from _shortest(graph, int(graph.source[arc]), int(graph.target[arc]), next_to_b.tolist(), longest)


def _shortest(
    graph: MixedGraph, b: int, c: int, next_to_b: list[int], longest: int | None
) -> Iterator[DiscriminatingPaths]:
    before: dict[int, set[int]] = {a: {b} for a in next_to_b}  # by variable, those after it on shortest paths
    layer, length = list(before), 3
    ends: dict[int, set[int]] = {}
    while layer and not ends and (longest is None or length <= longest):
        following: dict[int, set[int]] = {}
        for v in layer:
            outgoing = np.arange(graph.starts[v], graph.starts[v + 1])
            outgoing = outgoing[graph.has(graph.reverse[outgoing], ARROW)]
            w = graph.target[outgoing]
            to_c = graph.arcs(w, c)
            parent = (to_c >= 0) & graph.has(to_c, ARROW) & graph.has(graph.reverse[to_c], TAIL)
            collider = parent & graph.has(outgoing, ARROW)
            for u in w[(to_c == APART) & (w != c)].tolist():
                ends.setdefault(u, set()).add(v)
            for u in w[collider].tolist():
                if u not in before and u != b:
                    following.setdefault(u, set()).add(v)
        before |= following
        layer, length = list(following), length + 1
    for t, last in sorted(ends.items()):
        edges, pending = {(t, v) for v in last} | {(b, c)}, set(last)
        while pending:
            v = pending.pop()
            edges |= {(v, u) for u in before[v]}
            pending |= before[v] - {b}
        colliders = [v for v, after in edges if after == b]
        yield DiscriminatingPaths(b, c, t, colliders, {(min(edge), max(edge)) for edge in edges})
