"""The second step of PC-stable: from a skeleton and its separating sets to a CPDAG.

V-structures first, then Meek's rules to completion (Meek 1995; rules 1 to 3 are complete when, as here, nothing but
the data orients an edge). On finite samples the statements can contradict each other; what happens then does not
depend on the order of the variables (Colombo and Maathuis 2014, section 4.3):

- every unshielded triple i - k - j with k outside the separating set of (i, j) asks for i -> k and for j -> k; an
  edge that is asked for both ways is a *conflict*;
- then each of the three rules in turn, again and again, states all it has to say about the graph as it stood when
  its turn began; an edge it asks for both ways is a conflict as well;
- a conflict stays undirected to the end, and no rule takes it as a premise.

This is pcalg's ``u2pd="relaxed", solve.confl=TRUE``, whose bidirected edges are our conflicts. pcalg's default
(``solve.confl=FALSE``) and causal-learn's ``uc_priority=0`` let the last triple overwrite the earlier ones, and
causal-learn's default (``uc_priority=2``) lets the first one win: both depend on the order of the variables.
"""

from __future__ import annotations

import dataclasses
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpupc_impl.core.files import no_formula, open_arrays
from gpupc_impl.core.result import InvalidSkeleton, SeparatingSets, Skeleton

if TYPE_CHECKING:
    import networkx
    import pandas
    from causallearn.graph.GeneralGraph import GeneralGraph

MAX_TRIPLES = 2**22
"""Triples looked at in one go, so that a variable with very many neighbours does not need its square in memory."""


@dataclasses.dataclass(frozen=True, eq=False)
class CPDAG:
    """A completed partially directed acyclic graph: what the data tell about the directions of a skeleton's edges.

    Attributes:
        directed: (p, p) bool, ``[i, j]`` is True for i -> j.
        undirected: (p, p) bool, symmetric: edges without a direction, conflicts included.
        conflicts: (k, 2) int64 pairs, i < j, ascending: edges that were oriented both ways and stay undirected.
        skeleton: what was oriented.
    """

    directed: np.ndarray
    undirected: np.ndarray
    conflicts: np.ndarray
    skeleton: Skeleton

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

        ``kind`` is ``"directed"`` (source -> target), ``"undirected"`` or ``"conflict"`` (undirected, because it was
        oriented both ways).
        """
        import pandas

        edges = self.skeleton.edges
        forward, backward = self.directed[tuple(edges.T)], self.directed[tuple(edges.T[::-1])]
        edges = np.where(backward[:, None], edges[:, ::-1], edges)
        conflicts = set(map(tuple, self.conflicts.tolist()))
        return pandas.DataFrame(
            [
                (self.names[i], self.names[j], _kind(arrow, (i, j) in conflicts))
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
        """A causal-learn ``GeneralGraph``; conflicts are undirected in it."""
        from causallearn.graph.Edge import Edge
        from causallearn.graph.Endpoint import Endpoint
        from causallearn.graph.GeneralGraph import GeneralGraph
        from causallearn.graph.GraphNode import GraphNode

        nodes = {name: GraphNode(name) for name in self.names}
        graph = GeneralGraph(list(nodes.values()))
        for source, target, kind in self.to_frame().itertuples(index=False):
            head = Endpoint.ARROW if kind == "directed" else Endpoint.TAIL
            graph.add_edge(Edge(nodes[source], nodes[target], Endpoint.TAIL, head))
        return graph

    # --- files -------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write by suffix: ``.npz`` (everything, the skeleton included), ``.csv`` (as `to_frame`) or ``.graphml``.

        An ``.npz`` holds the arrays of `Skeleton.save` and ``directed``, ``undirected`` and ``conflicts``, so that
        `Skeleton.load` reads it, too. Names that begin as formulas do: see `Skeleton.save`.

        Raises:
            ValueError: another suffix.
        """
        path = Path(path)
        if path.suffix == ".npz":
            self.skeleton.save(path)
            with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
                for name in ("directed", "undirected", "conflicts"):
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                        np.lib.format.write_array(file, getattr(self, name))
        elif path.suffix == ".csv":
            self.to_frame().map(no_formula).to_csv(path, index=False)
        elif path.suffix == ".graphml":
            import networkx

            networkx.write_graphml(self.to_networkx(), path)
        else:
            raise ValueError(f"cannot write {path.name!r}: the suffix must be .npz, .csv or .graphml")

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
                return cls(
                    skeleton=skeleton, **{name: stored[name] for name in ("directed", "undirected", "conflicts")}
                )
        except MemoryError:
            raise
        except Exception as error:  # a damaged file raises nearly anything
            raise InvalidSkeleton(
                f"{Path(path).name} holds no directions, or is damaged ({type(error).__name__}: {error}); make it again"
            ) from error


def _kind(directed: bool, conflict: bool) -> str:
    return "directed" if directed else "conflict" if conflict else "undirected"


def orient(skeleton: Skeleton) -> CPDAG:
    """Orient a skeleton's edges: v-structures, then Meek's rules 1 to 3, as the module's first lines describe.

    Separating sets found with ``separating_sets="first-come"`` vary from run to run, and the directions with them.
    """
    graph = _completed(skeleton.adjacency, _collider_arrows(skeleton))
    conflicts = np.argwhere(np.triu(graph.conflicts))
    return CPDAG(graph.directed, graph.undirected | graph.conflicts, conflicts, skeleton)


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
    graph = _completed(adjacency, colliders)
    return graph.directed, graph.undirected


def _completed(adjacency: np.ndarray, colliders: np.ndarray) -> _PartlyDirected:
    """The graph with the arrows of its v-structures, (p, p) bool, and what Meek's rules conclude from them."""
    graph = _PartlyDirected(adjacency)
    arrows = graph.orient(np.argwhere(colliders))
    pending = [arrows, arrows, arrows]
    rules = (_rule_1, _rule_2, _rule_3)
    # A rule's premises that are undirected only ever vanish, so what it can newly say follows from an arrow that is
    # new since its last turn.
    while any(len(fresh) for fresh in pending):
        for number, rule in enumerate(rules):
            fresh, pending[number] = pending[number], np.empty((0, 2), np.int64)
            arrows = graph.orient(_consequences(rule, graph, fresh))
            pending = [np.concatenate((waiting, arrows)) for waiting in pending]
    return graph


class _PartlyDirected:
    """The graph while it is being oriented: an edge is undirected, directed or a conflict."""

    def __init__(self, adjacency: np.ndarray):
        self.adjacency = adjacency
        self.undirected = adjacency.copy()
        self.directed = np.zeros_like(adjacency)
        self.conflicts = np.zeros_like(adjacency)

    def orient(self, arrows: np.ndarray) -> np.ndarray:
        """Orient undirected edges along ``(k, 2)`` arrows given all at once; returns those that were set.

        An edge with an arrow each way becomes a conflict.
        """
        tails, heads = arrows.T
        self.directed[tails, heads] = True
        both = self.directed[heads, tails]
        self.undirected[tails, heads] = self.undirected[heads, tails] = False
        tails_both, heads_both = arrows[both].T
        self.conflicts[tails_both, heads_both] = True
        self.directed[tails_both, heads_both] = False
        oriented: np.ndarray = arrows[~both]
        return oriented


def _collider_arrows(skeleton: Skeleton) -> np.ndarray:
    """(p, p) bool: ``[i, k]`` where some v-structure has i -> k."""
    adjacency = skeleton.adjacency
    separated_by = _membership(skeleton.sepsets, len(adjacency))
    arrows: np.ndarray = np.zeros_like(adjacency)
    for k, row in enumerate(adjacency):
        neighbours = np.flatnonzero(row)
        for some in np.array_split(neighbours, len(neighbours) ** 2 // MAX_TRIPLES + 1):
            i, j = np.nonzero(~adjacency[np.ix_(some, neighbours)])
            i, j = some[i], neighbours[j]
            i, j = i[i < j], j[i < j]
            collider = ~separated_by(i, j, k)
            arrows[i[collider], k] = arrows[j[collider], k] = True
    return arrows


def _membership(sepsets: SeparatingSets, p: int) -> Callable[[np.ndarray, np.ndarray, int], np.ndarray]:
    """A vectorised ``k in sepsets[i, j]`` for arrays i < j of pairs that are not edges."""
    pairs = sepsets.pairs[:, 0].astype(np.int64) * p + sepsets.pairs[:, 1]
    members = np.repeat(np.arange(len(pairs)), sepsets.sizes()) * p + sepsets.members

    def contains(i: np.ndarray, j: np.ndarray, k: int) -> np.ndarray:
        number, stored = _find(pairs, i * p + j)
        _, member = _find(members, number * p + k)
        both: np.ndarray = stored & member
        return both

    return contains


def _find(ascending: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each wanted number would stand, and whether it stands there."""
    at = np.searchsorted(ascending, wanted)
    found = at < len(ascending)
    found[found] = ascending[at[found]] == wanted[found]
    return at, found


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
    return [(b, c)]


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
    a = a[graph.undirected[np.ix_(a, d)].any(axis=1)]
    return [(a, b)]
