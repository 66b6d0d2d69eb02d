"""pair-scan: what one would build today; not from a paper (docs/performance.md).

A pair is tested from both its ends at once, in one ascending scan over the third variable (level 1), or over the last
member of a set whose other members are worked into the covariances once (levels from 2 on). The graph is a matrix of
bits, and separating sets stay on the device until the search ends.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend
from gpupc_impl.core.pc_stable import LevelOutcome, pc_stable
from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import SeparatingSets, Skeleton
from gpupc_impl.engine.bit_graph import SOURCE as GRAPH_SOURCE
from gpupc_impl.engine.bit_graph import BitGraphs
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


class Rows:
    """Rows of neighbours of a graph and of all that have no more edges, with the best rank of each place.

    Attributes:
        starts: (p + 1,) int64, where each row begins.
        neighbours, best: (2 edges,) int32 and uint64.
        binomials: for ranks up to level `levels` in rows of up to `max_degree`.
    """

    def __init__(self, backend: Backend, p: int, edges: int, max_degree: int, levels: int):
        self.starts = backend.empty(p + 1, np.int64)
        self.neighbours, self.best = backend.empty(2 * edges, np.int32), backend.empty(2 * edges, np.uint64)
        self.binomials = backend.upload(binomial_table(max_degree, levels))
        self.max_degree, self.levels = max_degree, levels


class PairScan:
    """One search on one backend; a `LevelSearch` (core/pc_stable.py)."""

    def __init__(self, problem: GaussianProblem, run: Run):
        self.problem, self.backend = problem, run.backend
        p = self.p = problem.n_variables
        self.warps, self.splits, self.run_length = (run.params[name] for name in ("warps", "splits", "run"))
        self.correlation = device_correlation(self.backend, problem)
        self.graphs = BitGraphs(self.backend, p)
        self.graph: Any = None
        self.spare = [self.graphs.empty() for _ in range(3)]
        self.degrees, self.row_removed = (self.backend.empty(p, np.int32) for _ in range(2))
        self.edges, self.max_degree = p * (p - 1) // 2, p - 1
        self.rows: Rows | None = None
        self.removed: list[LevelSets] = []
        self._pmax = np.full((p, p), np.nan) if run.pmax else None

    # --- LevelSearch -------------------------------------------------------------------------------------------------

    def run_level(self, level: int) -> LevelOutcome:
        if level == 0:
            return self._level_zero()
        backend, before = self.backend, self.graph
        smallest = None if self._pmax is None else backend.full((self.p, self.p), NO_KEY, np.uint64)
        counters = backend.full(8, 0, np.uint64)
        make_tests = self._level_one if level == 1 else self._level
        self.graph, list_kernel, list_arguments = make_tests(level, smallest, counters)
        counted = [before, self.graph, *self.graphs.shape, self.degrees, self.row_removed, counters[4:6]]
        self.graphs.launch(GRAPH_SOURCE, "count_rows", *counted)
        edges_before, (tests, undefined, pseudo_inverses) = self.edges, self._read(counters)
        if gone := edges_before - self.edges:
            found = LevelSets(backend.empty((gone, 2), np.int32), backend.empty((gone, level), np.int32))
            graphs = [before, self.graph, *self.graphs.shape, self.row_removed]
            self.graphs.launch(*list_kernel, *graphs, *list_arguments, found.pairs, found.members)
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
        words, _ = self.graphs.shape
        counters = self.backend.full(8, 0, np.uint64)
        matrix = [self.correlation, np.int32(p), np.float64(problem.critical_r_squared(0))]
        self.twins, self.has_twins = self.graphs.empty(), self.backend.empty(p, np.uint8)
        graphs = [self.graph, self.spare[-1], self.twins, words, self.has_twins, self.degrees, counters[4:6]]
        self.graphs.launch(PAIR_SOURCE, "pair_scan_zero", *matrix, *graphs)
        self._read(counters)
        if self._pmax is not None:
            self._pmax = np.array(problem.p_value(np.square(problem.correlation), 0))
            np.fill_diagonal(self._pmax, np.nan)
        return LevelOutcome(self.edges, self.max_degree, tests=p * (p - 1) // 2)

    def _level_one(self, level: int, smallest: Any, counters: Any) -> tuple[Any, tuple[str, str], list]:
        """The tests of level 1.

        Returns:
            the graph after it; the kernel that lists the removed pairs; what that takes beside graphs and lists.
        """
        p, after = self.p, self.spare.pop()  # without edges since level 0
        members = self.backend.empty((p, p), np.int32)
        splits = self.splits or max(1, min(-(-p // 128), MOST_BLOCKS // p, 8))
        self.backend.kernel(PAIR_SOURCE, f"pair_scan_one<{_flag(smallest is not None)}>")(
            (p, splits),
            (self.warps * self.backend.warp_threads,),
            [
                *(self.correlation, np.int32(p), np.float64(self.problem.critical_r_squared(level))),
                *(self.graph, after, self.twins, np.int32(self.graphs.words), self.has_twins),
                *(members, smallest, counters),
            ],
        )
        return after, (PAIR_SOURCE, "list_removed_one"), [members]

    def _level(self, level: int, smallest: Any, counters: Any) -> tuple[Any, tuple[str, str], list]:
        """The tests of a level from 2 on; see `_level_one`."""
        p, words = self.p, np.int32(self.graphs.words)
        if self.rows is None or self.rows.levels < level:
            self.rows = Rows(self.backend, p, self.edges, self.max_degree, level + LEVELS_AHEAD)
        rows, after, middle = self.rows, self.spare.pop(), self.spare[-1]
        begun = [rows.starts, rows.neighbours, rows.best, after, middle]
        self.graphs.launch(GRAPH_SOURCE, "begin_level", self.graph, *self.graphs.shape, self.degrees, *begun)
        grid, warps, shared_bytes, scratch = self._layout(level, rows.max_degree)
        for side in (0, 1):
            self.backend.kernel(PREFIX_SOURCE, f"prefix_scan<{level}, {_flag(smallest is not None)}, {_flag(scratch is None)}>")(
                grid,
                (warps * self.backend.warp_threads,),
                [
                    *(self.correlation, np.int32(p), np.float64(self.problem.critical_r_squared(level))),
                    *(rows.starts, rows.neighbours, rows.binomials, np.int32(rows.max_degree)),
                    *(middle, after, words, np.int32(side), np.int32(self.run_length), scratch),
                    *(rows.best, smallest, counters),
                ],
                shared_bytes,
            )
        listed = [rows.starts, rows.neighbours, rows.binomials, np.int32(rows.max_degree), rows.best]
        return after, (PREFIX_SOURCE, f"list_removed<{level}>"), listed

    def _layout(self, level: int, max_degree: int) -> tuple[tuple[int, int], int, int, Any]:
        """Of a level's launches: grid, warps a block, bytes of shared memory, and cells where these do not fit there."""
        backend, scratch = self.backend, None
        runs = -(-math.comb(self.max_degree - 1, level - 1) // self.run_length)
        cells, partners = 8 * (3 * level - 1) * max_degree, 4 * max_degree
        warps = min(self.warps, backend.max_shared_bytes // (cells + partners))
        grid = self.p, min(-(-runs // max(warps, 1)), self.splits or min(MOST_SPLITS, max(64, MOST_BLOCKS // self.p)))
        shared_bytes = warps * (cells + partners)
        if warps == 0:
            warps = max(1, min(self.warps, backend.max_shared_bytes // partners))
            grid = min(self.p, MOST_SCRATCH_BYTES // (warps * cells) or 1), 1
            scratch = backend.empty((grid[0] * warps, cells // 8), np.float64)
            shared_bytes = warps * partners
        return grid, warps, shared_bytes, scratch

    def _read(self, counters: Any) -> tuple[int, int, int]:
        """What a level counted: tests, undefined ones, those with a near-singular M2; edges and largest degree left."""
        tests, undefined, pseudo_inverses, _, doubled, self.max_degree, *_ = self.backend.download(counters).tolist()
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
