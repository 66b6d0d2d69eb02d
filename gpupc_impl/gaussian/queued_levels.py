"""Queued levels of pair-scan: the first levels of a small problem, which are queued before the host reads any result.

Levels 0 and 1 and the fused levels after them run on the device without a round trip to the host, and the last launch
writes the result. Memory is allocated for the largest number of edges that may remain after level 0.
"""

from typing import Any

import numpy as np

from gpupc_impl.core.pc_stable import LevelOutcome, stop_reason
from gpupc_impl.core.registry import Run
from gpupc_impl.engine.separating_sets import LevelSets
from gpupc_impl.gaussian import pair_block
from gpupc_impl.gaussian.fused_levels import (
    MOST_EDGES,
    RESULT,
    FusedKernel,
    FusedLevels,
    is_requested,
    launchable,
    removed_pairs,
)
from gpupc_impl.gaussian.level_one import run_level_zero, scan_pairs
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.gaussian.scan_state import FUSED, ScanState, cells

MEMORY_SHARE = 4
"""The arrays of queued levels may take at most the free device memory divided by this."""

ROWS_PER_BLOCK = 2
"""The number of variables for each thread block of a launch, which has at least one block for each multiprocessor."""

LONGEST_ROW = 256
"""The upper bound on the degrees with which queued levels continue with level 2."""


def queued_kernel(problem: GaussianProblem, run: Run) -> FusedKernel | None:
    """Return the kernel that runs the levels after level 0; None if levels are not to be queued.

    No level is queued if the device has a memory limit, since later levels may need the memory.
    """
    backend, params, p = run.backend, run.params, problem.n_variables
    if not is_requested(problem, params, backend, run.pmax) or params["tiles"] == "always":
        return None
    if p >= pair_block.TILED_FROM or backend.device_memory_limit is not None:
        return None
    if any(stop_reason(problem, level, p - 1) is not None for level in (0, 1)):
        return None
    if MEMORY_SHARE * _approximate_bytes(p) > backend.memory_limit - backend.memory_used:
        return None
    return launchable(FUSED[0], params, backend, 8 * params["warps"] * cells(2, min(p, LONGEST_ROW)))


def queue_arrays(p: int) -> dict[str, tuple[Any, Any]]:
    """Return the shapes and types of the arrays that queued levels need, by name.

    The arrays hold rows for as many edges as level 2 accepts, lists of all pairs that may be removed, and the result.
    """
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


def _approximate_bytes(p: int) -> int:
    """Return the size of `queue_arrays` in bytes, with an error of some bytes for each variable."""
    return 18 * p * p + 16 * p + 56 * min(p * p // 2, MOST_EDGES)


class QueuedLevels:
    """The queued levels of one search, whose state has the `queue_arrays`."""

    def __init__(self, state: ScanState, fused: FusedLevels, kernel: FusedKernel):
        self.state, self.fused, self.kernel = state, fused, kernel
        state.levels_prepared = FUSED[-1][1]
        state.upload_tables(min(state.p, LONGEST_ROW))

    def run(self) -> LevelOutcome:
        """Run level 0 and the fused levels after it.

        Returns the outcome of level 0, and stores those of the other levels in `FusedLevels.known`.
        """
        state = self.state
        started = state.backend.clock()
        memory = state.memory
        run_level_zero(state)
        scan_pairs(state, 0, 1)
        blocks = max(state.backend.multiprocessors, state.p // ROWS_PER_BLOCK)
        result = {name: memory[name] for name in RESULT.fields}
        counts = self.fused.launch(1, self.kernel, blocks, memory["level_pairs"], memory["level_sets"], result)
        removed = removed_pairs(counts)
        if pairs := sum(removed):
            members = sum(level * count for level, count in enumerate(removed, 1))
            sizes = {"pairs": pairs, "offsets": pairs + 1, "sizes": pairs, "members": members}
            state.removed.append(LevelSets(**{name: memory[name][:size] for name, size in sizes.items()}))
        state.entries = memory["entries"]
        if state.graphs.edges > len(state.fields["best"]) // 2 or state.graphs.most_degree > state.fields["widest"]:
            state.levels_prepared = 0  # The rows are too short for the remaining edges.
        zero = counts[0]
        seconds = self.fused.unaccounted_seconds(started)
        return LevelOutcome(zero.degree_sum // 2, zero.most_degree, state.problem.tests_of_level_zero, seconds=seconds)
