"""A discrete search on a device: everything but the kernels that make the tests.

The two methods differ in these kernels, their launch and where their tables lie. The graph between levels, the
decision and the workload are the same for both, and live here; the kernels of the graph are those of the Gaussian
family.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import logging

import numpy as np

from gpupc_impl.backends import Backend
from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.core.registry import Run
from gpupc_impl.discrete import forecast
from gpupc_impl.discrete.problem import MAX_CELLS, DiscreteProblem
from gpupc_impl.discrete.statistic import p_values
from gpupc_impl.engine import graph
from gpupc_impl.engine.graph import ROW_THREADS

logger = logging.getLogger("gpupc_impl.discrete")
"""Says what memory a run takes, and how that of each level is laid out."""

TABLES_SOURCE = "discrete/kernels/tables.cu"
LEVEL_SOURCES = {"gpupc": "discrete/kernels/gpupc.cu", "disc_cupc": "discrete/kernels/disc_cupc.cu"}
CODE_TYPES = {"uint8": "unsigned char", "uint16": "unsigned short"}

CELL_BYTES = 4
ROW_ALIGNMENT = 1024
"""Codes of a variable are padded to a multiple of this many samples, so that they can be read many at a time."""

MAX_PLANES = 32
"""Variables with more categories have no planes; tables.cu: the same."""

LISTED_DF = 4096
"""Degrees of freedom up to which every critical value is at hand."""

UNCLEAR_AT_FIRST = 1 << 12
"""Tests that a level may leave to the host before it has to be made again with more room."""


def all_kernels(max_level: int) -> list[tuple[str, str]]:
    """``(source, expression)`` of every kernel that this family launches; none depends on the level."""
    between = [(graph.SOURCE, name) for name in graph.KERNELS]
    tables = [
        (TABLES_SOURCE, name) for name in ("keep_unseparated", "largest_tables", "settle", "count_upper", "decay")
    ]
    tables += [(TABLES_SOURCE, f"pack_planes<{code}>") for code in CODE_TYPES.values()]
    tests = [
        (source, f"{name}_{part}<{code}>")
        for name, source in LEVEL_SOURCES.items()
        for part in ("level_zero", "level")
        for code in CODE_TYPES.values()
    ]
    return between + tables + tests


@dataclasses.dataclass(frozen=True)
class Level:
    """One level's graph on the device, as the kernels of a level take it.

    Attributes:
        level: the size of conditioning sets, at least 1.
        max_degree: largest number of neighbours.
        degrees: (p,) int32 on the host: how many each variable has.
        row_cells: (p,) uint64 on the device: bounds on the cells of each row's tables.
        largest_table: cells of the largest table that may be met.
    """

    level: int
    max_degree: int
    degrees: np.ndarray
    row_cells: object
    largest_table: int


class DiscreteSearch(abc.ABC):
    """One search on one backend; a `LevelSearch` (see core/pc_stable.py)."""

    name: str
    """Its kernels are ``<name>_level_zero`` and ``<name>_level``."""

    plane_passes = 0
    """Over how many planes' bits a table may be counted; beyond, it is counted sample by sample."""

    def __init__(self, problem: DiscreteProblem, run: Run):
        self.problem, self.run = problem, run
        self.backend: Backend = run.backend
        p, n = self.p, self.n = problem.codes.shape
        backend = self.backend
        self.forecast = self._forecast()
        logger.info(
            "%s, %s variables x %s samples: %s", run.facts.get("method", self.name), f"{p:,}", f"{n:,}", self.forecast
        )
        self.code_type = CODE_TYPES[problem.codes.dtype.name]
        self.stride = padded_length(n)
        padded = problem.codes
        if self.stride != n:
            padded = np.zeros((p, self.stride), problem.codes.dtype)
            padded[:, :n] = problem.codes
        self.codes = backend.upload(padded)
        self.categories = backend.upload(problem.categories)
        self.graph = graph.DeviceGraph(backend, p)
        self.largest_p = backend.full((p, p), 0, np.uint64) if run.pmax else None
        self._p_of_removed: list[tuple[np.ndarray, np.ndarray]] = []
        self.logs = None
        if problem.test == "g-square":
            self.logs = backend.upload(log_table(n))
        self.critical = [backend.upload(array) for array in critical_table(problem.alpha)]
        self.unclear_capacity = UNCLEAR_AT_FIRST
        self._make_planes()

    # --- LevelSearch -------------------------------------------------------------------------------------------

    def run_level(self, level: int) -> LevelOutcome:
        return self._level_zero() if level == 0 else self._level(level)

    def adjacency(self) -> np.ndarray:
        return self.graph.adjacency()

    def pmax(self) -> np.ndarray | None:
        """Largest p-values met; a removed pair's is that of the set that separated it."""
        if self.largest_p is None:
            return None
        largest = self.backend.download(self.largest_p).view(np.float64).copy()
        for pairs, found in self._p_of_removed:
            largest[pairs[:, 0], pairs[:, 1]] = found
        lower = np.tril_indices(self.p, -1)
        largest[lower] = largest.T[lower]
        np.fill_diagonal(largest, np.nan)
        if not self.graph.begun:
            largest[:] = np.nan
        return largest

    # --- what a method does --------------------------------------------------------------------------------------

    @abc.abstractmethod
    def make_level_zero(self, arguments: list) -> None:
        """Launch the tests of level 0."""

    @abc.abstractmethod
    def make_level(self, level: Level, arguments: list) -> None:
        """Launch the tests of a level from 1 on."""

    @abc.abstractmethod
    def table_bytes(self, level: int, cells: int, left: int) -> int:
        """Device memory that the tables of a level take at most, with up to `cells` each and `left` bytes for all."""

    def kernel(self, part: str):
        return self.backend.kernel(LEVEL_SOURCES[self.name], f"{self.name}_{part}<{self.code_type}>")

    # --- levels ------------------------------------------------------------------------------------------------

    def _level_zero(self) -> LevelOutcome:
        p = self.p
        self._make_tests(self.make_level_zero)
        self._launch(
            TABLES_SOURCE, "keep_unseparated", (p,), (ROW_THREADS,), [np.int32(p), self.graph.best, self.graph.edges]
        )
        self.graph.begun = True
        if self.problem.tests_per_edge is not None:
            self._decay()
        return LevelOutcome(*self.graph.count(), tests=p * (p - 1) // 2)

    def _level(self, level: int) -> LevelOutcome:
        backend, p = self.backend, self.p
        rows = self.graph.compact(level)
        row_cells, largest = backend.empty(p, np.uint64), backend.full(1, 0, np.uint64)
        self._launch(
            TABLES_SOURCE,
            "largest_tables",
            (-(-p // ROW_THREADS),),
            (ROW_THREADS,),
            [*rows.arguments, self.categories, np.int32(level), row_cells, largest],
        )
        found = Level(
            level=level,
            max_degree=rows.max_degree,
            degrees=backend.download(rows.degrees),
            row_cells=row_cells,
            largest_table=int(backend.download(largest)[0]),
        )
        workload = np.uint64(self.problem.tests_per_edge or 0)

        def make(arguments: list) -> None:
            self.counters = backend.full(graph.COUNTER_SHAPE, 0, np.uint64)
            shape = [rows.neighbours, np.int32(rows.max_degree), rows.degrees, rows.binomials]
            shape += [np.int32(rows.max_degree), np.int32(level)]
            self.make_level(found, [*arguments, *shape, workload, self.counters])

        self._make_tests(make)
        if self.problem.tests_per_edge is not None:
            pairs, sets = self._decay(rows)
        else:
            pairs, sets = self.graph.remove_separated(rows, of_whole_row=False)
            if self.largest_p is not None:
                self._p_of_removed.append((pairs, p_values(self.problem, pairs, sets)))
        tests = int(backend.download(self.counters)[:, 0].sum())
        return LevelOutcome(*self.graph.count(), tests, pairs, sets)

    def _make_tests(self, launch) -> None:
        """Make a level's tests, and decide those that the kernels could not."""
        backend, problem = self.backend, self.problem
        while True:
            room = self.unclear_capacity
            count = backend.full(1, 0, np.uint64)
            unclear = [
                backend.empty((room, 2), np.int32),
                backend.empty(room, np.uint64),
                backend.empty(room, np.uint64),
                backend.empty(room, np.float64),
            ]
            launch(
                [
                    self.codes,
                    np.int64(self.stride),
                    np.int32(self.n),
                    self.categories,
                    self.planes,
                    self.first_plane,
                    np.int32(self.plane_words),
                    np.uint32(self.plane_passes),
                    np.int32(self.p),
                    self.graph.best,
                    self.largest_p,
                    np.int32(self.run.separating_sets == "first-come"),
                    np.int32(problem.tests_per_edge is not None),
                    self.logs,
                    np.int32(problem.df_rule == "adjusted"),
                    self.critical[0],
                    np.int32(LISTED_DF),
                    self.critical[1],
                    self.critical[2],
                    np.int32(len(self.critical[1])),
                    count,
                    np.uint64(room),
                    *unclear,
                ]
            )
            found = int(backend.download(count)[0])
            if found <= room:
                break
            self.unclear_capacity = 2 * found  # those decided so far stay decided
        if found:
            pairs, keys, df, statistics = (backend.download(array)[:found] for array in unclear)
            separates = statistics <= problem.critical_values(df)
            if separates.any():
                pairs, keys = backend.upload(pairs[separates]), backend.upload(keys[separates])
                arguments = [np.int32(self.p), pairs, keys, np.int32(len(keys)), self.graph.best]
                self._launch(TABLES_SOURCE, "settle", (-(-len(keys) // ROW_THREADS),), (ROW_THREADS,), arguments)

    def _decay(self, level_rows: graph.Rows | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Remove the edges that a workload's rule removes; from level 1 on returns them with their first sets."""
        backend, p, level = self.backend, self.p, level_rows.level if level_rows else 0
        upper = backend.empty(p, np.int32)
        self._launch(TABLES_SOURCE, "count_upper", (p,), (ROW_THREADS,), [self.graph.edges, np.int32(p), upper])
        starts = np.concatenate(([0], np.cumsum(backend.download(upper), dtype=np.int64)))
        kept = self.problem.decayed(np.broadcast_to(np.int32(0), (int(starts[-1]), 2)))
        kept_before = np.concatenate(([0], np.cumsum(kept, dtype=np.int64)))
        slots = starts - kept_before[starts]
        pairs, sets = None, None
        if level:
            listed = int(slots[-1])
            pairs, sets = backend.empty((listed, 2), np.int32), backend.empty((listed, level), np.int32)
        rows, stride, degrees, _ = level_rows.arguments if level_rows else (None, np.int32(0), None, None)
        arguments = [self.graph.edges, np.int32(p), backend.upload(starts), backend.upload(kept.view(np.uint8))]
        arguments += [rows, stride, degrees, np.int32(level), backend.upload(slots), pairs, sets]
        self._launch(TABLES_SOURCE, "decay", (-(-p // ROW_THREADS),), (ROW_THREADS,), arguments)
        if not level:
            return np.empty((0, 2), np.int32), np.empty((0, 0), np.int32)
        return backend.download(pairs), backend.download(sets)

    def _make_planes(self) -> None:
        """Which samples have which category, as bits: an eighth of 8-bit codes a category, and counted by popcount."""
        backend = self.backend
        self.planes, self.first_plane, self.plane_words = None, None, self.stride // 64
        categories = self._plane_counts()
        total = int(categories.sum())
        free = backend.memory_limit - backend.memory_used
        if not total or 8 * total * self.plane_words > free // 2:
            return
        first = np.where(categories > 0, np.cumsum(categories) - categories, -1).astype(np.int32)
        self.planes = backend.empty((total, self.plane_words), np.uint64)
        self.first_plane = backend.upload(first)
        self._launch(
            TABLES_SOURCE,
            f"pack_planes<{self.code_type}>",
            (-(-self.plane_words // ROW_THREADS), min(self.p, 65535)),
            (ROW_THREADS,),
            [
                self.codes,
                np.int64(self.stride),
                np.int32(self.n),
                np.int32(self.p),
                self.categories,
                self.first_plane,
                np.int32(self.plane_words),
                self.planes,
            ],
        )

    def _plane_counts(self) -> np.ndarray:
        """(p,) int64: how many planes each variable would have."""
        categories = self.problem.categories.astype(np.int64)
        return np.where((categories <= MAX_PLANES) & (self.plane_passes > 0), categories, 0)

    def _forecast(self) -> forecast.Forecast:
        problem, run, backend, p, n = self.problem, self.run, self.backend, self.p, self.n
        level = forecast.last_level(problem)
        limit = backend.memory_limit - backend.memory_used
        codes = p * padded_length(n) * problem.codes.itemsize
        resident = codes + (17 if run.pmax else 9) * p * p + 12 * p + 32 * UNCLEAR_AT_FIRST
        resident += sum(array.nbytes for array in critical_table(problem.alpha))
        g_square, workload = problem.test == "g-square", problem.tests_per_edge is not None
        resident += 8 * (n + 1) if g_square else 0
        planes = int(self._plane_counts().sum()) * padded_length(n) // 8
        if planes <= limit // 2:
            resident += planes
        left = max(limit - resident, 0)
        level_zero = self.table_bytes(0, largest_pair_table(problem), left)
        last = forecast.largest_table(problem.categories.tolist(), level)
        return forecast.Forecast(
            resident_bytes=resident,
            level_bytes=forecast.list_bytes(p, level, workload, UNCLEAR_AT_FIRST),
            table_bytes=max(level_zero, self.table_bytes(level, last, left)) if level else level_zero,
            level_zero_table_bytes=level_zero,
            host_bytes=forecast.host_bytes(
                p,
                n,
                level,
                padded_bytes=0 if padded_length(n) == n else codes,
                g_square=g_square,
                pmax=run.pmax,
                workload=workload,
                room=UNCLEAR_AT_FIRST,
            ),
            memory_limit=limit,
            last_level=level,
        )

    def _launch(self, source: str, kernel: str, grid: tuple[int, ...], block: tuple[int, ...], args: list) -> None:
        self.backend.kernel(source, kernel)(grid, block, args)


def padded_length(n: int) -> int:
    return -(-n // ROW_ALIGNMENT) * ROW_ALIGNMENT


def largest_pair_table(problem: DiscreteProblem) -> int:
    """A bound on the cells of level 0's tables, with the sums of their columns."""
    smaller, larger = map(int, np.sort(np.append(problem.categories, 1))[-2:])
    return (smaller + 1) * larger


@functools.lru_cache(maxsize=4)
def log_table(n: int) -> np.ndarray:
    """(n + 1,) float64: log(k), and 0 for k = 0, which no test looks up."""
    return np.log(np.maximum(np.arange(n + 1), 1).astype(np.float64))


@functools.lru_cache(maxsize=32)
def critical_table(alpha: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Critical values of 0 to `LISTED_DF` degrees of freedom, and (df, value) of some beyond, ascending, to 2^62."""
    from scipy import special

    listed = np.zeros(LISTED_DF + 1)
    listed[1:] = special.chdtri(np.arange(1.0, LISTED_DF + 1), alpha)
    steps = np.geomspace(LISTED_DF, float(MAX_CELLS), 1 + 16 * 50 * 8)
    df = np.unique(np.rint(steps).astype(np.uint64))
    df[-1] = MAX_CELLS
    return listed, df, special.chdtri(df.astype(np.float64), alpha)
