"""From a skeleton to a PAG: FCI, and RFCI (docs/latent.md), in any order of the variables."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpupc_impl.core.family import get_family, open_tests
from gpupc_impl.core.independence import IndependenceTests
from gpupc_impl.core.knowledge import BackgroundKnowledge, Constraints, constraints
from gpupc_impl.core.pag import PAG
from gpupc_impl.core.problem import InvalidProblem, Problem
from gpupc_impl.core.registry import InvalidParameter
from gpupc_impl.core.result import Skeleton
from gpupc_impl.latent import rules
from gpupc_impl.latent.mixed_graph import Claims, MixedGraph
from gpupc_impl.latent.paths import discriminating_paths
from gpupc_impl.latent.possible_d_sep import scan
from gpupc_impl.latent.rfci import EdgeTests
from gpupc_impl.latent.separations import Separations

ALGORITHMS = ("rfci", "fci")
NOTHING_KNOWN = (np.empty((0, 2), np.int64), np.empty((0, 2), np.int64))  # the marks that follow from no knowledge


@dataclasses.dataclass(frozen=True)
class Inference:
    """How a PAG is inferred: the algorithm and its limits, of which None is none. `max_possible_d_sep` is FCI's largest
    set of members of Possible-D-SEP, `max_path_length` the most edges of a discriminating path, and of a path by which
    a variable is in Possible-D-SEP. InvalidParameter is raised for an unknown algorithm, and for a limit that is out of
    range or that the algorithm does not use."""

    algorithm: str = "rfci"
    max_possible_d_sep: int | None = None
    max_path_length: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_possible_d_sep", "max_path_length"):
            value = getattr(self, name)
            whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
            if value is not None and not (whole and value >= 1):
                raise InvalidParameter(f"{name} is {value!r}; it must be a whole number of at least 1, or None")
        if self.algorithm not in ALGORITHMS:
            raise InvalidParameter(f"algorithm is {self.algorithm!r}; choose one of: {', '.join(ALGORITHMS)}")
        if self.algorithm == "rfci" and self.max_possible_d_sep is not None:
            raise InvalidParameter("max_possible_d_sep is for algorithm='fci'; RFCI does not use Possible-D-SEP")


def find_pag(
    skeleton: Skeleton,
    problem: Problem,
    inference: Inference,
    *,
    knowledge: Any = None,
    backend: str = "auto",
    tests: IndependenceTests | None = None,
) -> PAG:
    """Find the PAG of a problem whose skeleton PC-stable found, with the background knowledge, if any, that is passed
    again. Further tests are those of the problem's family on the backend unless `tests` are passed. InvalidProblem is
    raised for fewer than three variables, a skeleton found with other knowledge, or too many sets for FCI,
    BackendUnavailable if the backend that was named cannot be used."""
    if problem.n_variables < 3:
        raise InvalidProblem(
            f"the data have {problem.n_variables} variable(s); FCI needs at least 3, since no mark follows from fewer: "
            "add variables, or take pc"
        )
    random = tests is None and get_family(problem.family).v_structures == "standard"
    tests = tests or open_tests(problem, backend)
    separations = Separations(skeleton, tests, problem, as_found=random)
    graph = MixedGraph(problem.n_variables, skeleton.edges, skeleton.sepsets.gaps)
    known = _known_marks(skeleton, knowledge)
    edge_tests = EdgeTests(separations)
    graph = edge_tests.prune_triples(graph)
    while len(removed := orient(graph, separations, known, edge_tests, inference.max_path_length)):
        graph = edge_tests.prune_triples(graph.without(removed))
    if inference.algorithm == "fci":
        removed = scan(graph, separations, inference.max_possible_d_sep, inference.max_path_length)
        graph = graph.without(removed)
        orient(graph, separations, known, None, inference.max_path_length)
    return _pag(graph, skeleton, separations, inference.algorithm)


def _known_marks(skeleton: Skeleton, knowledge: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the (k, 2) pairs i, j of variables of which background knowledge says that the mark at j is an arrow, and
    those where it is a tail, if they are adjacent. Its directions are statements about causes: a required direction i
    -> j is a tail and an arrow; a variable that cannot be a cause of its neighbour has an arrow."""
    if knowledge is None:
        return NOTHING_KNOWN
    names = skeleton.names
    if hasattr(knowledge, "required_rules_specs"):
        knowledge = BackgroundKnowledge.from_causallearn(knowledge, names)
    stated = constraints(knowledge, names)
    for i, j in stated.fixed.broken_by(skeleton.adjacency)[:1]:
        raise InvalidProblem(
            f"the skeleton and the knowledge differ in the edge between {names[i]} and {names[j]}; find the "
            "skeleton with the same knowledge"
        )
    required = constraints(BackgroundKnowledge(required_directions=knowledge.required_directions), names).arrows
    _check_ancestors(required, stated, names)
    return stated.directed(skeleton.adjacency), required[:, ::-1]


def _check_ancestors(required: np.ndarray, stated: Constraints, names: Sequence[str]) -> None:
    """Check that no variable that causes another one through required directions is stated to be no cause of it."""
    import networkx

    graph = networkx.DiGraph(required.tolist())
    no_cause = set(map(tuple, stated.arrows[:, ::-1].tolist()))
    for i, j in sorted(networkx.transitive_closure_dag(graph).edges):
        later = 0 <= stated.tiers[j] < stated.tiers[i]
        if later or (i, j) in no_cause:
            path = " -> ".join(names[k] for k in networkx.shortest_path(graph, i, j))
            denied = f"{names[j]} is in an earlier tier" if later else f"{names[i]} -> {names[j]} is forbidden"
            raise InvalidProblem(
                f"{path} is required, so {names[i]} is a cause of {names[j]}; but {denied}, which in a PAG means "
                "that it is none: take one of these statements back"
            )


def orient(
    graph: MixedGraph,
    separations: Separations,
    known: tuple[np.ndarray, np.ndarray] = NOTHING_KNOWN,
    edge_tests: EdgeTests | None = None,
    longest: int | None = None,
) -> np.ndarray:
    """Orient a graph without marks, given those of `_known_marks`, with RFCI's tests of the edges of discriminating
    paths (None for FCI, which makes none), which have `longest` edges at most. Returns the (k, 2) edges of these paths
    that were found independent; if there are any, the orientation is to begin again without them."""
    claims = Claims(graph)
    for pairs, claimed in zip(known, (claims.arrows, claims.tails), strict=True):
        arcs = graph.arcs(*pairs.T)
        claimed[arcs[arcs >= 0]] = True
    claims.apply()
    rules.colliders(graph, separations.contain)
    again = True
    while again:
        again = rules.apply_together(graph, rules.rule_1, rules.rule_2, rules.rule_3)
        paths = list(discriminating_paths(graph, longest))
        if edge_tests is not None and paths and len(removed := edge_tests.prune_paths(paths)):
            return removed
        claims = Claims(graph)
        rules.rule_4(graph, claims, paths, separations.contain)
        again = claims.apply()
    rules.apply_together(graph, rules.rule_5)
    rules.apply_together(graph, rules.rule_6, rules.rule_7)
    rules.apply_together(graph, rules.rule_8, rules.rule_9, rules.rule_10)
    return np.empty((0, 2), np.int64)


def _pag(graph: MixedGraph, skeleton: Skeleton, separations: Separations, algorithm: str) -> PAG:
    forward = np.flatnonzero(graph.source < graph.target)
    marks = np.stack([graph.marks[graph.reverse[forward]], graph.marks[forward]], axis=1)
    disputed = np.stack([graph.source, graph.target], axis=1)[graph.disputed]
    edges = skeleton.edges
    removed = edges[graph.arcs(*edges.T) < 0]
    sets = separations.of(removed)
    members = np.split(sets.candidates, sets.starts[1:-1])
    by_pair = {(i, j): tuple(own.tolist()) for (i, j), own in zip(removed.tolist(), members, strict=False)}
    return PAG(graph.edges, marks, disputed, skeleton, algorithm, by_pair)
