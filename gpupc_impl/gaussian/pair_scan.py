"""pair-scan, a method of this project for present GPUs that is not from a paper (docs/design/gaussian.md). A scan tests
a pair with sets from both its ends. Level 1 scans the third variable in ascending order, or tests tiles of pairs if
nearly all pairs remain (scan_state.py). From level 2 on, a warp scans the candidates for the last member of a set,
after it has eliminated the other members from the covariances once (kernels/side_scan.cuh). In small problems one
launch runs several levels, and the first levels are queued before the host reads any result (fused_levels.py). The
graph is a matrix of bits, and separating sets stay on the device until the search ends."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, KernelSource
from gpupc_impl.core.fixed_pairs import FixedPairs
from gpupc_impl.core.pc_stable import MAX_SETS, LevelOutcome, LevelSearch, pc_stable
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.registry import Run, method
from gpupc_impl.core.result import SeparatingSets, Skeleton
from gpupc_impl.engine import bit_graph, separating_sets
from gpupc_impl.engine.bit_graph import MOST_LEVELS
from gpupc_impl.engine.graph import NO_KEY
from gpupc_impl.engine.separating_sets import LevelSets, download_result
from gpupc_impl.engine.tier_parts import TierSearch
from gpupc_impl.gaussian import fixed_order, fused_levels, pair_block, scan_state
from gpupc_impl.gaussian.fused_levels import FusedLevels, queue_arrays, queued_kernel
from gpupc_impl.gaussian.level_kernels import FIRST_LEVELS, LevelKernels, levels_at_first
from gpupc_impl.gaussian.partial_correlation import LargestPValues
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.gaussian.scan_state import CONSTANTS, FUSED, GRAPHS_AT_ONCE, LAUNCH, SEARCH, WARPS, ScanState, cells

MOST_SCRATCH_BYTES = 1 << 29  # for the cells of warps (`scan_state.cells`) if rows are too long for shared memory


def search_kernels(
    backend: Backend, params: Mapping[str, Any], pmax: bool, max_level: int | None
) -> Sequence[KernelSource]:
    """See `Method.kernels`; the first kernel of fused levels is among them."""
    may_fuse = LAUNCH["fused_levels"] != "never" and not pmax
    return _first_kernels(pmax, may_fuse, levels_at_first(backend, max_level))


@functools.cache
def _first_kernels(pmax: bool, may_fuse: bool, last: int) -> tuple[KernelSource, ...]:
    ones = ("pair_scan_zero", f"pair_scan_one<{_flag(pmax)}>", "list_removed_one")
    return (
        *(scan_state.LEVEL_ONE_KERNELS[name] for name in ones),
        *bit_graph.KERNELS.values(),
        *((*BETWEEN_LEVELS.values(), *SCANS[pmax, True].needed(last)) if last > 1 else ()),
        *separating_sets.KERNELS.values(),
        *((fused_levels.KERNELS[FUSED[0]],) if may_fuse else ()),
    )


def _flag(flag: bool) -> str:
    return "true" if flag else "false"


@method(
    "pair-scan",
    family="gaussian",
    source="ours: docs/design/gaussian.md",
    summary="a warp a pair or a prefix of sets, 32 last members at a time, both sides in one scan",
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
"""The kernels of a level from 2 on, by whether p-values are requested and whether warps' cells are in shared memory."""


def all_kernels(max_level: int) -> list[KernelSource]:
    return [
        *scan_state.LEVEL_ONE_KERNELS.values(),
        *BETWEEN_LEVELS.values(),
        *(kernel for scans in SCANS.values() for kernel in scans.up_to(max_level)),
        *(kernel for (first, _), kernel in fused_levels.KERNELS.items() if first <= max_level),
        *bit_graph.KERNELS.values(),
        *separating_sets.KERNELS.values(),
        *(fixed_order.STANDARDISE, fixed_order.MAKE_EXACT),
        *pair_block.TILES.values(),
    ]


class PairScan(LevelSearch):
    """One search on one backend; with `may_queue`, levels may be queued before level 0 has run."""

    def __init__(self, problem: GaussianProblem, run: Run, may_queue: bool = True):
        self.problem, self.backend = problem, run.backend
        # The copy runs while the host prepares the search.
        on_device = fixed_order.device_correlation(run.backend, problem)
        self.queued = queued_kernel(problem, run) if may_queue else None
        arrays = {} if self.queued is None else queue_arrays(problem.n_variables)
        self.state = ScanState(problem, run, on_device, arrays)
        self.fused = FusedLevels(self.state)
        self.largest_p = LargestPValues(problem) if run.pmax else None

    def run_level(self, level: int) -> LevelOutcome:
        state, fused = self.state, self.fused
        if level == 0:
            return self._level_zero() if self.queued is None else fused.run_queued(self.queued)
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
        self.problem = dataclasses.replace(self.problem, fixed=fixed)
        self.state.restart(self.problem, edges)
        outcome = self.run_level(level)
        pairs, sets = self.removed_in(level)
        return dataclasses.replace(outcome, pairs=pairs, sets=sets)

    def adjacency_now(self) -> np.ndarray:
        """Return the remaining edges, (p, p) bool in host memory, without allocating device memory."""
        return self.state.graphs.download(self.state.graph)

    def removed_in(self, level: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the (k, 2) pairs that a level from 1 on removed and their (k, level) sets, in host memory."""
        for removed in self.state.removed:
            if removed.members.shape[1] == level:
                return removed.download(self.state.backend)
        return np.empty((0, 2), np.int32), np.empty((0, level), np.int32)

    def _level_zero(self) -> LevelOutcome:
        state = self.state
        state.run_level_zero()
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
            state.run_level_one(before, after)
        else:
            self._run_prefixes(level, before, after, (before + 2) % GRAPHS_AT_ONCE)
        graphs.count(before, after, level)
        counts = graphs.read(level)
        state.tests = counts.tests
        removed = edges_before - graphs.edges
        if removed:
            lists = LevelSets(**backend.empty_all(pairs=((removed, 2), np.int32), members=((removed, level), np.int32)))
            if level == 1:
                state.list_removed_one(before, after, lists.pairs, lists.members)
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
        warp_bytes = 8 * cells(level, longest)
        warps = min(WARPS, backend.max_shared_bytes // warp_bytes)
        blocks, shared_bytes, scratch = backend.blocks_at_once, warps * warp_bytes, None
        if not warps:  # The rows are too long for shared memory.
            warps = WARPS
            blocks = max(1, min(blocks, MOST_SCRATCH_BYTES // (warps * warp_bytes)))
            scratch = backend.empty((blocks * warps, warp_bytes // 8), np.float64)
        state.prepare_rows(level, scratch)
        scans = SCANS[state.pmax, scratch is None]
        if level >= FIRST_LEVELS:
            backend.prefetch(scans.ahead(level, self.problem.max_level))
        of_level = np.int32(level)
        graphs = np.int32(start), np.int32(left), np.int32(middle)
        state.graphs.launch(BETWEEN_LEVELS["begin_level"], state.search, of_level, *graphs)
        kernel = backend.kernel(*scans.choose(backend, level))
        critical = np.float64(self.problem.critical_r_squared(level))
        for side in (0, 1):
            arguments = [state.search, of_level, critical, graphs[2], graphs[1], np.int32(side), np.int32(longest)]
            kernel((blocks,), (warps * backend.warp_threads,), arguments, shared_bytes)
