"""Fused levels of pair-scan: one cooperative launch runs several levels of a small problem, whose launches would take
longer than its tests. The first levels of a small problem are also queued before the host reads any result: levels 0
and 1 and the fused levels after them run without a round trip to the host, and the last launch writes the result.
Memory is then allocated for the largest number of edges that may remain after level 0."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from gpupc_impl.backends import Backend, KernelSource, Pointer, Struct
from gpupc_impl.backends.launch import Kernel
from gpupc_impl.core.pc_stable import LevelOutcome, stop_reason
from gpupc_impl.core.registry import Run
from gpupc_impl.engine import separating_sets
from gpupc_impl.engine.bit_graph import LevelCounts
from gpupc_impl.engine.budget import device_bytes, free_bytes
from gpupc_impl.engine.separating_sets import LevelSets
from gpupc_impl.gaussian import pair_block
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.gaussian.scan_state import CONSTANTS, FUSED, GRAPHS_AT_ONCE, LAUNCH, SEARCH, WARPS, ScanState, cells

MOST_EDGES = 1 << 18  # up to which levels are fused by default; with more, tests take far longer than launches

MOST_TESTS = 1 << 24
"""The number of tests of the previous level up to which levels are fused by default. With more tests, the kernels of
single levels are faster, since they have more registers, and this saves more time than their launches take."""

MOST_TESTS_OF_CORES = 1 << 14  # the same for several CPU cores, of which fused levels use one, for about a millisecond
MOST_VARIABLES_OF_CORES = 128  # up to which several cores queue the first levels: one core runs them sooner
BUSY_TESTS = 1 << 20  # of the previous level, from which a launch has as many blocks as can be resident at once

EDGES_PER_BLOCK = 32
"""The number of edges for each thread block of a launch with fewer tests. A launch has few blocks because blocks wait
for each other, but at least one for each multiprocessor."""

LEAST_SHARED_BYTES = 40 << 10
"""The lower bound on the shared memory of a thread block, in bytes. Later levels run in the same launch, and they have
shorter rows but more cells for each variable."""

MEMORY_SHARE = 4  # queued levels take at most the free device memory divided by this
ROWS_PER_BLOCK = 2  # the number of variables for each thread block of a launch of queued levels
LONGEST_ROW = 256  # the upper bound on the degrees with which queued levels continue with level 2

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
    """A kernel of fused levels, the last level that it can run, and the shared memory of a block in bytes."""

    kernel: Kernel
    last: int
    shared_bytes: int


def is_requested(problem: GaussianProblem, backend: Backend, pmax: bool) -> bool:
    """Return whether levels are to be fused; kernels of fused levels support neither p-values nor fixed edges. They are
    not if the device has a memory limit, since single levels take less memory."""
    possible = not pmax and problem.fixed is None and backend.device_memory_limit is None
    return possible and LAUNCH["fused_levels"] != "never"


def _most_tests(backend: Backend) -> float:
    if LAUNCH["fused_levels"] == "always":
        return math.inf
    return MOST_TESTS_OF_CORES if _leaves_cores_idle(backend) else MOST_TESTS


def _leaves_cores_idle(backend: Backend) -> bool:
    """Return whether fused levels, a cooperative launch, run on one of several cores."""
    return backend.warp_threads == 1 and backend.array_threads > 1


def launchable(levels: tuple[int, int], backend: Backend, shared_bytes: int) -> FusedKernel | None:
    """Return the kernel of fused levels with about as much shared memory as is requested, in bytes; None if no block of
    it would be resident, or if a search with ``fused_levels="auto"`` would have to wait for its compilation, which
    takes several times as long as that of the kernels of single levels."""
    backend.prefetch(_PREFETCHED[levels])
    if LAUNCH["fused_levels"] == "auto" and not backend.is_ready(KERNELS[levels]):
        return None
    shared_bytes = min(max(shared_bytes, LEAST_SHARED_BYTES), backend.max_shared_bytes)
    kernel = backend.kernel(*KERNELS[levels])
    resident = kernel.resident_blocks(WARPS * backend.warp_threads, shared_bytes)
    return FusedKernel(kernel, levels[1], shared_bytes) if resident else None


class FusedLevels:
    """The fused levels of one search; `known` holds outcomes that the search has not taken yet, by level."""

    def __init__(self, state: ScanState):
        self.state = state
        self.known: dict[int, LevelOutcome] = {}

    def kernel_for(self, level: int) -> FusedKernel | None:
        """Return the kernel that runs levels from `level` on (at least 2), None if each has its own launches."""
        state = self.state
        backend = state.backend
        if not is_requested(state.problem, backend, state.pmax):
            return None
        few = state.graphs.edges <= MOST_EDGES and state.tests_before(level) <= _most_tests(backend)
        levels = next((levels for levels in FUSED if levels[0] <= level <= levels[1]), None)
        warp_bytes = 8 * cells(level, state.graphs.most_degree)
        warps = min(WARPS, backend.max_shared_bytes // warp_bytes)
        if levels is None or not warps or not (few or LAUNCH["fused_levels"] == "always"):
            return None
        return launchable(levels, backend, warps * warp_bytes)

    def run(self, first: int, fused: FusedKernel) -> LevelOutcome:
        """Run levels from `first` on while tests remain and rows fit in shared memory; returns the first outcome."""
        state = self.state
        backend, edges = state.backend, state.graphs.edges
        started = backend.clock()
        state.prepare_rows(fused.last, None)
        lists = backend.empty_all(pairs=((edges, 2), np.int32), sets=(edges * fused.last, np.int32))
        busy = state.tests_before(first) >= BUSY_TESTS
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
        """Launch levels from `first` on, store their outcomes in `known`, and return the counters of the level before
        `first` and of each level that was run. `blocks` is clamped to the thread blocks that can be resident at once;
        `pairs` and `sets` are memory for the lists of removed pairs and of their sets, and `result` that for the result
        by the names of `RESULT` if `first` is 1, otherwise None for each name."""
        state = self.state
        last = first  # The kernel stops before the last level that the problem allows if the degrees are too small.
        while last < fused.last and stop_reason(state.problem, last + 1, last + 2) is None:
            last += 1
        blocks = min(fused.kernel.resident_blocks(state.threads, fused.shared_bytes), max(blocks, 1))
        numbers = map(np.int32, (state.graph, first, last))
        limits = (
            np.int64(fused.shared_bytes),
            np.int64(len(state.fields["best"]) // 2),
            np.float64(_most_tests(state.backend)),
        )
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

    def run_queued(self, kernel: FusedKernel) -> LevelOutcome:
        """Run level 0 and the fused levels after it, with the `queue_arrays`; returns the outcome of level 0."""
        state, memory = self.state, self.state.memory
        state.levels_prepared = FUSED[-1][1]
        state.upload_tables(min(state.p, LONGEST_ROW))
        started = state.backend.clock()
        state.run_level_zero()
        state.scan_pairs(0, 1)
        blocks = max(state.backend.multiprocessors, state.p // ROWS_PER_BLOCK)
        result = {name: memory[name] for name in RESULT.fields}
        counts = self.launch(1, kernel, blocks, memory["level_pairs"], memory["level_sets"], result)
        removed = removed_pairs(counts)
        if pairs := sum(removed):
            members = sum(level * count for level, count in enumerate(removed, 1))
            sizes = {"pairs": pairs, "offsets": pairs + 1, "sizes": pairs, "members": members}
            state.removed.append(LevelSets(**{name: memory[name][:size] for name, size in sizes.items()}))
        state.entries = memory["entries"]
        if state.graphs.edges > len(state.fields["best"]) // 2 or state.graphs.most_degree > state.fields["widest"]:
            state.levels_prepared = 0  # The rows are too short for the remaining edges.
        zero = counts[0]
        seconds = self.unaccounted_seconds(started)
        return LevelOutcome(zero.degree_sum // 2, zero.most_degree, state.problem.tests_of_level_zero, seconds=seconds)

    def unaccounted_seconds(self, started: float) -> float:
        """Return the seconds since `started`, on the backend's clock, that the outcomes in `known` do not include."""
        return self.state.backend.clock() - started - sum(outcome.seconds for outcome in self.known.values())


def removed_pairs(counts: list[LevelCounts]) -> list[int]:
    """Return the number of pairs that each level removed, from the counters of these levels and of the one before."""
    return [(before.degree_sum - after.degree_sum) // 2 for before, after in itertools.pairwise(counts)]


# --- queued levels ----------------------------------------------------------------------------------------------------
def queued_kernel(problem: GaussianProblem, run: Run) -> FusedKernel | None:
    """Return the kernel that runs the levels after level 0; None if levels are not to be queued."""
    backend, p = run.backend, problem.n_variables
    if not is_requested(problem, backend, run.pmax) or LAUNCH["tiles"] == "always" or p >= pair_block.TILED_FROM:
        return None
    if _leaves_cores_idle(backend) and p > MOST_VARIABLES_OF_CORES and LAUNCH["fused_levels"] == "auto":
        return None
    if any(stop_reason(problem, level, p - 1) is not None for level in (0, 1)):
        return None
    if MEMORY_SHARE * _queue_bytes(p) > free_bytes(backend):
        return None
    return launchable(FUSED[0], backend, 8 * WARPS * cells(2, min(p, LONGEST_ROW)))


@functools.lru_cache(maxsize=16)
def _queue_bytes(p: int) -> int:
    return device_bytes(queue_arrays(p))


def queue_arrays(p: int) -> dict[str, tuple[Any, Any]]:
    """The arrays of queued levels: rows for the edges that level 2 accepts, lists of removable pairs, the result."""
    pairs = p * (p - 1) // 2
    edges = min(pairs, MOST_EDGES)
    members = pairs + (FUSED[0][1] - 1) * edges
    return {
        "starts": (p + 1, np.int64),
        "run_starts": (p + 1, np.uint64),
        "neighbours": (2 * edges, np.int32),
        "best": (2 * edges, np.uint64),
        "level_pairs": ((pairs, 2), np.int32),
        "level_sets": (members, np.int32),
        "entries": ((p, p), np.uint8),
        "pairs": ((pairs, 2), np.int32),
        "offsets": (pairs + 1, np.int64),
        "sizes": (pairs, np.uint8),
        "members": (members, np.int32),
    }
