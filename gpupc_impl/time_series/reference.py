"""PCMCI and PCMCI+ written plainly: one test after another, in the order of the papers' algorithms.

It has its own loops, conditions and decisions. What orients links (`orientation`), which makes no tests, it shares with
the batched form.
"""

from __future__ import annotations

import itertools

import numpy as np

from gpupc_impl.time_series import orientation
from gpupc_impl.time_series.batches import Batch, LaggedTest
from gpupc_impl.time_series.contemporaneous import Separations
from gpupc_impl.time_series.mci import corrected, links, symmetrized
from gpupc_impl.time_series.orientation import Triple
from gpupc_impl.time_series.par_corr import akaike
from gpupc_impl.time_series.parameters import Parameters
from gpupc_impl.time_series.result import TimeSeriesGraph

Node = tuple[int, int]
"""A variable and its lag, not negative."""


class Search:
    """One search at one level of the first phase."""

    def __init__(self, test: LaggedTest, parameters: Parameters):
        self.test, self.parameters = test, parameters
        self.n, self.tau_max = test.series.n_variables, test.series.tau_max
        self.shape = (self.n, self.n, self.tau_max + 1)
        self.tests = 0

    def outcome(self, x: Node, j: int, conditions: list[Node]) -> tuple[float, float]:
        """Return the value and the p-value of the test of X and variable j now."""
        self.tests += 1
        columns = [lag * self.n + v for v, lag in conditions if (v, lag) not in (x, (j, 0))]
        one = (np.array([number], np.int32) for number in (*x, j))
        found = self.test.run(Batch(*one, np.array([columns], np.int32).reshape(1, len(columns))))
        return float(found.values[0]), float(found.p_values[0])

    def first_phase(self, j: int, level: float) -> tuple[list[Node], np.ndarray, np.ndarray]:
        """Algorithm S1: return the parents of a variable, strongest first, and (N, tau_max + 1) p-values and values."""
        p_values, values = np.ones(self.shape[1:]), np.zeros(self.shape[1:])
        lags = range(max(1, self.parameters.tau_min), self.tau_max + 1)
        parents = [(i, lag) for i in range(self.n) for lag in lags]
        least = dict.fromkeys(parents, np.inf)
        largest: dict[Node, float] = {}
        size = 0
        while len(parents) > size and size <= self.parameters.max_conds_dim:
            removed = []
            for parent in parents:
                others = [other for other in parents if other != parent]
                sets = itertools.combinations(others, size)
                for given in itertools.islice(sets, self.parameters.max_combinations):
                    value, p_value = self.outcome(parent, j, list(given))
                    least[parent] = min(least[parent], abs(value))
                    if p_value > largest.get(parent, -1.0):
                        largest[parent] = p_value
                        p_values[parent], values[parent] = p_value, value
                    if p_value > level:
                        removed.append(parent)
                        break
            for parent in removed:
                del least[parent]
            parents = sorted(least, key=lambda parent: -least[parent])
            size += 1
        return parents, p_values, values

    def mci_conditions(self, x: Node, j: int, parents: list[list[Node]], given: tuple[Node, ...] = ()) -> list[Node]:
        """Return explicit conditions, the first parents of j, and those of X as many steps earlier as X is."""
        i, lag = x
        most = self.parameters.max_conds_px
        if lag and self.parameters.contemporaneous:
            most = self.parameters.max_conds_px_lagged
        moved = [(v, earlier + lag) for v, earlier in parents[i][:most]]
        return list(dict.fromkeys([*given, *parents[j][: self.parameters.max_conds_py], *moved]))

    def mci(self, parents: list[list[Node]]) -> tuple[np.ndarray, np.ndarray]:
        """Algorithm S3: return p-values and values of all links."""
        p_values, values = np.ones(self.shape), np.zeros(self.shape)
        for i, j, lag in np.ndindex(self.shape):
            if lag >= self.parameters.tau_min and (i, lag) != (j, 0):
                conditions = self.mci_conditions((i, lag), j, parents)
                values[i, j, lag], p_values[i, j, lag] = self.outcome((i, lag), j, conditions)
        return p_values, values

    def skeleton(self, linked: np.ndarray, parents: list[list[Node]], level: float) -> tuple[np.ndarray, ...]:
        """Algorithm 2 of PCMCI+: remove links in place; return p-values and values. Sets are in `separations`."""
        self.separations: Separations = {}
        p_values, values = np.where(linked, 0.0, 1.0), np.zeros(self.shape)
        least = np.full(self.shape, np.inf)
        neighbours = [np.flatnonzero(linked[:, j, 0]).tolist() for j in range(self.n)]
        for size in range(self.parameters.max_conds_dim + 1):
            pairs = [
                (i, j, lag) for i, j, lag in np.argwhere(linked).tolist() if len(neighbours[j]) - (lag == 0) >= size
            ]
            if not pairs:
                break
            for i, j, lag in pairs:
                if not linked[i, j, lag]:
                    continue
                others = [v for v in neighbours[j] if lag or v != i]
                for given in itertools.combinations(others, size):
                    conditions = self.mci_conditions((i, lag), j, parents, tuple((v, 0) for v in given))
                    value, p_value = self.outcome((i, lag), j, conditions)
                    least[i, j, lag] = min(least[i, j, lag], abs(value))
                    if p_value >= p_values[i, j, lag]:
                        p_values[i, j, lag], values[i, j, lag] = p_value, value
                    if p_value > level:
                        linked[i, j, lag] = False
                        self.separations[i, lag, j] = given
                        if lag == 0:
                            linked[j, i, 0] = False
                            self.separations[j, 0, i] = given
                            p_values[j, i, 0] = p_values[i, j, 0]
                        break
            neighbours = [
                sorted(np.flatnonzero(linked[:, j, 0]).tolist(), key=lambda v: -least[v, j, 0]) for j in range(self.n)
            ]
        return p_values, values

    def vote(self, triple: Triple, linked: np.ndarray, parents: list[list[Node]], level: float) -> tuple[int, int]:
        """Return how many sets separate the ends of a triple, and how many of them contain its middle."""
        i, lag, k, j = triple
        sets = set()
        for v in (i, j) if lag == 0 else (j,):
            neighbours = np.flatnonzero(linked[:, v, 0]).tolist()
            for size in range(len(neighbours) + 1):
                sets |= set(itertools.combinations(neighbours, size))
        separating = []
        for given in sorted(sets):
            conditions = self.mci_conditions((i, lag), j, parents, tuple((v, 0) for v in given))
            if self.outcome((i, lag), j, conditions)[1] > level:
                separating.append(given)
        return len(separating), sum(k in given for given in separating)


class _Votes:
    """The votes about triples, as `orientation.judge` asks for them."""

    def __init__(self, search: Search, linked: np.ndarray, parents: list[list[Node]], level: float):
        self._arguments, self._search = (linked, parents, level), search

    def of(self, triple: Triple) -> tuple[int, int]:
        return self._search.vote(triple, *self._arguments)


def search(test: LaggedTest, parameters: Parameters) -> TimeSeriesGraph:
    """Run PCMCI or PCMCI+; see `search.search`."""
    made = Search(test, parameters)
    if not parameters.contemporaneous:
        return _pcmci(made)
    found = [_pcmci_plus(made, level) for level in parameters.levels]
    if len(found) == 1:
        return found[0]
    return min(found, key=lambda each: orientation.mean_score(test.series, each.graph, each.strengths))


def _pcmci(made: Search) -> TimeSeriesGraph:
    parameters = made.parameters
    parents = []
    for j in range(made.n):
        candidates = [made.first_phase(j, level)[0] for level in parameters.levels]
        if len(candidates) > 1:
            candidates.sort(key=lambda nodes: akaike(made.test.series, j, [lag * made.n + v for v, lag in nodes]))
        parents.append(candidates[0])
    p_values, values = made.mci(parents)
    p_values = corrected(p_values, parameters)
    graph = links(p_values <= parameters.alpha)
    return _graph(made, graph, *symmetrized(p_values, values), parents)


def _pcmci_plus(made: Search, level: float) -> TimeSeriesGraph:
    parameters = made.parameters
    found = [made.first_phase(j, level) for j in range(made.n)]
    parents = [each[0] for each in found]
    p_values, values = (np.stack([each[k] for each in found], axis=1) for k in (1, 2))
    linked = np.full(made.shape, parameters.reset_lagged_links)
    linked[:, :, 0] = ~np.eye(made.n, dtype=bool)
    for j, nodes in enumerate(parents):
        for i, lag in nodes:
            linked[i, j, lag] = True
    tested_again = linked.copy()
    tested_again[:, :, 0] = True
    again = symmetrized(*made.skeleton(linked, parents, level))
    p_values, values = np.where(tested_again, again[0], p_values), np.where(tested_again, again[1], values)
    graph = orientation.marks(linked)
    votes = None if parameters.collider_rule == "none" else _Votes(made, linked, parents, level)
    colliders, ambiguous = orientation.judge(
        orientation.unshielded(graph), parameters.collider_rule, votes, made.separations
    )
    orientation.orient_colliders(graph, colliders, parameters.mark_conflicts)
    orientation.apply_rules(graph, ambiguous, parameters.mark_conflicts)
    p_values = corrected(p_values, parameters)
    return _graph(made, graph, p_values, values, parents, made.separations, tuple(ambiguous))


def _graph(
    made: Search,
    graph: np.ndarray,
    p_values: np.ndarray,
    values: np.ndarray,
    parents: list[list[Node]],
    separations: Separations | None = None,
    ambiguous: tuple[Triple, ...] = (),
) -> TimeSeriesGraph:
    return TimeSeriesGraph(
        graph=graph,
        p_values=p_values,
        strengths=values,
        names=made.test.series.names,
        parents=tuple(tuple((v, -lag) for v, lag in nodes) for nodes in parents),
        separations={key: given for key, given in (separations or {}).items() if given},
        ambiguous=ambiguous,
        facts={"tests": made.tests},
    )
