"""The orientation phases of PCMCI+ (Runge 2020, Algorithms S3 and S4): colliders, then rules R1 to R3. A triple ((i,
tau), k, j) is X = (i, t - tau), the contemporaneous variable k, and Y = (j, t), with links from X to k and between k
and j, and none from X to j. Marks are those of tigramite; ``"x-x"`` is a link that was oriented both ways."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from gpupc_impl.time_series.par_corr import akaike
from gpupc_impl.time_series.phases import Separations, Triple
from gpupc_impl.time_series.series import Series

Arrow = tuple[int, int]  # the tail and the head of a contemporaneous link


def links(significant: np.ndarray) -> np.ndarray:
    """Return the graph of significant links, (N, N, tau_max + 1): ``"-->"``, ``"o-o"``, ``"<--"`` and ``""``. A
    contemporaneous link that PCMCI finds significant in one direction alone has that direction."""
    graph = np.where(significant, "-->", "")
    now, forward, backward = graph[:, :, 0], significant[:, :, 0], significant[:, :, 0].T
    now[forward & backward] = "o-o"
    now[backward & ~forward] = "<--"
    return graph


def symmetrize(p_values: np.ndarray, strengths: np.ndarray) -> None:
    """Set both entries of contemporaneous pairs to those of larger p-value, of equal ones the smaller source's."""
    p, s = p_values[:, :, 0].copy(), strengths[:, :, 0].copy()
    takes_other = np.where(np.tri(len(p), k=-1, dtype=bool), p <= p.T, p < p.T)
    p_values[:, :, 0], strengths[:, :, 0] = np.where(takes_other, p.T, p), np.where(takes_other, s.T, s)


def unshielded(graph: np.ndarray, into: Sequence[str] = ("o-o", "-->")) -> list[Triple]:
    """Return triples whose link k - j has no direction, by j, k, i and tau; `into` are the marks of the link X - k."""
    # Copies in which the rows of a variable lie together.
    enters, absent = (each.swapaxes(0, 1).copy() for each in (np.isin(graph, into), graph == ""))
    triples: list[Triple] = []
    for j, k in np.argwhere((graph[:, :, 0] == "o-o").T).tolist():
        found = enters[k] & absent[j]
        found[j, 0] = False
        triples += [(i, tau, k, j) for i, tau in np.argwhere(found).tolist()]
    return triples


def judge(
    triples: Iterable[Triple], rule: str, votes: Mapping[Triple, tuple[int, int]], separations: Separations
) -> tuple[list[Triple], list[Triple]]:
    """Return the colliders among triples and the ambiguous ones, and correct the separating sets by `votes`. By
    ``"none"`` a triple is a collider if its middle is not in the set that removed the link between its ends. By
    ``"conservative"`` it is one if no separating set has the middle, by ``"majority"`` if fewer than half of them have
    it; a triple is ambiguous if some but not all, or exactly half of them, have it, or if no set separates."""
    colliders, ambiguous = [], []
    for triple in triples:
        i, tau, k, j = triple
        count, members = (1, int(k in separations.get((i, tau, j), ()))) if rule == "none" else votes[triple]
        is_collider = members == 0 if rule == "conservative" else 2 * members < count
        is_chain = members == count if rule == "conservative" else 2 * members > count
        if count == 0 or not (is_collider or is_chain):
            ambiguous.append(triple)
            continue
        if is_collider:
            colliders.append(triple)
        for key in [(i, tau, j)] + [(j, 0, i)] * (tau == 0):
            given = separations.get(key, ())
            if is_collider:
                separations[key] = tuple(v for v in given if v != k)
            elif k not in given:
                separations[key] = (*given, k)
    return colliders, ambiguous


def _orient(graph: np.ndarray, arrows: Iterable[Arrow], oriented: set[Arrow], marks_conflicts: bool) -> None:
    """Orient links from tails to heads, unless `oriented` has them; one in the other direction is a conflict."""
    for tail, head in arrows:
        if (tail, head) not in oriented and (head, tail) not in oriented:
            graph[tail, head, 0], graph[head, tail, 0] = "-->", "<--"
            oriented.add((tail, head))
        if marks_conflicts and (head, tail) in oriented:
            graph[tail, head, 0] = graph[head, tail, 0] = "x-x"


def orient_colliders(graph: np.ndarray, colliders: Iterable[Triple], marks_conflicts: bool) -> None:
    """Orient the links of colliders towards their middles."""
    ends = (((j, k),) if tau else ((j, k), (i, k)) for i, tau, k, j in colliders)
    _orient(graph, itertools.chain.from_iterable(ends), set(), marks_conflicts)


def apply_rules(graph: np.ndarray, ambiguous: Iterable[Triple], marks_conflicts: bool) -> None:
    """Orient links by R1 to R3, in turn, until none applies; each rule looks at the graph as it is when it begins."""
    unclear, oriented = frozenset(ambiguous), set[Arrow]()
    applied = True
    while applied:
        applied = False
        for rule in (_rule_1, _rule_2, _rule_3):
            arrows = list(rule(graph, unclear))
            _orient(graph, arrows, oriented, marks_conflicts)
            applied |= bool(arrows)


def _rule_1(graph: np.ndarray, unclear: frozenset[Triple]) -> Iterator[Arrow]:
    """X --> k o-o j without a link from X to j: k --> j."""
    yield from (triple[2:] for triple in unshielded(graph, ["-->"]) if triple not in unclear)


def _rule_2(graph: np.ndarray, unclear: frozenset[Triple]) -> Iterator[Arrow]:
    """i --> k --> j with i o-o j: i --> j."""
    now = graph[:, :, 0]
    arrow = now == "-->"
    for i, j in np.argwhere((now == "o-o") & (now.T == "o-o")).tolist():
        middles = np.flatnonzero(arrow[i] & arrow[:, j]).tolist()
        yield from ((i, j) for k in middles if (i, 0, k, j) not in unclear)


def _rule_3(graph: np.ndarray, unclear: frozenset[Triple]) -> Iterator[Arrow]:
    """i o-o k --> j and i o-o l --> j with i o-o j, and k and l without a link: i --> j."""
    now = graph[:, :, 0]
    for i, j in np.argwhere(now == "o-o").tolist():
        middles = np.flatnonzero((now[:, i] == "o-o") & (now[:, j] == "-->")).tolist()
        clear = [k for k in middles if (i, 0, k, j) not in unclear]
        yield from ((i, j) for k, other in itertools.permutations(clear, 2) if now[k, other] == "")


def one_dag(graph: np.ndarray, order: Iterable[int]) -> np.ndarray:
    """Return a graph of the class of a PCMCI+ graph. Undirected links are oriented into a variable whose undirected
    neighbours are all linked to each other, the first in the order, which is then left out, and so on (Colombo and
    Maathuis 2014, Lemma 7.6); links that no such variable remains for, and conflicts, stay as they are."""
    graph, order = graph.copy(), list(order)
    circle = graph[:, :, 0] == "o-o"
    # As in tigramite, the arrowheads that remain count as links when neighbours are compared.
    linked = circle | (graph[:, :, 0] == "<--")
    while True:
        for v in order:
            neighbours = np.flatnonzero(circle[:, v])
            if len(neighbours) and all(linked[pair] for pair in itertools.combinations(neighbours, 2)):
                graph[neighbours, v, 0], graph[v, neighbours, 0] = "-->", "<--"
                for ends in ((neighbours, v), (v, neighbours)):
                    circle[ends] = linked[ends] = False
                break
        else:
            return graph


def mean_score(series: Series, graph: np.ndarray, strengths: np.ndarray) -> float:
    """Return the mean of Akaike's criterion over the variables, with their parents in a graph of the class. The order
    is that of the variables' strengths, as in tigramite, so that the order of the columns does not matter."""
    dag = one_dag(graph, np.argsort(np.abs(strengths).sum(axis=(0, 2)))[::-1].tolist())
    scores = []
    for j in range(series.n_variables):
        source, lag = np.nonzero(dag[:, j] == "-->")
        scores.append(akaike(series, j, (lag * series.n_variables + source).tolist()))
    return float(np.mean(scores))
