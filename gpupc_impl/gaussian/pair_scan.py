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
from gpupc_impl.engine.bit_graph import BitGraphs
from gpupc_impl.engine.graph import NO_KEY, binomial_table
from gpupc_impl.engine.separating_sets import LevelSets, download_sets
from gpupc_impl.gaussian.partial_correlation import partial_r_squared
from gpupc_impl.gaussian.problem import GaussianProblem

PAIR_SOURCE = "gaussian/kernels/pair_scan.cu"
PREFIX_SOURCE = "gaussian/kernels/prefix_scan.cu"
MOST_BLOCKS = 1 << 20
"""Blocks of a launch, rows without work among them."""

PARAMETERS = {
    "warps": Parameter(4, "warps a block", minimum=1, maximum=4),
    "splits": Parameter(0, "blocks a row; 0: by the size of the graph", minimum=0, maximum=4096),
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
        self.problem = problem
        self.backend: Backend = run.backend
        self.p = problem.n_variables
        self.warps, self.splits = run.params["warps"], run.params["splits"]
        self.correlation = self.backend.upload_symmetric(problem.correlation)
        self.graphs = BitGraphs(self.backend, self.p)
        self.graph: Any = None
        self.degrees: Any = None
        self.edges, self.max_degree = self.p * (self.p - 1) // 2, self.p - 1
        self.removed: list[LevelSets] = []
        self._pmax = np.full((self.p, self.p), np.nan) if run.pmax else None

    # --- LevelSearch -------------------------------------------------------------------------------------------------

    def run_level(self, level: int) -> LevelOutcome:
        if level == 0:
            return self._level_zero()
        counters = self.backend.full(8, 0, np.uint64)
        before = self.edges
        make_tests = self._level_one if level == 1 else self._level
        graph, list_removed, smallest = make_tests(level, counters)
        started_from, self.graph = self.graph, graph
        tests, undefined, pseudo_inverses = self._count(counters)
        if self.edges < before:
            self._list(level, started_from, before - self.edges, list_removed)
        if smallest is not None:
            self._record_pmax(level, smallest, before > self.edges)
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
        self.graph = self.graphs.empty()
        critical = np.float64(problem.critical_r_squared(0))
        arguments = [self.correlation, np.int32(p), critical, self.graph, np.int32(self.graphs.words)]
        self.graphs.launch_rows(PAIR_SOURCE, "pair_scan_zero", arguments)
        self._count(self.backend.full(8, 0, np.uint64))
        if self._pmax is not None:
            self._pmax = np.array(problem.p_value(np.square(problem.correlation), 0))
            np.fill_diagonal(self._pmax, np.nan)
        return LevelOutcome(self.edges, self.max_degree, tests=p * (p - 1) // 2)

    def _level_one(self, level: int, counters: Any) -> tuple[Any, Any, Any]:
        """The tests of level 1.

        Returns:
            the graph after it, how its removed pairs are listed (kernel, and arguments beside the two graphs), and the
            (p, p) bits of the smallest r^2 of each pair, where they are asked for.
        """
        backend, p, words = self.backend, self.p, self.graphs.words
        after, members = self.graphs.empty(), backend.empty((p, p), np.int32)
        smallest = None if self._pmax is None else backend.full((p, p), NO_KEY, np.uint64)
        splits = self.splits or max(1, min(-(-p // 64), MOST_BLOCKS // p, 8))
        backend.kernel(PAIR_SOURCE, f"pair_scan_one<{_flag(smallest)}>")(
            (p, splits),
            (self.warps * backend.warp_threads,),
            [
                *(self.correlation, np.int32(p), np.float64(self.problem.critical_r_squared(1))),
                *(self.graph, after, np.int32(words), members, smallest, counters),
            ],
        )
        return after, (PAIR_SOURCE, "list_removed_one", [], [members]), smallest

    def _level(self, level: int, counters: Any) -> tuple[Any, Any, Any]:
        """The tests of a level from 2 on; see `_level_one`."""
        backend, p, words = self.backend, self.p, self.graphs.words
        starts, neighbours = self.graphs.rows(self.graph, self.degrees, 2 * self.edges)
        best = backend.full(2 * self.edges, NO_KEY, np.uint64)
        binomials = backend.upload(binomial_table(self.max_degree, level))
        smallest = None if self._pmax is None else backend.full((p, p), NO_KEY, np.uint64)
        kernel = backend.kernel(PREFIX_SOURCE, f"prefix_scan<{level}, {_flag(smallest)}>")
        prefixes = math.comb(self.max_degree - 1, level - 1)
        splits = self.splits or max(1, min(-(-prefixes // self.warps), 4096, max(64, MOST_BLOCKS // p)))
        graph = self.graph
        for side in (0, 1):
            after = backend.copy(graph)
            kernel(
                (p, splits),
                (self.warps * backend.warp_threads,),
                [
                    *(self.correlation, np.int32(p), np.float64(self.problem.critical_r_squared(level))),
                    *(starts, neighbours, binomials, np.int32(self.max_degree)),
                    *(graph, after, np.int32(words), np.int32(side), best, smallest, counters),
                ],
            )
            graph = after
        rows = [starts, neighbours, binomials, np.int32(self.max_degree), best]
        return graph, (PREFIX_SOURCE, f"list_removed<{level}>", rows, []), smallest

    def _count(self, counters: Any) -> tuple[int, int, int]:
        """Edges and degrees after a level; returns its tests, undefined ones, and those with a near-singular M2."""
        self.degrees = self.graphs.count(self.graph, counters[4:6])
        tests, undefined, pseudo_inverses, _, doubled, self.max_degree, *_ = map(int, self.backend.download(counters))
        self.edges = doubled // 2
        return tests, undefined, pseudo_inverses

    def _list(self, level: int, before: Any, count: int, how: tuple[str, str, list, list]) -> None:
        """List the pairs that a level removed, with their sets, on the device."""
        source, kernel, rows, members = how
        starts = self.graphs.removed_starts(before, self.graph)
        found = LevelSets(self.backend.empty((count, 2), np.int32), self.backend.empty((count, level), np.int32))
        graphs = [before, self.graph, np.int32(self.graphs.words), np.int32(self.p)]
        self.graphs.launch_rows(source, kernel, [*graphs, *rows, starts, *members, found.pairs, found.members])
        self.removed.append(found)

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


def _flag(array: Any) -> str:
    return "false" if array is None else "true"
