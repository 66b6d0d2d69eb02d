"""A discrete search on a device, except for kernels, launches, and where tables lie, in which methods differ. Between
levels all methods make the next graph, list the removed pairs and apply the workload of a fixed number of tests."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend
from gpupc_impl.core.fixed_pairs import FixedPairs
from gpupc_impl.core.pc_stable import LevelOutcome, LevelSearch
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.registry import Run
from gpupc_impl.core.result import SeparatingSets
from gpupc_impl.discrete.declarations import BETWEEN_LEVELS, COUNTER_PLACES, CRITICAL, LEVEL, RULES, SEARCH
from gpupc_impl.discrete.level import Level, logger
from gpupc_impl.discrete.planes import Planes, padded_length
from gpupc_impl.discrete.problem import LISTED_DF, DiscreteProblem, critical_tables
from gpupc_impl.discrete.statistic import p_values
from gpupc_impl.engine import bit_graph, graph
from gpupc_impl.engine.bit_graph import MOST_LEVELS, BitGraphs
from gpupc_impl.engine.separating_sets import LevelSets, download_result
from gpupc_impl.engine.tier_parts import TierSearch
from gpupc_impl.integers import ceil_div

GRAPHS_KEPT = 2  # graphs on the device: that of the present level and that of the level before
LEVELS_AHEAD = 6  # levels beyond the present level for which a table of binomials has entries
ALIGNMENT = 256  # alignment in bytes of the arrays that are uploaded in one copy


class DiscreteSearch(LevelSearch):
    """One search. Between levels the host reads a row of counters; sets stay on the device until the end."""

    def __init__(self, problem: DiscreteProblem, run: Run):
        self.problem, self.run = problem, run
        self.backend: Backend = run.backend
        backend = self.backend
        p, n = self.p, self.n = problem.codes.shape
        self.planes = Planes(problem, backend, run.params["counting"])
        codes = backend.upload_rows(problem.codes, padded_length(n))
        last_with_binomials = min(1 + LEVELS_AHEAD, max(p - 2, 0))
        critical_values, expansion = critical_tables(problem.alpha)
        tables = {
            "categories": problem.categories.astype(np.int32),
            "by_categories": np.argsort(-problem.categories, kind="stable").astype(np.int32),
            **self.planes.tables(),
            "critical_values": critical_values,
            "expansion": expansion,
            "counters": np.zeros(graph.COUNTER_SHAPE, np.uint64),
            "binomials": graph.binomial_table(p - 1, last_with_binomials),
        }
        self.device_tables = upload_all(backend, tables)
        self._counters = self.device_tables["counters"]  # zeros, to which finish_level resets them
        self._binomials = self.device_tables["binomials"], p - 1, last_with_binomials
        self.graphs = BitGraphs(backend, p, GRAPHS_KEPT)
        self._graph = -1  # the number of the present graph; -1 stands for all pairs
        self._removed: list[LevelSets] = []
        self._unlisted: tuple[int, int, list] | None = None  # arguments that list the pairs removed last
        own = backend.empty_all(
            best=((p, p), np.uint64),
            row_cells=((GRAPHS_KEPT, p), np.uint64),
            degrees=((GRAPHS_KEPT, p), np.int32),
            busy_rows=((GRAPHS_KEPT, p), np.int32),
        )
        backend.fill(own["best"], graph.NO_KEY)
        self.best_keys = graph.BEST_KEYS(keys=own["best"], p=p, first_come=run.separating_sets == "first-come")
        self._row_cells, self._degrees, self._busy_rows = (
            list(own[name]) for name in ("row_cells", "degrees", "busy_rows")
        )
        self._busy = self._busy_ends = self._largest_table = 0  # `Level` documents these numbers of the next level.
        self.largest_p = backend.full((p, p), 0, np.uint64) if run.pmax else None
        self._p_of_removed: list[tuple[np.ndarray, np.ndarray]] = []
        logs = backend.upload(log_table(n)) if problem.test == "g-square" else None
        critical = {"values": self.device_tables["critical_values"], "expansion": self.device_tables["expansion"]}
        search = SEARCH(
            best=self.best_keys,
            largest_p=self.largest_p,
            workload=problem.tests_per_edge is not None,
            rules=RULES(logs=logs, adjusted=problem.df_rule == "adjusted"),
            critical=CRITICAL(listed=LISTED_DF, **critical),
        )
        self._first_arguments = [self.planes.data(codes, self.device_tables), search]  # of all kernels that make tests
        used, limit = f"{backend.memory_used:,}", f"{backend.memory_limit:,}"
        method = run.facts["method"]
        logger.info("%s, %d variables x %d samples: %s of %s bytes of device memory", method, p, n, used, limit)

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
        """Return the largest p-value of each pair; for a removed pair, the p-value given its separating set."""
        if self.largest_p is None:
            return None
        self._list_removed()
        largest = self.backend.download(self.largest_p).view(np.float64).copy()
        for pairs, p_values_of_sets in self._p_of_removed:
            largest[pairs[:, 0], pairs[:, 1]] = p_values_of_sets
        lower = np.tril_indices(self.p, -1)
        largest[lower] = largest.T[lower]
        np.fill_diagonal(largest, np.nan)
        if self._graph < 0:
            largest[:] = np.nan
        return largest

    # --- levels in parts (engine/tier_parts.py) ------------------------------------------------------------------
    def in_parts(self) -> LevelSearch:
        """Return this search, or the one that runs its levels in parts if the problem's tiers limit separating sets."""
        return self if self.problem.tiers is None else TierSearch(self.problem, self)

    def run_part(self, level: int, edges: np.ndarray, fixed: FixedPairs) -> LevelOutcome:
        self.problem, self._removed, self._graph = dataclasses.replace(self.problem, fixed=fixed), [], 1
        self.graphs.replace(bit_graph.pack_rows(edges))
        self.graphs.reset_counters()
        self._finish(level - 1, 0, 1)  # No edge has a key, so this copies all edges to graph 1 and counts its rows.
        self.graphs.reset_counters()
        if self._binomials[1] < self.graphs.most_degree:  # The graph has longer rows than the graph before.
            self._binomials = *self._binomials[:2], -1
        outcome = self._level(level)
        self._list_removed()
        if not self._removed:
            return outcome
        pairs, sets = self._removed[0].download(self.backend)
        return dataclasses.replace(outcome, pairs=pairs, sets=sets)

    def adjacency_now(self) -> np.ndarray:
        return self.graphs.download(self._graph)

    # --- for the methods -----------------------------------------------------------------------------------------
    @abc.abstractmethod
    def launch_level_zero(self, arguments: list) -> None:
        """Launch the tests of level 0, given the first arguments of the kernel."""

    @abc.abstractmethod
    def launch_level(self, level: Level, sides: list[list]) -> None:
        """Launch the tests of a level from 1 on; `sides` are the first arguments of the kernel for either side."""

    # --- levels ------------------------------------------------------------------------------------------------
    def _level_zero(self) -> LevelOutcome:
        fixed = self.problem.fixed
        self._run_tests(0, lambda: self.launch_level_zero(self._first_arguments))
        most = self.graphs.most_tested_degree(fixed)
        return LevelOutcome(self.graphs.edges, most, tests=self.problem.tests_of_level_zero)

    def _level(self, level: int) -> LevelOutcome:
        backend, graphs, fixed = self.backend, self.graphs, self.problem.fixed
        before, edges_before, width = self._graph, graphs.edges, graphs.most_degree
        binomials, widest, last = self._binomials
        if last < level:
            widest, last = width, level + LEVELS_AHEAD
            binomials = backend.upload(graph.binomial_table(widest, last))
            self._binomials = binomials, widest, last
        neighbours, degrees = backend.empty((self.p, width), np.int32), self._degrees[before]
        self._launch("begin_level", graphs.struct, np.int32(before), np.int32(width), neighbours, degrees)
        if fixed is not None:
            degrees, _ = graph.tested_degrees(backend, degrees, fixed)
        present = Level(
            *(self.p, level, width, neighbours, degrees, binomials, widest),
            busy_ends=self._busy_ends,
            busy=self._busy,
            busy_rows=self._busy_rows[before],
            row_cells=self._row_cells[before],
            largest_table=self._largest_table,
        )
        common = {"tests_per_edge": self.problem.tests_per_edge or 0, "counters": self._counters}
        sides = [LEVEL(rows=present.argument, level=level, side=side, **common) for side in (0, 1)]

        def launch() -> None:
            self.launch_level(present, [[*self._first_arguments, side] for side in sides])
            self._list_removed()

        tests = self._run_tests(level, launch, degrees)
        if removed := edges_before - graphs.edges:
            numbers = np.int32(before), np.int32(self._graph), np.int32(level)
            self._unlisted = removed, level, [graphs.struct, self.best_keys, present.argument, *numbers]
        return LevelOutcome(graphs.edges, graphs.most_tested_degree(fixed), tests)

    def _list_removed(self) -> None:
        """Queue the listing of the pairs that the level before removed, unless they are listed already. It is queued
        after the present level's tests, so that the device is busy while the host prepares it, and before the present
        level's graph, which overwrites the graph from which pairs are listed."""
        if self._unlisted is None:
            return
        (count, level, arguments), self._unlisted = self._unlisted, None
        removed = LevelSets(**self.backend.empty_all(pairs=((count, 2), np.int32), members=((count, level), np.int32)))
        self._removed.append(removed)
        self._launch("list_removed", *arguments, removed.pairs, removed.members)
        if self.largest_p is not None:
            pairs, sets = self.backend.download_all((removed.pairs, removed.members))
            self._p_of_removed.append((pairs, p_values(self.problem, pairs, sets)))

    def _run_tests(self, level: int, launch: Callable[[], None], degrees: Any = None) -> int:
        """Run a level's tests and make the graph that is left; returns the number of tests."""
        before, after, fixed = self._graph, (self._graph + 1) % GRAPHS_KEPT, self.problem.fixed
        if fixed is not None:
            self._mark(fixed.required, graph.REQUIRED_KEY)
        launch()
        if self.problem.tests_per_edge is not None:
            self._decay(level, before, degrees)
        tests = self._finish(level, before, after)
        self._graph = after
        return tests

    def _finish(self, level: int, before: int, after: int) -> int:
        """Make the graph that is left; returns the number of tests."""
        if (fixed := self.problem.fixed) is not None:
            self._mark(fixed.required, graph.NO_KEY)
            if level == 0:
                self._mark(fixed.forbidden, graph.REMOVED_KEY)
        numbers = np.int32(before), np.int32(after), np.int32(level)
        categories = self.device_tables["categories"], self.device_tables["by_categories"]
        arguments = [self.graphs.struct, self.best_keys, *numbers, self._counters, *categories]
        self._launch("finish_level", *arguments, self._row_cells[after], self._busy_rows[after])
        counted = self.graphs.read(level)
        self._busy, self._busy_ends, self._largest_table = (counted[k] for k in COUNTER_PLACES.values())
        return counted.tests

    def _decay(self, level: int, before: int, degrees: Any) -> None:
        """Give keys to the edges that the rule of the workload removes."""
        upper = self.backend.empty(self.p, np.int32)
        self._launch("count_upper", self.graphs.struct, np.int32(before), upper)
        arguments = [self.graphs.struct, self.best_keys, np.int32(before), np.int32(level), upper]
        self._launch("decay", *arguments, np.float64(1.0 - self.problem.decay), degrees)

    def _mark(self, pairs: np.ndarray, key: np.uint64) -> None:
        graph.mark_pairs(self.backend, pairs, key, self.best_keys.values["keys"])

    def _launch(self, kernel: str, *arguments: Any) -> None:
        self.graphs.launch(BETWEEN_LEVELS[kernel], *arguments)


@functools.lru_cache(maxsize=4)
def log_table(n: int) -> np.ndarray:
    """Return (n + 1,) float64: log(k), and 0 for k = 0, which no test looks up."""
    return np.log(np.maximum(np.arange(n + 1), 1).astype(np.float64))


def upload_all(backend: Backend, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Upload host arrays of 32 or 64 bits in one copy; returns them by name, flat, as parts of one array."""
    places, end = {}, 0  # in 64-bit words
    for name, array in arrays.items():
        places[name] = end
        end += ceil_div(array.nbytes, ALIGNMENT) * (ALIGNMENT // 8)
    words = np.zeros(end, np.uint64)
    for name, array in arrays.items():
        words[places[name] :].view(array.dtype)[: array.size] = array.reshape(-1)
    device = backend.upload(words)
    return {name: device[places[name] :].view(array.dtype)[: array.size] for name, array in arrays.items()}
