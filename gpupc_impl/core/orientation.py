"""The second step of PC-stable: from a skeleton and its separating sets to a CPDAG.

Background knowledge first, then v-structures (`gpupc_impl.core.colliders`), then Meek's rules to completion (Meek 1995;
rules 1 to 3 are complete where nothing but the data orients an edge, and rule 4 joins them where knowledge does). On
finite samples the statements can contradict each other. What knowledge says stands: a v-structure against it is
dropped. What else happens is ``conflicts``:

``"relaxed"``, the default, does not depend on the order of the variables (Colombo and Maathuis 2014, section 4.3):

- every v-structure i -> k <- j asks for i -> k and for j -> k; an edge that is asked for both ways is a *conflict*;
- then each of the rules in turn, again and again, states all it has to say about the graph as it stood when its turn
  began; an edge it asks for both ways is a conflict as well;
- a conflict stays undirected to the end, and no rule takes it as a premise.

``"bidirected"`` is the same, but a conflict is an edge with two heads, as in pcalg's ``solve.confl=TRUE`` and
causal-learn's ``uc_priority=1``.

``"priority"`` lets the first one win, as causal-learn's default (``uc_priority=2``): v-structures in the order of k,
then i, then j, each as a whole or not at all; of two opposite arrows of a rule, the one from the smaller variable. It
depends on the order of the variables, and so do pcalg's default (``solve.confl=FALSE``) and causal-learn's
``uc_priority=0``, where the last one wins; these are not offered.
"""

from __future__ import annotations

import dataclasses
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core.colliders import V_STRUCTURES, Triples, find, judged_triples
from gpupc_impl.core.files import open_arrays
from gpupc_impl.core.knowledge import constraints
from gpupc_impl.core.problem import InvalidProblem, Problem
from gpupc_impl.core.registry import InvalidParameter
from gpupc_impl.core.result import InvalidSkeleton, Skeleton
from gpupc_impl.core.shown import Shown

if TYPE_CHECKING:
    import networkx
    import pandas
    from causallearn.graph.GeneralGraph import GeneralGraph

CONFLICTS = ("relaxed", "priority", "bidirected")

NO_TRIPLES = np.empty((0, 3), np.int64)


@dataclasses.dataclass(frozen=True, eq=False)
class CPDAG(Shown):
    """A completed partially directed acyclic graph: what the data tell about the directions of a skeleton's edges.

    Attributes:
        directed: (p, p) bool, ``[i, j]`` is True for i -> j.
        undirected: (p, p) bool, symmetric: edges without a direction, conflicts included.
        conflicts: (k, 2) int64 pairs, i < j, ascending: edges that were oriented both ways and stay undirected.
        skeleton: what was oriented.
        ambiguous: (k, 3) int64 triples i, k, j, i < j, ascending: unshielded triples of which nobody can tell whether
            they are v-structures (`gpupc_impl.core.colliders`).
        conflict_kind: what a conflict is called and drawn as: ``"conflict"``, an undirected edge, or ``"bidirected"``,
            one with two heads.
    """

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
        """Edges without a direction, conflicts included."""
        return int(np.count_nonzero(self.undirected)) // 2

    @property
    def has_directed_cycle(self) -> bool:
        """Whether the arrows go round in a circle somewhere, which contradictory v-structures can make them do."""
        from scipy import sparse

        components, _ = sparse.csgraph.connected_components(
            sparse.csr_array(self.directed), directed=True, connection="strong"
        )
        return bool(components < len(self.names))

    def __eq__(self, other: object) -> bool:
        """Same labelled edges with the same directions; conflicts count as undirected."""
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
        """A DataFrame with one row an edge, by name: ``source``, ``target``, ``kind``.

        ``kind`` is ``"directed"`` (source -> target), ``"undirected"``, or the `conflict_kind`: ``"conflict"``
        (undirected, because it was oriented both ways) or ``"bidirected"``.
        """
        import pandas

        edges = self.skeleton.edges
        forward, backward = self.directed[tuple(edges.T)], self.directed[tuple(edges.T[::-1])]
        edges = np.where(backward[:, None], edges[:, ::-1], edges)
        conflicts = set(map(tuple, self.conflicts.tolist()))
        return pandas.DataFrame(
            [
                (self.names[i], self.names[j], self._kind(arrow, (i, j) in conflicts))
                for (i, j), arrow in zip(edges.tolist(), forward | backward, strict=True)
            ],
            columns=["source", "target", "kind"],
        )

    def to_networkx(self) -> networkx.DiGraph:
        """A ``networkx.DiGraph`` of the names in which an undirected edge is two opposite arcs, as in pgmpy's PDAG.

        Every arc has the attribute ``kind``; see `to_frame` for its values.
        """
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
        from causallearn.graph.Edge import Edge
        from causallearn.graph.Endpoint import Endpoint
        from causallearn.graph.GeneralGraph import GeneralGraph
        from causallearn.graph.GraphNode import GraphNode

        nodes = {name: GraphNode(name) for name in self.names}
        graph = GeneralGraph(list(nodes.values()))
        for source, target, kind in self.to_frame().itertuples(index=False):
            tail = Endpoint.ARROW if kind == "bidirected" else Endpoint.TAIL
            head = Endpoint.ARROW if kind == "directed" else tail
            graph.add_edge(Edge(nodes[source], nodes[target], tail, head))
        return graph

    def _kind(self, directed: bool, conflict: bool) -> str:
        return "directed" if directed else self.conflict_kind if conflict else "undirected"

    # --- files -------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write by suffix: ``.npz`` (everything, the skeleton included), ``.csv`` (as `to_frame`), ``.graphml``,
        ``.gml``, ``.dot`` or ``.json`` (docs/results.md).

        An ``.npz`` holds the arrays of `Skeleton.save` and this class's own fields, so that `Skeleton.load` reads it,
        too. Names that begin as formulas do: see `Skeleton.save`.

        Raises:
            ValueError: another suffix, or names that the format cannot hold.
        """
        path = Path(path)
        if path.suffix == ".npz":
            self.skeleton.save(path)
            with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
                for name in ("directed", "undirected", "conflicts", "ambiguous", "conflict_kind"):
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                        np.lib.format.write_array(file, np.asarray(getattr(self, name)))
        else:
            self._write_graph(path)

    @classmethod
    def load(cls, path: str | Path) -> CPDAG:
        """Read what `save` wrote to an ``.npz``.

        Raises:
            InvalidSkeleton: the file holds something else, or is damaged.
            OSError: it cannot be opened.
        """
        skeleton = Skeleton.load(path)
        try:
            with open_arrays(path) as stored:
                arrays = {name: stored[name] for name in ("directed", "undirected", "conflicts")}
                if "ambiguous" in stored:
                    arrays["ambiguous"] = stored["ambiguous"]
                kind = str(stored["conflict_kind"]) if "conflict_kind" in stored else "conflict"
                return cls(skeleton=skeleton, conflict_kind=kind, **arrays)
        except MemoryError:
            raise
        except Exception as error:  # a damaged file raises nearly anything
            raise InvalidSkeleton(
                f"{Path(path).name} holds no directions, or is damaged ({type(error).__name__}: {error}); make it again"
            ) from error


def orient(
    skeleton: Skeleton,
    *,
    problem: Problem | None = None,
    knowledge: Any = None,
    conflicts: str = "relaxed",
    v_structures: str = "standard",
) -> CPDAG:
    """Orient a skeleton's edges: what is known, v-structures, then Meek's rules, as the module's first lines describe.

    Separating sets found with ``separating_sets="first-come"`` vary from run to run, and the directions with them.

    Args:
        problem: what the skeleton was found of; only the conservative and the majority rule need it, for their tests.
        knowledge: a `BackgroundKnowledge`, or causal-learn's: that which the skeleton was found with, if any.
        conflicts: ``"relaxed"``, ``"priority"`` or ``"bidirected"``.
        v_structures: ``"standard"``, ``"conservative"`` or ``"majority"``; see `judged_triples`.

    Raises:
        InvalidParameter: no such choice.
        InvalidProblem: the knowledge cannot be used, or the skeleton was not found with it; or what `judged_triples`
            says.
    """
    check_choices(conflicts, v_structures)
    graph = _PartlyDirected(skeleton.adjacency, first_wins=conflicts == "priority")
    known = _known_arrows(skeleton, knowledge)
    graph.orient(known)
    judged = judged_triples(skeleton, v_structures, problem)
    ambiguous = _orient_colliders(graph, judged)
    graph.set_ambiguous(ambiguous)
    _complete(graph, with_rule_4=len(known) > 0)
    return CPDAG(
        graph.directed,
        graph.undirected | graph.conflicts,
        np.argwhere(np.triu(graph.conflicts)),
        skeleton,
        ambiguous,
        "bidirected" if conflicts == "bidirected" else "conflict",
    )


def check_choices(conflicts: str, v_structures: str) -> None:
    """Check what `orient` is asked for.

    Raises:
        InvalidParameter: there is no such choice.
    """
    for name, value, choices in (("conflicts", conflicts, CONFLICTS), ("v_structures", v_structures, V_STRUCTURES)):
        if value not in choices:
            raise InvalidParameter(f"{name} is {value!r}; choose one of: {', '.join(choices)}")


def _known_arrows(skeleton: Skeleton, knowledge: Any) -> np.ndarray:
    """(k, 2) arrows that background knowledge states of the skeleton's edges."""
    if knowledge is None:
        return np.empty((0, 2), np.int64)
    names, stated = skeleton.names, constraints(knowledge, skeleton.names)
    for i, j in stated.fixed.broken_by(skeleton.adjacency)[:1]:
        what = "a forbidden" if skeleton.adjacency[i, j] else "no required"
        raise InvalidProblem(
            f"the skeleton has {what} edge between {names[i]} and {names[j]}; find it with the same knowledge"
        )
    return stated.directed(skeleton.adjacency)


def equivalence_class(dag: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The CPDAG of a (p, p) bool DAG, [i, j] for i -> j: its arrows, and its edges without a direction (symmetric).

    What `orient` finds where every test of the DAG's independences gives the right answer.
    """
    adjacency = dag | dag.T
    colliders = np.zeros_like(dag)
    for k in range(len(dag)):
        parents = np.flatnonzero(dag[:, k])
        apart = ~adjacency[np.ix_(parents, parents)]
        np.fill_diagonal(apart, False)
        colliders[parents[apart.any(axis=1)], k] = True
    graph = _PartlyDirected(adjacency)
    graph.orient(np.argwhere(colliders))
    _complete(graph)
    return graph.directed, graph.undirected


def _orient_colliders(graph: _PartlyDirected, judged: Iterable[Triples]) -> np.ndarray:
    """Orient v-structures, but those against what is oriented already; returns the (a, 3) ambiguous triples."""
    known, arrows, in_order, ambiguous = graph.directed.copy(), np.zeros_like(graph.adjacency), [], [NO_TRIPLES]
    for triples in judged:
        i, k, j = triples.colliders.T
        possible = ~(known[k, i] | known[k, j])
        i, k, j = i[possible], k[possible], j[possible]
        arrows[i, k] = arrows[j, k] = True
        in_order.append(triples.colliders[possible])
        ambiguous.append(triples.ambiguous)
    if graph.first_wins:
        arrows = _first_colliders(np.concatenate([NO_TRIPLES, *in_order]), known)
    graph.orient(np.argwhere(arrows & graph.undirected))
    found = np.concatenate(ambiguous)
    return found[np.lexsort(found.T[::-1])]


def _first_colliders(colliders: np.ndarray, known: np.ndarray) -> np.ndarray:
    """(p, p) bool: the arrows of (c, 3) v-structures one after the other, but of those against an earlier one."""
    arrows = known.copy()
    for i, k, j in colliders.tolist():
        if not (arrows[k, i] or arrows[k, j]):
            arrows[i, k] = arrows[j, k] = True
    return arrows


def _complete(graph: _PartlyDirected, with_rule_4: bool = False) -> None:
    """Apply Meek's rules until they have nothing more to say."""
    rules = (_rule_1, _rule_2, _rule_3, *([_rule_4] if with_rule_4 else []))
    pending = [np.argwhere(graph.directed)] * len(rules)
    # A rule's premises that are undirected only ever vanish, so what it can newly say follows from an arrow that is
    # new since its last turn.
    while any(len(fresh) for fresh in pending):
        for number, rule in enumerate(rules):
            fresh, pending[number] = pending[number], np.empty((0, 2), np.int64)
            arrows = graph.orient(_consequences(rule, graph, fresh))
            pending = [np.concatenate((waiting, arrows)) for waiting in pending]


class _PartlyDirected:
    """The graph while it is being oriented: an edge is undirected, directed or a conflict.

    Attributes:
        first_wins: whether of two opposite arrows that are given together the first is set, and not a conflict.
    """

    def __init__(self, adjacency: np.ndarray, first_wins: bool = False):
        self.adjacency, self.first_wins = adjacency, first_wins
        self.undirected = adjacency.copy()
        self.directed = np.zeros_like(adjacency)
        self.conflicts = np.zeros_like(adjacency)
        self._ambiguous = np.empty(0, np.int64)

    def orient(self, arrows: np.ndarray) -> np.ndarray:
        """Orient undirected edges along ``(k, 2)`` distinct ascending arrows given all at once; returns those set.

        An edge with an arrow each way becomes a conflict, or has the first of them.
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
        """Note (a, 3) triples i, k, j, i < j, of which nobody can tell whether they are v-structures."""
        self._ambiguous = np.sort(self._numbers(*triples.T))

    def is_clear(self, i: np.ndarray | int, k: np.ndarray | int, j: np.ndarray | int) -> np.ndarray:
        """Whether triples i - k - j that broadcast together are not ambiguous."""
        numbers = self._numbers(np.minimum(i, j), k, np.maximum(i, j))
        _, ambiguous = find(self._ambiguous, np.ravel(numbers))
        clear: np.ndarray = ~ambiguous.reshape(np.shape(numbers))
        return clear

    def _numbers(self, i: Any, k: Any, j: Any) -> Any:
        p = len(self.adjacency)
        return (i * p + k) * p + j


_Arrows = list[tuple[np.ndarray | int, np.ndarray | int]]


def _consequences(
    rule: Callable[[_PartlyDirected, int, int], _Arrows], graph: _PartlyDirected, fresh: np.ndarray
) -> np.ndarray:
    """(k, 2) distinct arrows that a rule asks for because of fresh ones."""
    p = len(graph.adjacency)
    keys = [np.empty(0, np.int64)]
    for tail, head in fresh:
        keys.extend(np.atleast_1d(tails * p + heads) for tails, heads in rule(graph, tail, head))
    return np.stack(np.divmod(np.unique(np.concatenate(keys)), p), axis=1)


def _rule_1(graph: _PartlyDirected, a: int, b: int) -> _Arrows:
    """a -> b - c with a and c not adjacent gives b -> c: b is not a collider."""
    c = np.flatnonzero(graph.undirected[b] & ~graph.adjacency[a])
    return [(b, c[graph.is_clear(a, b, c)])]


def _rule_2(graph: _PartlyDirected, a: int, b: int) -> _Arrows:
    """x -> y -> z with x - z gives x -> z: there is no cycle. The arrow a -> b is x -> y, or it is y -> z."""
    z = np.flatnonzero(graph.undirected[a] & graph.directed[b])
    x = np.flatnonzero(graph.undirected[b])
    x = x[graph.directed[x, a]]
    return [(a, z), (x, b)]


def _rule_3(graph: _PartlyDirected, c: int, b: int) -> _Arrows:
    """c -> b <- d with c and d not adjacent, and a - b, a - c, a - d, gives a -> b: else a cycle or a v-structure."""
    near = np.flatnonzero(graph.adjacency[b])
    d = near[graph.directed[near, b] & ~graph.adjacency[c, near] & (near != c)]
    a = np.flatnonzero(graph.undirected[b] & graph.undirected[c])
    a = a[(graph.undirected[np.ix_(a, d)] & graph.is_clear(c, a[:, None], d)).any(axis=1)]
    return [(a, b)]


def _rule_4(graph: _PartlyDirected, x: int, y: int) -> _Arrows:
    """d -> c -> b with b and d not adjacent, and a - b, a - d, and a and c adjacent, gives a -> b: else a v-structure.

    The arrow x -> y is d -> c, or it is c -> b.
    """
    from_d = [(x, y, int(b)) for b in np.flatnonzero(graph.directed[y] & ~graph.adjacency[x])]
    to_b = [(int(d), x, y) for d in np.flatnonzero(graph.directed[:, x] & ~graph.adjacency[y])]
    found: _Arrows = []
    for d, c, b in from_d + to_b:
        a = np.flatnonzero(graph.undirected[b] & graph.undirected[d] & graph.adjacency[c])
        found.append((a[graph.is_clear(d, a, b)], b))
    return found
