"""What a search returns: the skeleton, its separating sets, and how it was found."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


class SeparatingSets(Mapping[tuple[int, int], tuple[int, ...]]):
    """The separating set of every removed edge, as a mapping ``{(i, j): members}`` with i < j.

    Pairs removed at level 0 are the bulk (billions, for the widest data) and all have the empty set, so only sets
    with members are stored; a missing pair that is not an edge has the empty set. ``sets[j, i]`` works as well.

    Attributes:
        pairs: (k, 2) int32, i < j, in ascending order: the pairs removed at level 1 or above.
        offsets: (k + 1,) int64: set of pair number q is ``members[offsets[q]:offsets[q + 1]]``.
        members: int32 variable indexes, ascending within a set.
    """

    def __init__(self, adjacency: np.ndarray, pairs: np.ndarray, offsets: np.ndarray, members: np.ndarray):
        self._adjacency = adjacency
        self.pairs, self.offsets, self.members = pairs, offsets, members
        self._keys = pairs[:, 0].astype(np.int64) * len(adjacency) + pairs[:, 1]

    @classmethod
    def from_levels(cls, adjacency: np.ndarray, removed: Iterable[tuple[np.ndarray, np.ndarray]]) -> SeparatingSets:
        """From ``(pairs (k, 2), members (k, level))`` of each level from 1 up, in any order of pairs."""
        removed = [(np.asarray(pairs, np.int32), np.asarray(sets, np.int32)) for pairs, sets in removed if len(pairs)]
        if not removed:
            return cls(adjacency, np.empty((0, 2), np.int32), np.zeros(1, np.int64), np.empty(0, np.int32))
        pairs = np.concatenate([pairs for pairs, _ in removed])
        sizes = np.concatenate([np.full(len(sets), sets.shape[1], np.int64) for _, sets in removed])
        members = np.concatenate([sets.ravel() for _, sets in removed])
        starts = np.concatenate(([0], np.cumsum(sizes)))[:-1]
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))
        offsets = np.concatenate(([0], np.cumsum(sizes[order]))).astype(np.int64)
        gather = np.repeat(starts[order] - offsets[:-1], sizes[order]) + np.arange(offsets[-1])
        return cls(adjacency, pairs[order], offsets, members[gather])

    def __getitem__(self, pair: tuple[int, int]) -> tuple[int, ...]:
        i, j = sorted(map(int, pair))
        p = len(self._adjacency)
        if not 0 <= i < j < p or self._adjacency[i, j]:
            raise KeyError(pair)
        key = i * p + j
        at = int(np.searchsorted(self._keys, key))
        if at < len(self._keys) and self._keys[at] == key:
            return tuple(map(int, self.members[self.offsets[at] : self.offsets[at + 1]]))
        return ()

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for i, row in enumerate(self._adjacency):
            for j in np.flatnonzero(~row[i + 1 :]) + i + 1:
                yield i, int(j)

    def __len__(self) -> int:
        p = len(self._adjacency)
        return (p * (p - 1) - int(np.count_nonzero(self._adjacency))) // 2

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SeparatingSets):
            return (
                np.array_equal(self._adjacency, other._adjacency)
                and np.array_equal(self.pairs, other.pairs)
                and np.array_equal(self.offsets, other.offsets)
                and np.array_equal(self.members, other.members)
            )
        return super().__eq__(other)

    __hash__ = None

    def __repr__(self) -> str:
        return f"SeparatingSets({len(self)} pairs, {len(self.pairs)} of them with members)"

    def sizes(self) -> np.ndarray:
        """(k,) sizes of the stored sets: the levels at which the pairs of `pairs` were removed."""
        return np.diff(self.offsets)

    @property
    def sha256(self) -> str:
        """Digest of the non-empty sets and their pairs."""
        digest = hashlib.sha256()
        for array in (self.pairs, self.offsets, self.members):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


@dataclasses.dataclass(frozen=True, eq=False)
class Skeleton:
    """The undirected graph that PC-stable's first step ends with (cuPC, Algorithm 1).

    Attributes:
        adjacency: (p, p) bool, symmetric, False on the diagonal.
        sepsets: separating set of every pair that is not an edge.
        names: the p variables' names.
        tests_per_level: CI tests performed at each level. Methods that stop an edge's tests at different moments
            differ here, and nowhere else.
        edges_per_level: edges left after each level.
        seconds_per_level: wall-clock time of each level, preparation such as compaction included.
        levels_run: number of levels that were run; level 0 is the first.
        stopped_because: why the next level was not run, as a sentence.
        pmax: (p, p) float64, largest p-value over the tests of a pair, NaN where none was recorded; None unless
            the search was asked for it.
        undefined_tests: tests not decided because an endpoint had no variance left given S.
        pseudo_inverses: conditioning matrices that were near singular and took the Moore-Penrose path.
        facts: how it was found: method, backend, parameters, alpha, conventions.
    """

    adjacency: np.ndarray
    sepsets: SeparatingSets
    names: tuple[str, ...]
    tests_per_level: tuple[int, ...]
    edges_per_level: tuple[int, ...]
    seconds_per_level: tuple[float, ...]
    levels_run: int
    stopped_because: str
    pmax: np.ndarray | None = None
    undefined_tests: int = 0
    pseudo_inverses: int = 0
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def n_edges(self) -> int:
        return int(np.count_nonzero(self.adjacency)) // 2

    @property
    def edges(self) -> np.ndarray:
        """(n_edges, 2) int64 index pairs, i < j, ascending."""
        return np.argwhere(np.triu(self.adjacency))

    @property
    def sha256(self) -> str:
        """Digest of the labelled edges: the packed bits of the adjacency matrix."""
        return hashlib.sha256(np.packbits(self.adjacency).tobytes()).hexdigest()

    def adjacency_at(self, level: int) -> np.ndarray:
        """(p, p) bool: the graph G' at the start of a level, whose rows are A'_G (cuPC, Algorithm 2).

        A pair is removed at the level of its separating set's size, so the graph is the skeleton with the pairs
        whose sets are that large or larger. Level 0 starts complete; after the last level nothing changes.

        Raises:
            ValueError: a negative level.
        """
        if level < 0:
            raise ValueError(f"level must be at least 0, not {level}")
        if level == 0:
            return ~np.eye(len(self.names), dtype=bool)
        later = self.sepsets.pairs[self.sepsets.sizes() >= level]
        return self.adjacency | edges_to_adjacency(later, len(self.names))

    def __eq__(self, other: object) -> bool:
        """Same labelled edges and same separating sets; how they were found does not matter."""
        if not isinstance(other, Skeleton):
            return NotImplemented
        return np.array_equal(self.adjacency, other.adjacency) and self.sepsets == other.sepsets

    __hash__ = None

    def __repr__(self) -> str:
        method = self.facts.get("method", "?")
        return f"Skeleton({len(self.names)} variables, {self.n_edges} edges, {self.levels_run} levels, {method})"

    # --- conversions -------------------------------------------------------------------------------------------

    def to_networkx(self):
        """A ``networkx.Graph`` whose nodes are the variables' names."""
        import networkx

        graph = networkx.Graph()
        graph.add_nodes_from(self.names)
        graph.add_edges_from((self.names[i], self.names[j]) for i, j in self.edges)
        return graph

    def to_causallearn(self):
        """A causal-learn ``GeneralGraph`` with undirected edges."""
        from causallearn.graph.Edge import Edge
        from causallearn.graph.Endpoint import Endpoint
        from causallearn.graph.GeneralGraph import GeneralGraph
        from causallearn.graph.GraphNode import GraphNode

        nodes = [GraphNode(name) for name in self.names]
        graph = GeneralGraph(nodes)
        for i, j in self.edges:
            graph.add_edge(Edge(nodes[i], nodes[j], Endpoint.TAIL, Endpoint.TAIL))
        return graph

    def to_frame(self):
        """A DataFrame of edges by name: columns ``source`` and ``target``."""
        import pandas

        rows = [(self.names[i], self.names[j]) for i, j in self.edges]
        return pandas.DataFrame(rows, columns=["source", "target"])

    # --- files -------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write by suffix: ``.npz`` (everything), ``.csv`` (edges by name) or ``.graphml``.

        Raises:
            ValueError: another suffix.
        """
        path = Path(path)
        if path.suffix == ".npz":
            scalars = {
                "levels_run": self.levels_run,
                "stopped_because": self.stopped_because,
                "undefined_tests": self.undefined_tests,
                "pseudo_inverses": self.pseudo_inverses,
                "facts": dict(self.facts),
            }
            arrays = {} if self.pmax is None else {"pmax": self.pmax}
            with open(path, "wb") as file:
                np.savez_compressed(
                    file,
                    adjacency=self.adjacency,
                    names=np.array(self.names, dtype=str),
                    sepset_pairs=self.sepsets.pairs,
                    sepset_offsets=self.sepsets.offsets,
                    sepset_members=self.sepsets.members,
                    tests_per_level=np.array(self.tests_per_level, np.int64),
                    edges_per_level=np.array(self.edges_per_level, np.int64),
                    seconds_per_level=np.array(self.seconds_per_level, np.float64),
                    run=json.dumps(scalars),
                    **arrays,
                )
        elif path.suffix == ".csv":
            self.to_frame().to_csv(path, index=False)
        elif path.suffix == ".graphml":
            import networkx

            networkx.write_graphml(self.to_networkx(), path)
        else:
            raise ValueError(f"cannot write {path.name!r}: the suffix must be .npz, .csv or .graphml")

    @classmethod
    def load(cls, path: str | Path) -> Skeleton:
        """Read what `save` wrote to an ``.npz``."""
        with np.load(path) as stored:
            adjacency = stored["adjacency"]
            run = json.loads(str(stored["run"]))
            return cls(
                adjacency=adjacency,
                sepsets=SeparatingSets(
                    adjacency, stored["sepset_pairs"], stored["sepset_offsets"], stored["sepset_members"]
                ),
                names=tuple(map(str, stored["names"])),
                tests_per_level=tuple(map(int, stored["tests_per_level"])),
                edges_per_level=tuple(map(int, stored["edges_per_level"])),
                seconds_per_level=tuple(map(float, stored["seconds_per_level"])),
                pmax=stored.get("pmax"),
                **run,
            )


def edges_to_adjacency(edges: Sequence[Sequence[int]] | np.ndarray, n_variables: int) -> np.ndarray:
    """(k, 2) index pairs to a (p, p) bool adjacency matrix."""
    adjacency = np.zeros((n_variables, n_variables), dtype=bool)
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    adjacency[pairs[:, 0], pairs[:, 1]] = adjacency[pairs[:, 1], pairs[:, 0]] = True
    return adjacency
