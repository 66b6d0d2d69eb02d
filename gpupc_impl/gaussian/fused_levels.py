"""Several levels of pair-scan in one cooperative launch, for small problems, where launches take longer than tests."""

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from gpupc_impl.backends import Backend, KernelSource, Pointer, Struct
from gpupc_impl.backends.launch import Kernel
from gpupc_impl.core.pc_stable import LevelOutcome, stop_reason
from gpupc_impl.engine import separating_sets
from gpupc_impl.engine.bit_graph import LevelCounts
from gpupc_impl.engine.separating_sets import LevelSets
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.gaussian.scan_state import CONSTANTS, FUSED, GRAPHS_AT_ONCE, SEARCH, ScanState, cells, tests_before

MOST_EDGES = 1 << 18
"""Edges up to which levels are fused by default: with more, tests take far longer than launches."""

MOST_TESTS = 1 << 24
"""Tests of the level before up to which levels are fused by default: with more, the kernels of single levels, which
have more registers, gain more than launches take."""

BUSY_TESTS = 1 << 20
"""Tests of the level before from which a launch has as many thread blocks as are resident at once."""

EDGES_PER_BLOCK = 32
"""Edges for each thread block of a launch with fewer tests, since blocks wait for each other; but at least one block
for each multiprocessor."""

LEAST_SHARED_BYTES = 40 << 10
"""Shared memory of a thread block, at least: later levels have shorter rows, and more cells for each variable."""

RESULT = Struct(
    "ScanResult",
    entries=Pointer(np.uint8),
    pairs=Pointer(np.int32),
    offsets=Pointer(np.int64),
    sizes=Pointer(np.uint8),
    members=Pointer(np.int32),
)
KERNELS = {
    levels: KernelSource(
        "gaussian/kernels/fused_levels.cu",
        f"fused_levels<{levels[0]}, {levels[1]}>",
        (SEARCH, RESULT),
        {**CONSTANTS, **separating_sets.CONSTANTS, "GRAPHS_AT_ONCE": GRAPHS_AT_ONCE},
    )
    for levels in FUSED
}

_PREFETCHED = {levels: (kernel,) for levels, kernel in KERNELS.items()}


class FusedKernel(NamedTuple):
    """A kernel of fused levels that can be launched: its last level, and the shared memory of a block."""

    kernel: Kernel
    last: int
    shared_bytes: int


def is_requested(problem: GaussianProblem, params: Mapping[str, Any], backend: Backend, pmax: bool) -> bool:
    """Whether levels are to be fused where they can be; the kernels support neither p-values nor fixed edges."""
    return not pmax and problem.fixed is None and is_chosen(params, backend)


def is_chosen(params: Mapping[str, Any], backend: Backend) -> bool:
    """Whether the parameters choose fused levels on this backend, for problems for which the kernels serve."""
    requested = params["fused_levels"]
    return bool(requested == "always" or (requested == "auto" and backend.warp_threads > 1))


def launchable(
    levels: tuple[int, int], params: Mapping[str, Any], backend: Backend, shared_bytes: int
) -> FusedKernel | None:
    """The kernel of these levels with about as much shared memory as is wanted; None if no block would be resident.

    It takes a compiler several times as long as the kernels of single levels, which make the same tests. So by default
    a search that would have to wait for it does without; None then as well.
    """
    backend.prefetch(_PREFETCHED[levels])
    if params["fused_levels"] == "auto" and not backend.is_ready(KERNELS[levels]):
        return None
    shared_bytes = min(max(shared_bytes, LEAST_SHARED_BYTES), backend.max_shared_bytes)
    kernel = backend.kernel(*KERNELS[levels])
    resident = kernel.resident_blocks(params["warps"] * backend.warp_threads, shared_bytes)
    return FusedKernel(kernel, levels[1], shared_bytes) if resident else None


class FusedLevels:
    """The fused levels of one search; `known` are outcomes of levels that ran in a launch with one before them."""

    def __init__(self, state: ScanState):
        self.state = state
        self.known: dict[int, LevelOutcome] = {}

    def kernel_for(self, level: int) -> FusedKernel | None:
        """The kernel that runs levels from this one on, from 2 on; None if they are to be launched one by one."""
        state = self.state
        backend, params = state.backend, state.params
        if not is_requested(state.problem, params, backend, state.pmax):
            return None
        few = state.graphs.edges <= MOST_EDGES and tests_before(state, level) <= MOST_TESTS
        levels = next((levels for levels in FUSED if levels[0] <= level <= levels[1]), None)
        warp_bytes = 8 * cells(level, state.graphs.most_degree)
        warps = min(params["warps"], backend.max_shared_bytes // warp_bytes)
        if levels is None or not warps or not (few or params["fused_levels"] == "always"):
            return None
        return launchable(levels, params, backend, warps * warp_bytes)

    def run(self, first: int, fused: FusedKernel) -> LevelOutcome:
        """Run levels from `first` on, as far as there is work and shared memory for their rows."""
        state = self.state
        backend, edges = state.backend, state.graphs.edges
        started = backend.clock()
        state.prepare_rows(fused.last, None)
        lists = backend.empty_all(pairs=((edges, 2), np.int32), sets=(edges * fused.last, np.int32))
        busy = tests_before(state, first) >= BUSY_TESTS
        blocks = fused.kernel.resident_blocks(state.threads, fused.shared_bytes) if busy else edges // EDGES_PER_BLOCK
        blocks = max(backend.multiprocessors, blocks)
        counts = self.launch(first, fused, blocks, lists["pairs"], lists["sets"], dict.fromkeys(RESULT.fields))
        pair = member = 0
        for level, removed in enumerate(removed_pairs(counts), first):
            if removed:
                sets = lists["sets"][member : member + removed * level].reshape(removed, level)
                state.removed.append(LevelSets(lists["pairs"][pair : pair + removed], sets))
                pair, member = pair + removed, member + removed * level
        state.entries = None
        return dataclasses.replace(self.known.pop(first), seconds=self.unaccounted_seconds(started))

    def launch(
        self, first: int, fused: FusedKernel, blocks: int, pairs: Any, sets: Any, result: Mapping[str, Any]
    ) -> list[LevelCounts]:
        """Launch levels from `first` on and read what they counted; their outcomes are then `known`.

        Args:
            blocks: the number of thread blocks that is wanted; it is clamped to those that are resident at once.
            pairs, sets: memory for the lists of removed pairs and of their sets.
            result: memory for the result by the names of `RESULT`, if level 1 is the first; else None for each.

        Returns:
            The counts of the level before the first, and of each level that was run.
        """
        state = self.state
        last = first  # the last level that the problem allows; the kernel knows degrees
        while last < fused.last and stop_reason(state.problem, last + 1, last + 2) is None:
            last += 1
        blocks = min(fused.kernel.resident_blocks(state.threads, fused.shared_bytes), max(blocks, 1))
        most_tests = MOST_TESTS if state.params["fused_levels"] == "auto" else math.inf
        numbers = map(np.int32, (state.graph, first, last, state.params["run"]))
        limits = np.int64(fused.shared_bytes), np.int64(len(state.fields["best"]) // 2), np.float64(most_tests)
        arguments = [state.search, state.critical, *numbers, *limits, pairs, sets, RESULT(**result)]
        fused.kernel((blocks,), (state.threads,), arguments, fused.shared_bytes, cooperative=True)
        counts = state.graphs.read_fused(first, last)
        for level, (before, after) in enumerate(itertools.pairwise(counts), first):
            self.known[level] = LevelOutcome(
                after.degree_sum // 2,
                after.most_degree,
                after.tests,
                undefined=after.undefined,
                pseudo_inverses=after.singular,
                seconds=(after.ended - before.ended) / 1e9,
            )
        state.tests = counts[-1].tests
        state.graph = (state.graph + len(self.known)) % GRAPHS_AT_ONCE
        return counts

    def unaccounted_seconds(self, started: float) -> float:
        """The time since then, on the backend's clock, that the outcomes of known levels do not account for."""
        return self.state.backend.clock() - started - sum(outcome.seconds for outcome in self.known.values())


def removed_pairs(counts: list[LevelCounts]) -> list[int]:
    """The number of pairs that each level but the first removed."""
    return [(before.degree_sum - after.degree_sum) // 2 for before, after in itertools.pairwise(counts)]
