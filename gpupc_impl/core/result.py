"""The result of a search: the skeleton, its separating sets, and facts about the run."""

from __future__ import annotations

import abc
import contextlib
import copy
import dataclasses
import functools
import hashlib
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from gpupc_impl.core import mapped_arrays
from gpupc_impl.core.files import open_arrays, parse_json, write_arrays, write_whole
from gpupc_impl.core.fixed_pairs import write
from gpupc_impl.core.pairs import connect, equal, find, gathered, in_order, merge, row_groups, row_starts
from gpupc_impl.core.result_views import ResultViews
from gpupc_impl.ownership import open_regular

if TYPE_CHECKING:
    import networkx
    import pandas
    from causallearn.graph.GeneralGraph import GeneralGraph

    from gpupc_impl.core.problem import Problem

NO_PAIRS = np.empty((0, 2), np.int32)
NO_PAIRS.setflags(write=False)

DIFFERENCES_NAMED = 5  # edges, and sets, that the text about two results names at most


class SeparatingSets(Mapping[tuple[int, int], tuple[int, ...]]):
    """The separating sets of all removed edges, as a mapping ``{(i, j): members}`` with i < j; ``sets[j, i]`` works as
    well. The sets of a `Skeleton` take names too: ``sepsets["Age", "BMI"]`` is a tuple of names.

    Most pairs (billions, for the widest data) are removed at level 0 with the empty set, so only non-empty sets are
    stored; a pair that is neither stored nor an edge has the empty set. A stored set takes 20 bytes, and 4 more for
    each member after the first. A pair that background knowledge forbids was never tested, so it is not in the mapping.

    Args:
        sizes: the sizes of the sets: one number if all are equal, (k,) uint8, or (k + 1,) int64 `offsets`.

    Attributes:
        gaps: (g, 2) int32, i < j, ascending: the forbidden pairs.
        pairs: (k, 2) int32, i < j, ascending: the pairs removed at level 1 or above.
        offsets: (k + 1,) int64: the set of pair number q is ``members[offsets[q]:offsets[q + 1]]``.
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
        self._names: tuple[str, ...] = ()

    def with_gaps(self, gaps: np.ndarray) -> SeparatingSets:
        return SeparatingSets(self._adjacency, self.pairs, self._sizes, self.members, gaps)

    def named(self, names: tuple[str, ...]) -> SeparatingSets:
        """Return the same sets, which can also be asked for by these names of the variables."""
        named = copy.copy(self)
        named._names = names
        named.__dict__.pop("_number", None)
        return named

    @functools.cached_property
    def _number(self) -> dict[str, int]:
        return {name: k for k, name in enumerate(self._names)}

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
        return row_starts(self.pairs, len(self._adjacency))

    @classmethod
    def from_levels(cls, adjacency: np.ndarray, removed: Iterable[tuple[np.ndarray, np.ndarray]]) -> SeparatingSets:
        """Merge ``(pairs (k, 2), members (k, level))`` of each level from 1 upward; the pairs may be in any order.
        There may be billions of pairs, so little memory is allocated beyond the arguments and the result."""
        levels = [
            in_order(np.asarray(pairs, np.int32), np.asarray(sets, np.int32)) for pairs, sets in removed if len(pairs)
        ]
        if not levels:
            return cls(adjacency, np.empty((0, 2), np.int32), np.zeros(1, np.int64), np.empty(0, np.int32))
        if len(levels) == 1:
            ((pairs, sets),) = levels
            return cls(adjacency, pairs, sets.shape[1], sets.reshape(-1))
        pairs = np.empty((sum(len(pairs) for pairs, _ in levels), 2), np.int32)
        offsets = np.zeros(len(pairs) + 1, np.int64)
        members = np.empty(sum(sets.size for _, sets in levels), np.int32)
        starts = [row_starts(pairs, len(adjacency)) for pairs, _ in levels]
        end, members_end = 0, 0
        for rows in row_groups(np.sum(starts, axis=0)):
            parts = [
                (pairs[start[rows.start] : start[rows.stop]], sets[start[rows.start] : start[rows.stop]])
                for (pairs, sets), start in zip(levels, starts, strict=True)
            ]
            merged_pairs, sizes, merged_members = merge(parts)
            pairs[end : end + len(merged_pairs)] = merged_pairs
            offsets[end + 1 : end + len(sizes) + 1] = members_end + np.cumsum(sizes)
            members[members_end : members_end + len(merged_members)] = merged_members
            end, members_end = end + len(merged_pairs), members_end + len(merged_members)
        return cls(adjacency, pairs, offsets, members)

    def __getitem__(self, pair: tuple[Any, Any]) -> tuple[Any, ...]:
        if isinstance(pair[0], str):
            i, j = (self._number[name] for name in pair)
            return tuple(self._names[k] for k in self[i, j])
        i, j = sorted(map(int, pair))
        p = len(self._adjacency)
        if not 0 <= i < j < p or self._adjacency[i, j] or self._is_gap(i, j):
            raise KeyError(pair)
        start, stop = self._rows[i], self._rows[i + 1]
        q = start + int(np.searchsorted(self.pairs[start:stop, 1], np.int32(j)))
        if q < stop and self.pairs[q, 1] == j:
            return tuple(map(int, self.members[self.offsets[q] : self.offsets[q + 1]]))
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
                equal(self._adjacency, other._adjacency)
                and equal(self.pairs, other.pairs)
                and equal(self.offsets, other.offsets)
                and equal(self.members, other.members)
                and equal(self.gaps, other.gaps)
            )
        return super().__eq__(other)

    def __repr__(self) -> str:
        return f"SeparatingSets({len(self)} pairs, {len(self.pairs)} of them with members)"

    def sizes(self) -> np.ndarray:
        """The (k,) sizes of the stored sets, which equal the levels at which their pairs were removed."""
        return np.diff(self.offsets)

    @property
    def edges(self) -> np.ndarray:
        """The (e, 2) int64 pairs i < j, ascending, that no set separates."""
        parts = []
        for rows in mapped_arrays.row_pieces(self._adjacency):
            pairs = np.argwhere(np.triu(self._adjacency[rows], rows.start + 1))
            pairs[:, 0] += rows.start
            parts.append(pairs)
        return np.concatenate(parts) if parts else np.empty((0, 2), np.int64)

    def of(self, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the sets of (k, 2) pairs i < j that are not edges: (k + 1,) starts, and the members set by set."""
        numbers = self.pairs.astype(np.int64) @ [len(self._adjacency), 1]
        place, stored = find(numbers, np.asarray(pairs, np.int64) @ [len(self._adjacency), 1])
        own, members = gathered(self.offsets, self.members, place[stored])
        starts = np.zeros(len(pairs) + 1, np.int64)
        starts[1:][stored] = np.diff(own)
        return np.cumsum(starts), members

    def from_level(self, level: int) -> np.ndarray:
        """Return the (k, 2) int32 pairs whose sets have at least `level` members, 1 or more."""
        return self.pairs[self.sizes() >= level]

    @property
    def sha256(self) -> str:
        """A digest of the non-empty sets and their pairs."""
        digest = hashlib.sha256()
        for array in (self.pairs, self.offsets, self.members):
            mapped_arrays.update_digest(digest, np.ascontiguousarray(array))
        return digest.hexdigest()


class InvalidSkeleton(ValueError):
    """A file does not hold a skeleton; the message names it and the reason."""


@contextlib.contextmanager
def read_whole(path: str | Path | zipfile.Path, fault: str) -> Iterator[None]:
    """Turn any exception but MemoryError into InvalidSkeleton, since a damaged file can raise almost any."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        name = (path if isinstance(path, zipfile.Path) else Path(path)).name
        raise InvalidSkeleton(
            f"{name} {fault}, or is damaged ({type(error).__name__}: {error}); make it again"
        ) from error


class SavedResult(ResultViews, abc.ABC):
    _fault: ClassVar[str]  # what a file lacks that holds no such result

    @abc.abstractmethod
    def stored_arrays(self) -> dict[str, Any]:
        """Return the arrays by which `save` stores everything but the data in an ``.npz``."""

    @classmethod
    @abc.abstractmethod
    def of_arrays(cls, stored: Mapping[str, Any]) -> Self:
        """Return the result of `stored_arrays`, checked; wrong arrays raise almost any exception."""

    @classmethod
    def load(cls, path: str | Path | zipfile.Path) -> Self:
        """Read a result from an ``.npz`` that `save` wrote, which may be a member of a zip archive. InvalidSkeleton is
        raised if the file has other content or is damaged, OSError if it cannot be opened."""
        if isinstance(path, str):
            path = Path(path)
        opened = path.open("rb") if isinstance(path, zipfile.Path) else open_regular(path)
        with opened as file, read_whole(path, cls._fault), open_arrays(file) as stored:
            return cls.of_arrays(stored)

    def save(self, path: str | Path) -> None:
        """Write a file in the format of its suffix: ``.npz`` (all but the data), ``.csv`` (as `to_frame`),
        ``.graphml``, ``.gml``, ``.dot``, ``.json``, ``.png`` or ``.svg`` (docs/results.md). ValueError is raised if the
        suffix is unknown or the format cannot hold a name, ImportError if a picture needs matplotlib (extra ``plots``).
        The ``.npz`` of a graph with directions holds the arrays of its skeleton too, so `Skeleton.load` reads it. In a
        ``.csv``, an apostrophe is put before a name, or a part of it after a semicolon, a tab or a line end, that a
        spreadsheet would interpret as a formula, such as ``=1+1``."""
        path = Path(path)
        if path.suffix == ".npz":
            with write_whole(path) as file:
                write_arrays(file, self.stored_arrays())
        else:
            self._write_graph(path)


@dataclasses.dataclass(frozen=True, eq=False)
class Skeleton(SavedResult):
    """The undirected graph that the first step of PC-stable returns (cuPC, Algorithm 1).

    Attributes:
        adjacency: (p, p) bool, symmetric, False on the diagonal.
        sepsets: the separating set of every pair that is not an edge.
        names: the p variables' names.
        tests_per_level: the number of CI tests at each level, which early termination makes differ between methods.
        edges_per_level: the number of edges left after each level.
        seconds_per_level: wall-clock time of each level, preparation such as compaction included. If several levels ran
            in one launch, the device measured their times, and the first of them includes the rest of the launch.
        levels_run: number of levels that were run; level 0 is the first.
        stopped_because: the reason why no further level was run, as a sentence.
        pmax: (p, p) float64, largest p-value over the tests of a pair, NaN for none; None unless it was asked for.
        undefined_tests: tests that were not decided, because a variable had no residual variance given S.
        pseudo_inverses: near-singular conditioning matrices, for which the Moore-Penrose inverse was used.
        facts: how it was found: method, backend, parameters, alpha, conventions.
        problem: the problem, in a result of `gpupc_impl.skeleton`; it is not written to files.
        reading: texts by name about what was read, which test was chosen, and why; like `problem`, not in files.
    """

    _fault = "is not the file of a skeleton"

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
    reading: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.sepsets, SeparatingSets):  # `check_answer` says so if a method returned something else.
            object.__setattr__(self, "sepsets", self.sepsets.named(self.names))

    @property
    def n_edges(self) -> int:
        return int(np.count_nonzero(self.adjacency)) // 2

    @property
    def edges(self) -> np.ndarray:
        """The edges as (n_edges, 2) int64 index pairs, i < j, ascending."""
        return self.sepsets.edges

    @property
    def sha256(self) -> str:
        """A digest of the labelled edges, made of the packed bits of the adjacency matrix."""
        digest = hashlib.sha256()
        flat = self.adjacency.reshape(-1)
        # With a multiple of 8 rows, the packed bits of a piece are consecutive bytes of the matrix's packed bits.
        for part in mapped_arrays.pieces(len(flat), mapped_arrays.PIECE_BYTES):
            digest.update(np.packbits(flat[part]).data)
        return digest.hexdigest()

    def adjacency_at(self, level: int) -> np.ndarray:
        """Return the graph G' at the start of a level, (p, p) bool, whose rows are A'_G (cuPC, Algorithm 2). ValueError
        is raised if the level is negative; for a level after the last one the graph is the skeleton. The level at which
        a pair is removed is the size of its separating set, so the graph has the skeleton's edges and the removed pairs
        whose sets have at least `level` members. Level 0 starts with all pairs not forbidden."""
        if level < 0:
            raise ValueError(f"level must be at least 0, not {level}")
        if level == 0:
            adjacency = complete_graph(len(self.names))
            write(adjacency, self.sepsets.gaps, False)
            return adjacency
        adjacency = self.adjacency.copy()
        connect(adjacency, self.sepsets.from_level(level))
        return adjacency

    def __eq__(self, other: object) -> bool:
        """Whether two results have the same labelled edges and separating sets, whichever methods found them."""
        if not isinstance(other, Skeleton):
            return NotImplemented
        return equal(self.adjacency, other.adjacency) and self.sepsets == other.sepsets

    def difference(self, other: Skeleton, sets: bool = True) -> str:
        """Say how edges and, if `sets`, separating sets differ from another result's of these variables; "" if not."""
        pairs = np.argwhere(np.triu(self.adjacency != other.adjacency)).tolist()
        edges = [f"{self._pair(i, j)} only in the {'first' if self.adjacency[i, j] else 'second'}" for i, j in pairs]
        stored = {*map(tuple, self.sepsets.pairs.tolist()), *map(tuple, other.sepsets.pairs.tolist())}
        both = [pair for pair in sorted(stored) if not (self.adjacency[pair] or other.adjacency[pair])] if sets else []
        given = [
            f"{self._pair(*pair)} given {self._members(mine)}, and in the second given {self._members(theirs)}"
            for pair in both
            if (mine := self.sepsets[pair]) != (theirs := other.sepsets[pair])
        ]
        return "; ".join(
            f"{len(found):,} {what}: {', '.join(found[:DIFFERENCES_NAMED])}{', ...' * (len(found) > DIFFERENCES_NAMED)}"
            for what, found in (("differing edges", edges), ("differing separating sets", given))
            if found
        )

    def _pair(self, i: int, j: int) -> str:
        return f"{self.names[i]} - {self.names[j]}"

    def _members(self, members: Sequence[int]) -> str:
        return f"{{{', '.join(self.names[k] for k in members)}}}"

    def __repr__(self) -> str:
        method = self.facts.get("method", "?")
        return f"Skeleton({len(self.names)} variables, {self.n_edges} edges, {self.levels_run} levels, {method})"

    # --- conversions -------------------------------------------------------------------------------------------
    def to_networkx(self) -> networkx.Graph:
        """Return a ``networkx.Graph`` whose nodes are the variables' names."""
        import networkx

        graph = networkx.Graph()
        graph.add_nodes_from(self.names)
        graph.add_edges_from((self.names[i], self.names[j]) for i, j in self.edges)
        return graph

    def to_causallearn(self) -> GeneralGraph:
        """A causal-learn ``GeneralGraph`` with undirected edges."""
        return causallearn_graph(self.names, ((self.names[i], self.names[j], "TAIL", "TAIL") for i, j in self.edges))

    def to_frame(self) -> pandas.DataFrame:
        """Return a DataFrame of the edges by name: columns ``source`` and ``target``."""
        import pandas

        rows = [(self.names[i], self.names[j]) for i, j in self.edges]
        return pandas.DataFrame(rows, columns=["source", "target"])

    # --- files -------------------------------------------------------------------------------------------------
    def stored_arrays(self) -> dict[str, np.ndarray]:
        facts = dict(self.facts)
        if self.problem is not None:
            facts["problem"] = {"fingerprint": self.problem.fingerprint, **self.facts.get("problem", {})}
        names = ("levels_run", "stopped_because", "undefined_tests", "pseudo_inverses")
        scalars = {name: getattr(self, name) for name in names} | {"facts": facts}
        arrays = {
            "pmax": self.pmax,
            "sepset_gaps": self.sepsets.gaps if len(self.sepsets.gaps) else None,
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
        return {name: array for name, array in arrays.items() if array is not None}

    @classmethod
    def of_arrays(cls, stored: Mapping[str, Any]) -> Skeleton:
        from gpupc_impl.core.invariants import check_stored

        adjacency = stored["adjacency"]
        run = parse_json(str(stored["run"]))
        skeleton = cls(
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
        check_stored(skeleton)
        return skeleton


def causallearn_graph(names: Sequence[str], edges: Iterable[tuple[str, str, str, str]]) -> GeneralGraph:
    """A causal-learn ``GeneralGraph`` of edges: the names of both ends, and of the ``Endpoint`` at each."""
    from causallearn.graph.Edge import Edge
    from causallearn.graph.Endpoint import Endpoint
    from causallearn.graph.GeneralGraph import GeneralGraph
    from causallearn.graph.GraphNode import GraphNode

    nodes = {name: GraphNode(name) for name in names}
    graph = GeneralGraph(list(nodes.values()))
    for source, target, *ends in edges:
        graph.add_edge(Edge(nodes[source], nodes[target], *(Endpoint[end] for end in ends)))
    return graph


def complete_graph(n_variables: int) -> np.ndarray:
    adjacency = np.ones((n_variables, n_variables), dtype=bool)
    np.fill_diagonal(adjacency, False)
    return adjacency
