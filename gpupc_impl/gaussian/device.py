"""The search of the cuPC paper on a device: everything but the kernel that makes a level's tests.

The four methods differ in one kernel and its launch. Level 0, the compaction of the graph, the removal of edges and
the collection of separating sets are the same for all (cuPC, Algorithm 2), and live here.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from gpupc_impl.backends import Backend
from gpupc_impl.core.pc_stable import MAX_SETS, LevelOutcome, pc_stable
from gpupc_impl.core.problem import GaussianProblem
from gpupc_impl.core.registry import Run
from gpupc_impl.core.result import Skeleton
from gpupc_impl.gaussian.partial_correlation import partial_r_squared

GRAPH_SOURCE = "gaussian/kernels/graph.cu"
GRAPH_KERNELS = ("level_zero", "count_degrees", "compact", "remove_separated", "list_separated")
ROW_THREADS = 128  # threads of a block that works on one row; graph.cu: the same
MAX_GRID_Y = 65535
NO_KEY = np.uint64(2**64 - 1)
COUNTER_SHAPE = (64, 8)  # search.cuh: COUNTER_STRIPES, COUNTER_STRIDE


@dataclasses.dataclass(frozen=True)
class LevelKernel:
    """The kernel that makes the tests of levels 1 and above.

    Attributes:
        source: its ``.cu`` file, relative to the package.
        name: its name; the level is its only template argument.
        grid: ``(p, max_degree, level, params) -> (x, y)`` blocks.
        block: ``(p, max_degree, level, params) -> (x, y)`` threads.
        ranks_whole_row: whether it numbers the subsets of the whole row, not of the row without the other end.
    """

    source: str
    name: str
    grid: Callable[[int, int, int, dict], tuple[int, int]]
    block: Callable[[int, int, int, dict], tuple[int, int]]
    ranks_whole_row: bool = False

    def __post_init__(self) -> None:
        _LEVEL_KERNELS[self.name] = self

    def expression(self, level: int) -> str:
        return f"{self.name}<{level}>"

    def solve(self, problem: GaussianProblem, run: Run) -> Skeleton:
        """The method that consists of this kernel."""
        return pc_stable(problem, GaussianSearch(problem, run, self), facts=dict(run.facts), progress=run.progress)


_LEVEL_KERNELS: dict[str, LevelKernel] = {}


def all_kernels(max_level: int) -> list[tuple[str, str]]:
    """``(source, expression)`` of every kernel of this family, levels 1 to `max_level`."""
    import gpupc_impl.core.registry as registry

    registry.methods()  # imports every method, which registers its kernel
    return [(GRAPH_SOURCE, name) for name in GRAPH_KERNELS] + [
        (kernel.source, kernel.expression(level))
        for kernel in _LEVEL_KERNELS.values()
        for level in range(1, max_level + 1)
    ]


class GaussianSearch:
    """One search on one backend; a `LevelSearch` (see core/pc_stable.py)."""

    def __init__(self, problem: GaussianProblem, run: Run, level_kernel: LevelKernel):
        self.problem, self.run, self.level_kernel = problem, run, level_kernel
        self.backend: Backend = run.backend
        p = self.p = problem.n_variables
        self.correlation = self.backend.upload(problem.correlation)
        self.edges = self.backend.empty((p, p), np.uint8)
        self.best = self.backend.full((p, p), NO_KEY, np.uint64)
        self.degrees = self.backend.empty(p, np.int32)
        self.max_degree = p - 1
        self.level_zero_done = False
        self._pmax = None
        if run.pmax:
            self._pmax = np.full((p, p), np.nan)

    # --- LevelSearch -------------------------------------------------------------------------------------------

    def run_level(self, level: int) -> LevelOutcome:
        return self._level_zero() if level == 0 else self._level(level)

    def adjacency(self) -> np.ndarray:
        if not self.level_zero_done:  # the search ended before it began, with every edge in place
            return ~np.eye(self.p, dtype=bool)
        return self.backend.download(self.edges).astype(bool)

    def pmax(self) -> np.ndarray | None:
        return self._pmax

    # --- levels ------------------------------------------------------------------------------------------------

    def _level_zero(self) -> LevelOutcome:
        p, problem = self.p, self.problem
        tiles = -(-p // 32)
        self._launch(
            "level_zero",
            (tiles, tiles),
            (32, 32),
            [self.correlation, np.int32(p), np.float64(problem.critical_r_squared(0)), self.edges],
        )
        self.level_zero_done = True
        if self._pmax is not None:
            self._pmax = np.array(problem.p_value(np.square(problem.correlation), 0))
            np.fill_diagonal(self._pmax, np.nan)
        return LevelOutcome(*self._count_edges(), tests=p * (p - 1) // 2)

    def _level(self, level: int) -> LevelOutcome:
        backend, p, max_degree = self.backend, self.p, self.max_degree
        stride = np.int32(max_degree)
        rows = backend.empty((p, max_degree), np.int32)
        self._launch("compact", (p,), (ROW_THREADS,), [self.edges, np.int32(p), rows, stride])
        binomials = backend.upload(binomial_table(max_degree, level))
        counters = backend.full(COUNTER_SHAPE, 0, np.uint64)
        min_r_squared = None
        if self._pmax is not None:
            min_r_squared = backend.full((p, p), NO_KEY, np.uint64)

        row_bytes = 4 * max_degree
        use_shared = row_bytes <= backend.max_shared_bytes
        shape = (p, max_degree, level, dict(self.run.params))
        backend.kernel(self.level_kernel.source, self.level_kernel.expression(level))(
            self.level_kernel.grid(*shape),
            self.level_kernel.block(*shape),
            [
                self.correlation,
                np.int32(p),
                rows,
                stride,
                self.degrees,
                binomials,
                np.int32(max_degree),
                np.float64(self.problem.critical_r_squared(level)),
                self.best,
                min_r_squared,
                np.int32(self.run.separating_sets == "first-come"),
                counters,
                np.int32(use_shared),
            ],
            shared_bytes=row_bytes if use_shared else 0,
        )

        removed = backend.empty(p, np.int32)
        row_args = [rows, stride, self.degrees, np.int32(p)]
        self._launch("remove_separated", (p,), (ROW_THREADS,), [*row_args, self.best, self.edges, removed])
        starts = np.concatenate(([0], np.cumsum(backend.download(removed), dtype=np.int64)))
        pairs, sets = np.empty((0, 2), np.int32), np.empty((0, level), np.int32)
        if starts[-1]:
            device_pairs = backend.empty((starts[-1], 2), np.int32)
            device_sets = backend.empty((starts[-1], level), np.int32)
            self._launch(
                "list_separated",
                (p,),
                (ROW_THREADS,),
                [
                    *row_args,
                    binomials,
                    np.int32(max_degree),
                    np.int32(level),
                    np.int32(self.level_kernel.ranks_whole_row),
                    self.best,
                    backend.upload(starts),
                    device_pairs,
                    device_sets,
                ],
            )
            pairs, sets = backend.download(device_pairs), backend.download(device_sets)
        if min_r_squared is not None:
            self._record_pmax(level, backend.download(min_r_squared), pairs, sets)
        tests, undefined, pseudo_inverses = map(int, backend.download(counters).sum(axis=0)[:3])
        return LevelOutcome(*self._count_edges(), tests, pairs, sets, undefined, pseudo_inverses)

    def _count_edges(self) -> tuple[int, int]:
        """Edges and largest degree now; the degrees stay on the device."""
        totals = self.backend.full(2, 0, np.uint64)
        self._launch("count_degrees", (self.p,), (ROW_THREADS,), [self.edges, np.int32(self.p), self.degrees, totals])
        doubled, self.max_degree = map(int, self.backend.download(totals))
        return doubled // 2, self.max_degree

    def _record_pmax(self, level: int, bits: np.ndarray, pairs: np.ndarray, sets: np.ndarray) -> None:
        """Largest p-values so far; a removed pair's is that of the set that separated it."""
        tested = np.triu(bits != NO_KEY)
        p_values = self.problem.p_value(np.where(tested, bits, 0).view(np.float64), level)
        self._pmax[tested] = np.fmax(self._pmax[tested], p_values[tested])
        i, j = pairs.T
        self._pmax[i, j] = self.problem.p_value(partial_r_squared(self.problem.correlation, pairs, sets), level)
        lower = np.tril_indices(self.p, -1)
        self._pmax[lower] = self._pmax.T[lower]

    def _launch(self, kernel: str, grid: tuple[int, ...], block: tuple[int, ...], args: list) -> None:
        self.backend.kernel(GRAPH_SOURCE, kernel)(grid, block, args)


@functools.lru_cache(maxsize=32)
def binomial_table(max_n: int, level: int) -> np.ndarray:
    """(level + 1, max_n + 1) uint64: C(m, k) at row k, column m, saturated at 2^62 (combinations.cuh)."""
    table = np.zeros((level + 1, max_n + 1), np.uint64)
    table[0] = 1
    for k in range(1, level + 1):
        # Hockey-stick identity: C(m, k) is the sum of C(q, k - 1) over q < m. Sums past 2^62 may wrap; the float
        # sums tell where.
        sums = np.cumsum(table[k - 1, :-1])
        saturated = np.cumsum(table[k - 1, :-1].astype(np.float64)) > MAX_SETS * (1 + 1e-9)
        table[k, 1:] = np.where(saturated, np.uint64(MAX_SETS), sums)
    return table
