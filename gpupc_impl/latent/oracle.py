"""An oracle of independence: d-separation in a known graph of which some variables are hidden, in place of data. With
it a search finds the true PAG, which tests of algorithms need, and authors of methods."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csgraph

from gpupc_impl.core.independence import IndependenceTests
from gpupc_impl.core.p_value_search import PValueTests, search_by_p_values
from gpupc_impl.core.problem import InvalidProblem, Problem, search_parameters, variable_names
from gpupc_impl.core.registry import Run
from gpupc_impl.core.result import Skeleton


@dataclasses.dataclass(frozen=True, eq=False)
class IndependenceOracle(Problem):
    """The independences of the observed variables of a directed acyclic graph; `gpupc_impl.fci` takes it as data. The
    `graph`, (q, q) bool with True at ``[i, j]`` for i -> j, is over observed and hidden variables; `observed`, (p,)
    int64, has the index in the graph of each of the problem's variables."""

    family: ClassVar[str] = "oracle"
    PARAMETERS: ClassVar[Mapping[str, Any]] = {}
    n_samples: ClassVar[int] = 0

    graph: np.ndarray
    observed: np.ndarray

    @classmethod
    def from_graph(
        cls, graph: Any, *, hidden: Sequence[int] = (), names: Sequence[str] | None = None, max_level: int | None = None
    ) -> IndependenceOracle:
        """Make the oracle of a (q, q) graph, in which ``[i, j]`` is not 0 for i -> j, given the indexes of the
        variables that are not observed, the names of the others, and the size of the largest conditioning sets.

        Raises:
            InvalidProblem: the graph is not square or has a cycle, or a hidden variable or max_level is invalid.
        """
        import networkx

        matrix = np.asarray(graph) != 0
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise InvalidProblem(f"the graph has shape {matrix.shape}; it must be a square matrix")
        q, indexes = len(matrix), list(hidden) if np.iterable(hidden) else [hidden]
        for k in indexes:
            if type(k) is bool or not isinstance(k, (int, np.integer)) or not 0 <= k < q:
                raise InvalidProblem(f"hidden has {k!r}; the graph's variables are 0 to {q - 1}")
        if not networkx.is_directed_acyclic_graph(networkx.from_numpy_array(matrix, create_using=networkx.DiGraph)):
            raise InvalidProblem("the graph has a directed cycle; an oracle needs an acyclic graph")
        observed = np.setdiff1d(np.arange(q), np.asarray(indexes, np.int64))
        known = variable_names(names, len(observed))
        return cls(graph=matrix, observed=observed, names=known, **search_parameters(0.5, max_level))

    def obstacle(self, level: int) -> str | None:
        return None

    def p_values(self, sets: np.ndarray, tests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return 1 for d-separated pairs and 0 for others, as p-values and as statistics (see `BatchedTests`)."""
        separated = self.separated(tests[:, 1:], sets[tests[:, 0]]).astype(float)
        return separated, 1 - separated

    def separated(self, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
        """Return which of the (k, l) sets d-separate the (k, 2) pairs, (k,) bool, by the ball of Shachter (1998). The
        ball travels from the first variable of each pair. Between non-members it goes up from a child to all parents
        and children, and down to all children; at a member's ancestors it turns up from a parent to parents."""
        k, q = len(pairs), len(self.graph)
        rows = np.arange(k)
        given = np.zeros((k, q), bool)
        given[rows[:, None], self.observed[sets]] = True
        opens = _product(given, self._ancestors.T)
        up, down = np.zeros((k, q), bool), np.zeros((k, q), bool)
        up[rows, self.observed[pairs[:, 0]]] = True
        while True:
            going_up = _product((up & ~given) | (down & opens), self.graph.T)
            going_down = _product((up | down) & ~given, self.graph)
            if not ((going_up & ~up).any() or (going_down & ~down).any()):
                return ~(up | down)[rows, self.observed[pairs[:, 1]]]
            up, down = up | going_up, down | going_down

    def skeleton(self) -> Skeleton:
        facts = {"method": "d-separation", "backend": "cpu", "problem": self.outline()}
        return search_by_p_values(self, Run(None, {}, "canonical", False, None, facts), self)

    def tests(self) -> IndependenceTests:
        return PValueTests(self, self)

    def ancestral(self) -> np.ndarray:
        """Return which observed variables are ancestors of which, (p, p) bool; a variable is its own ancestor."""
        return self._ancestors[np.ix_(self.observed, self.observed)]

    @functools.cached_property
    def _ancestors(self) -> np.ndarray:
        """Which variables of the graph are ancestors of which, (q, q) bool, themselves included."""
        return np.isfinite(csgraph.shortest_path(self.graph, unweighted=True))


def _product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return (left.astype(np.float32) @ right.astype(np.float32)) > 0
