"""The results of levels 0 and 1 by rows: the edges after level 0, and the result of level 1 for each
(kernels/filter.cu), in files or in memory."""

from __future__ import annotations

import collections
import functools
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend
from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core.pairs import row_groups
from gpupc_impl.distributed import machine, shards
from gpupc_impl.distributed.filter import GroupResult
from gpupc_impl.distributed.filter_kernels import COUNTS, SEPARATED
from gpupc_impl.distributed.sharded_sets import FirstShards, check_counts
from gpupc_impl.distributed.shards import ShardFolder

MOST_THREADS = 16
"""Upper bound on the threads that keep or write shards."""

EDGE_BYTES = 8
"""Bytes of an edge in a shard."""

SHORT = 1 << 16
"""Upper bound on the number of variables for shards in memory with 16 bits a number."""

MEMORY_SHARE = 0.5
"""Upper bound on the part of the machine's free memory that the shards of a group of rows take. Larger shards are
written to files."""


class RowShards(FirstShards):
    """Shards, each of consecutive rows: row j has the edges i < j of level 0, ascending.

    A shard has three arrays: ``starts`` by row, and for each edge ``partners`` and ``members``. The partner is i, with
    the bit `SEPARATED` if level 1 removed the edge; the member is the variable of the separating set, or 0 without one.
    Shards of a temporary folder stay in memory if there is room; each number then has 16 bits if there are at most
    `SHORT` variables.

    Args:
        folder: the folder of the shards.
        identity: identifies the search in the shards' digests.
        writers: the number of threads that call `write` at the same time.

    Attributes:
        degrees: (p,) int64: degrees after level 0, counting only edges in shards that an earlier search wrote.
        counts: the counts of level 1 by the names in `COUNTS`.
        bytes_written, bytes_kept: the sizes of the shards in files and in memory.
        levels: the number of levels in the shards: 1 or 2.
        owner: the temporary folder of the shards, if there is one; the folder is deleted with this object.
    """

    def __init__(
        self,
        folder: ShardFolder,
        identity: str,
        p: int,
        owner: tempfile.TemporaryDirectory | None = None,
        writers: int = 1,
    ):
        self.folder, self._identity, self._p, self._owner, self._writers = folder, identity, p, owner, writers
        self._rows: list[slice] = []
        self._kept: dict[int, tuple[np.ndarray, ...]] = {}  # the arrays of shards in memory by their first rows
        self._left: list[np.ndarray] = []
        self.degrees = np.zeros(p, np.int64)
        self.counts: collections.Counter[str] = collections.Counter()
        self.bytes_written = self.bytes_kept = 0
        self.levels = 2
        self._last: tuple[slice, tuple[np.ndarray, ...]] | None = None  # the shard read last
        self._lock = threading.Lock()

    def path(self, rows: slice) -> Path:
        return self.folder.path / "rows" / f"{rows.start:09d}-{rows.stop:09d}.npz"

    def left(self) -> np.ndarray:
        """Return (k, 2) int32: the edges i < j that level 1 left."""
        return np.concatenate(self._left) if self._left else np.empty((0, 2), np.int32)

    # --- writing -----------------------------------------------------------------------------------------------------

    def resume(self) -> int:
        """Use the shards of whole groups of rows that an earlier search wrote, and delete all others; returns the first
        row that no shard contains.

        One shard has the counts of its whole group, so the rest of a group cannot be added to it later.
        """
        (self.folder.path / "rows").mkdir(exist_ok=True)
        names = (path.stem.partition("-") for path in (self.folder.path / "rows").glob("*-*.npz"))
        written = [slice(int(a), int(b)) for a, _, b in names if a.isdecimal() and b.isdecimal()]
        first, by_first = 0, {rows.start: rows for rows in written}
        group: list[tuple[slice, Mapping[str, Any]]] = []
        while (rows := by_first.get(group[-1][0].stop if group else first)) is not None:
            outcome = shards.read(self.path(rows), self._identity, functools.partial(check_shard, self._p, rows))
            if outcome is None:
                break
            group.append((rows, outcome))
            if rows.stop == outcome["group_stop"]:
                for of_group in group:
                    self._take_written(*of_group)
                first, group = rows.stop, []
        for rows in written:
            if rows.start >= first:
                self.path(rows).unlink(missing_ok=True)
        return first

    def _take_written(self, rows: slice, outcome: Mapping[str, Any]) -> None:
        """Use a shard that an earlier search wrote."""
        starts, partners, _ = self._read(rows)
        left = np.flatnonzero(partners < SEPARATED)
        self._take(rows, outcome, starts, left, partners[left])
        self.degrees[rows] += np.diff(starts)
        self.degrees[: rows.stop] += np.bincount(partners & (SEPARATED - 1), minlength=rows.stop)

    def write(self, backend: Backend, group: GroupResult, counts: Mapping[str, int], most: int) -> None:
        """Keep the shards of a group of rows in memory, or write them to files, in threads, while other results are
        read from the device.

        Args:
            counts: the counts of the tests of the whole group on one device, and 0 on the others.
            most: upper bound on the edges of a shard, unless the shard has a single row.
        """
        threads = min(MOST_THREADS, available_cores())
        needed = self._writers * EDGE_BYTES * len(group.partners)
        in_memory = self._owner is not None and needed <= MEMORY_SHARE * machine.free_memory()
        with ThreadPoolExecutor(threads) as pool:
            pending: collections.deque[Future[None]] = collections.deque()
            for part in row_groups(group.starts, most):
                rows = slice(group.rows.start + part.start, group.rows.start + part.stop)
                edges = slice(int(group.starts[part.start]), int(group.starts[part.stop]))
                with backend.array_library() as library:  # a device finds the edges that are left faster than a core
                    partners, members = group.partners[edges], group.values[edges]
                    is_separated = partners >> 31
                    members *= is_separated
                    left = library.flatnonzero(is_separated == 0)
                    left_partners = partners[left]
                    if in_memory and self._p <= SHORT:
                        partners, members = partners.astype(np.uint16), members.astype(np.uint16)
                    arrays = backend.download_all([partners, members, left, left_partners])
                starts = group.starts[part.start : part.stop + 1] - edges.start
                if len(pending) > threads:  # bounds the number of parts in memory
                    pending.popleft().result()
                outcome = {name: int(counts[name]) if part.start == 0 else 0 for name in COUNTS}
                outcome |= {"levels": group.levels, "group_stop": group.group_stop}
                pending.append(pool.submit(self._add, in_memory, rows, outcome, starts, *arrays))
            for future in pending:
                future.result()

    def _add(
        self,
        in_memory: bool,
        rows: slice,
        outcome: dict[str, int],
        starts: np.ndarray,
        partners: np.ndarray,
        members: np.ndarray,
        left: np.ndarray,
        left_partners: np.ndarray,
    ) -> None:
        if in_memory:  # copies, since page-locked memory is scarce
            kept = (starts, partners.copy(), members.copy(), left.copy())
            with self._lock:
                self._kept[rows.start] = kept
                self.bytes_kept += sum(array.nbytes for array in kept)
        else:
            arrays = {"starts": starts, "partners": partners, "members": members.view(np.int32)}
            size = shards.write(self.path(rows), self._identity, outcome, arrays)
            with self._lock:
                self.bytes_written += size
        self._take(rows, outcome, starts, left, left_partners)

    def _take(
        self, rows: slice, outcome: Mapping[str, int], starts: np.ndarray, left: np.ndarray, partners: np.ndarray
    ) -> None:
        """Use a shard's part of the graph: the numbers of the edges that are left, and their partners."""
        row = rows.start + np.searchsorted(starts, left, side="right") - 1
        pairs = np.stack([partners, row], axis=1).astype(np.int32)
        with self._lock:
            self._rows.append(rows)
            self._left.append(pairs)
            self.levels = outcome["levels"]
            self.counts.update({name: outcome[name] for name in COUNTS})

    # --- reading -----------------------------------------------------------------------------------------------------

    def _read(self, rows: slice) -> tuple[np.ndarray, ...]:
        if (kept := self._kept.get(rows.start)) is not None:
            starts, partners, members, left = kept
            if partners.dtype == np.uint16:
                partners = partners | np.uint32(SEPARATED)
                partners[left] &= SEPARATED - 1
                members = members.astype(np.uint32)
            return starts, partners, members.view(np.int32)
        return tuple(shards.read_array(self.path(rows), name) for name in ("starts", "partners", "members"))

    def removed(self) -> tuple[np.ndarray, np.ndarray]:
        from scipy import sparse

        counts, rows, members = np.zeros(self._p + 1, np.int64), [], []
        for part in sorted(self._rows, key=lambda part: part.start):
            starts, partners, of_edges = self._read(part)
            is_removed = partners >= SEPARATED
            before = np.concatenate(([0], np.cumsum(is_removed)))
            counts[part.start + 1 : part.stop + 1] = np.diff(before[starts])
            rows.append((partners[is_removed] & (SEPARATED - 1)).astype(np.int32))
            members.append(of_edges[is_removed])
        by_second = (
            np.concatenate(members or [np.empty(0, np.int32)]),
            np.concatenate(rows or [np.empty(0, np.int32)]),
        )
        # In the order of columns, edges are ordered by their first variable, and then by their second one.
        by_first = sparse.csr_matrix((*by_second, np.cumsum(counts)), shape=(self._p, self._p)).tocsc()
        first = np.repeat(np.arange(self._p, dtype=np.int32), np.diff(by_first.indptr))
        return np.stack([first, by_first.indices.astype(np.int32)], axis=1), by_first.data[:, None]

    def member(self, i: int, j: int) -> int | None:
        last = self._last  # a local reference, since other threads may replace it
        if last is None or not last[0].start <= j < last[0].stop:
            rows = next(rows for rows in self._rows if rows.start <= j < rows.stop)
            self._last = last = rows, self._read(rows)
        rows, (starts, partners, members) = last
        row = slice(starts[j - rows.start], starts[j - rows.start + 1])
        numbers = partners[row] & (SEPARATED - 1)
        at = int(np.searchsorted(numbers, i))
        if at == len(numbers) or numbers[at] != i or partners[row][at] < SEPARATED:
            return None
        return int(members[row][at])


def check_shard(p: int, rows: slice, outcome: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Check the invariants of a shard of rows that an earlier search wrote.

    Raises:
        ValueError: an invariant does not hold.
    """
    check_counts(outcome, (*COUNTS, "levels", "group_stop"))
    starts, partners, members = (arrays[name] for name in ("starts", "partners", "members"))
    if not 0 <= rows.start < rows.stop <= p or starts.shape != (rows.stop - rows.start + 1,) or starts[0] != 0:
        raise ValueError(f"its rows are not those of {rows.start} to {rows.stop - 1}")
    if partners.dtype != np.uint32 or members.dtype != np.int32 or len({starts[-1], len(partners), len(members)}) > 1:
        raise ValueError(f"it has {len(partners)} partners and {len(members)} members for {starts[-1]} edges")
    if (np.diff(starts) < 0).any():
        raise ValueError("its rows overlap")
    numbers = (partners & (SEPARATED - 1)).astype(np.int64)
    j = np.repeat(np.arange(rows.start, rows.stop), np.diff(starts))
    if (numbers >= j).any() or (np.diff(j * p + numbers) <= 0).any():
        raise ValueError("it has edges that no level can have left")
    separated = members[partners >= SEPARATED]
    ends = np.stack([numbers, j])[:, partners >= SEPARATED]
    if not ((separated >= 0) & (separated < p)).all() or (ends == separated).any():
        raise ValueError("a pair is separated by one of its own, or by no variable")
