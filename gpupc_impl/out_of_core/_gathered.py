"""Any level from 1 on, in sub-matrices gathered for groups of rows (kernels/gathered.cu)."""

from __future__ import annotations

import functools
import logging
from typing import Any

import numpy as np

from gpupc_impl.backends import Filled, KernelSource, Pointer, Struct
from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.engine.graph import BINOMIALS, NO_KEY, REQUIRED_KEY, binomial_table
from gpupc_impl.out_of_core import _plan, _row_groups, _split_rows
from gpupc_impl.out_of_core._layout import Layout, release_large

logger = logging.getLogger("gpupc_impl.out_of_core")

BATCH = Struct(  # gathered.cu
    "Batch",
    matrices=Pointer(np.float64),
    **dict.fromkeys(("matrix_at", "first_slot"), Pointer(np.int64)),
    **dict.fromkeys(("sizes", "own", "neighbours", "mirrors"), Pointer(np.int32)),
)
SECOND_SIDE = np.uint64(2**62)  # keys.cuh


def kernel(level: int) -> KernelSource:
    return KernelSource("out_of_core/kernels/gathered.cu", f"gathered<{level}>", (BATCH, _split_rows.ROW_SEARCH))


class Gathered(Layout):
    """A level on sub-matrices; rows whose neighbours do not fit are split.

    Attributes:
        graph: the graph at the level's start.
        keys, smallest: (slots,) uint64 on the host: the best key of every slot, and the bits of the smallest r^2 met;
            `smallest` is None unless p-values are recorded.
        arena_bytes: what a pipeline holds.
    """

    def run(self) -> LevelOutcome:
        level, pmax = self.level, self.largest_p is not None
        self.graph = _row_groups.Graph.of(self.adjacency)
        degrees = self.graph.degrees
        self.max_degree = int(degrees.max())
        self._choose_sizes(degrees)
        self.keys = np.full(len(self.graph.neighbours), NO_KEY, np.uint64)
        fixed = self.problem.fixed
        required = np.empty(0, np.int64) if fixed is None else self.graph.slots(fixed.required)
        self.keys[required] = REQUIRED_KEY
        self.smallest = self.keys.copy() if pmax else None
        self.binomials = self.backend.upload(binomial_table(self.max_degree, level))
        self.pipelines.allocate({"arena": self.arena_bytes})

        order = self.graph.order()
        room = self.arena_bytes - _plan.BATCH_SLACK
        groups = _row_groups.clusters(self.graph, order[self._whole[order]], room, pmax)
        for batch in _row_groups.batches(groups, room, pmax):
            self.test_batch(batch)
        self.pipelines.finish()
        for i in np.flatnonzero(self._split).tolist():
            _split_rows.make_tests(self, i)
        self.keys[required] = NO_KEY
        return self.remove_separated(*self._collect())

    def _choose_sizes(self, degrees: np.ndarray) -> None:
        """Which rows are tested whole and which are split, and what a pipeline holds."""
        level, pmax = self.level, self.largest_p is not None
        active, longest_split = degrees > level, 0
        if self.problem.fixed is not None:
            active &= ~self.problem.fixed.without_tests(degrees)
        needed = _plan.cluster_bytes(degrees + 1, 1, degrees, pmax) + _plan.BATCH_SLACK
        arena = self.largest_arena(longest_split)
        if (active & (needed > arena)).any():
            longest_split = self.max_degree
            arena = self.largest_arena(longest_split)
        self._split = active & (needed > arena)
        self._whole = active & ~self._split
        arena = min(arena, max(self.search.staging_bytes, int(needed[self._whole].max(initial=0))))
        if not longest_split:
            arena = min(arena, _plan.rounded(int(needed[self._whole].sum())))  # holds all rows at once
        self.arena_bytes = max(arena, _plan.BATCH_SLACK)
        fixed = _plan.gather_fixed_bytes(level, self.max_degree, longest_split, pmax)
        self.plan = _plan.Plan("gather", fixed + 2 * self.arena_bytes, staging_bytes=self.arena_bytes)
        logger.info(
            "level %d: %d rows in groups, %d split; %s bytes of device memory",
            *(level, np.count_nonzero(self._whole), np.count_nonzero(self._split), f"{self.plan.device_bytes:,}"),
        )

    def largest_arena(self, longest_split: int) -> int:
        """Bytes that a pipeline may hold within the budget."""
        pmax = self.largest_p is not None
        return _plan.largest_arena(self.search.budget, self.level, self.max_degree, longest_split, pmax)

    def test_batch(self, batch: list[_row_groups.Cluster]) -> None:
        """The tests of some groups of rows, in one launch."""
        pipeline, graph, p = self.pipelines.next(), self.graph, self.p
        rows = np.concatenate([group.rows for group in batch])
        sizes = np.array([len(group.members) for group in batch])
        degrees = graph.degrees[rows]
        first_slot = np.concatenate(([0], np.cumsum(degrees)))
        n_slots, n_rows = int(first_slot[-1]), len(rows)
        host, device, offset = {}, {}, 0
        for name, dtype, count in (
            ("matrices", np.float64, int(np.square(sizes).sum())),
            ("matrix_at", np.int64, n_rows),
            ("first_slot", np.int64, n_rows + 1),
            ("keys", np.uint64, n_slots),
            ("smallest", np.uint64, n_slots if self.smallest is not None else 0),
            ("sizes", np.int32, n_rows),
            ("own", np.int32, n_rows),
            ("neighbours", np.int32, n_slots),
            ("mirrors", np.int32, n_slots),
        ):
            host[name], device[name] = pipeline.area("arena", (count,), dtype, offset)
            offset += host[name].nbytes
        with pipeline.extracting():
            slots = _ranges(graph.starts[rows], degrees)
            place = np.full(p, -1, np.int64)  # of a row's first slot in this batch
            place[rows] = first_slot[:-1]
            reverse, near = graph.reverse[slots], graph.neighbours[slots]
            mirrors = place[near] + reverse - graph.starts[near]
            host["mirrors"][:] = np.where(place[near] >= 0, mirrors, np.arange(n_slots))
            host["keys"][:] = np.minimum(self.keys[slots], self.keys[reverse])  # what the other end's row has found
            host["smallest"][:] = NO_KEY
            host["first_slot"][:] = first_slot
            local = np.empty(p, np.int32)
            at = row = slot = 0
            for group in batch:
                size = len(group.members)
                local[group.members] = np.arange(size)
                self.gather(group.members, host["matrices"][at : at + size * size].reshape(size, size))
                these = slice(row, row + len(group.rows))
                host["matrix_at"][these], host["sizes"][these] = at, size
                host["own"][these] = local[group.rows]
                host["neighbours"][slot : slot + group.slots] = local[near[slot : slot + group.slots]]
                at, row, slot = at + size * size, these.stop, slot + group.slots
            release_large(self.problem.correlation)
        pipeline.upload(pipeline.area("arena", (offset,), np.uint8)[::-1])
        row_bytes = 4 * int(degrees.max())
        use_shared = row_bytes <= self.backend.max_shared_bytes
        pipeline.launch(
            self.backend.kernel(*kernel(self.level)),
            (n_rows, self.search.params["delta"]),
            (self.search.params["theta"],),
            [
                BATCH(**{name: device[name] for name in BATCH.fields}),
                self.row_search(device["keys"], None if self.smallest is None else device["smallest"]),
                np.bool_(use_shared),
            ],
            row_bytes if use_shared else 0,
        )
        results = ("keys",) if self.smallest is None else ("keys", "smallest")
        pipeline.download(*((host[name], device[name]) for name in results))
        pipeline.merge_with(functools.partial(self._merge, slots, host))

    def row_search(self, keys: Any, smallest: Any) -> Filled:
        """The `ROW_SEARCH` of rows with these best keys, and bits of the smallest r^2 met."""
        return _split_rows.ROW_SEARCH(
            keys=keys,
            min_r_squared=smallest,
            counters=self.counters,
            binomial=BINOMIALS(table=self.binomials, max_n=self.max_degree),
            critical_r_squared=self.critical,
            residual_tolerance=self.problem.residual_tolerance,
            pivot_tolerance=self.problem.pivot_tolerance,
            first_come=self.first_come,
        )

    def _merge(self, slots: np.ndarray, host: dict[str, np.ndarray]) -> None:
        self.keys[slots] = np.minimum(self.keys[slots], host["keys"])
        if self.smallest is not None:
            self.smallest[slots] = host["smallest"]

    def _collect(self) -> tuple[np.ndarray, np.ndarray]:
        """The separated pairs and their sets, from the best keys of all slots."""
        graph = self.graph
        i = np.repeat(np.arange(self.p, dtype=np.int32), graph.degrees)
        once = i < graph.neighbours
        if self.smallest is not None:
            smallest = np.minimum(self.smallest, self.smallest[graph.reverse])
            self.record_p_values(i[once], graph.neighbours[once], smallest[once])
        keys = np.minimum(self.keys, self.keys[graph.reverse])
        slots = np.flatnonzero(once & (keys != NO_KEY))
        keys, pairs = keys[slots], np.stack([i[slots], graph.neighbours[slots]], axis=1)
        owners = np.where(keys & SECOND_SIDE, pairs[:, 1], pairs[:, 0])
        positions = unrank(keys & ~SECOND_SIDE, graph.degrees[owners], self.level)
        return pairs, graph.neighbours[graph.starts[owners][:, None] + positions]


def unrank(ranks: np.ndarray, sizes: np.ndarray, level: int) -> np.ndarray:
    """(k, level) int64: the combinations of these ranks out of sizes (combinations.cuh, on the host)."""
    positions = np.empty((len(ranks), level), np.int64)
    if not len(ranks):
        return positions
    table = binomial_table(int(sizes.max()), level)
    following = table[level, sizes] - np.uint64(1) - ranks
    for c in range(level):
        row = table[level - c]
        m = np.searchsorted(row, following, side="right") - 1  # the largest m with C(m, k) <= following
        following = following - row[m]
        positions[:, c] = sizes - 1 - m
    return positions


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The concatenation of ``arange(start, start + count)``."""
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1])) + np.repeat(starts - ends + counts, counts)
