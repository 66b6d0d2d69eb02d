"""Fused levels of pair-scan: one cooperative launch runs several levels of a small problem, whose launches would take
longer than its tests."""

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
"""The number of edges up to which levels are fused by default; with more edges, tests take far longer than launches."""

MOST_TESTS = 1 << 24
"""The number of tests of the previous level up to which levels are fused by default. With more tests, the kernels of
single levels are faster, since they have more registers, and this saves more time than their launches take."""

BUSY_TESTS = 1 << 20
"""The number of tests of the previous level from which a launch has as many thread blocks as can be resident at
once."""

EDGES_PER_BLOCK = 32
"""The number of edges for each thread block of a launch with fewer tests. A launch has few blocks because blocks wait
for each other, but at least one for each multiprocessor."""

LEAST_SHARED_BYTES = 40 << 10
"""The lower bound on the shared memory of a thread block, in bytes. Later levels run in the same launch, and they have
shorter rows but more cells for each variable."""

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
    """A kernel of fused levels that can be launched, the last level that it can run, and the shared memory of a block
    in bytes."""

    kernel: Kernel
    last: int
    shared_bytes: int


def is_requested(problem: GaussianProblem, params: Mapping[str, Any], backend: Backend, pmax: bool) -> bool:
    """Return whether levels are to be fused; kernels of fused levels support neither p-values nor fixed edges."""
    return not pmax and problem.fixed is None and is_chosen(params, backend)


def is_chosen(params: Mapping[str, Any], backend: Backend) -> bool:
    """Return whether the parameters choose fused levels on this backend for the problems that the kernels support."""
    requested = params["fused_levels"]
    return bool(requested == "always" or (requested == "auto" and backend.warp_threads > 1))


def launchable(
    levels: tuple[int, int], params: Mapping[str, Any], backend: Backend, shared_bytes: int
) -> FusedKernel | None:
    """Return the kernel of fused levels with about as much shared memory as is requested, in bytes.

    The kernels of single levels make the same tests and compile several times as fast as the kernel of fused levels. A
    search with ``fused_levels="auto"`` therefore does not wait for the compilation of the latter.

    Returns:
        The kernel; None if no block of it would be resident, or if the search would have to wait for it.
    """
    backend.prefetch(_PREFETCHED[levels])
    if params["fused_levels"] == "auto" and not backend.is_ready(KERNELS[levels]):
        return None
    shared_bytes = min(max(shared_bytes, LEAST_SHARED_BYTES), backend.max_shared_bytes)
    kernel = backend.kernel(*KERNELS[levels])
    resident = kernel.resident_blocks(params["warps"] * backend.warp_threads, shared_bytes)
    return FusedKernel(kernel, levels[1], shared_bytes) if resident else None


class FusedLevels:
    """The fused levels of one search; `known` holds outcomes that the search has not taken yet, by level."""

    def __init__(self, state: ScanState):
        self.state = state
        self.known: dict[int, LevelOutcome] = {}

    def kernel_for(self, level: int) -> FusedKernel | None:
        """Return the kernel that runs the levels from `level` on (at least 2), or None if each level is to have its own
        launches."""
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
        """Run levels from `first` on, as far as they have tests and their rows fit in shared memory; returns the
        outcome of level `first`."""
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
        """Launch levels from `first` on, read their counters, and store their outcomes in `known`.

        Args:
            blocks: the requested number of thread blocks, which is clamped to those that can be resident at once.
            pairs, sets: memory for the lists of removed pairs and of their sets.
            result: memory for the result by the names of `RESULT` if `first` is 1; otherwise None for each name.

        Returns:
            The counters of the level before `first`, and of each level that was run.
        """
        state = self.state
        last = first  # The kernel stops before the last level that the problem allows if the degrees are too small.
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
        """Return the seconds since `started`, on the backend's clock, that the outcomes in `known` do not include."""
        return self.state.backend.clock() - started - sum(outcome.seconds for outcome in self.known.values())


def removed_pairs(counts: list[LevelCounts]) -> list[int]:
    """Return the number of pairs that each level removed, from the counters of these levels and of the one before."""
    return [(before.degree_sum - after.degree_sum) // 2 for before, after in itertools.pairwise(counts)]
