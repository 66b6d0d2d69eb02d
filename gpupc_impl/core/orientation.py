"""The second step of PC-stable, which turns a skeleton and its separating sets into a CPDAG.

Edges are oriented by background knowledge first, then by v-structures (`gpupc_impl.core.colliders`), then by Meek's
rules until none applies (Meek 1995; rules 1 to 3 are complete if only data orient edges, and rule 4 is needed in
addition if background knowledge does). On finite samples these can contradict each other. A v-structure that
contradicts background knowledge is dropped. The parameter ``conflicts`` decides about all other contradictions:

``"relaxed"``, the default, does not depend on the order of the variables (Colombo and Maathuis 2014, section 4.3):

- every v-structure i -> k <- j orients i -> k and j -> k; an edge that is oriented both ways is a *conflict*;
- then rules are applied in turn, each to the graph when the rule begins; an edge oriented both ways is a conflict too;
- a conflict stays undirected to the end, and is no premise of any rule.

``"bidirected"`` gives conflicts two heads, like pcalg's ``solve.confl=TRUE`` and causal-learn's ``uc_priority=1``.

``"priority"`` keeps the first orientation, as causal-learn's default (``uc_priority=2``): v-structures are applied in
the order of k, then i, then j, each as a whole or not at all; if a rule yields two opposite arrows, the arrow from the
smaller variable is used. The result depends on the order of the variables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core.colliders import V_STRUCTURES, Triples, judged_triples
from gpupc_impl.core.invariants import check_directions
from gpupc_impl.core.knowledge import constraints
from gpupc_impl.core.mapped_arrays import pieces
from gpupc_impl.core.pairs import find
from gpupc_impl.core.problem import InvalidProblem, Problem
from gpupc_impl.core.registry import InvalidParameter
from gpupc_impl.core.result import SavedResult, Skeleton, causallearn_graph

if TYPE_CHECKING:
    import networkx
    import pandas
    from causallearn.graph.GeneralGraph import GeneralGraph

CONFLICTS = ("relaxed", "priority", "bidirected")
NO_ARROWS, NO_TRIPLES = np.empty((0, 2), np.int64), np.empty((0, 3), np.int64)


@dataclasses.dataclass(frozen=True, eq=False)
class CPDAG(SavedResult):
    """A completed partially directed acyclic graph: a skeleton with the directions of its edges, as far as known.

    Attributes:
        directed: (p, p) bool, ``[i, j]`` is True for i -> j.
        undirected: (p, p) bool, symmetric: edges without a direction, conflicts included.
        conflicts: (k, 2) int64 pairs, i < j, ascending: the edges that were oriented both ways and stay undirected.
        ambiguous: (k, 3) int64 triples i, k, j, i < j, ascending: unshielded triples for which the tests do not decide
            whether they are v-structures (`gpupc_impl.core.colliders`).
        conflict_kind: a conflict's name: ``"conflict"``, drawn undirected, or ``"bidirected"``, drawn with two heads.
    """

    _fault = "holds no directions"

    directed: np.ndarray
    undirected: np.ndarray
    conflicts: np.ndarray
    skeleton: Skeleton
    ambiguous: np.ndarray = dataclasses.field(default_factory=NO_TRIPLES.copy)
    conflict_kind: str = "conflict"

    @property
    def names(self) -> tuple[str, ...]:
        return self.skeleton.names

    @property
    def n_directed(self) -> int:
        return int(np.count_nonzero(self.directed))

    @property
    def n_undirected(self) -> int:
        """The edges without a direction; conflicts are among them."""
        return int(np.count_nonzero(self.undirected)) // 2

    @property
    def has_directed_cycle(self) -> bool:
        """Whether the arrows form a cycle, which contradictory v-structures can cause."""
        tails, heads = np.nonzero(self.directed)
        while len(tails):  # Drop the arrows from variables without a parent, which are in no cycle.
            has_parent = np.zeros(len(self.names), bool)
            has_parent[heads] = True
            remain = has_parent[tails]
            if remain.all():
                return True
            tails, heads = tails[remain], heads[remain]
        return False

    def __eq__(self, other: object) -> bool:
        """Whether two graphs have the same labelled edges with the same directions; conflicts count as undirected."""
        if not isinstance(other, CPDAG):
            return NotImplemented
        return np.array_equal(self.directed, other.directed) and np.array_equal(self.undirected, other.undirected)

    def __repr__(self) -> str:
        return (
            f"CPDAG({len(self.names)} variables, {self.n_directed} directed and {self.n_undirected} undirected edges, "
            f"{len(self.conflicts)} conflicts)"
        )

    # --- conversions -------------------------------------------------------------------------------------------
    def to_frame(self) -> pandas.DataFrame:
        """Return a DataFrame with a row for each edge: ``source`` and ``target`` by name, and ``kind``: ``"directed"``
        (source -> target), ``"undirected"``, or the `conflict_kind`."""
        import pandas

        i, j = edges = self.skeleton.edges.T.astype(np.int64)
        source, target = np.array(self.names, object)[np.where(self.directed[j, i], edges[::-1], edges)]
        is_conflict = np.isin([len(self.names), 1] @ edges, self.conflicts @ [len(self.names), 1])
        kind = np.where(is_conflict, self.conflict_kind, "undirected").astype(object)
        kind[self.directed[i, j] | self.directed[j, i]] = "directed"
        return pandas.DataFrame({"source": source, "target": target, "kind": kind})

    def to_networkx(self) -> networkx.DiGraph:
        """Return a ``networkx.DiGraph`` of the names, in which an undirected edge is two opposite arcs, as in pgmpy's
        PDAG. Every arc has the attribute ``kind``; see `to_frame` for its values."""
        import networkx

        graph = networkx.DiGraph()
        graph.add_nodes_from(self.names)
        for source, target, kind in self.to_frame().itertuples(index=False):
            graph.add_edge(source, target, kind=kind)
            if kind != "directed":
                graph.add_edge(target, source, kind=kind)
        return graph

    def to_causallearn(self) -> GeneralGraph:
        """A causal-learn ``GeneralGraph``; conflicts are undirected in it, or bidirected."""
        ends = {"directed": ("TAIL", "ARROW"), "bidirected": ("ARROW", "ARROW")}
        rows = self.to_frame().itertuples(index=False, name=None)
        edges = ((source, target, *ends.get(kind, ("TAIL", "TAIL"))) for source, target, kind in rows)
        return causallearn_graph(self.names, edges)

    # --- files -------------------------------------------------------------------------------------------------
    def stored_arrays(self) -> dict[str, Any]:
        names = ("directed", "undirected", "conflicts", "ambiguous", "conflict_kind")
        return {**self.skeleton.stored_arrays(), **{name: getattr(self, name) for name in names}}

    @classmethod
    def of_arrays(cls, stored: Mapping[str, Any]) -> CPDAG:
        directed, undirected, conflicts = (stored[name] for name in ("directed", "undirected", "conflicts"))
        ambiguous, kind = stored.get("ambiguous", NO_TRIPLES.copy()), str(stored.get("conflict_kind", "conflict"))
        graph = cls(directed, undirected, conflicts, Skeleton.of_arrays(stored), ambiguous, kind)
        check_directions(graph)
        return graph


def orient(
    skeleton: Skeleton,
    *,
    problem: Problem | None = None,
    knowledge: Any = None,
    conflicts: str = "relaxed",
    v_structures: str = "standard",
) -> CPDAG:
    """Orient a skeleton's edges by background knowledge, v-structures and Meek's rules (see the module's docstring).
    Separating sets of ``separating_sets="first-come"`` vary from run to run, and so do the directions.

    Args:
        problem: the skeleton's problem, which only the conservative and the majority rule need, for their tests.
        knowledge: the `BackgroundKnowledge`, or causal-learn's, with which the skeleton was found, if any.
        conflicts: ``"relaxed"``, ``"priority"`` or ``"bidirected"``.
        v_structures: ``"standard"``, ``"conservative"`` or ``"majority"``; docs/knowledge.md defines these rules.

    Raises:
        InvalidParameter: `conflicts` or `v_structures` has an unknown value.
        InvalidProblem: the knowledge is invalid, the skeleton was not found with it, or the rule of v-structures needs
            tests and `problem` is None.
    """
    check_choices(conflicts, v_structures)
    graph = PartlyDirected(skeleton.adjacency, first_wins=conflicts == "priority")
    known = _known_arrows(skeleton, knowledge)
    graph.orient(known)
    ambiguous = _orient_colliders(graph, judged_triples(skeleton, v_structures, problem))
    complete(graph, with_rule_4=len(known) > 0)
    both_ways = np.argwhere(np.triu(graph.conflicts))
    kind = "bidirected" if conflicts == "bidirected" else "conflict"
    return CPDAG(graph.directed, graph.undirected | graph.conflicts, both_ways, skeleton, ambiguous, kind)


def check_choices(conflicts: str, v_structures: str, rules: Sequence[str] = V_STRUCTURES) -> None:
    for name, value, choices in (("conflicts", conflicts, CONFLICTS), ("v_structures", v_structures, rules)):
        if value not in choices:
            raise InvalidParameter(f"{name} is {value!r}; choose one of: {', '.join(choices)}")


def _known_arrows(skeleton: Skeleton, knowledge: Any) -> np.ndarray:
    """The (k, 2) arrows along the skeleton's edges that follow from background knowledge."""
    if knowledge is None:
        return NO_ARROWS
    names, stated = skeleton.names, constraints(knowledge, skeleton.names)
    for i, j in stated.fixed.broken_by(skeleton.adjacency)[:1]:
        what = "a forbidden" if skeleton.adjacency[i, j] else "no required"
        raise InvalidProblem(
            f"the skeleton has {what} edge between {names[i]} and {names[j]}; find it with the same knowledge"
        )
    return stated.directed(skeleton.adjacency)


def equivalence_class(dag: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the CPDAG of a (p, p) bool DAG ([i, j] for i -> j): its arrows and its symmetric undirected edges."""
    adjacency = dag | dag.T
    colliders = np.zeros_like(dag)
    for k in range(len(dag)):
        parents = np.flatnonzero(dag[:, k])
        apart = ~adjacency[np.ix_(parents, parents)]
        np.fill_diagonal(apart, False)
        colliders[parents[apart.any(axis=1)], k] = True
    graph = PartlyDirected(adjacency)
    graph.orient(np.argwhere(colliders))
    complete(graph)
    return graph.directed, graph.undirected


def _orient_colliders(graph: PartlyDirected, judged: Iterable[Triples]) -> np.ndarray:
    """Orient the v-structures that contradict no present arrow, and set the ambiguous triples, (a, 3), and return them
    in ascending order."""
    known, arrows, ambiguous = graph.directed, graph.directed.copy(), [NO_TRIPLES]
    for some in judged:
        ambiguous.append(some.ambiguous)
        if graph.first_wins:
            for i, k, j in some.colliders.tolist():
                if not (arrows[k, i] or arrows[k, j]):
                    arrows[i, k] = arrows[j, k] = True
        else:
            i, k, j = some.colliders.T
            possible = ~(known[k, i] | known[k, j])
            arrows[i[possible], k[possible]] = arrows[j[possible], k[possible]] = True
    graph.orient(np.argwhere(arrows & graph.undirected))
    triples = np.concatenate(ambiguous)
    triples = triples[np.lexsort(triples.T[::-1])]
    graph.ambiguous = graph.numbers(*triples.T)
    return triples


# --- Meek's rules ----------------------------------------------------------------------------------------------------
class PartlyDirected:
    """The graph during orientation: an edge is undirected, directed or a conflict. If `first_wins`, the first of two
    opposite arrows orients the edge; otherwise the edge becomes a conflict."""

    def __init__(self, adjacency: np.ndarray, first_wins: bool = False):
        self.adjacency, self.first_wins = adjacency, first_wins
        self.undirected = adjacency.copy()
        self.directed = np.zeros_like(adjacency)
        self.conflicts = np.zeros_like(adjacency)
        self.ambiguous = np.empty(0, np.int64)  # the `numbers` of the ambiguous triples, ascending

    def orient(self, arrows: np.ndarray) -> np.ndarray:
        """Orient undirected edges along (k, 2) distinct ascending arrows, and return the arrows that the graph then
        has. An edge with both arrows becomes a conflict, or follows the first (`first_wins`)."""
        if not len(arrows):
            return arrows
        tails, heads = arrows.T
        self.directed[tails, heads] = True
        both = self.directed[heads, tails]
        self.undirected[tails, heads] = self.undirected[heads, tails] = False
        if self.first_wins:
            both &= tails > heads
        else:
            self.conflicts[tails[both], heads[both]] = True
        self.directed[tails[both], heads[both]] = False
        return np.asarray(arrows[~both])

    def is_clear(self, i: np.ndarray | int, k: np.ndarray | int, j: np.ndarray | int) -> np.ndarray:
        """Return which triples i - k - j, whose arrays are broadcast against each other, are not ambiguous."""
        numbers = self.numbers(np.minimum(i, j), k, np.maximum(i, j))
        if not len(self.ambiguous):
            return np.ones(np.shape(numbers), bool)
        _, ambiguous = find(self.ambiguous, np.ravel(numbers))
        return np.asarray(~ambiguous.reshape(np.shape(numbers)))

    def numbers(self, i: Any, k: Any, j: Any) -> Any:
        """Return a number for each triple i - k - j with i < j, in the order of i, then k, then j."""
        p = len(self.adjacency)
        return (i * p + k) * p + j


def complete(graph: PartlyDirected, with_rule_4: bool = False) -> None:
    """Apply Meek's rules until none of them orients another edge."""
    rules = (_rule_1, _rule_2, _rule_3, *([_rule_4] if with_rule_4 else []))
    pending = [np.argwhere(graph.directed)] * len(rules)
    # Undirected premises only become fewer, so a new consequence needs an arrow added since the rule was last applied.
    while graph.undirected.any() and any(len(new) for new in pending):
        for number, rule in enumerate(rules):
            new, pending[number] = pending[number], NO_ARROWS
            arrows = graph.orient(_consequences(rule, graph, new))
            if len(arrows):
                pending = [np.concatenate((earlier, arrows)) for earlier in pending]


CELLS_AT_ONCE = 1 << 22
_Arrows = tuple[np.ndarray, np.ndarray]  # tails and heads


def _consequences(
    rule: Callable[[PartlyDirected, np.ndarray, np.ndarray], Iterable[_Arrows]], graph: PartlyDirected, new: np.ndarray
) -> np.ndarray:
    """Return the distinct arrows, (k, 2), that follow from new arrows by a rule."""
    p = len(graph.adjacency)
    keys: list[np.ndarray] = []
    for part in pieces(len(new), max(1, CELLS_AT_ONCE // p)):
        keys.extend(tails * p + heads for tails, heads in rule(graph, *new[part].T) if len(tails))
    return np.stack(np.divmod(np.unique(np.concatenate(keys)), p), axis=1) if keys else NO_ARROWS


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
    """Rule 4: d -> c -> b, b and d not adjacent, a - b, a - d, a and c adjacent: a -> b, or a v-structure arises. A new
    arrow x -> y is either d -> c or c -> b."""
    arrows: list[_Arrows] = []
    for x, y in zip(tails.tolist(), heads.tolist(), strict=True):
        from_d = [(x, y, int(b)) for b in np.flatnonzero(graph.directed[y] & ~graph.adjacency[x])]
        to_b = [(int(d), x, y) for d in np.flatnonzero(graph.directed[:, x] & ~graph.adjacency[y])]
        for d, c, b in from_d + to_b:
            a = np.flatnonzero(graph.undirected[b] & graph.undirected[d] & graph.adjacency[c])
            a = a[graph.is_clear(d, a, b)]
            arrows.append((a, np.full(len(a), b)))
    return arrows
