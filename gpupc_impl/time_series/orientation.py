"""The orientation phases of PCMCI+ (Runge 2020, Algorithms S3 and S4): colliders, then rules R1 to R3.

A triple ((i, tau), k, j) is X = (i, t - tau), the contemporaneous variable k, and Y = (j, t), with links from X to k
and between k and j, and none from X to j. Marks are those of tigramite; ``"x-x"`` is a link that was oriented both
ways.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np

from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.time_series.batches import Batch, LaggedTest, Parents
from gpupc_impl.time_series.contemporaneous import TESTS_A_CHUNK, Separations
from gpupc_impl.time_series.par_corr import akaike
from gpupc_impl.time_series.series import Series

Triple = tuple[int, int, int, int]
"""i, tau (not negative), k and j."""

MOST_NEIGHBOURS = 24
"""Upper bound on the contemporaneous neighbours of a variable whose subsets are all tested for colliders."""


def marks(linked: np.ndarray) -> np.ndarray:
    """Return the graph of a skeleton: ``"o-o"`` for contemporaneous links, ``"-->"`` for others."""
    graph = np.where(linked, "-->", "").astype("<U3")
    graph[:, :, 0][linked[:, :, 0]] = "o-o"
    return graph


def unshielded(graph: np.ndarray) -> list[Triple]:
    """Return the triples whose link between k and j has no direction, by j, k, i and tau."""
    into = (graph == "o-o") | (graph == "-->")
    triples: list[Triple] = []
    for j, k in np.argwhere((graph[:, :, 0] == "o-o").T).tolist():
        found = into[:, k] & (graph[:, j] == "")
        found[j, 0] = False
        triples += [(i, tau, k, j) for i, tau in np.argwhere(found).tolist()]
    return triples


class Voting(Protocol):
    """Counts of separating sets, from so many tests."""

    tests: int

    def of(self, triple: Triple) -> tuple[int, int]:
        """Return the number of sets that separate the ends of a triple, and how many of them contain its middle."""


class Votes:
    """Which sets of contemporaneous neighbours separate the ends of triples.

    The sets are those of the neighbours of Y and, for a contemporaneous X, of X. All tests are made at once.
    """

    def __init__(self, test: LaggedTest, linked: np.ndarray, parents: Parents, alpha: float, triples: Iterable[Triple]):
        self._numbers = {pair: at for at, pair in enumerate(dict.fromkeys((i, tau, j) for i, tau, _, j in triples))}
        n, self._now = len(linked), linked[:, :, 0]
        self._separating = np.zeros(len(self._numbers), np.int64)
        self._with_member = np.zeros((len(self._numbers), n), np.int64)
        self.tests = 0
        neighbours = [np.flatnonzero(linked[:, j, 0]) for j in range(n)]
        for i, tau, j in self._numbers:
            longest = max((j, i) if tau == 0 else (j,), key=lambda v: len(neighbours[v]))
            if len(neighbours[longest]) > MOST_NEIGHBOURS:
                raise InvalidProblem(
                    f"variable {test.series.names[longest]!r} has {len(neighbours[longest])} contemporaneous "
                    f"neighbours, and this rule tests all their subsets; more than {MOST_NEIGHBOURS} take too long: "
                    "lower alpha, or choose collider_rule='none'"
                )
        pairs = np.array(list(self._numbers), np.int64).reshape(-1, 3)
        most = max(map(len, neighbours), default=0)
        for size in range(most + 1):
            for numbers, sets in _chunks(self._sets(neighbours, size)):
                source, lag, target = pairs[numbers].astype(np.int32).T
                outcomes = test.run(Batch(source, lag, target, sets.astype(np.int32)), parents)
                self.tests += len(numbers)
                separates = ~(outcomes.p_values <= alpha)
                np.add.at(self._separating, numbers[separates], 1)
                np.add.at(self._with_member, (numbers[separates, None], sets[separates]), 1)

    def _sets(self, neighbours: list[np.ndarray], size: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the number of each pair and (sets, size) sets of one size; each set once."""
        subsets = {}
        for (i, tau, j), number in self._numbers.items():
            for v in (j, i) if tau == 0 else (j,):
                if v not in subsets:
                    combinations = list(itertools.combinations(neighbours[v].tolist(), size))
                    subsets[v] = np.array(combinations, np.int64).reshape(len(combinations), size)
            yield number, subsets[j]
            if tau == 0 and len(subsets[i]):
                yield number, subsets[i][~self._now[j][subsets[i]].all(axis=1)]

    def of(self, triple: Triple) -> tuple[int, int]:
        """See `Voting`."""
        i, tau, k, j = triple
        number = self._numbers[i, tau, j]
        return int(self._separating[number]), int(self._with_member[number, k])


def _chunks(sets: Iterable[tuple[int, np.ndarray]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Join sets to chunks: the number of each set's pair, and the sets."""
    numbers, parts, count = [], [], 0
    for number, part in sets:
        if not len(part):
            continue
        numbers.append(np.full(len(part), number))
        parts.append(part)
        count += len(part)
        if count >= TESTS_A_CHUNK:
            yield np.concatenate(numbers), np.concatenate(parts)
            numbers, parts, count = [], [], 0
    if count:
        yield np.concatenate(numbers), np.concatenate(parts)


def judge(
    triples: Iterable[Triple], rule: str, votes: Voting | None, separations: Separations
) -> tuple[list[Triple], list[Triple]]:
    """Return the colliders among triples and the ambiguous ones, and correct the separating sets by the votes.

    By ``"none"`` a triple is a collider if its middle is not in the set that removed the link between its ends. By
    ``"conservative"`` it is one if no separating set has the middle, by ``"majority"`` if fewer than half of them have
    it; a triple is ambiguous if some but not all, or exactly half of them, have it, or if no set separates.
    """
    colliders, ambiguous = [], []
    for triple in triples:
        i, tau, k, j = triple
        if votes is None:
            if k not in separations.get((i, tau, j), ()):
                colliders.append(triple)
            continue
        count, members = votes.of(triple)
        is_collider = members == 0 if rule == "conservative" else 2 * members < count
        is_chain = members == count if rule == "conservative" else 2 * members > count
        if count == 0 or not (is_collider or is_chain):
            ambiguous.append(triple)
            continue
        if is_collider:
            colliders.append(triple)
        for key in ((i, tau, j), (j, 0, i)) if tau == 0 else ((i, tau, j),):
            given = separations.get(key, ())
            if is_collider:
                given = tuple(v for v in given if v != k)
            elif k not in given:
                given = (*given, k)
            separations[key] = given
    return colliders, ambiguous


class _Arrows:
    """Contemporaneous links as a step orients them."""

    def __init__(self, graph: np.ndarray, marks_conflicts: bool):
        self.graph, self._marks_conflicts = graph, marks_conflicts
        self._oriented: set[tuple[int, int]] = set()

    def orient(self, tail: int, head: int) -> None:
        """Orient a link that has no direction yet; one that has the other direction is a conflict."""
        if (tail, head) not in self._oriented and (head, tail) not in self._oriented:
            self.graph[tail, head, 0], self.graph[head, tail, 0] = "-->", "<--"
            self._oriented.add((tail, head))
        if self._marks_conflicts and (head, tail) in self._oriented:
            self.graph[tail, head, 0] = self.graph[head, tail, 0] = "x-x"


def orient_colliders(graph: np.ndarray, colliders: Iterable[Triple], marks_conflicts: bool) -> None:
    """Orient the links of colliders towards their middles."""
    arrows = _Arrows(graph, marks_conflicts)
    for i, tau, k, j in colliders:
        arrows.orient(j, k)
        if tau == 0:
            arrows.orient(i, k)


def apply_rules(graph: np.ndarray, ambiguous: Iterable[Triple], marks_conflicts: bool) -> None:
    """Orient links by R1 to R3, in turn, until none applies; each rule looks at the graph as it is when it begins."""
    unclear = frozenset(ambiguous)
    arrows = _Arrows(graph, marks_conflicts)
    while True:
        applied = False
        for rule in (_rule_1, _rule_2, _rule_3):
            found = list(rule(graph, unclear))
            applied |= bool(found)
            for tail, head in found:
                arrows.orient(tail, head)
        if not applied:
            return


def _rule_1(graph: np.ndarray, unclear: frozenset[Triple]) -> Iterator[tuple[int, int]]:
    """X --> k o-o j without a link from X to j: k --> j."""
    arrow = graph == "-->"
    for j, k in np.argwhere(graph[:, :, 0] == "o-o").tolist():
        found = arrow[:, k] & (graph[:, j] == "")
        found[j, 0] = False
        yield from ((k, j) for i, tau in np.argwhere(found).tolist() if (i, tau, k, j) not in unclear)


def _rule_2(graph: np.ndarray, unclear: frozenset[Triple]) -> Iterator[tuple[int, int]]:
    """i --> k --> j with i o-o j: i --> j."""
    now = graph[:, :, 0]
    arrow = now == "-->"
    for i, j in np.argwhere((now == "o-o") & (now.T == "o-o")).tolist():
        middles = np.flatnonzero(arrow[i] & arrow[:, j]).tolist()
        yield from ((i, j) for k in middles if (i, 0, k, j) not in unclear)


def _rule_3(graph: np.ndarray, unclear: frozenset[Triple]) -> Iterator[tuple[int, int]]:
    """i o-o k --> j and i o-o l --> j with i o-o j, and k and l without a link: i --> j."""
    now = graph[:, :, 0]
    for i, j in np.argwhere(now == "o-o").tolist():
        middles = np.flatnonzero((now[:, i] == "o-o") & (now[:, j] == "-->")).tolist()
        for k, other in itertools.permutations(middles, 2):
            if now[k, other] == "" and (i, 0, k, j) not in unclear and (i, 0, other, j) not in unclear:
                yield i, j


def one_dag(graph: np.ndarray, order: Iterable[int]) -> np.ndarray:
    """Return a graph of the class of a PCMCI+ graph, without conflicts between variables in `order`.

    Undirected links are oriented into a variable whose undirected neighbours are all linked to each other, the first in
    the order, which is then left out, and so on (Colombo and Maathuis 2014, Lemma 7.6); links that no such variable
    remains for, and conflicts, stay as they are.
    """
    graph, order = graph.copy(), list(order)
    circle = graph[:, :, 0] == "o-o"
    # As in tigramite, the arrowheads that remain count as links when neighbours are compared.
    linked = circle | (graph[:, :, 0] == "<--")
    while True:
        for v in order:
            neighbours = np.flatnonzero(circle[:, v])
            pairs = itertools.combinations(neighbours.tolist(), 2)
            if len(neighbours) and all(linked[a, b] for a, b in pairs):
                graph[neighbours, v, 0], graph[v, neighbours, 0] = "-->", "<--"
                for ends in ((neighbours, v), (v, neighbours)):
                    circle[ends] = linked[ends] = False
                break
        else:
            return graph


def mean_score(series: Series, graph: np.ndarray, strengths: np.ndarray) -> float:
    """Return the mean of Akaike's criterion over the variables, with their parents in a graph of the class.

    Undirected links are oriented in the order of the variables' strengths, as tigramite does, so that the order of the
    columns does not matter.
    """
    dag = one_dag(graph, np.argsort(np.abs(strengths).sum(axis=(0, 2)))[::-1].tolist())
    scores = []
    for j in range(series.n_variables):
        source, lag = np.nonzero(dag[:, j] == "-->")
        scores.append(akaike(series, j, (lag * series.n_variables + source).tolist()))
    return float(np.mean(scores))
