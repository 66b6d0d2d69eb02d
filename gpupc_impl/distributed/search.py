"""A search on workers: the levels, the graph between them, and what is made again if a worker is lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gpupc_impl.core import mapped_arrays
from gpupc_impl.core.pc_stable import LevelOutcome, LevelSearch, stop_reason
from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.core.registry import InvalidParameter, Run
from gpupc_impl.core.result import complete_graph
from gpupc_impl.core.result_folder import ResultFolder
from gpupc_impl.distributed import edge_shards
from gpupc_impl.distributed.row_search import ROW_COUNTS, check_fit
from gpupc_impl.distributed.team import Call, ClusterFailure, Team, WorkersLost
from gpupc_impl.distributed.worker import Worker
from gpupc_impl.engine.row_graph import RowGraph
from gpupc_impl.gaussian.problem import GaussianProblem

logger = logging.getLogger("gpupc_impl.distributed")
Result = TypeVar("Result")
ATTEMPTS = 4  # how often workers may begin the same step, before a search ends because they are lost again and again
FORMAT = 7  # of the folder of a search


class DistributedSearch(LevelSearch):
    """One search, which holds its workers until `close`. Levels 0 and 1 are run together, for one group of rows after
    another. If a worker is lost during a group or a later level, the workers that are left make it again."""

    def __init__(self, problem: GaussianProblem, run: Run, open_team: Callable[[], Team]):
        if run.pmax:
            raise InvalidParameter(
                "method 'distributed' records no pmax, which is a p x p matrix; leave it out, or take out-of-core-block"
            )
        if problem.correlations != "device":
            raise InvalidProblem(
                "workers compute correlations from samples without missing values, and the problem is a correlation "
                "matrix: give the samples, or leave client, workers and folder out"
            )
        self.problem, self.run, self.p = problem, run, problem.n_variables
        self.report: dict[str, Any] = {"levels": [], "lost": 0, "peak_device_bytes": 0}
        # Level 1 with fixed pairs, or without a tolerance, runs row by row, like later levels.
        by_groups = problem.fixed is None and problem.residual_tolerance > 0.0
        self._with_level_one = by_groups and stop_reason(problem, 1, max(self.p - 1, 2)) is None
        self._open_team = open_team
        self._team: Team | None = None
        self._memory = 0  # bytes of device memory of the worker with the least
        self._to_number = np.array([self.p, 1])  # the numbers ``pairs @ _to_number`` have the order of the pairs
        # The edges i < j after levels 0 and 1 as ascending numbers, whether each is left, and the degrees of variables.
        self._numbers, self._is_left, self._degrees = np.empty(0, np.int64), np.empty(0, bool), np.zeros(self.p, int)
        self._has_graph = False  # whether the workers have the graph of the later levels
        self._folder: ResultFolder | None = None
        if named := run.params["folder"]:
            settings = {"format": FORMAT, "data": problem.fingerprint}
            self._folder = ResultFolder(Path(named).absolute(), "search", settings)
        self._shards = edge_shards.EdgeShards(self.p)
        self._memory_of_sets: edge_shards.ReadyMemory | None = None
        self._later_sets: list[tuple[np.ndarray, np.ndarray]] = []
        self._first_outcomes: list[LevelOutcome] = []

    def _on_workers(self, step: str, work: Callable[[Team], Result]) -> Result:
        """Return the result of a step of the workers, which is begun again if one of them is lost."""
        try:
            for _ in range(ATTEMPTS):
                try:
                    return work(self._team or self._begin(self._open_team()))
                except WorkersLost as error:
                    self.report["lost"] += 1
                    logger.warning("%s: %s; the workers that are left make it again", step, error)
                    self.close()
            raise ClusterFailure(f"workers were lost {ATTEMPTS} times")
        except ClusterFailure as error:
            advice = "search again, with folder=... to keep what is done"
            if named := self.run.params["folder"]:
                advice = f"search again with folder={named!r}, which continues after the last step"
            raise ClusterFailure(f"{step}: {error}; {advice}") from error

    def _begin(self, team: Team) -> Team:
        """Bring the samples to new workers; returns them."""
        self._team = team
        prepared = team.on_all(lambda number, call: call(Worker.prepare))
        at_once, self._memory = prepared[0]["at_once"], min(each["memory"] for each in prepared)
        parts = list(mapped_arrays.pieces(self.p, at_once))

        def send(number: int, call: Call) -> None:
            for part in parts[number :: team.size]:
                call(Worker.add_samples, part, self.problem.samples[:, part])
            call(Worker.start, at_once, not self._first_outcomes, self._with_level_one)

        team.on_all(send)
        self.report |= {"workers": team.size, "devices": team.devices, "plan": prepared[0]["plan"]}
        logger.info("%s variables on %d workers, plan %s", f"{self.p:,}", team.size, prepared[0]["plan"])
        return team

    def close(self) -> None:
        """Free the memory of the workers, and what was allocated for sets and is not used yet."""
        held = self._team, self._memory_of_sets
        self._team, self._memory_of_sets, self._has_graph = None, None, False
        for each in filter(None, held):
            each.close()

    def run_level(self, level: int) -> LevelOutcome:
        if level == 0:
            self._first_outcomes = self._first_levels()
        return self._first_outcomes[level] if level < len(self._first_outcomes) else self._later_level(level)

    def _first_levels(self) -> list[LevelOutcome]:
        started, problem = time.perf_counter(), self.problem
        shards, steps = self._shards, dict[str, float]()
        if self._folder is None or not shards.load(self._folder):
            while shards.first < self.p:
                self._on_workers(f"levels 0 and 1 from row {shards.first} on", self._run_group)
            facts = self._on_workers(
                "the end of level 1", lambda team: team.on_all(lambda number, call: call(Worker.finish_first_levels))
            )
            steps = facts[0]["seconds"]
            self._note_peak(facts)
            if self._folder is not None:
                shards.save(self._folder)
        to_number, degrees = self._to_number, shards.degrees
        numbers = np.sort(shards.left() @ to_number)  # much faster than sorting rows
        if (fixed := problem.fixed) is not None:
            numbers = np.union1d(np.setdiff1d(numbers, fixed.forbidden @ to_number), fixed.required @ to_number)
        self._numbers, self._is_left = numbers, np.ones(len(numbers), bool)
        self._degrees = np.bincount(self._edges().reshape(-1), minlength=self.p)
        if fixed is not None:
            degrees = self._degrees
        elapsed, counts = time.perf_counter() - started, shards.counts
        self.report |= {"seconds": steps, "counts": dict(counts)}
        logger.info("levels 0 and 1: %.1f s, %s", elapsed, {name: round(each, 2) for name, each in steps.items()})
        of_zero = sum(taken for step, taken in steps.items() if step.startswith(("samples", "memory", "level 0")))
        tests, most = problem.tests_of_level_zero, problem.most_tested_degree(degrees)
        zero = LevelOutcome(int(degrees.sum()) // 2, most, tests, seconds=of_zero)
        if shards.levels == 1:
            return [zero]
        seconds = elapsed - of_zero
        return [zero, LevelOutcome(*self._count(), counts["tests"], undefined=counts["undefined"], seconds=seconds)]

    def _run_group(self, team: Team) -> None:
        """Run levels 0 and 1 for the next group of rows, and keep the results."""
        shards = self._shards
        if self._memory_of_sets is None:
            # Level 0 leaves a share of alpha of the pairs of independent variables, and more of dependent ones.
            edges = self.problem.alpha * (self.p * (self.p - 1) - shards.first * (shards.first - 1)) / 2
            self._memory_of_sets = edge_shards.ReadyMemory(int(edge_shards.SHARD_BYTES * edges))
        memory = self._memory_of_sets

        def run(number: int, call: Call) -> tuple[edge_shards.Share, list[edge_shards.Shard]]:
            share: edge_shards.Share = call(Worker.run_group, shards.first)
            return share, edge_shards.keep(share, lambda edges, starts: call(Worker.read, edges, starts), memory)

        shards.add(*zip(*team.on_all(run), strict=True))

    def _later_level(self, level: int) -> LevelOutcome:
        """Run a level row by row, unless the folder has its result."""
        started, folder, name = time.perf_counter(), self._folder, f"level-{level:04d}"
        stored = folder and folder.read(name, lambda totals, arrays: (arrays["pairs"], arrays["sets"], totals))
        if stored is not None:
            return self._remove(*stored)
        pairs, sets, totals, step = self._on_workers(f"level {level}", lambda team: self._run_later(team, level))
        if folder is not None:
            folder.write(name, totals, {"pairs": pairs, "sets": sets})
        outcome = self._remove(pairs, sets, totals)
        seconds = time.perf_counter() - started
        self.report["levels"].append({"level": level, "seconds": seconds, **step})
        message = "level %d: %.1f s, %s rows, %s tests; %s edges are left"
        logger.info(message, level, seconds, f"{step['rows']:,}", f"{totals['tests']:,}", f"{outcome.edges:,}")
        return outcome

    def _run_later(self, team: Team, level: int) -> tuple[np.ndarray, np.ndarray, dict[str, int], dict[str, Any]]:
        """Test all rows at a level."""
        degrees, fixed = self._degrees, self.problem.fixed
        active = degrees > level
        if fixed is not None:
            active &= ~fixed.without_tests(degrees)
        rows = np.flatnonzero(active)
        check_fit(self.problem, degrees, rows, level, self._memory)
        if not self._has_graph:
            graph = RowGraph.from_pairs(self._edges(), self.p)
            team.on_all(lambda number, call: call(Worker.take_graph, graph))
            self._has_graph = True
        results = team.on_all(lambda number, call: call(Worker.search_rows, level, rows, degrees[rows]))
        counts, removed, facts = zip(*results, strict=True)
        totals = dict(zip(ROW_COUNTS, np.sum(counts, axis=0).tolist(), strict=True))
        self._note_peak(facts)
        pairs, sets = removed[0]
        return pairs, sets, totals, {"rows": len(rows), "device_seconds": facts[0]["seconds"]}

    def _remove(self, pairs: np.ndarray, sets: np.ndarray, totals: Mapping[str, int]) -> LevelOutcome:
        """Remove the ascending pairs that a level run row by row has separated."""
        self._later_sets.append((pairs, sets))
        self._is_left[np.searchsorted(self._numbers, pairs @ self._to_number)] = False
        self._degrees -= np.bincount(pairs.reshape(-1), minlength=self.p)
        counts = {name: totals[name] for name in ("undefined", "pseudo_inverses")}
        return LevelOutcome(*self._count(), totals["tests"], **counts)

    def _edges(self) -> np.ndarray:
        """Return the (k, 2) int32 edges i < j that are left, ascending."""
        return np.stack(np.divmod(self._numbers[self._is_left], self.p), axis=1).astype(np.int32)

    def _count(self) -> tuple[int, int]:
        """Return the number of edges left, and the largest degree of a variable with an edge that may be tested."""
        return int(self._degrees.sum()) // 2, self.problem.most_tested_degree(self._degrees)

    def _note_peak(self, facts: Sequence[dict[str, Any]]) -> None:
        self.report["peak_device_bytes"] = max(self.report["peak_device_bytes"], *(each["peak"] for each in facts))

    def adjacency(self) -> np.ndarray:
        """Return a placeholder, which `WideSkeleton` leaves out; the complete graph if no level was run."""
        return edge_shards.without_edges(self.p) if self._first_outcomes else complete_graph(self.p)

    def separating_sets(self, adjacency: np.ndarray) -> edge_shards.ShardedSets | None:
        if not self._first_outcomes:
            return None
        return edge_shards.ShardedSets(self.p, self._edges(), self._shards, self._later_sets)
