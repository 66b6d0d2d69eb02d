"""The results of levels 0 and 1 by rows, and separating sets that stay in this form until they are read."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import functools
import itertools
import mmap
import platform
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core import mapped_arrays
from gpupc_impl.core.pairs import connect, find, row_groups, row_starts
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.result import NO_PAIRS, SeparatingSets, Skeleton
from gpupc_impl.core.result_folder import ResultFolder
from gpupc_impl.integers import round_up
from gpupc_impl.out_of_core.host_blocks import in_threads

MOST_THREADS = 16  # upper bound on the threads that copy shards
SHARD_BYTES = 4.4  # for each edge of a `Shard`, about
BLOCK = 1 << 16  # the variables that 16 bits tell apart
EDGES_AT_ONCE = 1 << 15  # the edges that a thread writes into the adjacency matrix at a time
MAP_NORESERVE = 0x4000 if platform.machine() in ("x86_64", "aarch64") else 0  # in Python's mmap from 3.13 on


@dataclasses.dataclass(frozen=True)
class Share:
    """What a worker has of a group of rows after levels 0 and 1; `Worker.read` has the edges."""

    rows: slice  # the worker's rows
    group_stop: int  # the row after the last one of the group
    starts: np.ndarray  # (rows + 1,) int64: the first edge of each row
    levels: int  # the number of levels that were run: 1 or 2
    degrees: np.ndarray  # (p,) int32: degrees after level 0 of the edges of the group that this worker has found
    counts: dict[str, int]  # the counts of level 1 of all workers by the names in `COUNTS`
    most_read: int  # an upper bound on the edges that are read at a time, unless a row has more


@dataclasses.dataclass(frozen=True, eq=False)
class Shard:
    """The results of consecutive rows: row j has the edges i < j of level 0, ascending. An edge takes 33 bits, a byte
    more if its member is beyond block 0, and 8 bytes more if it is left."""

    rows: slice
    starts: np.ndarray  # (rows x blocks + 1,) int64: the first edge of each row with each block of `BLOCK` variables i
    partners: np.ndarray  # (edges,) uint16: i of each edge, within its block
    members: np.ndarray  # (edges,) uint16: the separating variable at level 1, within its block; 0 if the edge is left
    far_bits: np.ndarray  # (edges / 8,) uint8: whether a member is beyond block 0, as `numpy.packbits` has it
    far_blocks: np.ndarray  # uint8 or uint16: the blocks of the members beyond block 0, in the order of the edges
    left: np.ndarray  # (k,) int64: the indexes of the edges that are left

    @property
    def blocks(self) -> int:
        return (len(self.starts) - 1) // max(1, self.rows.stop - self.rows.start)

    @functools.cached_property
    def pairs(self) -> np.ndarray:
        """The (k, 2) int32 edges that are left."""
        return self.edges(self.left, np.searchsorted(self.starts, self.left, side="right") - 1)

    def edges(self, of: np.ndarray, run: np.ndarray) -> np.ndarray:
        """Return (k, 2) int32: some edges, given the index in `starts` of the run that has each."""
        row, block = np.divmod(run, self.blocks)
        return np.stack([block * BLOCK + self.partners[of], self.rows.start + row], axis=1).astype(np.int32)

    def members_of(self, edges: np.ndarray) -> np.ndarray:
        """Return (k,) int64: the members of some edges."""
        members = self.members[edges].astype(np.int64)
        if len(self.far_blocks):
            words = np.append(self.far_bits, np.zeros(-len(self.far_bits) % 8, np.uint8)).view(">u8").astype(np.uint64)
            word, bit = np.divmod(edges, 64)
            so_far = words[word] >> (63 - bit).astype(np.uint64)  # of the word, up to the edge's bit
            far, counts = np.flatnonzero(so_far & np.uint64(1)), np.bitwise_count(words)
            place = np.cumsum(counts, dtype=np.int64)[word] - counts[word] + np.bitwise_count(so_far) - 1
            members[far] += BLOCK * self.far_blocks[place[far]].astype(np.int64)
        return members

    @classmethod
    def stored(cls, outcome: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Shard:
        """Return the shard that a file has."""
        shard = cls(slice(*outcome["rows"]), **arrays)
        if (shard.pairs[:, 0] >= shard.pairs[:, 1]).any():
            raise ValueError("it has edges that no level can have left")
        return shard


class ReadyMemory:
    """Memory for copies of arrays. While devices compute, threads allocate pages, which takes longer than a copy."""

    def __init__(self, size: int):
        self._bytes, self._taken, self._lock = np.empty(0, np.uint8), 0, threading.Lock()
        with contextlib.suppress(MemoryError):
            self._bytes = np.empty(size, np.uint8)
        self._pool = ThreadPoolExecutor(min(MOST_THREADS, available_cores()))
        for part in mapped_arrays.pieces(len(self._bytes), mapped_arrays.PIECE_BYTES):
            self._pool.submit(self._bytes[part][:: mmap.PAGESIZE].fill, 0)

    def close(self) -> None:
        """Stop the allocation of pages; copies stay."""
        self._pool.shutdown(cancel_futures=True)

    def copy(self, array: np.ndarray) -> np.ndarray:
        """Return a copy of an array, newly allocated once the prepared memory is used up."""
        self._pool.shutdown()  # waits for all pages
        with self._lock:
            start = self._taken
            if start + array.nbytes > len(self._bytes):
                return array.copy()
            self._taken += round_up(array.nbytes, 64)
        to = self._bytes[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        np.copyto(to, array)
        return to


def keep(share: Share, read: Callable[[slice, np.ndarray], Sequence[np.ndarray]], memory: ReadyMemory) -> list[Shard]:
    """Return the results of a worker's rows, which threads copy from page-locked memory while others are read: `read`
    gets a slice of edges and the place where each row of them begins, and returns the arrays of a shard."""

    def copied(rows: slice, arrays: Sequence[np.ndarray]) -> Shard:
        return Shard(rows, *map(memory.copy, arrays))

    threads, starts = min(MOST_THREADS, available_cores()), share.starts
    pending: collections.deque[Future[Shard]] = collections.deque()
    shards: list[Shard] = []
    with ThreadPoolExecutor(threads) as pool:
        for part in row_groups(starts, share.most_read):
            if len(pending) > threads:  # bounds the page-locked memory
                shards.append(pending.popleft().result())
            rows = slice(share.rows.start + part.start, share.rows.start + part.stop)
            own = starts[part.start : part.stop + 1]
            pending.append(pool.submit(copied, rows, read(slice(int(own[0]), int(own[-1])), own - own[0])))
        return shards + [future.result() for future in pending]


class EdgeShards:
    """The shards of a search, in the order of their rows."""

    def __init__(self, p: int):
        self._p = p
        self._shards: list[Shard] = []
        self.first, self.levels = 0, 2
        self.degrees = np.zeros(p, np.int64)
        self.counts: collections.Counter[str] = collections.Counter()

    def add(self, shares: Sequence[Share], shards: Iterable[Sequence[Shard]]) -> None:
        """Add a group of rows, given the share and the shards of each worker."""
        self._shards += itertools.chain.from_iterable(shards)
        self.first, self.levels = shares[0].group_stop, shares[0].levels
        self.counts.update(shares[0].counts)
        for share in shares:
            self.degrees += share.degrees

    def left(self) -> np.ndarray:
        """Return (k, 2) int32: the edges i < j that are left."""
        return np.concatenate([NO_PAIRS, *(shard.pairs for shard in self._shards)])

    def save(self, folder: ResultFolder) -> None:
        """Write all shards of the search, and then a file that says how many there are."""

        def write(number: int) -> None:
            shard = self._shards[number]
            arrays = {field.name: getattr(shard, field.name) for field in dataclasses.fields(shard)[1:]}
            folder.write(f"rows-{number:06d}", {"rows": [shard.rows.start, shard.rows.stop]}, arrays)

        in_threads(write, range(len(self._shards)))
        outcome = {"shards": len(self._shards), "levels": self.levels, "counts": self.counts}
        folder.write("rows", outcome, {"degrees": self.degrees})

    def load(self, folder: ResultFolder) -> bool:
        """Take the shards that an earlier search has saved; returns whether all are there."""
        saved = folder.read("rows", lambda outcome, arrays: (outcome, arrays["degrees"]))
        if saved is None:
            return False
        outcome, degrees = saved
        names = [f"rows-{number:06d}" for number in range(outcome["shards"])]
        shards = [shard for shard in in_threads(lambda name: folder.read(name, Shard.stored), names) if shard]
        if [0, *(shard.rows.stop for shard in shards)] != [*(shard.rows.start for shard in shards), self._p]:
            return False
        self._shards, self.first, self.levels, self.degrees = shards, self._p, outcome["levels"], degrees
        self.counts.update(outcome["counts"])
        return True

    def removed(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the (k, 2) pairs that level 1 removed, and the (k, 1) members of their sets."""
        from scipy import sparse

        counts, rows, members = np.zeros(self._p + 1, np.int64), [], []
        for shard in self._shards:
            is_removed = np.ones(len(shard.partners), bool)
            is_removed[shard.left] = False
            removed = np.flatnonzero(is_removed)
            run = np.repeat(np.arange(len(shard.starts) - 1), np.diff(shard.starts))[removed]
            first, second = shard.edges(removed, run).T
            own = slice(shard.rows.start + 1, shard.rows.stop + 1)
            counts[own] = np.bincount(second - shard.rows.start, minlength=own.stop - own.start)
            rows.append(first)
            members.append(shard.members_of(removed).astype(np.int32))
        by_second = np.concatenate(members), np.concatenate(rows)
        # In the order of columns, edges are ordered by their first variable, and then by their second one.
        by_first = sparse.csr_matrix((*by_second, np.cumsum(counts)), shape=(self._p, self._p)).tocsc()
        first = np.repeat(np.arange(self._p, dtype=np.int32), np.diff(by_first.indptr))
        return np.stack([first, by_first.indices.astype(np.int32)], axis=1), by_first.data[:, None]

    def members(self, pairs: np.ndarray) -> np.ndarray:
        """Return the variables that separated (k, 2) pairs i < j at level 1, (k,) int64; -1 where none did."""
        result = np.full(len(pairs), -1)
        of_shard = np.searchsorted([shard.rows.stop for shard in self._shards], pairs[:, 1], side="right")
        for number in np.unique(of_shard).tolist():
            shard, some = self._shards[number], np.flatnonzero(of_shard == number)
            block, i = np.divmod(pairs[some, 0], BLOCK)
            run = (pairs[some, 1] - shard.rows.start) * shard.blocks + block
            low, end = shard.starts[run], shard.starts[run + 1]
            high = end
            while (open_ := low < high).any():  # a bisection for each pair
                middle = (low + high) // 2
                before = open_ & (shard.partners[np.minimum(middle, len(shard.partners) - 1)] < i)
                low, high = np.where(before, middle + 1, low), np.where(open_ & ~before, middle, high)
            some, i, low = some[low < end], i[low < end], low[low < end]
            is_removed = (shard.partners[low] == i) & ~find(shard.left, low)[1]
            result[some[is_removed]] = shard.members_of(low[is_removed])
        return result


class ShardedSets(SeparatingSets):
    """Separating sets, of which those of level 1, by far the most, stay in shards. An operation on all sets (`pairs`,
    `members`, a comparison, a file) converts them once. `edges` are the (k, 2) ascending pairs i < j that are left."""

    def __init__(self, p: int, edges: np.ndarray, shards: EdgeShards, later: list[tuple[np.ndarray, np.ndarray]]):
        self._p, self._edges, self.gaps = p, edges.astype(np.int64), NO_PAIRS
        self._edges.setflags(write=False)
        self._shards, self._later = shards, later
        self._later_sets = SeparatingSets.from_levels(without_edges(p), later)

    @functools.cached_property
    def _adjacency(self) -> np.ndarray:
        graph = empty_graph(self._p)
        # Nearly every entry is the first in its memory page, so threads share the allocation of pages.
        parts = mapped_arrays.pieces(len(self._edges), EDGES_AT_ONCE)
        in_threads(lambda part: connect(graph, self._edges[part]), parts)
        return graph

    @functools.cached_property
    def _edge_rows(self) -> np.ndarray:
        return row_starts(self._edges, self._p)

    @functools.cached_property
    def _loaded(self) -> SeparatingSets:
        return SeparatingSets.from_levels(without_edges(self._p), [self._shards.removed(), *self._later])

    pairs = property(lambda self: self._loaded.pairs)
    members = property(lambda self: self._loaded.members)
    _sizes = property(lambda self: self._loaded._sizes)
    edges = property(lambda self: self._edges)

    def with_gaps(self, gaps: np.ndarray) -> ShardedSets:
        sets = copy.copy(self)
        sets.gaps = gaps
        return sets

    def __len__(self) -> int:
        return self._p * (self._p - 1) // 2 - len(self._edges) - len(self.gaps)

    def __getitem__(self, pair: tuple[Any, Any]) -> tuple[Any, ...]:
        if isinstance(pair[0], str):
            return super().__getitem__(pair)
        i, j = sorted(map(int, pair))
        is_pair = 0 <= i < j < self._p
        if not is_pair or self._is_gap(i, j) or j in self._edges[slice(*self._edge_rows[i : i + 2]), 1]:
            raise KeyError(pair)
        members = self._later_sets[i, j] or self._shards.members(np.array([[i, j]])).tolist()
        return tuple(member for member in members if member >= 0)

    def of(self, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pairs = np.asarray(pairs, np.int64)
        starts, later = self._later_sets.of(pairs)
        sizes = np.diff(starts)
        others = np.flatnonzero(sizes == 0)
        member = self._shards.members(pairs[others])
        others, member = others[member >= 0], member[member >= 0]
        sizes[others] = 1
        of_later = np.ones(int(sizes.sum()), bool)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        of_later[starts[others]] = False
        members = np.empty(len(of_later), np.int32)
        members[of_later], members[~of_later] = later, member
        return starts, members

    def from_level(self, level: int) -> np.ndarray:
        return (self._later_sets if level > 1 else self._loaded).from_level(level)

    def __repr__(self) -> str:
        return f"SeparatingSets({len(self)} pairs)"

    def __getstate__(self) -> dict[str, Any]:
        cached = ("_adjacency", "_edge_rows", "_loaded", "_number")  # copies and pickles make them anew
        return {name: value for name, value in self.__dict__.items() if name not in cached}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class WideSkeleton(Skeleton):
    """A skeleton whose adjacency matrix is made when it is read, since nearly every True entry takes a 4 KiB page."""

    adjacency: np.ndarray = dataclasses.field(init=False)

    @classmethod
    def of(cls, skeleton: Skeleton) -> WideSkeleton:
        values = {field.name: getattr(skeleton, field.name) for field in dataclasses.fields(cls) if field.init}
        return cls(**values)

    @classmethod
    def of_arrays(cls, stored: Mapping[str, Any]) -> Skeleton:
        return Skeleton.of_arrays(stored)

    def __getattr__(self, name: str) -> Any:
        if name != "adjacency":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self.sepsets._adjacency

    @property
    def n_edges(self) -> int:
        return len(self.edges)


def without_edges(p: int) -> np.ndarray:
    """Return a (p, p) adjacency matrix of False that takes no memory and cannot be changed."""
    return np.broadcast_to(np.False_, (p, p))


def empty_graph(p: int) -> np.ndarray:
    """Return a (p, p) bool array of False, which on Linux takes only address space until edges are written to it."""
    try:
        if sys.platform != "linux" or p == 0:
            return np.zeros((p, p), bool)
        # NumPy's zeros would be refused if p^2 bytes exceed the memory, although hardly any page is ever written.
        space = mmap.mmap(-1, p * p, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    except (MemoryError, OSError) as error:
        raise InvalidProblem(
            f"the adjacency matrix of {p:,} variables takes {p * p:,} bytes of address space, which this process "
            f"cannot have ({error}): raise its limit (ulimit -v, vm.overcommit_memory), or use the result's edges"
        ) from error
    with contextlib.suppress(OSError):  # Linux may lack huge pages
        space.madvise(mmap.MADV_NOHUGEPAGE)  # an edge then takes a page of 4 KiB, not of 2 MiB
    return np.frombuffer(space, np.uint8).view(bool).reshape(p, p)
