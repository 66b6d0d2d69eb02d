"""pair-scan: what one would build today; not from a paper (docs/performance.md).

A pair is tested from both its ends at once, in one ascending scan over the third variable (level 1), or over the last
member of a set whose other members are worked into the covariances once (levels from 2 on). The graph is a matrix of
bits, and separating sets stay on the device until the search ends.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpupc_impl.backends.arguments import Pointer, Struct
from gpupc_impl.core.pc_stable import LevelOutcome, pc_stable
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import SeparatingSets, Skeleton
from gpupc_impl.engine.bit_graph import COUNTERS, BitGraphs
from gpupc_impl.engine.bit_graph import SOURCE as GRAPH_SOURCE
from gpupc_impl.engine.graph import NO_KEY, binomial_table
from gpupc_impl.engine.separating_sets import LevelSets, download_sets
from gpupc_impl.gaussian.correlation import device_correlation
from gpupc_impl.gaussian.partial_correlation import partial_r_squared
from gpupc_impl.gaussian.problem import GaussianProblem

PAIR_SOURCE = "gaussian/kernels/pair_scan.cu"
PREFIX_SOURCE = "gaussian/kernels/prefix_scan.cu"
MOST_SPLITS = 4096

MOST_SCRATCH_BYTES = 1 << 29
"""Device memory for what warps know of their prefixes, where rows are too long for shared memory."""

LEVELS_AHEAD = 6
"""Levels for which a table of binomials is made in advance."""

MOST_BLOCKS = 1 << 20
"""Blocks of a launch, rows without work among them."""

MOST_LEVELS = 64
"""Levels that are counted; nobody has seen 20."""

SEARCH = Struct(
    "PairScan",
    C=Pointer(np.float64),
    p=np.int32,
    words=np.int32,
    twins=Pointer(np.uint32),
    has_twins=Pointer(np.uint8),
    members=Pointer(np.int32),
    degrees=Pointer(np.int32),
    removed=Pointer(np.int32),
    starts=Pointer(np.int64),
    neighbours=Pointer(np.int32),
    best=Pointer(np.uint64),
    binomials=Pointer(np.uint64),
    max_degree=np.int32,
    scratch=Pointer(np.float64),
    smallest_r_squared=Pointer(np.uint64),
    counters=Pointer(np.uint64),
)

PARAMETERS = {
    "warps": Parameter(4, "warps a block", minimum=1, maximum=4),
    "splits": Parameter(0, "blocks a row; 0: by the size of the graph", minimum=0, maximum=MOST_SPLITS),
    "run": Parameter(8, "prefixes that a warp takes one after the other", minimum=1, maximum=4096),
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


class PairScan:
    """One search on one backend; a `LevelSearch` (core/pc_stable.py)."""

    def __init__(self, problem: GaussianProblem, run: Run):
        self.problem, self.backend = problem, run.backend
        p, backend = problem.n_variables, run.backend
        self.p = p
        self.warps, self.splits, self.run_length = (run.params[name] for name in ("warps", "splits", "run"))
        correlation = device_correlation(backend, problem)
        self.graphs = BitGraphs(backend, p)
        self.graph: Any = None
        self.spare = [self.graphs.empty() for _ in range(3)]
        self.counters = backend.full((MOST_LEVELS, len(COUNTERS)), 0, np.uint64)
        self.counted = backend.host_empty((MOST_LEVELS, len(COUNTERS)), np.uint64)
        self.edges, self.max_degree = p * (p - 1) // 2, p - 1
        self.levels_ahead = 0  # for which there is a table of binomials
        self.removed: list[LevelSets] = []
        self._pmax = np.full((p, p), np.nan) if run.pmax else None
        self.fields: dict[str, Any] = {
            "C": correlation,
            "p": p,
            "words": self.graphs.words,
            "twins": self.graphs.empty(),
            "has_twins": backend.empty(p, np.uint8),
            "members": backend.empty((p, p), np.int32),
            "degrees": backend.empty(p, np.int32),
            "removed": backend.empty(p, np.int32),
            **dict.fromkeys(("starts", "neighbours", "best", "binomials", "scratch")),
            "max_degree": 0,
            "smallest_r_squared": None if self._pmax is None else backend.empty((p, p), np.uint64),
            "counters": self.counters,
        }
        self.search = SEARCH(**self.fields)

    # --- LevelSearch -------------------------------------------------------------------------------------------------

    def run_level(self, level: int) -> LevelOutcome:
        if level == 0:
            return self._level_zero()
        if level >= MOST_LEVELS:
            raise InvalidProblem(
                f"pair-scan counts up to level {MOST_LEVELS - 1}; set max_level to that, or use cupc-s"
            )
        before, edges_before = self.graph, self.edges
        smallest = self.fields["smallest_r_squared"]
        if smallest is not None:
            self.backend.fill(smallest, NO_KEY)
        self.graph = self._level_one() if level == 1 else self._level(level)
        rows = [before, self.graph, *self.graphs.shape, self.fields["degrees"], self.fields["removed"]]
        self.graphs.launch(GRAPH_SOURCE, "count_rows", (), *rows, self.counters, np.int32(level))
        tests, undefined, pseudo_inverses = self._read(level)
        if gone := edges_before - self.edges:
            found = LevelSets(self.backend.empty((gone, 2), np.int32), self.backend.empty((gone, level), np.int32))
            lists = [before, self.graph, found.pairs, found.members]
            kernel = (PAIR_SOURCE, "list_removed_one") if level == 1 else (PREFIX_SOURCE, f"list_removed<{level}>")
            self.graphs.launch(*kernel, (SEARCH,), self.search, *lists)
            self.removed.append(found)
        if smallest is not None:
            self._record_pmax(level, smallest, removed=gone > 0)
        self.spare.append(before)
        return LevelOutcome(self.edges, self.max_degree, tests, undefined=undefined, pseudo_inverses=pseudo_inverses)

    def adjacency(self) -> np.ndarray:
        if self.graph is None:
            return ~np.eye(self.p, dtype=bool)
        return self.graphs.adjacency(self.graph)

    def separating_sets(self, adjacency: np.ndarray) -> SeparatingSets:
        return download_sets(self.backend, adjacency, self.removed)

    def pmax(self) -> np.ndarray | None:
        return self._pmax

    # --- levels ------------------------------------------------------------------------------------------------------

    def _level_zero(self) -> LevelOutcome:
        problem, p = self.problem, self.p
        self.graph = self.spare.pop()
        critical = np.float64(problem.critical_r_squared(0))
        self.graphs.launch(PAIR_SOURCE, "pair_scan_zero", (SEARCH,), self.search, critical, self.graph, self.spare[-1])
        self._read(0)
        if self._pmax is not None:
            self._pmax = np.array(problem.p_value(np.square(problem.correlation), 0))
            np.fill_diagonal(self._pmax, np.nan)
        return LevelOutcome(self.edges, self.max_degree, tests=p * (p - 1) // 2)

    def _level_one(self) -> Any:
        """Make the tests of level 1; returns the graph after it."""
        p, after = self.p, self.spare.pop()  # without edges since level 0
        splits = self.splits or max(1, min(-(-p // 128), MOST_BLOCKS // p, 8))
        arguments = [self.search, np.float64(self.problem.critical_r_squared(1)), self.graph, after]
        self.backend.kernel(PAIR_SOURCE, f"pair_scan_one<{_flag(self._pmax is not None)}>", (SEARCH,))(
            (p, splits), (self.warps * self.backend.warp_threads,), arguments
        )
        return after

    def _level(self, level: int) -> Any:
        """Make the tests of a level from 2 on; returns the graph after it."""
        after, middle = self.spare.pop(), self.spare[-1]
        grid, warps, shared_bytes = self._prepare(level)
        rows = [self.fields[name] for name in ("degrees", "starts", "neighbours", "best")]
        self.graphs.launch(GRAPH_SOURCE, "begin_level", (), self.graph, *self.graphs.shape, *rows, after, middle)
        flags = ", ".join(map(_flag, (self._pmax is not None, self.fields["scratch"] is None)))
        kernel = self.backend.kernel(PREFIX_SOURCE, f"prefix_scan<{level}, {flags}>", (SEARCH,))
        critical = np.float64(self.problem.critical_r_squared(level))
        for side in (0, 1):
            arguments = [self.search, critical, middle, after, np.int32(side), np.int32(self.run_length)]
            kernel(grid, (warps * self.backend.warp_threads,), arguments, shared_bytes)
        return after

    def _prepare(self, level: int) -> tuple[tuple[int, int], int, int]:
        """Room for the rows of a level from 2 on, kept for those that follow, which have no more edges.

        Returns:
            its launches' grid, warps a block, and bytes of shared memory.
        """
        backend, fields = self.backend, {}
        if fields_are_new := self.levels_ahead < level:
            self.levels_ahead = level + LEVELS_AHEAD
            fields |= {
                "starts": backend.empty(self.p + 1, np.int64),
                "neighbours": backend.empty(2 * self.edges, np.int32),
                "best": backend.empty(2 * self.edges, np.uint64),
                "binomials": backend.upload(binomial_table(self.max_degree, self.levels_ahead)),
                "max_degree": self.max_degree,
            }
        max_degree = self.max_degree if fields_are_new else self.fields["max_degree"]
        runs = -(-math.comb(self.max_degree - 1, level - 1) // self.run_length)
        cells, partners = 8 * (3 * level - 1) * max_degree, 4 * max_degree
        warps = min(self.warps, backend.max_shared_bytes // (cells + partners))
        if warps > 0:
            most = self.splits or min(MOST_SPLITS, max(64, MOST_BLOCKS // self.p))
            grid, shared_bytes = (self.p, min(-(-runs // warps), most)), warps * (cells + partners)
            fields["scratch"] = None
        else:  # rows too long for shared memory: a warp's cells lie in device memory
            warps = max(1, min(self.warps, backend.max_shared_bytes // partners))
            grid, shared_bytes = (min(self.p, max(1, MOST_SCRATCH_BYTES // (warps * cells))), 1), warps * partners
            fields["scratch"] = backend.empty((grid[0] * warps, cells // 8), np.float64)
        if fields_are_new or fields["scratch"] is not self.fields["scratch"]:
            self.fields |= fields
            self.search = SEARCH(**self.fields)
        return grid, warps, shared_bytes

    def _read(self, level: int) -> tuple[int, int, int]:
        """What a level counted: tests, undefined ones, those with a near-singular M2; edges and largest degree left."""
        self.backend.download(self.counters, out=self.counted)
        tests, undefined, pseudo_inverses, doubled, self.max_degree = self.counted[level].tolist()
        self.edges = doubled // 2
        return tests, undefined, pseudo_inverses

    def _record_pmax(self, level: int, smallest: Any, removed: bool) -> None:
        """Largest p-values so far; a removed pair's is that of the set that separated it."""
        bits = self.backend.download(smallest)
        tested = np.triu(bits != NO_KEY)
        p_values = self.problem.p_value(np.where(tested, bits, 0).view(np.float64), level)
        self._pmax[tested] = np.fmax(self._pmax[tested], p_values[tested])
        if removed:
            pairs, sets = map(self.backend.download, (self.removed[-1].pairs, self.removed[-1].members))
            i, j = pairs.T
            self._pmax[i, j] = self.problem.p_value(partial_r_squared(self.problem.correlation, pairs, sets), level)
        lower = np.tril_indices(self.p, -1)
        self._pmax[lower] = self._pmax.T[lower]


def _flag(holds: bool) -> str:
    return "true" if holds else "false"
