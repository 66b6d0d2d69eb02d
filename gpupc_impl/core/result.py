"""What a search returns: the skeleton, its separating sets, and how it was found."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core import mapped
from gpupc_impl.core.files import open_arrays
from gpupc_impl.core.fixed import write
from gpupc_impl.core.shown import Shown

if TYPE_CHECKING:
    import networkx
    import pandas
    from causallearn.graph.GeneralGraph import GeneralGraph

    from gpupc_impl.core.problem import Problem

_PAIRS_AT_ONCE = 1 << 20

NO_PAIRS = np.empty((0, 2), np.int32)
NO_PAIRS.setflags(write=False)


class SeparatingSets(Mapping[tuple[int, int], tuple[int, ...]]):
    """The separating set of every removed edge, as a mapping ``{(i, j): members}`` with i < j.

    Pairs removed at level 0 are the bulk (billions, for the widest data) and all have the empty set, so only sets
    with members are stored; a missing pair that is not an edge has the empty set. ``sets[j, i]`` works as well.
    Each takes 20 bytes and 4 for a member after the first.

    A pair that background knowledge forbids to be an edge was never tested: it has no set, and is not in the mapping.

    Args:
        sizes: how many members the sets have: one number for all, (k,) uint8, or as (k + 1,) int64 `offsets`.

    Attributes:
        gaps: (g, 2) int32, i < j, ascending: the forbidden pairs.
        pairs: (k, 2) int32, i < j, in ascending order: the pairs removed at level 1 or above.
        offsets: (k + 1,) int64: set of pair number q is ``members[offsets[q]:offsets[q + 1]]``.
        members: int32 variable indexes, ascending within a set.
    """

    def __init__(
        self,
        adjacency: np.ndarray,
        pairs: np.ndarray,
        sizes: np.ndarray | int,
        members: np.ndarray,
        gaps: np.ndarray = NO_PAIRS,
    ):
        self._adjacency = adjacency
        self.pairs, self.members, self.gaps = pairs, members, gaps
        self._sizes = sizes

    def with_gaps(self, gaps: np.ndarray) -> SeparatingSets:
        """The same sets, but none for these pairs; see `gaps`."""
        return SeparatingSets(self._adjacency, self.pairs, self._sizes, self.members, gaps)

    @functools.cached_property
    def offsets(self) -> np.ndarray:
        if not isinstance(self._sizes, np.ndarray):
            return np.arange(len(self.pairs) + 1, dtype=np.int64) * self._sizes
        if self._sizes.dtype == np.int64:
            return self._sizes
        offsets = np.zeros(len(self.pairs) + 1, np.int64)
        np.cumsum(self._sizes, out=offsets[1:])
        return offsets

    @functools.cached_property
    def _rows(self) -> np.ndarray:
        return _row_starts(self.pairs, len(self._adjacency))

    @classmethod
    def from_levels(cls, adjacency: np.ndarray, removed: Iterable[tuple[np.ndarray, np.ndarray]]) -> SeparatingSets:
        """From ``(pairs (k, 2), members (k, level))`` of each level from 1 up, in any order of pairs.

        Pairs may be billions: beside what comes in and goes out, little is in memory at a time.
        """
        levels = [
            _in_order(np.asarray(pairs, np.int32), np.asarray(sets, np.int32)) for pairs, sets in removed if len(pairs)
        ]
        if not levels:
            return cls(adjacency, np.empty((0, 2), np.int32), np.zeros(1, np.int64), np.empty(0, np.int32))
        if len(levels) == 1:
            ((pairs, sets),) = levels
            return cls(adjacency, pairs, sets.shape[1], sets.reshape(-1))
        pairs = np.empty((sum(len(pairs) for pairs, _ in levels), 2), np.int32)
        offsets = np.zeros(len(pairs) + 1, np.int64)
        members = np.empty(sum(sets.size for _, sets in levels), np.int32)
        starts = [_row_starts(pairs, len(adjacency)) for pairs, _ in levels]
        at, members_at = 0, 0
        for rows in _row_groups(np.sum(starts, axis=0)):
            parts = [
                (pairs[start[rows.start] : start[rows.stop]], sets[start[rows.start] : start[rows.stop]])
                for (pairs, sets), start in zip(levels, starts, strict=True)
            ]
            merged_pairs, sizes, merged_members = _merge(parts)
            pairs[at : at + len(merged_pairs)] = merged_pairs
            offsets[at + 1 : at + len(sizes) + 1] = members_at + np.cumsum(sizes)
            members[members_at : members_at + len(merged_members)] = merged_members
            at, members_at = at + len(merged_pairs), members_at + len(merged_members)
        return cls(adjacency, pairs, offsets, members)

    def __getitem__(self, pair: tuple[int, int]) -> tuple[int, ...]:
        i, j = sorted(map(int, pair))
        p = len(self._adjacency)
        if not 0 <= i < j < p or self._adjacency[i, j] or self._is_gap(i, j):
            raise KeyError(pair)
        start, stop = self._rows[i], self._rows[i + 1]
        at = start + int(np.searchsorted(self.pairs[start:stop, 1], np.int32(j)))
        if at < stop and self.pairs[at, 1] == j:
            return tuple(map(int, self.members[self.offsets[at] : self.offsets[at + 1]]))
        return ()

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for i, row in enumerate(self._adjacency):
            untested = self.gaps[slice(*np.searchsorted(self.gaps[:, 0], (i, i + 1))), 1]
            for j in np.setdiff1d(np.flatnonzero(~row[i + 1 :]) + i + 1, untested, assume_unique=True):
                yield i, int(j)

    def __len__(self) -> int:
        p = len(self._adjacency)
        return (p * (p - 1) - int(np.count_nonzero(self._adjacency))) // 2 - len(self.gaps)

    def _is_gap(self, i: int, j: int) -> bool:
        start, stop = np.searchsorted(self.gaps[:, 0], (i, i + 1))
        return bool((self.gaps[start:stop, 1] == j).any())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SeparatingSets):
            return (
                _equal(self._adjacency, other._adjacency)
                and _equal(self.pairs, other.pairs)
                and _equal(self.offsets, other.offsets)
                and _equal(self.members, other.members)
                and _equal(self.gaps, other.gaps)
            )
        return super().__eq__(other)

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
            mapped.update_digest(digest, np.ascontiguousarray(array))
        return digest.hexdigest()


class InvalidSkeleton(ValueError):
    """A file does not hold a skeleton; the message names it and the reason."""


@dataclasses.dataclass(frozen=True, eq=False)
class Skeleton(Shown):
    """The undirected graph that PC-stable's first step ends with (cuPC, Algorithm 1).

    Attributes:
        adjacency: (p, p) bool, symmetric, False on the diagonal.
        sepsets: separating set of every pair that is not an edge.
        names: the p variables' names.
        tests_per_level: CI tests performed at each level. Methods that stop an edge's tests at different moments
            differ here, and nowhere else.
        edges_per_level: edges left after each level.
        seconds_per_level: wall-clock time of each level, preparation such as compaction included; where several ran in
            one launch, by the device's clock, and the first also has what is left of the time of that launch.
        levels_run: number of levels that were run; level 0 is the first.
        stopped_because: why the next level was not run, as a sentence.
        pmax: (p, p) float64, largest p-value over the tests of a pair, NaN where none was recorded; None unless
            the search was asked for it.
        undefined_tests: tests not decided because an endpoint had no variance left given S.
        pseudo_inverses: conditioning matrices that were near singular and took the Moore-Penrose path.
        facts: how it was found: method, backend, parameters, alpha, conventions.
        problem: what was searched, where `gpupc_impl.skeleton` found this; files do not hold it.
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
    problem: Problem | None = None

    @property
    def n_edges(self) -> int:
        return int(np.count_nonzero(self.adjacency)) // 2

    @property
    def edges(self) -> np.ndarray:
        """(n_edges, 2) int64 index pairs, i < j, ascending."""
        parts = []
        for rows in mapped.row_pieces(self.adjacency):
            pairs = np.argwhere(np.triu(self.adjacency[rows], rows.start + 1))
            pairs[:, 0] += rows.start
            parts.append(pairs)
        return np.concatenate(parts) if parts else np.empty((0, 2), np.int64)

    @property
    def sha256(self) -> str:
        """Digest of the labelled edges: the packed bits of the adjacency matrix."""
        digest = hashlib.sha256()
        flat = self.adjacency.reshape(-1)
        for part in mapped.pieces(len(flat), mapped.PIECE_BYTES):  # a multiple of 8: the bytes of one long row of bits
            digest.update(np.packbits(flat[part]).data)
        return digest.hexdigest()

    def adjacency_at(self, level: int) -> np.ndarray:
        """(p, p) bool: the graph G' at the start of a level, whose rows are A'_G (cuPC, Algorithm 2).

        A pair is removed at the level of its separating set's size, so the graph is the skeleton with the pairs
        whose sets are that large or larger. Level 0 starts complete but for forbidden pairs; after the last level
        nothing changes.

        Raises:
            ValueError: a negative level.
        """
        if level < 0:
            raise ValueError(f"level must be at least 0, not {level}")
        if level == 0:
            adjacency = complete_graph(len(self.names))
            write(adjacency, self.sepsets.gaps, False)
            return adjacency
        adjacency = self.adjacency.copy()
        _connect(adjacency, self.sepsets.pairs[self.sepsets.sizes() >= level])
        return adjacency

    def __eq__(self, other: object) -> bool:
        """Same labelled edges and same separating sets; how they were found does not matter."""
        if not isinstance(other, Skeleton):
            return NotImplemented
        return _equal(self.adjacency, other.adjacency) and self.sepsets == other.sepsets

    def __repr__(self) -> str:
        method = self.facts.get("method", "?")
        return f"Skeleton({len(self.names)} variables, {self.n_edges} edges, {self.levels_run} levels, {method})"

    # --- conversions -------------------------------------------------------------------------------------------

    def to_networkx(self) -> networkx.Graph:
        """A ``networkx.Graph`` whose nodes are the variables' names."""
        import networkx

        graph = networkx.Graph()
        graph.add_nodes_from(self.names)
        graph.add_edges_from((self.names[i], self.names[j]) for i, j in self.edges)
        return graph

    def to_causallearn(self) -> GeneralGraph:
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

    def to_frame(self) -> pandas.DataFrame:
        """A DataFrame of edges by name: columns ``source`` and ``target``."""
        import pandas

        rows = [(self.names[i], self.names[j]) for i, j in self.edges]
        return pandas.DataFrame(rows, columns=["source", "target"])

    # --- files -------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write by suffix: ``.npz`` (everything but the data), ``.csv`` (edges by name), ``.graphml``, ``.gml``,
        ``.dot`` or ``.json`` (docs/results.md).

        In a ``.csv`` a name that a spreadsheet would take for a formula, ``=1+1``, has an apostrophe in front.

        Raises:
            ValueError: another suffix, or names that the format cannot hold.
        """
        path = Path(path)
        if path.suffix == ".npz":
            told = dict(self.facts)
            if self.problem is not None:
                told["problem"] = {"fingerprint": self.problem.fingerprint, **self.facts.get("problem", {})}
            scalars = {
                "levels_run": self.levels_run,
                "stopped_because": self.stopped_because,
                "undefined_tests": self.undefined_tests,
                "pseudo_inverses": self.pseudo_inverses,
                "facts": told,
            }
            arrays = {} if self.pmax is None else {"pmax": self.pmax}
            if len(self.sepsets.gaps):
                arrays["sepset_gaps"] = self.sepsets.gaps
            arrays |= {
                "adjacency": self.adjacency,
                "names": np.array(self.names, dtype=str),
                "sepset_pairs": self.sepsets.pairs,
                "sepset_offsets": self.sepsets.offsets,
                "sepset_members": self.sepsets.members,
                "tests_per_level": np.array(self.tests_per_level, np.int64),
                "edges_per_level": np.array(self.edges_per_level, np.int64),
                "seconds_per_level": np.array(self.seconds_per_level, np.float64),
                "run": np.array(json.dumps(scalars)),
            }
            # As numpy.savez_compressed, at zlib's fastest level: a quarter larger, and four times as fast.
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                for name, array in arrays.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                        np.lib.format.write_array(file, array, allow_pickle=False)
        else:
            self._write_graph(path)

    @classmethod
    def load(cls, path: str | Path | zipfile.Path) -> Skeleton:
        """Read what `save` wrote to an ``.npz``, which may be a member of a zip archive.

        Raises:
            InvalidSkeleton: the file holds something else, or is damaged.
            OSError: it cannot be opened.
        """
        if isinstance(path, str):
            path = Path(path)
        with path.open("rb") as file:
            try:
                with open_arrays(file) as stored:
                    return cls._read(stored)
            except MemoryError:
                raise
            except Exception as error:  # a damaged file raises nearly anything
                said = f"{type(error).__name__}: {error}"
                raise InvalidSkeleton(
                    f"{path.name} is no skeleton's file, or is damaged ({said}); make it again"
                ) from error

    @classmethod
    def _read(cls, stored: Any) -> Skeleton:
        adjacency = stored["adjacency"]
        run = json.loads(str(stored["run"]))
        return cls(
            adjacency=adjacency,
            sepsets=SeparatingSets(
                adjacency,
                stored["sepset_pairs"],
                stored["sepset_offsets"],
                stored["sepset_members"],
                stored.get("sepset_gaps", NO_PAIRS),
            ),
            names=tuple(map(str, stored["names"])),
            tests_per_level=tuple(map(int, stored["tests_per_level"])),
            edges_per_level=tuple(map(int, stored["edges_per_level"])),
            seconds_per_level=tuple(map(float, stored["seconds_per_level"])),
            pmax=stored.get("pmax"),
            **run,
        )


def complete_graph(n_variables: int) -> np.ndarray:
    """(p, p) bool: every pair an edge."""
    adjacency = np.ones((n_variables, n_variables), dtype=bool)
    np.fill_diagonal(adjacency, False)
    return adjacency


def edges_to_adjacency(edges: Sequence[Sequence[int]] | np.ndarray, n_variables: int) -> np.ndarray:
    """(k, 2) index pairs to a (p, p) bool adjacency matrix."""
    adjacency = np.zeros((n_variables, n_variables), dtype=bool)
    _connect(adjacency, np.asarray(edges).reshape(-1, 2))
    return adjacency


def _connect(adjacency: np.ndarray, edges: np.ndarray) -> None:
    """Add (k, 2) edges."""
    for part in mapped.pieces(len(edges), _PAIRS_AT_ONCE):
        i, j = edges[part].T.astype(np.int64)
        adjacency[i, j] = adjacency[j, i] = True


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    """`numpy.array_equal` without a temporary array of their size."""
    return one.shape == other.shape and all(np.array_equal(one[rows], other[rows]) for rows in mapped.row_pieces(one))


def _in_order(pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One level's pairs and sets with the pairs ascending."""
    for part in mapped.pieces(len(pairs) - 1, _PAIRS_AT_ONCE):
        (i, j), (next_i, next_j) = pairs[part].T, pairs[part.start + 1 : part.stop + 1].T
        if not ((i < next_i) | ((i == next_i) & (j < next_j))).all():
            order = np.lexsort((pairs[:, 1], pairs[:, 0]))
            return pairs[order], sets[order]
    return pairs, sets


def _row_starts(pairs: np.ndarray, p: int) -> np.ndarray:
    """(p + 1,) int64: how many of the ascending pairs have a first variable below each number."""
    counts = np.zeros(p + 1, np.int64)
    for part in mapped.pieces(len(pairs), _PAIRS_AT_ONCE):
        counts[1:] += np.bincount(pairs[part, 0], minlength=p)
    return np.cumsum(counts)


def _row_groups(starts: np.ndarray) -> Iterator[slice]:
    """The p rows cut into slices with about `_PAIRS_AT_ONCE` pairs each, from the (p + 1,) numbers of pairs before."""
    first, p = 0, len(starts) - 1
    while first < p:
        last = int(np.searchsorted(starts, starts[first] + _PAIRS_AT_ONCE, side="right")) - 1
        last = min(max(last, first + 1), p)
        yield slice(first, last)
        first = last


def _merge(levels: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of several levels in one ascending order, the sizes of their sets, and the sets' members end to end."""
    runs = [(pairs, np.full(len(sets), sets.shape[1], np.int64), sets.reshape(-1)) for pairs, sets in levels]
    return functools.reduce(_merge_two, sorted(runs, key=lambda run: len(run[0])))


def _merge_two(
    few: tuple[np.ndarray, np.ndarray, np.ndarray], many: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two runs of ascending pairs, sizes and members as one: the few find their places among the many."""
    if not len(few[0]):
        return many
    keys = [run[0][:, 0].astype(np.int64) << 32 | run[0][:, 1] for run in (few, many)]
    of_few = np.zeros(len(keys[0]) + len(keys[1]), bool)
    of_few[np.searchsorted(keys[1], keys[0]) + np.arange(len(keys[0]))] = True
    whole, sizes = np.empty(len(of_few), np.int64), np.empty(len(of_few), np.int64)  # a pair at a time is much faster
    whole[of_few], whole[~of_few] = (np.ascontiguousarray(run[0]).view(np.int64)[:, 0] for run in (few, many))
    sizes[of_few], sizes[~of_few] = few[1], many[1]
    members, member_of_few = np.empty(len(few[2]) + len(many[2]), np.int32), np.repeat(of_few, sizes)
    members[member_of_few], members[~member_of_few] = few[2], many[2]
    return whole.view(np.int32).reshape(-1, 2), sizes, members
