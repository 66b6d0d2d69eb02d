"""Levels from 1 on, on sub-matrices that are gathered for groups of rows (kernels/gathered.cu)."""

from __future__ import annotations

import functools
import logging

import numpy as np

from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.engine.device_memory import allocated_bytes
from gpupc_impl.engine.graph import NO_KEY, REQUIRED_KEY, binomial_table
from gpupc_impl.engine.row_graph import RowGraph
from gpupc_impl.out_of_core import host_blocks, memory_plan, row_groups
from gpupc_impl.out_of_core.memory_plan import MemoryPlan
from gpupc_impl.out_of_core.row_groups import Cluster
from gpupc_impl.out_of_core.row_tests import BATCH, gathered_launch
from gpupc_impl.out_of_core.split_rows import SplitRows

logger = logging.getLogger("gpupc_impl.out_of_core")


class Gathered(SplitRows):
    """A level on gathered sub-matrices; a row is split if its neighbours do not fit on the device at once."""

    def run(self) -> LevelOutcome:
        context, level = self.context, self.context.level
        pmax, fixed = context.largest_p is not None, context.problem.fixed
        graph = self.graph = RowGraph.from_matrix(context.adjacency)
        degrees = graph.degrees
        self.max_degree = int(degrees.max())
        whole, split = self._choose_sizes(degrees)
        self.keys = np.full(len(graph.neighbours), NO_KEY, np.uint64)
        required = np.empty(0, np.int64) if fixed is None else graph.edge_slots(fixed.required)
        self.smallest = self.keys.copy() if pmax else None
        self.keys[required] = REQUIRED_KEY
        self.binomials = context.run.backend.upload(binomial_table(self.max_degree, level))
        context.pipelines.allocate({"arena": self.arena_bytes})

        order = graph.order()
        room = self.arena_bytes - memory_plan.BATCH_SLACK
        groups = row_groups.clusters(graph, order[whole[order]], room, pmax)
        for batch in row_groups.batches(groups, room, pmax):
            self.test_batch(batch)
        context.pipelines.finish()
        for i in np.flatnonzero(split).tolist():
            self.search_split(i)
        self.keys[required] = NO_KEY
        if self.smallest is not None:
            i = np.repeat(np.arange(context.p, dtype=np.int32), degrees)
            once = i < graph.neighbours
            smallest = np.minimum(self.smallest, self.smallest[graph.reverse])
            self.record_p_values(i[once], graph.neighbours[once], smallest[once])
        return self.remove_separated(*graph.separated(self.keys, level))

    def _choose_sizes(self, degrees: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Choose the size of the memory area of a pipeline, and which rows fit into it.

        Returns two (p,) bool arrays: the rows to test whole, and the rows to split.
        """
        context, level, max_degree = self.context, self.context.level, self.max_degree
        pmax, fixed = context.largest_p is not None, context.problem.fixed
        active, longest_split = degrees > level, 0
        if fixed is not None:
            active &= ~fixed.without_tests(degrees)
        needed = memory_plan.cluster_bytes(degrees + 1, 1, degrees, pmax) + memory_plan.BATCH_SLACK
        arena = self.largest_arena(longest_split)
        if (active & (needed > arena)).any():
            longest_split = max_degree
            arena = self.largest_arena(longest_split)
        split = active & (needed > arena)
        whole = active & ~split
        arena = min(arena, max(context.staging_bytes, int(needed[whole].max(initial=0))))
        if not longest_split:
            arena = min(arena, allocated_bytes(int(needed[whole].sum())))  # the size for all rows at once
        arena = self.arena_bytes = max(arena, memory_plan.BATCH_SLACK)
        fixed_bytes = memory_plan.gather_fixed_bytes(level, max_degree, longest_split, pmax)
        self.plan = MemoryPlan("gather", fixed_bytes + 2 * arena, staging_bytes=arena)
        logger.info(
            "level %d: %d rows in groups, %d split; %s bytes of device memory",
            *(level, np.count_nonzero(whole), np.count_nonzero(split), f"{self.plan.device_bytes:,}"),
        )
        return whole, split

    def largest_arena(self, longest_split: int) -> int:
        """Return the largest size in bytes that the area of a pipeline may have within the memory budget."""
        context, pmax = self.context, self.context.largest_p is not None
        return memory_plan.largest_arena(context.budget, context.level, self.max_degree, longest_split, pmax)

    def test_batch(self, batch: list[Cluster]) -> None:
        """Queue the tests of some groups of rows, in one launch."""
        context, graph, smallest = self.context, self.graph, self.smallest
        pipeline = context.pipelines.next()
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
            ("smallest", np.uint64, n_slots if smallest is not None else 0),
            ("sizes", np.int32, n_rows),
            ("own", np.int32, n_rows),
            ("neighbours", np.int32, n_slots),
            ("mirrors", np.int32, n_slots),
        ):
            host[name], device[name] = pipeline.area("arena", (count,), dtype, offset)
            offset += host[name].nbytes
        with pipeline.extracting():
            slots = graph.row_slots(rows)
            place = np.full(context.p, -1, np.int64)  # the index of each row's first slot in this batch
            place[rows] = first_slot[:-1]
            reverse, near = graph.reverse[slots], graph.neighbours[slots]
            mirrors = place[near] + reverse - graph.starts[near]
            host["mirrors"][:] = np.where(place[near] >= 0, mirrors, np.arange(n_slots))
            # An earlier batch may have tested the row of the other end.
            host["keys"][:] = np.minimum(self.keys[slots], self.keys[reverse])
            host["smallest"][:] = NO_KEY
            host["first_slot"][:] = first_slot
            self._gather_groups(batch, near, host)
        pipeline.upload(pipeline.area("arena", (offset,), np.uint8)[::-1])
        batch_argument = BATCH(**{name: device[name] for name in BATCH.fields})
        search = self.row_search(device["keys"], None if smallest is None else device["smallest"])
        sizes_of_launch = n_rows, int(degrees.max()), context.run.params["theta"], context.run.params["delta"]
        pipeline.launch(*gathered_launch(context.run.backend, context.level, batch_argument, search, *sizes_of_launch))
        results = ("keys",) if smallest is None else ("keys", "smallest")
        pipeline.download(*((host[name], device[name]) for name in results))
        pipeline.merge_with(functools.partial(self._merge, slots, host))

    def _gather_groups(self, batch: list[Cluster], near: np.ndarray, host: dict[str, np.ndarray]) -> None:
        """Gather each group's sub-matrix, and number its rows and their neighbours in it.

        Args:
            near: (slots,) the neighbours of all rows.
            host: the staging arrays of `BATCH`.
        """
        correlation = self.context.problem.correlation
        local = np.empty(self.context.p, np.int32)
        at = row = slot = 0
        for group in batch:
            size = len(group.members)
            local[group.members] = np.arange(size)
            host_blocks.gather(correlation, group.members, host["matrices"][at : at + size * size].reshape(size, size))
            these = slice(row, row + len(group.rows))
            host["matrix_at"][these], host["sizes"][these] = at, size
            host["own"][these] = local[group.rows]
            host["neighbours"][slot : slot + group.slots] = local[near[slot : slot + group.slots]]
            at, row, slot = at + size * size, these.stop, slot + group.slots
        host_blocks.release_large(correlation)

    def _merge(self, slots: np.ndarray, host: dict[str, np.ndarray]) -> None:
        self.keys[slots] = np.minimum(self.keys[slots], host["keys"])
        if self.smallest is not None:
            self.smallest[slots] = host["smallest"]
