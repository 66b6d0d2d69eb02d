"""Levels on sub-matrices that are gathered for groups of rows (kernels/gathered.cu)."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np

from gpupc_impl.backends import Backend, DeviceMemoryError, KernelSource, Pointer, Struct
from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.engine.budget import allocated_bytes
from gpupc_impl.engine.graph import BINOMIALS, NO_KEY, REQUIRED_KEY, binomial_table
from gpupc_impl.engine.row_graph import KEY_CONSTANTS, RowGraph
from gpupc_impl.gaussian.level_kernels import LevelKernels
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.out_of_core import host_blocks, plans
from gpupc_impl.out_of_core.level import Level, degrees_of
from gpupc_impl.out_of_core.plans import BATCH_SLACK, Plan

logger = logging.getLogger("gpupc_impl.out_of_core")

BATCH = Struct(  # gathered.cu
    "Batch",
    matrices=Pointer(np.float64),
    **dict.fromkeys(("matrix_at", "first_slot"), Pointer(np.int64)),
    **dict.fromkeys(("sizes", "own", "neighbours", "mirrors"), Pointer(np.int32)),
)
ROW_SEARCH = Struct(  # gathered.cu
    "RowSearch",
    **dict.fromkeys(("keys", "min_r_squared", "counters"), Pointer(np.uint64)),
    binomial=BINOMIALS,
    **dict.fromkeys(("critical_r_squared", "residual_tolerance", "pivot_tolerance"), np.float64),
    level=np.int32,
    first_come=np.bool_,
)
GATHERED = LevelKernels(
    lambda size: KernelSource(
        "out_of_core/kernels/gathered.cu", f"gathered<{size}>", (BATCH, ROW_SEARCH), KEY_CONSTANTS
    )
)

GATHER_FACTOR = 4  # the time for a byte that is gathered entry by entry, relative to that for a byte of a row


def gathers(degrees: np.ndarray, panels: Plan, budget: int, pmax: bool) -> bool:
    """Whether level 1 takes less time gathered than in panels, given the (p,) degrees at its start."""
    moved = 8 * int(np.square(degrees[degrees > 1] + 1).sum())
    batch, longest = _batch_bytes(degrees, pmax), int(degrees.max())
    fits = plans.gathered_bytes(1, longest, int(batch.max())) <= budget
    return fits and GATHER_FACTOR * moved < plans.panel_transfers(len(degrees), panels.rows)


def _batch_bytes(degrees: np.ndarray, pmax: bool) -> np.ndarray:
    """The bytes of a batch of one row, by the row's degree."""
    return plans.group_bytes(degrees + 1, 1, degrees, pmax) + BATCH_SLACK


def gathered_launch(
    backend: Backend,
    problem: GaussianProblem,
    level: int,
    batch: Mapping[str, Any],
    binomials: Any,
    longest: int,
    shape: tuple[int, int],
    *,
    first_come: bool = False,
    **results: Any,
) -> tuple[Any, ...]:
    """The launch that tests all sets of the rows of a batch, of at most `longest` neighbours, by blocks of a shape
    (theta, delta): kernel, grid, thread block, arguments, bytes of shared memory. `batch` has the fields of `BATCH`,
    and `results` those of `ROW_SEARCH` that the kernel writes."""
    search = ROW_SEARCH(
        **results,
        binomial=BINOMIALS(table=binomials, max_n=binomials.shape[1] - 1),
        critical_r_squared=problem.critical_r_squared(level),
        residual_tolerance=problem.residual_tolerance,
        pivot_tolerance=problem.pivot_tolerance,
        level=level,
        first_come=first_come,
    )
    (theta, delta), shared = shape, 4 * longest if 4 * longest <= backend.max_shared_bytes else 0
    arguments = [BATCH(**batch), search, np.bool_(shared > 0)]
    return GATHERED.choose(backend, level), (len(batch["sizes"]), delta), (theta,), arguments, shared


class Gathered(Level):
    """A level on gathered sub-matrices of the graph at its start. On the host it has (slots,) uint64: the best `keys`
    so far, and as `smallest` the bits of the smallest r^2, None without p-values."""

    graph: RowGraph
    keys: np.ndarray
    smallest: np.ndarray | None
    binomials: Any

    @classmethod
    def within(cls, budget: int, level: int, problem: GaussianProblem, *state: Any) -> Self:
        """The level with batches that keep within a budget of device memory, in bytes."""
        run, _, adjacency, _ = state
        degrees = degrees_of(adjacency)
        longest, batch = int(degrees.max()), _batch_bytes(degrees, run.pmax)
        batch = batch[_with_tests(problem, degrees, level)]
        most = int(batch.max(initial=BATCH_SLACK))
        needed = plans.gathered_bytes(level, longest, most)
        if needed > budget:
            backend, used = run.backend, run.backend.memory_used
            raise DeviceMemoryError(
                needed,
                used,
                backend.memory_limit,
                f"level {level} of out-of-core-block needs {needed:,} bytes of device memory, for the correlations of "
                f"a variable with its {longest:,} neighbours, and {budget:,} are free: set device_memory_limit to "
                f"{needed + used:,} or more, or max_level to {level - 1}; a checkpoint keeps the levels before",
            )
        room = (budget - plans.gathered_bytes(level, longest, 0)) // 1024 * 512
        size = min(room, max(plans.STAGING_BYTES, most), allocated_bytes(int(batch.sum()) + BATCH_SLACK))
        plan = Plan("gathered", plans.gathered_bytes(level, longest, size), columns=size)
        logger.info("level %d: %s rows, %s", level, f"{len(batch):,}", plan)
        return cls(level, problem, *state, plan)

    def search(self) -> LevelOutcome:
        fixed = self.problem.fixed
        graph = self.graph = RowGraph.from_matrix(self.adjacency)
        degrees = graph.degrees
        self.keys = np.full(len(graph.neighbours), NO_KEY, np.uint64)
        self.smallest = None if self.largest_p is None else self.keys.copy()
        required = np.empty(0, np.int64) if fixed is None else graph.edge_slots(fixed.required)
        self.keys[required] = REQUIRED_KEY
        self.binomials = self.backend.upload(binomial_table(int(degrees.max()), self.level))
        self.pipelines.allocate({"batch": (self.plan.columns, np.uint8)})
        order = graph.order()
        tested = order[_with_tests(self.problem, degrees, self.level)[order]]
        for batch in batches(graph, tested, self.plan.columns - BATCH_SLACK, self.smallest is not None):
            self.test_batch(batch)
        self.pipelines.finish()
        self.keys[required] = NO_KEY
        if self.smallest is not None:
            i = np.repeat(np.arange(self.p, dtype=np.int32), degrees)
            once = i < graph.neighbours
            smallest = np.minimum(self.smallest, self.smallest[graph.reverse])
            self.record_p_values(i[once], graph.neighbours[once], smallest[once])
        return self.remove_separated(*graph.separated(self.keys, self.level))

    def test_batch(self, batch: list[Group]) -> None:
        graph, smallest = self.graph, self.smallest
        pipeline = self.pipelines.next()
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
            host[name], device[name] = pipeline.area("batch", (count,), dtype, offset)
            offset += host[name].nbytes
        with pipeline.on_host("extract"):
            slots = graph.row_slots(rows)
            place = np.full(self.p, -1, np.int64)  # the index of each row's first slot in this batch
            place[rows] = first_slot[:-1]
            reverse, near = graph.reverse[slots], graph.neighbours[slots]
            mirrors = place[near] + reverse - graph.starts[near]
            host["mirrors"][:] = np.where(place[near] >= 0, mirrors, np.arange(n_slots))
            # An earlier batch may have tested the row of the other end.
            host["keys"][:] = np.minimum(self.keys[slots], self.keys[reverse])
            host["smallest"][:] = NO_KEY
            host["first_slot"][:] = first_slot
            self._gather_groups(batch, near, host)
        pipeline.upload(pipeline.area("batch", (offset,), np.uint8)[::-1])
        launch = gathered_launch(
            self.backend,
            self.problem,
            self.level,
            {name: device[name] for name in BATCH.fields},
            self.binomials,
            int(degrees.max()),
            (self.run.params["theta"], self.run.params["delta"]),
            keys=device["keys"],
            min_r_squared=None if smallest is None else device["smallest"],
            counters=self.counters,
            first_come=self.first_come,
        )
        pipeline.launch(*launch)
        results = ("keys",) if smallest is None else ("keys", "smallest")
        copies = ((host[name], device[name]) for name in results)
        pipeline.download(functools.partial(self._merge, slots, host), *copies)

    def _gather_groups(self, batch: list[Group], near: np.ndarray, host: dict[str, np.ndarray]) -> None:
        """Gather each group's sub-matrix and number rows and neighbours in it; `near` has all (slots,) neighbours."""
        correlation = self.problem.correlation
        local = np.empty(self.p, np.int32)
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


def _with_tests(problem: GaussianProblem, degrees: np.ndarray, level: int) -> np.ndarray:
    """Which rows have a set of a level and an edge to test, (p,) bool."""
    tested = degrees > level
    return tested if problem.fixed is None else tested & ~problem.fixed.without_tests(degrees)


# --- groups of rows ----------------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Group:
    """Rows of the graph that share neighbours, so that they have one sub-matrix."""

    rows: np.ndarray
    members: np.ndarray  # (m,) the rows and their neighbours, ascending
    slots: int  # the sum of the rows' degrees


def groups(graph: RowGraph, rows: np.ndarray, limit: int, pmax: bool) -> Iterator[Group]:
    """Group rows greedily, in their order: a row joins the present group if the joint sub-matrix is no larger than the
    group's and the row's sub-matrices together, and if the group then takes at most `limit` bytes of a batch."""
    group_of = np.full(len(graph.starts) - 1, -1, np.int64)
    group: list[int] = []
    number = members = slots = 0

    def close() -> Group:
        return Group(np.array(group), np.flatnonzero(group_of == number), slots)

    for i in rows:
        near = graph.row(i)
        alone = len(near) + 1
        joined = members + int(np.count_nonzero(group_of[near] != number)) + int(group_of[i] != number)
        if group and not (
            joined**2 <= members**2 + alone**2
            and plans.group_bytes(joined, len(group) + 1, slots + len(near), pmax) <= limit
        ):
            yield close()
            number, group, slots, joined = number + 1, [], 0, alone
        group_of[near] = group_of[i] = number
        group.append(int(i))
        members, slots = joined, slots + len(near)
    if group:
        yield close()


def batches(graph: RowGraph, rows: np.ndarray, limit: int, pmax: bool) -> Iterator[list[Group]]:
    """Batches of consecutive groups, each of at most `limit` bytes."""
    batch: list[Group] = []
    used = 0
    for group in groups(graph, rows, limit, pmax):
        size = plans.group_bytes(len(group.members), len(group.rows), group.slots, pmax)
        if batch and used + size > limit:
            yield batch
            batch, used = [], 0
        batch.append(group)
        used += size
    if batch:
        yield batch
