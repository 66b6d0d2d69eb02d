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
from collections.abc import Callable
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, Filled, KernelSource, Pointer, Struct
from gpupc_impl.backends.launch import MAX_GRID_Y, Kernel
from gpupc_impl.core.pc_stable import LevelOutcome, LevelSearch
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.registry import Parameter, Run
from gpupc_impl.core.result import SeparatingSets
from gpupc_impl.discrete import forecast
from gpupc_impl.discrete.problem import MAX_CELLS, DiscreteProblem
from gpupc_impl.discrete.statistic import p_values
from gpupc_impl.engine import bit_graph, graph, separating_sets
from gpupc_impl.engine.bit_graph import GRAPHS, MOST_LEVELS, BitGraphs
from gpupc_impl.engine.separating_sets import LevelSets, download_result
from gpupc_impl.integers import ceil_div, round_up

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
        plane_cells=np.uint32,
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
    counters=Pointer(np.uint64),
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
LEVEL = Struct(
    "Level", rows=graph.ROWS, level=np.int32, side=np.int32, tests_per_edge=np.uint64, counters=Pointer(np.uint64)
)
PLACES = Struct(
    "Places",
    above=np.uint64,
    up_to=np.uint64,
    scratch=Pointer(np.uint32),
    scratch_cells=np.uint64,
    bits=np.int32,
    splits=np.int32,
)
TABLES = Struct("Tables", first=Pointer(np.uint32), cells=np.uint64, shared_cells=np.uint32)
PAIR_TABLES = Struct(  # tables.cuh
    "PairTables",
    counts=Pointer(np.uint32),
    starts=Pointer(np.int64),
    categories=Pointer(np.int32),
    first_plane=Pointer(np.int32),
    first=np.int32,
    plane_cells=np.uint32,
)
BATCHES = Struct(  # batches.cuh
    "Batches", cells=np.uint32, words=np.int32, parts=np.int32, splits=np.int32
)
PRODUCTS = Struct(  # products.cu
    "Products",
    planes=Pointer(np.uint64),
    variables=Pointer(np.int32),
    pairs=PAIR_TABLES,
    **dict.fromkeys(("p", "number", "words", "last", "first_row"), np.int32),
)

SOURCE = "discrete/kernels/tables.cu"
BETWEEN_LEVELS = {
    name: KernelSource(SOURCE, name, structs)
    for name, structs in {
        "begin_level": (GRAPHS,),
        "finish_level": (GRAPHS, graph.BEST_KEYS),
        "list_removed": (GRAPHS, graph.BEST_KEYS, graph.ROWS),
        "settle": (graph.BEST_KEYS,),
        "count_upper": (GRAPHS,),
        "decay": (GRAPHS, graph.BEST_KEYS),
        **{f"pack_planes<{cpp}>": (DATA[code],) for code, cpp in CODE_TYPES.items()},
    }.items()
}
PLANE_PRODUCTS = KernelSource("discrete/kernels/products.cu", "plane_products", (PRODUCTS,))
DECIDE_PAIRS = KernelSource("discrete/kernels/products.cu", "decide_pairs", (SEARCH, PRODUCTS))
WHERE_TABLES_LIE = {"gpupc": PLACES, "disc_cupc": TABLES}
KERNEL_OPTIONS: dict[str, list[tuple[str, ...]]] = {
    "gpupc": [("SHARED",), ("SCRATCH",), ("SORTED",)],
    "disc_cupc": [()],
}
"""The template arguments of a method's kernels, after the type of codes."""

CELL_BYTES = 4
ROW_ALIGNMENT = 1024
"""Codes of a variable are padded to a multiple of this many samples, so that they can be read many at a time."""

ALIGNMENT = 256
"""Of arrays that go up together, in bytes."""

MAX_PLANES = 32
"""Variables with more categories have no planes."""

PLANE_CELLS = {"cuda": 64, "host": 2048}
"""The most cells of a table that is counted by planes; beyond, samples are counted faster (docs/design/discrete.md)."""

COUNTING = Parameter(
    "bit-planes",
    "how tables are counted: samples (the paper's), or bit-planes, small ones by bits that categories have in common",
    choices=("bit-planes", "samples"),
)

SETTLE_THREADS = 128
GRAPHS_AT_ONCE = LISTS_AT_ONCE = 2

LISTED_BYTES = 16 << 20
"""Lists of neighbours for which there is room from the start: to ask for memory at each level takes time."""

LISTED_DF = 4096
"""Up to this many degrees of freedom every critical value is tabulated."""

UNCLEAR_AT_FIRST = 1 << 12
"""Tests that a level may leave to the host before it has to be made again with more room."""


def all_kernels(max_level: int) -> list[KernelSource]:
    """Every kernel that this family launches; none depends on the level."""
    tests = [
        kernel_of(name, part, code, *options)
        for name, all_options in KERNEL_OPTIONS.items()
        for part in ("level_zero", "level")
        for code in CODE_TYPES
        for options in all_options
    ]
    tests += [batches_kernel(code, together) for code in CODE_TYPES for together in (False, True)]
    shared = [
        KernelSource(bit_graph.SOURCE, "expand", (GRAPHS,)),
        graph.KERNELS["mark_pairs<unsigned long long>"],
        *(KernelSource(separating_sets.SOURCE, name, (separating_sets.LISTS,)) for name in separating_sets.KERNELS),
    ]
    return [*shared, *BETWEEN_LEVELS.values(), PLANE_PRODUCTS, DECIDE_PAIRS, *tests]


def kernel_of(name: str, part: str, code: str, *options: str) -> KernelSource:
    """The kernel that makes a method's tests, of level 0 or of others, on codes of a NumPy type."""
    level, more = ([LEVEL], [PAIR_TABLES, BATCHES] if name == "gpupc" else []) if part == "level" else ([], [])
    structs = (DATA[code], SEARCH, *level, WHERE_TABLES_LIE[name], *more)
    arguments = ", ".join((CODE_TYPES[code], *options))
    return KernelSource(f"discrete/kernels/{name}.cu", f"{name}_{part}<{arguments}>", structs)


def batches_kernel(code: str, together: bool) -> KernelSource:
    """The kernel that makes many tests of an edge at a time, on codes of a NumPy type: a warp those of an edge, or the
    warps of a block together."""
    arguments = f"{CODE_TYPES[code]}, {str(together).lower()}"
    structs = (DATA[code], SEARCH, LEVEL, BATCHES)
    return KernelSource("discrete/kernels/batches.cu", f"gpupc_batches<{arguments}>", structs)


@dataclasses.dataclass(frozen=True)
class Level:
    """One level's graph on the device, as the kernels of a level take it.

    Attributes:
        level: the size of conditioning sets, at least 1.
        max_degree: largest number of neighbours.
        edges: how many there are.
        busy_ends: how many of their ends have tests: those in rows of more neighbours than a set has members.
        busy: how many rows have tests.
        rows: the neighbours of each variable.
        busy_rows: (p,) int32: the rows that have tests, in its first places.
        row_cells: (p,) uint64: bounds on the cells of each row's tables.
        largest_table: cells of the largest table possible.
    """

    level: int
    max_degree: int
    edges: int
    busy_ends: int
    busy: int
    rows: graph.Rows
    busy_rows: Any
    row_cells: Any
    largest_table: int


class DiscreteSearch(LevelSearch):
    """One search on one backend; a `LevelSearch` (see core/pc_stable.py).

    Between levels the host reads one row of counters. Separating sets stay on the device until the search ends.
    """

    name: str
    """Its kernels are ``<name>_level_zero`` and ``<name>_level``."""

    def __init__(self, problem: DiscreteProblem, run: Run):
        self.problem, self.run = problem, run
        self.backend: Backend = run.backend
        p, n = self.p, self.n = problem.codes.shape
        backend = self.backend
        self.plane_cells = PLANE_CELLS[backend.name] if run.params["counting"] == "bit-planes" else 0
        tables = self.tables()
        self.forecast = self._forecast(8 * sum(map(_words, tables.values())))
        logger.info(
            "%s, %s variables x %s samples: %s", run.facts.get("method", self.name), f"{p:,}", f"{n:,}", self.forecast
        )
        self.code = problem.codes.dtype.name
        self.stride = padded_length(n)
        self.codes = backend.upload_rows(problem.codes, self.stride)
        self.given = upload_all(backend, tables)
        self.categories, self.first_plane = self.given["categories"], self.given["first_plane"]
        self._by_categories = self.given["by_categories"]
        self._counters = self.given["counters"]  # zeros, and finish_level leaves them like that
        self._binomials = self.given["binomials"], p - 1, self._levels_ahead  # for rows and levels up to these
        self.graphs = BitGraphs(backend, p, GRAPHS_AT_ONCE)
        self._graph = -1  # the present one; -1: all pairs
        self._removed: list[LevelSets] = []
        self._unlisted: tuple[int, int, list] | None = None  # what the level before removed, see _list_removed
        own = backend.empty_all(
            best=((p, p), np.uint64),
            row_cells=((GRAPHS_AT_ONCE, p), np.uint64),
            degrees=((GRAPHS_AT_ONCE, p), np.int32),
            busy_rows=((GRAPHS_AT_ONCE, p), np.int32),
            neighbours=((LISTS_AT_ONCE, self._listed), np.int32),
            **_undecided_arrays(UNCLEAR_AT_FIRST),
        )
        backend.fill(own["best"], graph.NO_KEY)
        self.best_keys = graph.BEST_KEYS(keys=own["best"], p=p, first_come=run.separating_sets == "first-come")
        # Of each graph, and of this level and the one before.
        self._row_cells, self._degrees, self._busy_rows, self._neighbours = (
            list(own[name]) for name in ("row_cells", "degrees", "busy_rows", "neighbours")
        )
        self._busy = self._busy_ends = self._largest_table = 0  # in the next level
        self.largest_p = backend.full((p, p), 0, np.uint64) if run.pmax else None
        self._p_of_removed: list[tuple[np.ndarray, np.ndarray]] = []
        self.logs = backend.upload(log_table(n)) if problem.test == "g-square" else None
        self.critical = CRITICAL(
            values=self.given["critical_values"],
            listed=LISTED_DF,
            df=self.given["critical_df"],
            of_df=self.given["critical_of_df"],
            known=len(self.given["critical_df"]),
        )
        self._use_room({name: own[name] for name in _undecided_arrays(0)})
        self._make_planes()

    # --- LevelSearch -------------------------------------------------------------------------------------------

    def run_level(self, level: int) -> LevelOutcome:
        if level >= MOST_LEVELS:
            raise InvalidProblem(f"discrete searches count to level {MOST_LEVELS - 1}; set max_level to that")
        return self._level_zero() if level == 0 else self._level(level)

    def adjacency(self) -> np.ndarray:
        return self._result[0]

    def separating_sets(self, adjacency: np.ndarray) -> SeparatingSets:
        return self._result[1]

    @functools.cached_property
    def _result(self) -> tuple[np.ndarray, SeparatingSets]:
        if self._graph < 0:  # no level was run
            complete = ~np.eye(self.p, dtype=bool)
            return complete, SeparatingSets.from_levels(complete, [])
        self._list_removed()
        return download_result(self.backend, self.graphs.entries(self._graph), self._removed)

    def pmax(self) -> np.ndarray | None:
        """The largest p-value of each pair; for a removed pair, the p-value given its separating set."""
        if self.largest_p is None:
            return None
        self._list_removed()
        largest = self.backend.download(self.largest_p).view(np.float64).copy()
        for pairs, found in self._p_of_removed:
            largest[pairs[:, 0], pairs[:, 1]] = found
        lower = np.tril_indices(self.p, -1)
        largest[lower] = largest.T[lower]
        np.fill_diagonal(largest, np.nan)
        if self._graph < 0:
            largest[:] = np.nan
        return largest

    @functools.cached_property
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
            plane_cells=self.plane_cells,
        )

    # --- what a method does --------------------------------------------------------------------------------------

    @abc.abstractmethod
    def make_level_zero(self, arguments: list) -> None:
        """Launch the tests of level 0."""

    @abc.abstractmethod
    def make_level(self, level: Level, sides: list[list]) -> None:
        """Launch the tests of a level from 1 on: with the arguments of one side, then with those of the other."""

    @abc.abstractmethod
    def table_bytes(self, level: int, cells: int, left: int) -> int:
        """The most device memory that a level's tables take, with up to `cells` cells each and `left` bytes for all."""

    def tables(self) -> dict[str, np.ndarray]:
        """What goes up at the start beside the codes, by name."""
        planes, categories = self.plane_counts, self.problem.categories
        values, df, of_df = critical_table(self.problem.alpha)
        return {
            "categories": categories.astype(np.int32),
            "by_categories": np.argsort(-categories, kind="stable").astype(np.int32),
            "first_plane": np.where(planes > 0, np.cumsum(planes) - planes, -1).astype(np.int32),
            "critical_values": values,
            "critical_df": df,
            "critical_of_df": of_df,
            "counters": np.zeros(graph.COUNTER_SHAPE, np.uint64),
            "binomials": graph.binomial_table(self.p - 1, self._levels_ahead),
        }

    def kernel(self, part: str, *options: str) -> Kernel:
        return self.backend.kernel(*kernel_of(self.name, part, self.code, *options))

    # --- levels ------------------------------------------------------------------------------------------------

    def _level_zero(self) -> LevelOutcome:
        fixed = self.problem.fixed
        self._make_tests(0, lambda search: self.make_level_zero([self.data, search]), None)
        most = self.graphs.most_tested_degree(fixed)
        return LevelOutcome(self.graphs.edges, most, tests=self.problem.tests_of_level_zero)

    def _level(self, level: int) -> LevelOutcome:
        backend, graphs, fixed = self.backend, self.graphs, self.problem.fixed
        before, edges_before, width = self._graph, graphs.edges, graphs.most_degree
        binomials, widest, levels = self._binomials
        if levels < level:  # more than the host had made at the start
            widest, levels = width, level + forecast.LEVELS_AHEAD
            binomials = backend.upload(graph.binomial_table(widest, levels))
            self._binomials = binomials, widest, levels
        neighbours, degrees = self._neighbours[level % LISTS_AT_ONCE], self._degrees[before]
        if not self._listed:
            neighbours = backend.empty((self.p, width), np.int32)
        self._launch("begin_level", graphs.struct, np.int32(before), np.int32(width), neighbours, degrees)
        if fixed is not None:
            degrees, _ = graph.tested_degrees(backend, degrees, fixed)
        rows = graph.Rows(self.p, level, width, neighbours, degrees, binomials, widest)
        argument = rows.argument
        found = Level(
            level=level,
            max_degree=width,
            edges=edges_before,
            busy_ends=self._busy_ends,
            busy=self._busy,
            rows=rows,
            busy_rows=self._busy_rows[before],
            row_cells=self._row_cells[before],
            largest_table=self._largest_table,
        )
        given = {"tests_per_edge": self.problem.tests_per_edge or 0, "counters": self._counters}
        sides = [LEVEL(rows=argument, level=level, side=side, **given) for side in (0, 1)]

        def launch(search: Filled) -> None:
            self.make_level(found, [[self.data, search, of_side] for of_side in sides])
            self._list_removed()

        tests = self._make_tests(level, launch, rows)
        if gone := edges_before - graphs.edges:
            numbers = np.int32(before), np.int32(self._graph), np.int32(level)
            self._unlisted = gone, level, [graphs.struct, self.best_keys, argument, *numbers]
        return LevelOutcome(graphs.edges, graphs.most_tested_degree(fixed), tests)

    def _list_removed(self) -> None:
        """Queue the list of what the level before removed, unless that is done.

        The tests of a level are queued first, so that the device is busy meanwhile. Its graph, which takes the place of
        the one before, is finished afterwards.
        """
        if self._unlisted is None:
            return
        (gone, level, arguments), self._unlisted = self._unlisted, None
        removed = LevelSets(**self.backend.empty_all(pairs=((gone, 2), np.int32), members=((gone, level), np.int32)))
        self._removed.append(removed)
        self._launch("list_removed", *arguments, removed.pairs, removed.members)
        if self.largest_p is not None:
            pairs, sets = self.backend.download_all((removed.pairs, removed.members))
            self._p_of_removed.append((pairs, p_values(self.problem, pairs, sets)))

    def _make_tests(self, level: int, launch: Callable[[Filled], None], rows: graph.Rows | None) -> int:
        """Make a level's tests, decide those that the kernels could not, and go on to the graph that is left.

        Returns:
            how many tests were made.
        """
        before, after = self._graph, (self._graph + 1) % GRAPHS_AT_ONCE
        workload = self.problem.tests_per_edge is not None
        while True:
            if self.problem.fixed is not None:
                self._mark(self.problem.fixed.required, graph.REQUIRED_KEY)
            launch(self._search)
            if workload:
                self._decay(level, before, rows)
            tests, undecided = self._finish(level, before, after)
            if undecided <= self._room:
                break
            # Those decided so far stay decided.
            self._use_room(self.backend.empty_all(**_undecided_arrays(2 * undecided)))
            self.graphs.forget()
        if undecided and self._settle(undecided):
            self.graphs.forget()
            self._finish(level, before, after)
        self._graph = after
        return tests

    def _finish(self, level: int, before: int, after: int) -> tuple[int, int]:
        """The graph that is left, and the counters: the tests made, and those that are left to the host."""
        if (fixed := self.problem.fixed) is not None:
            self._mark(fixed.required, graph.NO_KEY)
            if level == 0:
                self._mark(fixed.forbidden, graph.REMOVED_KEY)
        numbers = np.int32(before), np.int32(after), np.int32(level)
        arguments = [self.graphs.struct, self.best_keys, *numbers, self._counters, self.categories]
        self._launch("finish_level", *arguments, self._by_categories, self._row_cells[after], self._busy_rows[after])
        counted = self.graphs.read(level)
        tests, _, self._busy, *_, self._busy_ends, undecided, self._largest_table = counted  # tables.cu
        return tests, undecided

    def _settle(self, undecided: int) -> bool:
        """Decide the tests that kernels could not; whether any of their sets separates."""
        backend = self.backend
        listed = self._undecided.values()
        pairs, keys, df, statistics = (array[:undecided] for array in map(backend.download, listed))
        separates = statistics <= self.problem.critical_values(df)
        if not separates.any():
            return False
        count = int(separates.sum())
        arguments = [self.best_keys, backend.upload(pairs[separates]), backend.upload(keys[separates]), np.int32(count)]
        backend.kernel(*BETWEEN_LEVELS["settle"])((ceil_div(count, SETTLE_THREADS),), (SETTLE_THREADS,), arguments)
        return True

    def _use_room(self, lists: dict[str, Any]) -> None:
        """Take lists of `_undecided_arrays` for the tests of a level that the host decides."""
        self._undecided, self._room = lists, len(lists["pairs"])
        self._search = SEARCH(
            best=self.best_keys,
            largest_p=self.largest_p,
            workload=self.problem.tests_per_edge is not None,
            rules=RULES(logs=self.logs, adjusted=self.problem.df_rule == "adjusted"),
            critical=self.critical,
            unclear=UNCLEAR(counters=self._counters, capacity=self._room, **lists),
        )

    def _decay(self, level: int, before: int, rows: graph.Rows | None) -> None:
        """Give keys to the edges that a workload's rule removes."""
        upper = self.backend.empty(self.p, np.int32)
        self._launch("count_upper", self.graphs.struct, np.int32(before), upper)
        arguments = [self.graphs.struct, self.best_keys, np.int32(before), np.int32(level), upper]
        share = np.float64(1.0 - self.problem.decay)
        self._launch("decay", *arguments, share, None if rows is None else rows.degrees)

    def _mark(self, pairs: np.ndarray, key: np.uint64) -> None:
        """Queue the writing of a best key for pairs."""
        graph.mark_pairs(self.backend, pairs, key, self.best_keys.values["keys"])

    def _launch(self, kernel: str, *arguments: Any) -> None:
        self.graphs.launch(SOURCE, kernel, *arguments)

    def _make_planes(self) -> None:
        """Planes: for each category n bits that tell which samples have it. One takes an eighth of the 8-bit codes, and
        popcount counts it."""
        backend = self.backend
        self.planes, self.plane_words = None, self.stride // 64
        categories = self.plane_counts
        total = int(categories.sum())
        free = backend.memory_limit - backend.memory_used
        if not total or 8 * total * self.plane_words > free // 2:
            return
        self.planes = backend.empty((total, self.plane_words), np.uint64)
        gpu = backend.warp_threads > 1
        block = bit_graph.WARPS * backend.warp_threads if gpu else 1
        width = ceil_div(self.plane_words, bit_graph.WARPS) if gpu else 1
        kernel = backend.kernel(*BETWEEN_LEVELS[f"pack_planes<{CODE_TYPES[self.code]}>"])
        kernel((width, min(self.p, MAX_GRID_Y)), (block,), [self.data, np.int32(self.p), self.planes])

    @functools.cached_property
    def _levels_ahead(self) -> int:
        """The last level that the binomials made at the start are for."""
        return min(1 + forecast.LEVELS_AHEAD, self.last_level)

    @functools.cached_property
    def last_level(self) -> int:
        return forecast.last_level(self.problem)

    @functools.cached_property
    def _listed(self) -> int:
        """Neighbours of all variables that have room from the start; 0 where a level makes its own."""
        most = self.p * (self.p - 1)
        return most if 4 * LISTS_AT_ONCE * most <= LISTED_BYTES else 0

    @functools.cached_property
    def plane_counts(self) -> np.ndarray:
        """(p,) int64: how many planes each variable would have."""
        categories = self.problem.categories.astype(np.int64)
        return np.where((categories <= MAX_PLANES) & (self.plane_cells > 0), categories, 0)

    def _forecast(self, given_bytes: int) -> forecast.Forecast:
        problem, run, backend, p, n = self.problem, self.run, self.backend, self.p, self.n
        level = self.last_level
        limit = backend.memory_limit - backend.memory_used
        resident = p * padded_length(n) * problem.codes.itemsize + (16 if run.pmax else 8) * p * p
        resident += GRAPHS_AT_ONCE * 4 * p * bit_graph.row_words(p) + 40 * p + 32 * UNCLEAR_AT_FIRST
        resident += 8 * MOST_LEVELS * len(bit_graph.COUNTERS) + given_bytes + 4 * LISTS_AT_ONCE * self._listed
        g_square = problem.test == "g-square"
        resident += 8 * (n + 1) if g_square else 0
        planes = int(self.plane_counts.sum()) * padded_length(n) // 8
        if planes <= limit // 2:
            resident += planes
        left = max(limit - resident, 0)
        level_zero = self.table_bytes(0, largest_pair_table(problem), left)
        last = forecast.largest_table(problem.descending, level)
        return forecast.Forecast(
            resident_bytes=resident,
            level_bytes=forecast.list_bytes(p, level),
            table_bytes=max(level_zero, self.table_bytes(level, last, left)) if level else level_zero,
            level_zero_table_bytes=level_zero,
            host_bytes=forecast.host_bytes(p, n, level, g_square=g_square, pmax=run.pmax, room=UNCLEAR_AT_FIRST),
            memory_limit=limit,
            last_level=level,
        )


def upload_all(backend: Backend, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Host arrays of 32 or 64 bits on the device, each flat, by name: parts of one array, which goes up in one copy."""
    places, end = {}, 0  # in 64-bit words
    for name, array in arrays.items():
        places[name] = end
        end += _words(array)
    words = np.zeros(end, np.uint64)
    for name, array in arrays.items():
        words[places[name] :].view(array.dtype)[: array.size] = array.reshape(-1)
    device = backend.upload(words)
    return {name: device[places[name] :].view(array.dtype)[: array.size] for name, array in arrays.items()}


def _words(array: np.ndarray) -> int:
    """64-bit words that `upload_all` takes for an array."""
    return ceil_div(array.nbytes, ALIGNMENT) * (ALIGNMENT // 8)


def _undecided_arrays(tests: int) -> dict[str, tuple[int | tuple[int, ...], type]]:
    """What `Backend.empty_all` takes to make room for tests that the host decides."""
    return {
        "pairs": ((tests, 2), np.int32),
        "keys": (tests, np.uint64),
        "df": (tests, np.uint64),
        "statistics": (tests, np.float64),
    }


def padded_length(n: int) -> int:
    return round_up(n, ROW_ALIGNMENT)


def largest_pair_table(problem: DiscreteProblem) -> int:
    """A bound on the cells of level 0's tables, with the sums of their columns."""
    larger, smaller = [*problem.descending[:2], 1][:2]
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
