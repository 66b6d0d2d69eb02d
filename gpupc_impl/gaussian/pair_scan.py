"""pair-scan, a method of this project for present GPUs that is not from a paper (docs/design/gaussian.md).

A scan tests a pair with sets from both its ends. Level 1 scans the third variable in ascending order, or tests tiles of
pairs if nearly all pairs remain (level_one.py). From level 2 on, a warp scans the candidates for the last member of a
set, after it has eliminated the other members from the covariances once (kernels/side_scan.cuh). In small problems one
launch runs several levels (fused_levels.py), and the first levels are queued before the host reads any result
(queued_levels.py). The graph is a matrix of bits, and separating sets stay on the device until the search ends.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, KernelSource
from gpupc_impl.core.fixed import FixedPairs
from gpupc_impl.core.pc_stable import MAX_SETS, LevelOutcome, LevelSearch, pc_stable
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import SeparatingSets, Skeleton
from gpupc_impl.engine import bit_graph, separating_sets
from gpupc_impl.engine.bit_graph import MOST_LEVELS, BitGraphs
from gpupc_impl.engine.graph import COUNTER_SHAPE, NO_KEY
from gpupc_impl.engine.separating_sets import LevelSets, download_result
from gpupc_impl.engine.tier_parts import TierSearch
from gpupc_impl.gaussian import correlation, fused_levels, level_one, pair_block
from gpupc_impl.gaussian.fused_levels import FusedLevels
from gpupc_impl.gaussian.largest_p import LargestPValues
from gpupc_impl.gaussian.level_kernels import FIRST_LEVELS, LevelKernels, levels_at_first
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.gaussian.queued_levels import QueuedLevels, queue_arrays, queued_kernel
from gpupc_impl.gaussian.scan_state import (
    CONSTANTS,
    FUSED,
    GRAPHS_AT_ONCE,
    LEVELS_PREPARED,
    SEARCH,
    ScanState,
    cells,
    list_bytes,
)

MOST_SCRATCH_BYTES = 1 << 29
"""The device memory in bytes for the cells of warps (`scan_state.cells`), if rows are too long for shared memory."""

SLACK_BYTES = 16 * 512
"""The upper bound on the bytes that an allocator adds when it rounds the sizes of a search's arrays up."""

_CHOICES = ("auto", "always", "never")

PARAMETERS = {
    "warps": Parameter(4, "warps a block", minimum=1, maximum=4),
    "splits": Parameter(0, "blocks a row in level 1; 0: by the size of the graph", minimum=0, maximum=4096),
    "tiles": Parameter(
        "auto",
        "whether level 1 tests all pairs of a tile at once until the last of them is separated; never with p-values or "
        "background knowledge; auto: on a GPU, where edges are many and the scans of single pairs are long",
        choices=_CHOICES,
    ),
    "run": Parameter(0, "prefixes that a warp takes one after the other; 0: by the level", minimum=0, maximum=4096),
    "fused_levels": Parameter(
        "auto",
        "whether one launch runs as many levels as it can, the first of them before level 0 is known; auto: on a GPU, "
        "in small problems",
        choices=_CHOICES,
    ),
}


def search_kernels(
    backend: Backend, params: Mapping[str, Any], pmax: bool, max_level: int | None
) -> Sequence[KernelSource]:
    """Return the kernels for which a search waits in the first levels, and the first kernel of fused levels (see
    `Method.kernels`)."""
    may_fuse = fused_levels.is_chosen(params, backend) and not pmax
    return _first_kernels(pmax, may_fuse, levels_at_first(backend, max_level))


@functools.cache
def _first_kernels(pmax: bool, may_fuse: bool, last: int) -> tuple[KernelSource, ...]:
    ones = ("pair_scan_zero", f"pair_scan_one<{_flag(pmax)}>", "list_removed_one")
    return (
        *(level_one.KERNELS[name] for name in ones),
        *bit_graph.KERNELS.values(),
        *((*BETWEEN_LEVELS.values(), *SCANS[pmax, True].needed(last)) if last > 1 else ()),
        *separating_sets.KERNELS.values(),
        *((fused_levels.KERNELS[FUSED[0]],) if may_fuse else ()),
    )


def _flag(flag: bool) -> str:
    """Return a Boolean as a template argument."""
    return "true" if flag else "false"


@method(
    "pair-scan",
    family="gaussian",
    source="ours: docs/design/gaussian.md",
    summary="a warp a pair or a prefix of sets, 32 last members at a time, both sides in one scan",
    params=PARAMETERS,
    tiers=True,
    kernels=search_kernels,
)
def pair_scan(problem: GaussianProblem, run: Run) -> Skeleton:
    if problem.tiers is None:
        search: LevelSearch = PairScan(problem, run)
    else:
        search = TierSearch(problem, PairScan(problem, run, may_queue=False))
    return pc_stable(problem, search, facts=dict(run.facts), progress=run.progress)


BETWEEN_LEVELS = {
    name: KernelSource("gaussian/kernels/prefix_level.cu", name, (SEARCH,), CONSTANTS)
    for name in ("begin_level", "list_removed")
}
"""The kernels before and after the tests of a level from 2 on."""


def _scan(pmax: bool, in_shared: bool, size: str) -> KernelSource:
    name = f"prefix_scan<{size}, {_flag(pmax)}, {_flag(in_shared)}>"
    return KernelSource("gaussian/kernels/prefix_scan.cu", name, (SEARCH,), CONSTANTS)


SCANS = {
    flags: LevelKernels(functools.partial(_scan, *flags), lowest=2)
    for flags in itertools.product((False, True), repeat=2)
}
"""The kernels that make the tests of a level from 2 on, by whether p-values are requested, and by whether the cells of
warps lie in shared memory."""


def all_kernels(max_level: int) -> list[KernelSource]:
    """Return every kernel of this method for the levels 0 to `max_level`."""
    return [
        *level_one.KERNELS.values(),
        *BETWEEN_LEVELS.values(),
        *(kernel for scans in SCANS.values() for kernel in scans.up_to(max_level)),
        *(kernel for (first, _), kernel in fused_levels.KERNELS.items() if first <= max_level),
        *bit_graph.KERNELS.values(),
        *separating_sets.KERNELS.values(),
        *(KernelSource(correlation.SOURCE, name) for name in correlation.KERNELS),
        *pair_block.TILES.values(),
    ]


class PairScan(LevelSearch):
    """One search on one backend.

    Args:
        may_queue: whether levels may be queued before level 0 has run, which takes memory for as many edges as level 0
            may leave.
    """

    def __init__(self, problem: GaussianProblem, run: Run, may_queue: bool = True):
        self.problem, self.backend = problem, run.backend
        # The copy runs while the host prepares the search.
        on_device = correlation.device_correlation(run.backend, problem)
        kernel = queued_kernel(problem, run) if may_queue else None
        arrays = {} if kernel is None else queue_arrays(problem.n_variables)
        self.state = ScanState(problem, run, on_device, arrays)
        self.fused = FusedLevels(self.state)
        self.queued = None if kernel is None else QueuedLevels(self.state, self.fused, kernel)
        self.largest_p = LargestPValues(problem) if run.pmax else None

    def run_level(self, level: int) -> LevelOutcome:
        state, fused = self.state, self.fused
        if level == 0:
            return self._level_zero() if self.queued is None else self.queued.run()
        if level in fused.known:
            return fused.known.pop(level)
        if level >= MOST_LEVELS:
            raise InvalidProblem(f"pair-scan counts to level {MOST_LEVELS - 1}; set max_level to that, or take cupc-s")
        longest = state.graphs.most_degree
        if math.comb(longest, level) >= MAX_SETS:  # Only required edges lead to such degrees.
            raise InvalidProblem(
                f"pair-scan cannot number the sets of level {level} of a variable with {longest} required edges; set "
                f"max_level to {level - 1}, or take cupc-s"
            )
        if level > 1 and (kernel := fused.kernel_for(level)) is not None:
            return fused.run(level, kernel)
        return self._level(level)

    def adjacency(self) -> np.ndarray:
        return self._result[0]

    def separating_sets(self, adjacency: np.ndarray) -> SeparatingSets:
        return self._result[1]

    @functools.cached_property
    def _result(self) -> tuple[np.ndarray, SeparatingSets]:
        state = self.state
        if state.graph is None:  # No level has run.
            complete = ~np.eye(state.p, dtype=bool)
            return complete, SeparatingSets.from_levels(complete, [])
        entries = state.graphs.entries(state.graph) if state.entries is None else state.entries
        return download_result(state.backend, entries, state.removed)

    def pmax(self) -> np.ndarray | None:
        return None if self.largest_p is None else self.largest_p.values

    def run_part(self, level: int, edges: np.ndarray, fixed: FixedPairs) -> LevelOutcome:
        """See `engine.tier_parts.PartSearch`."""
        self.problem = dataclasses.replace(self.problem, fixed=fixed)
        self.state.restart(self.problem, edges)
        outcome = self.run_level(level)
        pairs, sets = self.removed_in(level)
        return dataclasses.replace(outcome, pairs=pairs, sets=sets)

    # --- for searches that out_of_core/search.py may continue; they take may_queue=False -----------------------------

    @staticmethod
    def first_bytes(p: int, max_level: int | None, pmax: bool) -> int:
        """Return an upper bound on the bytes of device memory of a search up to level 1, with its result, for any
        graph."""
        # The result takes p^2 bytes.
        of_graph = (8 + 4 + 8 * pmax + 1) * p * p + p + BitGraphs.device_bytes(p, GRAPHS_AT_ONCE)
        level_one = 0 if max_level == 0 else 8 * math.prod(COUNTER_SHAPE) + list_bytes(1, p * (p - 1) // 2)
        return of_graph + level_one + SLACK_BYTES

    def level_bytes(self, level: int) -> int:
        """Return an upper bound on the bytes of device memory that a level from 1 on takes, beside those in use
        before."""
        if level in self.fused.known:
            return 0
        state = self.state
        edges, longest = state.graphs.edges, state.graphs.most_degree
        last = next((last for first, last in FUSED if level > 1 and first <= level <= last), level)
        needed = list_bytes(last, edges) + SLACK_BYTES
        if level > 1:
            warp_bytes = 8 * cells(level, longest)
            needed += 16 * (state.p + 1) + 24 * edges + 8 * (level + LEVELS_PREPARED + 1) * (longest + 32)
            if warp_bytes > state.backend.max_shared_bytes:
                needed += max(MOST_SCRATCH_BYTES, state.params["warps"] * warp_bytes)
        return needed

    def adjacency_now(self) -> np.ndarray:
        """Return the remaining edges, (p, p) bool in host memory, without allocating device memory."""
        return self.state.graphs.download(self.state.graph)

    def removed_in(self, level: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the (k, 2) pairs that a level from 1 on removed and their (k, level) sets, in host memory."""
        for removed in self.state.removed:
            if removed.members.shape[1] == level:
                return self.state.backend.download(removed.pairs), self.state.backend.download(removed.members)
        return np.empty((0, 2), np.int32), np.empty((0, level), np.int32)

    # --- levels with launches of their own ---------------------------------------------------------------------------

    def _level_zero(self) -> LevelOutcome:
        state = self.state
        level_one.run_level_zero(state)
        state.graphs.read(0)
        if self.largest_p is not None:
            self.largest_p.begin()
        most = state.graphs.most_tested_degree(self.problem.fixed)
        return LevelOutcome(state.graphs.edges, most, tests=self.problem.tests_of_level_zero)

    def _level(self, level: int) -> LevelOutcome:
        state = self.state
        backend, graphs, before = state.backend, state.graphs, state.graph
        edges_before, after = graphs.edges, (before + 1) % GRAPHS_AT_ONCE
        state.entries = None
        smallest = state.fields["smallest_r_squared"]
        if smallest is not None:
            backend.fill(smallest, NO_KEY)
        state.graph = after
        if level == 1:
            level_one.run_level_one(state, before, after)
        else:
            self._run_prefixes(level, before, after, (before + 2) % GRAPHS_AT_ONCE)
        graphs.count(before, after, level)
        counts = graphs.read(level)
        state.tests = counts.tests
        removed = edges_before - graphs.edges
        if removed:
            lists = LevelSets(**backend.empty_all(pairs=((removed, 2), np.int32), members=((removed, level), np.int32)))
            if level == 1:
                level_one.list_removed(state, before, after, lists.pairs, lists.members)
            else:
                numbers = map(np.int32, (level, before, after))
                graphs.launch(BETWEEN_LEVELS["list_removed"], state.search, *numbers, lists.pairs, lists.members)
            state.removed.append(lists)
        if self.largest_p is not None:
            self.largest_p.update(level, backend.download(smallest), *self.removed_in(level))
        most = graphs.most_tested_degree(self.problem.fixed)
        return LevelOutcome(
            graphs.edges, most, counts.tests, undefined=counts.undefined, pseudo_inverses=counts.singular
        )

    def _run_prefixes(self, level: int, start: int, left: int, middle: int) -> None:
        """Queue the tests of a level from 2 on; `middle` is the graph after the first side and before the second."""
        state = self.state
        backend, longest = state.backend, state.graphs.most_degree
        run, warp_bytes = np.int32(state.params["run"]), 8 * cells(level, longest)
        warps = min(state.params["warps"], backend.max_shared_bytes // warp_bytes)
        blocks, shared_bytes, scratch = backend.blocks_at_once, warps * warp_bytes, None
        if not warps:  # The rows are too long for shared memory.
            warps = state.params["warps"]
            blocks = max(1, min(blocks, MOST_SCRATCH_BYTES // (warps * warp_bytes)))
            scratch = backend.empty((blocks * warps, warp_bytes // 8), np.float64)
        state.prepare_rows(level, scratch)
        scans = SCANS[state.pmax, scratch is None]
        if level >= FIRST_LEVELS:
            backend.prefetch(scans.ahead(level, self.problem.max_level))
        of_level = np.int32(level)
        graphs = np.int32(start), np.int32(left), np.int32(middle)
        state.graphs.launch(BETWEEN_LEVELS["begin_level"], state.search, of_level, *graphs, run)
        kernel = backend.kernel(*scans.choose(backend, level))
        critical = np.float64(self.problem.critical_r_squared(level))
        for side in (0, 1):
            arguments = [state.search, of_level, critical, graphs[2], graphs[1], np.int32(side), run, np.int32(longest)]
            kernel((blocks,), (warps * backend.warp_threads,), arguments, shared_bytes)
