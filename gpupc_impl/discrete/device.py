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

from gpupc_impl.backends import Backend, Filled, KernelSource, Pointer, Struct
from gpupc_impl.backends.launch import MAX_GRID_Y
from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.core.registry import Run
from gpupc_impl.discrete import forecast
from gpupc_impl.discrete.problem import MAX_CELLS, DiscreteProblem
from gpupc_impl.discrete.statistic import p_values
from gpupc_impl.engine import graph
from gpupc_impl.engine.graph import ROW_THREADS

logger = logging.getLogger("gpupc_impl.discrete")
"""Says what memory a run takes, and how that of each level is laid out."""

CODE_TYPES = {"uint8": "unsigned char", "uint16": "unsigned short"}

# Structs of tables.cuh, ...
DATA = {
    code: Struct(
        f"Data<{CODE_TYPES[code]}>",
        codes=Pointer(code),
        stride=np.int64,
        n=np.int32,
        categories=Pointer(np.int32),
        planes=Pointer(np.uint64),
        first_plane=Pointer(np.int32),
        words=np.int32,
        plane_passes=np.uint32,
    )
    for code in CODE_TYPES
}
RULES = Struct("Rules", logs=Pointer(np.float64), adjusted=np.bool_)
# ... of decide.cuh, ...
CRITICAL = Struct(
    "Critical",
    values=Pointer(np.float64),
    listed=np.int32,
    df=Pointer(np.uint64),
    of_df=Pointer(np.float64),
    known=np.int32,
)
UNCLEAR = Struct(
    "Unclear",
    count=Pointer(np.uint64),
    capacity=np.uint64,
    pairs=Pointer(np.int32),
    keys=Pointer(np.uint64),
    df=Pointer(np.uint64),
    statistics=Pointer(np.float64),
)
SEARCH = Struct(
    "DiscreteSearch",
    best=graph.BEST_KEYS,
    largest_p=Pointer(np.uint64),
    workload=np.bool_,
    rules=RULES,
    critical=CRITICAL,
    unclear=UNCLEAR,
)
# ... of level.cuh, gpupc.cu and disc_cupc.cu.
LEVEL = Struct("Level", rows=graph.ROWS, level=np.int32, tests_per_edge=np.uint64, counters=Pointer(np.uint64))
PLACES = Struct("Places", shared_cells=np.uint32, scratch=Pointer(np.uint32), scratch_cells=np.uint64)
TABLES = Struct("Tables", first=Pointer(np.uint32), cells=np.uint64)

BETWEEN_LEVELS = {
    name: KernelSource("discrete/kernels/tables.cu", name, structs)
    for name, structs in {
        "keep_unseparated": (graph.BEST_KEYS,),
        "largest_tables": (graph.ROWS,),
        "settle": (graph.BEST_KEYS,),
        "count_upper": (),
        "decay": (graph.ROWS,),
        **{f"pack_planes<{cpp}>": (DATA[code],) for code, cpp in CODE_TYPES.items()},
    }.items()
}
WHERE_TABLES_LIE = {"gpupc": PLACES, "disc_cupc": TABLES}

CELL_BYTES = 4
ROW_ALIGNMENT = 1024
"""Codes of a variable are padded to a multiple of this many samples, so that they can be read many at a time."""

MAX_PLANES = 32
"""Variables with more categories have no planes; tables.cu: the same."""

LISTED_DF = 4096
"""Up to this many degrees of freedom every critical value is tabulated."""

UNCLEAR_AT_FIRST = 1 << 12
"""Tests that a level may leave to the host before it has to be made again with more room."""


def all_kernels(max_level: int) -> list[KernelSource]:
    """Every kernel that this family launches; none depends on the level."""
    tests = [
        kernel_of(name, part, code)
        for name in WHERE_TABLES_LIE
        for part in ("level_zero", "level")
        for code in CODE_TYPES
    ]
    return [*graph.KERNELS.values(), *BETWEEN_LEVELS.values(), *tests]


def kernel_of(name: str, part: str, code: str) -> KernelSource:
    """The kernel that makes a method's tests, of level 0 or of others, on codes of a NumPy type."""
    structs = (DATA[code], SEARCH, *([LEVEL] if part == "level" else []), WHERE_TABLES_LIE[name])
    return KernelSource(f"discrete/kernels/{name}.cu", f"{name}_{part}<{CODE_TYPES[code]}>", structs)


@dataclasses.dataclass(frozen=True)
class Level:
    """One level's graph on the device, as the kernels of a level take it.

    Attributes:
        level: the size of conditioning sets, at least 1.
        max_degree: largest number of neighbours.
        degrees: (p,) int32 on the host: how many each variable has.
        row_cells: (p,) uint64 on the device: bounds on the cells of each row's tables.
        largest_table: cells of the largest table possible.
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
    """The most planes whose bits are combined to count a table; larger tables are counted sample by sample."""

    def __init__(self, problem: DiscreteProblem, run: Run):
        self.problem, self.run = problem, run
        self.backend: Backend = run.backend
        p, n = self.p, self.n = problem.codes.shape
        backend = self.backend
        self.forecast = self._forecast()
        logger.info(
            "%s, %s variables x %s samples: %s", run.facts.get("method", self.name), f"{p:,}", f"{n:,}", self.forecast
        )
        self.code = problem.codes.dtype.name
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
        values, df, of_df = map(backend.upload, critical_table(problem.alpha))
        self.critical = CRITICAL(values=values, listed=LISTED_DF, df=df, of_df=of_df, known=len(df))
        self.best_keys = self.graph.best_keys(run.separating_sets == "first-come")
        self.unclear_capacity = UNCLEAR_AT_FIRST
        self._make_planes()

    # --- LevelSearch -------------------------------------------------------------------------------------------

    def run_level(self, level: int) -> LevelOutcome:
        return self._level_zero() if level == 0 else self._level(level)

    def adjacency(self) -> np.ndarray:
        return self.graph.adjacency()

    def pmax(self) -> np.ndarray | None:
        """The largest p-value of each pair; for a removed pair, the p-value given its separating set."""
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

    @property
    def data(self) -> Filled:
        """The samples as kernels take them."""
        return DATA[self.code](
            codes=self.codes,
            stride=self.stride,
            n=self.n,
            categories=self.categories,
            planes=self.planes,
            first_plane=self.first_plane,
            words=self.plane_words,
            plane_passes=self.plane_passes,
        )

    # --- what a method does --------------------------------------------------------------------------------------

    @abc.abstractmethod
    def make_level_zero(self, arguments: list) -> None:
        """Launch the tests of level 0."""

    @abc.abstractmethod
    def make_level(self, level: Level, arguments: list) -> None:
        """Launch the tests of a level from 1 on."""

    @abc.abstractmethod
    def table_bytes(self, level: int, cells: int, left: int) -> int:
        """The most device memory that a level's tables take, with up to `cells` cells each and `left` bytes for all."""

    def kernel(self, part: str):
        return self.backend.kernel(*kernel_of(self.name, part, self.code))

    # --- levels ------------------------------------------------------------------------------------------------

    def _level_zero(self) -> LevelOutcome:
        p = self.p
        self._make_tests(self.make_level_zero)
        self._launch("keep_unseparated", p, [self.best_keys, self.graph.edges])
        self.graph.begun = True
        if self.problem.tests_per_edge is not None:
            self._decay()
        return LevelOutcome(*self.graph.count(), tests=p * (p - 1) // 2)

    def _level(self, level: int) -> LevelOutcome:
        backend, p = self.backend, self.p
        rows = self.graph.compact(level)
        row_cells, largest = backend.empty(p, np.uint64), backend.full(1, 0, np.uint64)
        arguments = [rows.argument, self.categories, np.int32(level), row_cells, largest]
        self._launch("largest_tables", -(-p // ROW_THREADS), arguments)
        found = Level(
            level=level,
            max_degree=rows.max_degree,
            degrees=backend.download(rows.degrees),
            row_cells=row_cells,
            largest_table=int(backend.download(largest)[0]),
        )

        def make(arguments: list) -> None:
            self.counters = backend.full(graph.COUNTER_SHAPE, 0, np.uint64)
            of_level = LEVEL(
                rows=rows.argument,
                level=level,
                tests_per_edge=self.problem.tests_per_edge or 0,
                counters=self.counters,
            )
            self.make_level(found, [*arguments, of_level])

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
            unclear = {
                "pairs": backend.empty((room, 2), np.int32),
                "keys": backend.empty(room, np.uint64),
                "df": backend.empty(room, np.uint64),
                "statistics": backend.empty(room, np.float64),
            }
            search = SEARCH(
                best=self.best_keys,
                largest_p=self.largest_p,
                workload=problem.tests_per_edge is not None,
                rules=RULES(logs=self.logs, adjusted=problem.df_rule == "adjusted"),
                critical=self.critical,
                unclear=UNCLEAR(count=count, capacity=room, **unclear),
            )
            launch([self.data, search])
            found = int(backend.download(count)[0])
            if found <= room:
                break
            self.unclear_capacity = 2 * found  # those decided so far stay decided
        if found:
            pairs, keys, df, statistics = (backend.download(array)[:found] for array in unclear.values())
            separates = statistics <= problem.critical_values(df)
            if separates.any():
                pairs, keys = backend.upload(pairs[separates]), backend.upload(keys[separates])
                self._launch("settle", -(-len(keys) // ROW_THREADS), [self.best_keys, pairs, keys, np.int32(len(keys))])

    def _decay(self, rows: graph.Rows | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Remove the edges that a workload's rule removes; from level 1 on returns them with their first sets."""
        backend, p, level = self.backend, self.p, rows.level if rows else 0
        upper = backend.empty(p, np.int32)
        self._launch("count_upper", p, [self.graph.edges, np.int32(p), upper])
        starts = np.concatenate(([0], np.cumsum(backend.download(upper), dtype=np.int64)))
        kept = self.problem.decayed(np.broadcast_to(np.int32(0), (int(starts[-1]), 2)))
        kept_before = np.concatenate(([0], np.cumsum(kept, dtype=np.int64)))
        slots = starts - kept_before[starts]
        pairs, sets = None, None
        if level:
            listed = int(slots[-1])
            pairs, sets = backend.empty((listed, 2), np.int32), backend.empty((listed, level), np.int32)
        rows = rows or graph.Rows(p, level=0, max_degree=0, neighbours=None, degrees=None, binomials=None)
        kept_edges = [backend.upload(starts), backend.upload(kept.view(np.uint8)), backend.upload(slots)]
        arguments = [rows.argument, np.int32(level), *kept_edges, self.graph.edges, pairs, sets]
        self._launch("decay", -(-p // ROW_THREADS), arguments)
        if not level:
            return np.empty((0, 2), np.int32), np.empty((0, 0), np.int32)
        return backend.download(pairs), backend.download(sets)

    def _make_planes(self) -> None:
        """Planes: for each category n bits that tell which samples have it. One takes an eighth of the 8-bit codes, and
        popcount counts it."""
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
        grid = -(-self.plane_words // ROW_THREADS), min(self.p, MAX_GRID_Y)
        kernel = f"pack_planes<{CODE_TYPES[self.code]}>"
        self._launch(kernel, grid, [self.data, np.int32(self.p), self.planes])

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

    def _launch(self, kernel: str, grid: int | tuple[int, int], arguments: list) -> None:
        grid = (grid,) if isinstance(grid, int) else grid
        self.backend.kernel(*BETWEEN_LEVELS[kernel])(grid, (ROW_THREADS,), arguments)


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
