"""Meek's rules, which orient further edges of a partly directed graph (Meek 1995).

Rules 1 to 3 are complete if only data orient edges; rule 4 is needed in addition if background knowledge does.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gpupc_impl.core.mapped_arrays import pieces
from gpupc_impl.core.pairs import find


class PartlyDirected:
    """The graph during orientation: an edge is undirected, directed or a conflict.

    Attributes:
        first_wins: whether the first of two opposite arrows orients the edge; otherwise the edge becomes a conflict.
    """

    def __init__(self, adjacency: np.ndarray, first_wins: bool = False):
        self.adjacency, self.first_wins = adjacency, first_wins
        self.undirected = adjacency.copy()
        self.directed = np.zeros_like(adjacency)
        self.conflicts = np.zeros_like(adjacency)
        self._ambiguous = np.empty(0, np.int64)

    def orient(self, arrows: np.ndarray) -> np.ndarray:
        """Orient undirected edges along (k, 2) distinct ascending arrows; returns the arrows that the graph then has.

        An edge for which both arrows are passed becomes a conflict, or is oriented along the first (`first_wins`).
        """
        tails, heads = arrows.T
        self.directed[tails, heads] = True
        both = self.directed[heads, tails]
        self.undirected[tails, heads] = self.undirected[heads, tails] = False
        if self.first_wins:
            both &= tails > heads
            self.directed[tuple(arrows[both].T)] = False
        else:
            self.conflicts[tuple(arrows[both].T)] = True
            self.directed[tuple(arrows[both].T)] = False
        oriented: np.ndarray = arrows[~both]
        return oriented

    def set_ambiguous(self, triples: np.ndarray) -> None:
        """Set the ambiguous triples, (a, 3) rows i, k, j, i < j."""
        self._ambiguous = np.sort(self._numbers(*triples.T))

    def is_clear(self, i: np.ndarray | int, k: np.ndarray | int, j: np.ndarray | int) -> np.ndarray:
        """Return which triples i - k - j, whose arrays are broadcast against each other, are not ambiguous."""
        numbers = self._numbers(np.minimum(i, j), k, np.maximum(i, j))
        _, ambiguous = find(self._ambiguous, np.ravel(numbers))
        clear: np.ndarray = ~ambiguous.reshape(np.shape(numbers))
        return clear

    def _numbers(self, i: Any, k: Any, j: Any) -> Any:
        p = len(self.adjacency)
        return (i * p + k) * p + j


def complete(graph: PartlyDirected, with_rule_4: bool = False) -> None:
    """Apply the rules until none of them orients another edge."""
    rules = (_rule_1, _rule_2, _rule_3, *([_rule_4] if with_rule_4 else []))
    pending = [np.argwhere(graph.directed)] * len(rules)
    # The undirected edges among a rule's premises only become fewer, so a new consequence needs an arrow that was added
    # since the rule was last applied.
    while any(len(new) for new in pending):
        for number, rule in enumerate(rules):
            if not len(pending[number]):
                continue
            new, pending[number] = pending[number], np.empty((0, 2), np.int64)
            arrows = graph.orient(_consequences(rule, graph, new))
            pending = [np.concatenate((earlier, arrows)) for earlier in pending]


CELLS_AT_ONCE = 1 << 22
_Arrows = tuple[np.ndarray, np.ndarray]  # tails and heads


def _consequences(
    rule: Callable[[PartlyDirected, np.ndarray, np.ndarray], Iterable[_Arrows]], graph: PartlyDirected, new: np.ndarray
) -> np.ndarray:
    """Return the distinct arrows, (k, 2), that follow from new arrows by a rule."""
    p = len(graph.adjacency)
    keys = [np.empty(0, np.int64)]
    for part in pieces(len(new), max(1, CELLS_AT_ONCE // p)):
        keys.extend(tails * p + heads for tails, heads in rule(graph, *new[part].T))
    return np.stack(np.divmod(np.unique(np.concatenate(keys)), p), axis=1)


def _rule_1(graph: PartlyDirected, a: np.ndarray, b: np.ndarray) -> list[_Arrows]:
    """Rule 1: a -> b - c with a and c not adjacent implies b -> c, because b is not a collider."""
    arrow, c = np.nonzero(graph.undirected[b] & ~graph.adjacency[a])
    clear = graph.is_clear(a[arrow], b[arrow], c)
    return [(b[arrow[clear]], c[clear])]


def _rule_2(graph: PartlyDirected, a: np.ndarray, b: np.ndarray) -> list[_Arrows]:
    """Rule 2: x -> y -> z with x - z implies x -> z, because there is no cycle; a -> b is x -> y or y -> z."""
    of_first, z = np.nonzero(graph.undirected[a] & graph.directed[b])
    of_second, x = np.nonzero(graph.undirected[b] & graph.directed[:, a].T)
    return [(a[of_first], z), (x, b[of_second])]


def _rule_3(graph: PartlyDirected, c: np.ndarray, b: np.ndarray) -> list[_Arrows]:
    """Rule 3: c -> b <- d, c and d not adjacent, and a - b, a - c, a - d: a -> b, or a cycle or v-structure arises."""
    may_be_a = graph.undirected[b] & graph.undirected[c]
    arrows: list[_Arrows] = []
    for arrow in np.flatnonzero(may_be_a.any(axis=1)).tolist():
        tail, head = c[arrow], b[arrow]
        d = np.flatnonzero(graph.directed[:, head] & ~graph.adjacency[tail])
        a, d = np.flatnonzero(may_be_a[arrow]), d[d != tail]
        a = a[(graph.undirected[np.ix_(a, d)] & graph.is_clear(tail, a[:, None], d)).any(axis=1)]
        arrows.append((a, np.full(len(a), head)))
    return arrows


def _rule_4(graph: PartlyDirected, tails: np.ndarray, heads: np.ndarray) -> list[_Arrows]:
    """Rule 4: d -> c -> b, b and d not adjacent, a - b, a - d, a and c adjacent: a -> b, or a v-structure arises.

    A new arrow x -> y is either d -> c or c -> b.
    """
    arrows: list[_Arrows] = []
    for x, y in zip(tails.tolist(), heads.tolist(), strict=True):
        from_d = [(x, y, int(b)) for b in np.flatnonzero(graph.directed[y] & ~graph.adjacency[x])]
        to_b = [(int(d), x, y) for d in np.flatnonzero(graph.directed[:, x] & ~graph.adjacency[y])]
        for d, c, b in from_d + to_b:
            a = np.flatnonzero(graph.undirected[b] & graph.undirected[d] & graph.adjacency[c])
            a = a[graph.is_clear(d, a, b)]
            arrows.append((a, np.full(len(a), b)))
    return arrows
