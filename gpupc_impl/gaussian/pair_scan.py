"""pair-scan: what one would build today; not from a paper (docs/performance.md).

A pair is tested from both its ends at once, in one ascending scan over the third variable (level 1), or over the last
member of a set whose other members are worked into the covariances once (levels from 2 on). The graph is a matrix of
bits, and separating sets stay on the device until the search ends.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gpupc_impl.backends import KernelSource, Pointer, Struct
from gpupc_impl.core.pc_stable import LevelOutcome, pc_stable
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import SeparatingSets, Skeleton
from gpupc_impl.engine import bit_graph, separating_sets
from gpupc_impl.engine.bit_graph import GRAPHS, MOST_LEVELS, BitGraphs
from gpupc_impl.engine.graph import NO_KEY, binomial_table
from gpupc_impl.engine.separating_sets import LevelSets, download_result
from gpupc_impl.gaussian import correlation
from gpupc_impl.gaussian.partial_correlation import removed_p_values
from gpupc_impl.gaussian.problem import GaussianProblem

PAIR_SOURCE = "gaussian/kernels/pair_scan.cu"
PREFIX_SOURCE = "gaussian/kernels/prefix_scan.cu"
MOST_SCRATCH_BYTES = 1 << 29
"""Device memory for what warps know of their prefixes, where rows are too long for shared memory."""

LEVELS_AHEAD = 6
"""Levels for which a table of binomials is made in advance."""

RUNS, MOST_RUN = {2: 2, 3: 8}, 16
"""Prefixes that a warp takes one after the other, by level; the last number from level 4 on."""

GRAPHS_AT_ONCE = 3

MOST_BLOCKS = 1 << 20
"""Blocks of a launch, rows without work among them."""

SEARCH = Struct(
    "PairScan",
    graphs=GRAPHS,
    C=Pointer(np.float64),
    residual_tolerance=np.float64,
    pivot_tolerance=np.float64,
    twins=Pointer(np.uint32),
    has_twins=Pointer(np.uint8),
    members=Pointer(np.int32),
    smallest_r_squared=Pointer(np.uint64),
    starts=Pointer(np.int64),
    neighbours=Pointer(np.int32),
    best=Pointer(np.uint64),
    run_starts=Pointer(np.uint64),
    binomials=Pointer(np.uint64),
    widest=np.int32,
    scratch=Pointer(np.float64),
)

PARAMETERS = {
    "warps": Parameter(4, "warps a block", minimum=1, maximum=4),
    "splits": Parameter(0, "blocks a row in level 1; 0: by the size of the graph", minimum=0, maximum=4096),
    "run": Parameter(0, "prefixes that a warp takes one after the other; 0: by the level", minimum=0, maximum=4096),
}


@method(
    "pair-scan",
    family="gaussian",
    source="ours: docs/performance.md",
    summary="a warp a pair or a prefix of sets, 32 last members at a time, both sides in one scan",
    params=PARAMETERS,
)
def pair_scan(problem: GaussianProblem, run: Run) -> Skeleton:
    return pc_stable(problem, PairScan(problem, run), facts=dict(run.facts), progress=run.progress)


def all_kernels(max_level: int) -> list[KernelSource]:
    """Every kernel of this method, levels 0 to `max_level`."""
    flags, levels = ("false", "true"), range(2, max_level + 1)
    first = ["pair_scan_zero", *(f"pair_scan_one<{flag}>" for flag in flags), "list_removed_one"]
    later = [f"{name}<{level}>" for level in levels for name in ("begin_level", "list_removed")]
    later += [f"prefix_scan<{level}, {one}, {other}>" for level in levels for one in flags for other in flags]
    found = [
        (PAIR_SOURCE, first, (SEARCH,)),
        (PREFIX_SOURCE, later, (SEARCH,)),
        (bit_graph.SOURCE, bit_graph.KERNELS, (GRAPHS,)),
        (separating_sets.SOURCE, separating_sets.KERNELS, (separating_sets.LISTS,)),
        (correlation.SOURCE, correlation.KERNELS, ()),
    ]
    return [KernelSource(source, name, structs) for source, names, structs in found for name in names]


class PairScan:
    """One search on one backend; a `LevelSearch` (core/pc_stable.py)."""

    def __init__(self, problem: GaussianProblem, run: Run):
        self.problem, self.params = problem, run.params
        backend = self.backend = run.backend
        p = self.p = problem.n_variables
        self.graphs = BitGraphs(backend, p, GRAPHS_AT_ONCE)
        self.graph: int | None = None  # the present one
        self.levels_ahead = 0  # for which there are rows and a table of binomials
        self.removed: list[LevelSets] = []
        self._pmax = np.full((p, p), np.nan) if run.pmax else None
        self.fields: dict[str, Any] = {
            "graphs": self.graphs.struct,
            "C": correlation.device_correlation(backend, problem),
            "residual_tolerance": problem.residual_tolerance,
            "pivot_tolerance": problem.pivot_tolerance,
            **backend.empty_all(
                twins=((p, self.graphs.words), np.uint32), has_twins=(p, np.uint8), members=((p, p), np.int32)
            ),
            "smallest_r_squared": None if self._pmax is None else backend.empty((p, p), np.uint64),
            **dict.fromkeys(("starts", "neighbours", "best", "run_starts", "binomials", "scratch")),
            "widest": 0,
        }
        self.search = SEARCH(**self.fields)

    # --- LevelSearch -------------------------------------------------------------------------------------------------

    def run_level(self, level: int) -> LevelOutcome:
        if level == 0:
            return self._level_zero()
        if level >= MOST_LEVELS:
            raise InvalidProblem(f"pair-scan counts to level {MOST_LEVELS - 1}; set max_level to that, or take cupc-s")
        backend, before, edges_before = self.backend, self.graph, self.graphs.edges
        smallest = self.fields["smallest_r_squared"]
        if smallest is not None:
            backend.fill(smallest, NO_KEY)
        self.graph = (before + 1) % GRAPHS_AT_ONCE
        if level == 1:
            self._level_one(before, self.graph)
        else:
            self._level(level, before, self.graph, (before + 2) % GRAPHS_AT_ONCE)
        self.graphs.count(before, self.graph, level)
        tests, undefined, pseudo_inverses, *_ = self.graphs.read(level)
        if gone := edges_before - self.graphs.edges:
            found = LevelSets(**backend.empty_all(pairs=((gone, 2), np.int32), members=((gone, level), np.int32)))
            kernel = (PAIR_SOURCE, "list_removed_one") if level == 1 else (PREFIX_SOURCE, f"list_removed<{level}>")
            graphs = np.int32(before), np.int32(self.graph)
            self.graphs.launch(*kernel, self.search, *graphs, found.pairs, found.members)
            self.removed.append(found)
        if smallest is not None:
            self._record_pmax(level, smallest, removed=gone > 0)
        left = self.graphs.edges, self.graphs.most_degree
        return LevelOutcome(*left, tests, undefined=undefined, pseudo_inverses=pseudo_inverses)

    def adjacency(self) -> np.ndarray:
        return self._result[0]

    def separating_sets(self, adjacency: np.ndarray) -> SeparatingSets:
        return self._result[1]

    @functools.cached_property
    def _result(self) -> tuple[np.ndarray, SeparatingSets]:
        if self.graph is None:  # no level was run
            complete = ~np.eye(self.p, dtype=bool)
            return complete, SeparatingSets.from_levels(complete, [])
        return download_result(self.backend, self.graphs.entries(self.graph), self.removed)

    def pmax(self) -> np.ndarray | None:
        return self._pmax

    # --- levels ------------------------------------------------------------------------------------------------------

    def _level_zero(self) -> LevelOutcome:
        problem, p, self.graph = self.problem, self.p, 0
        critical = np.float64(problem.critical_r_squared(0))
        self.graphs.launch(PAIR_SOURCE, "pair_scan_zero", self.search, critical, np.int32(0), np.int32(1))
        self.graphs.read(0)
        if self._pmax is not None:
            self._pmax = np.array(problem.p_value(np.square(problem.correlation), 0))
            np.fill_diagonal(self._pmax, np.nan)
        return LevelOutcome(self.graphs.edges, self.graphs.most_degree, tests=p * (p - 1) // 2)

    def _level_one(self, start: int, left: int) -> None:
        """Make the tests of level 1; `left` has no edges since level 0."""
        splits = self.params["splits"] or max(1, min(-(-self.p // 128), MOST_BLOCKS // self.p, 8))
        arguments = [self.search, np.float64(self.problem.critical_r_squared(1)), np.int32(start), np.int32(left)]
        kernel = self.backend.kernel(PAIR_SOURCE, f"pair_scan_one<{_flag(self._pmax is not None)}>", (SEARCH,))
        kernel((self.p, splits), (self.params["warps"] * self.backend.warp_threads,), arguments)

    def _level(self, level: int, start: int, left: int, middle: int) -> None:
        """Make the tests of a level from 2 on; `middle` is for the graph between its sides."""
        backend, longest = self.backend, self.graphs.most_degree
        run = np.int32(self.params["run"] or RUNS.get(level, MOST_RUN))
        cells = (3 * level - 1) * longest + -(-longest // 2)  # float64 for what a warp knows of a prefix
        warps = min(self.params["warps"], backend.max_shared_bytes // (8 * cells))
        blocks, shared_bytes, scratch = backend.blocks_at_once, 8 * warps * cells, None
        if not warps:  # rows too long for shared memory
            warps = self.params["warps"]
            blocks = max(1, min(blocks, MOST_SCRATCH_BYTES // (8 * warps * cells)))
            scratch = backend.empty((blocks * warps, cells), np.float64)
        self._make_room(level, scratch)
        graphs = np.int32(start), np.int32(left), np.int32(middle)
        self.graphs.launch(PREFIX_SOURCE, f"begin_level<{level}>", self.search, *graphs, run)
        flags = ", ".join(map(_flag, (self._pmax is not None, scratch is None)))
        kernel = backend.kernel(PREFIX_SOURCE, f"prefix_scan<{level}, {flags}>", (SEARCH,))
        critical = np.float64(self.problem.critical_r_squared(level))
        for side in (0, 1):
            arguments = [self.search, critical, graphs[2], graphs[1], np.int32(side), run, np.int32(longest)]
            kernel((blocks,), (warps * backend.warp_threads,), arguments, shared_bytes)

    def _make_room(self, level: int, scratch: Any) -> None:
        """Rows for a level from 2 on, kept for those that follow, which have no more edges."""
        backend, graphs = self.backend, self.graphs
        if self.levels_ahead < level:
            self.levels_ahead = level + LEVELS_AHEAD
            self.fields |= {
                **backend.empty_all(
                    starts=(self.p + 1, np.int64),
                    run_starts=(self.p + 1, np.uint64),
                    neighbours=(2 * graphs.edges, np.int32),
                    best=(2 * graphs.edges, np.uint64),
                ),
                "binomials": backend.upload(binomial_table(graphs.most_degree, self.levels_ahead)),
                "widest": graphs.most_degree,
            }
        elif scratch is self.fields["scratch"]:
            return
        self.fields["scratch"] = scratch
        self.search = SEARCH(**self.fields)

    def _record_pmax(self, level: int, smallest: Any, removed: bool) -> None:
        """Largest p-values so far; a removed pair's is that of the set that separated it."""
        bits = self.backend.download(smallest)
        tested = np.triu(bits != NO_KEY)
        p_values = self.problem.p_value(np.where(tested, bits, 0).view(np.float64), level)
        self._pmax[tested] = np.fmax(self._pmax[tested], p_values[tested])
        if removed:
            pairs, sets = map(self.backend.download, (self.removed[-1].pairs, self.removed[-1].members))
            i, j = pairs.T
            self._pmax[i, j] = removed_p_values(self.problem, pairs, sets)
        lower = np.tril_indices(self.p, -1)
        self._pmax[lower] = self._pmax.T[lower]


def _flag(holds: bool) -> str:
    return "true" if holds else "false"
