"""GPU-CMIknn: Single (sections 4.1 and 4.2, Algorithm 2) makes one test at a time, Parallel (section 4.2, Algorithm 5)
uses the permutations of a variable given a set for the tests with all its neighbours. Either processes the samples and
permutations of a test in parallel."""

import abc
import dataclasses
import itertools
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from gpupc_impl.backends import Backend
from gpupc_impl.core import progress_watcher
from gpupc_impl.core.checkpoint import Checkpoint, SearchState
from gpupc_impl.core.fixed_pairs import write
from gpupc_impl.core.pc_stable import LevelOutcome, LevelSearch, pc_stable
from gpupc_impl.core.registry import Parameter, Run, method
from gpupc_impl.core.result import NO_PAIRS, Skeleton
from gpupc_impl.core.tiers import allowed_members, allowed_partners
from gpupc_impl.nonlinear.cmi_estimator import CmiEstimator, ci_test, counts_of
from gpupc_impl.nonlinear.declarations import search_kernels
from gpupc_impl.nonlinear.problem import NonlinearProblem
from gpupc_impl.nonlinear.tuning import PARAMS, SEARCH_PARAMS

logger = logging.getLogger("gpupc_impl.nonlinear")

UNSEPARATED = 2  # the side of a pair without a separating set; the side of a pair with a separating set is 0 or 1
REQUIRED = -1  # the side of a pair whose edge is required, so that no set can become its separating set
SETS_AT_ONCE = Parameter(0, "sets at once (delta); 0: what suits the backend", minimum=0, maximum=1 << 20)


class Search(LevelSearch):
    """A search on one backend; a subclass determines which tests a batch holds. For `racing` see `CmiEstimator`. A pair
    i < j is tested with sets from adj(i) in lexicographic order, then with sets from adj(j). Its separating set is the
    first in this order that separates. A batch may find a later set first, which an earlier set then replaces."""

    estimator_of: ClassVar[type[CmiEstimator]] = CmiEstimator

    def __init__(self, problem: NonlinearProblem, run: Run, racing: bool = False):
        self.problem, self.backend, self.params = problem, run.backend, run.params
        self.estimator = self.estimator_of(problem, run.backend, run.params, racing)
        self.first_come = run.separating_sets == "first-come"
        p = self.p = problem.n_variables
        self.edges = problem.start_graph()
        self._required = NO_PAIRS if problem.fixed is None else problem.fixed.required
        self._pmax = np.full((p, p), np.nan) if run.pmax else None
        self._side = np.empty(0)
        self._sets: dict[tuple[int, int], tuple[int, ...]] = {}
        self._tests, self._possible = 0, None
        self._outcomes: list[LevelOutcome] = []  # The checkpoint holds these levels.
        self._checkpoint = None
        if path := run.params["checkpoint"]:
            # A racing search has a random graph.
            rule = f"{run.separating_sets}, racing" if racing else run.separating_sets
            self._checkpoint = Checkpoint(path, problem, rule, run.pmax)
            if (state := self._checkpoint.load()) is not None:
                self.edges, self._outcomes, self._pmax = state.adjacency, state.outcomes, state.pmax
                logger.info("resuming at level %d from %s", len(self._outcomes), path)

    def run_level(self, level: int) -> LevelOutcome:
        if level < len(self._outcomes):
            return self._outcomes[level]
        started = self.backend.clock()
        outcome = self._run_level(level)
        if self._checkpoint is not None:
            self._outcomes.append(dataclasses.replace(outcome, seconds=self.backend.clock() - started))
            self._checkpoint.save(SearchState(self.edges, self._outcomes, self._pmax))
        return outcome

    def _run_level(self, level: int) -> LevelOutcome:
        self._side = np.full((self.p, self.p), UNSEPARATED, np.int8)
        self._sets, self._tests = {}, 0
        self._possible = progress_watcher.possible_tests(self.edges, level)
        write(self._side, self._required, REQUIRED)
        self._test_all(level)
        write(self._side, self._required, UNSEPARATED)
        i, j = np.nonzero(np.triu(self._side < UNSEPARATED))
        pairs = np.stack([i, j], axis=1).astype(np.int32)
        members = [self._sets[pair] for pair in zip(i.tolist(), j.tolist(), strict=True)] if level else []
        sets = np.array(members, np.int32).reshape(len(pairs), level)
        self.edges[i, j] = self.edges[j, i] = False
        degrees = self.edges.sum(axis=1)
        max_degree = self.problem.most_tested_degree(degrees)
        return LevelOutcome(int(degrees.sum()) // 2, max_degree, self._tests, pairs, sets)

    def adjacency(self) -> np.ndarray:
        if self._checkpoint is not None:  # The search has ended.
            self._checkpoint.remove()
        return self.edges

    def pmax(self) -> np.ndarray | None:
        if self._pmax is None:
            return None
        return np.where(np.tri(self.p, dtype=bool), self._pmax.T, self._pmax)

    # --- for subclasses ----------------------------------------------------------------------------------------------
    @abc.abstractmethod
    def _test_all(self, level: int) -> None:
        """Make the tests of a level by calls of `make`."""

    def open(self, i: int, js: np.ndarray | int) -> np.ndarray | bool:
        """Return whether a set from adj(i) can still become the separating set of i and j, for each of `js`."""
        lower, upper = np.minimum(i, js), np.maximum(i, js)
        return self._side[lower, upper] > (1 if self.first_come else np.greater(i, js))

    def make(self, level: int, sets: Sequence[Sequence[int]], tests: Sequence[tuple[int, int]]) -> None:
        """Make tests and record the sets that separate. `sets` has for each set the permuted variable and S ascending,
        the sets of a variable in lexicographic order; `tests` has for each test its set's index and V_j."""
        indices, others = np.array(tests).T
        counts = counts_of(self.estimator.partials(level, np.array(sets), np.array(tests)))
        self._tests += len(tests)
        progress_watcher.advance(self._tests, self._possible, "possible tests")
        lower, upper = np.sort([np.array(sets)[indices, 0], others], axis=0)
        if self._pmax is not None:
            kept = self._side[lower, upper] == UNSEPARATED  # A separated pair keeps its p-value.
            np.fmax.at(self._pmax, (lower[kept], upper[kept]), self.problem.p_value(counts[kept]))
        separating = np.flatnonzero(counts >= self.problem.critical_count)
        if level == 0:
            self._side[lower[separating], upper[separating]] = 0
            return
        for index in separating.tolist():
            set_index, j = tests[index]
            i, *members = sets[set_index]
            if self.open(i, j):
                pair = min(i, j), max(i, j)
                self._side[pair] = i > j
                self._sets[pair] = tuple(members)
                if self._pmax is not None:
                    self._pmax[pair] = self.problem.p_value(counts[index])


class SingleSearch(Search):
    """The search that tests each pair in ascending order until its first separating set, like a serial PC-stable."""

    def _test_all(self, level: int) -> None:
        self.estimator.fitting(level, 1, 1)
        rows = [row.nonzero()[0] for row in self.edges]
        for i in range(self.p):
            for j in rows[i].tolist():
                if j > i:
                    self._test_pair(level, i, j, rows)

    def _test_pair(self, level: int, i: int, j: int, rows: list[np.ndarray]) -> None:
        sides = ((i, j),) if level == 0 else ((i, j), (j, i))
        for owner, other in sides:
            if not self.open(owner, other):
                return
            row = rows[owner][rows[owner] != other]
            row = row[allowed_members(self.problem.tiers, row, i, j)]
            for members in itertools.combinations(row.tolist(), level):
                self.make(level, [(owner, *members)], [(0, other)])
                if not self.open(owner, other):
                    return


def open_test(
    problem: NonlinearProblem,
    backend: Backend,
    params: Mapping[str, Any],
    estimator_of: type[CmiEstimator] = CmiEstimator,
) -> Callable[..., float]:
    """Return (i, j, S) -> p-value for `measurement.single_tests`; each copies the data to the device."""
    test_params = {name: value for name, value in params.items() if name in PARAMS}

    def test(i: int, j: int, members: tuple[int, ...]) -> float:
        count, _, _ = ci_test(problem, i, j, members, backend, estimator_of=estimator_of, **test_params)
        return problem.p_value(count)

    return test


@method(
    "gpucmiknn-single",
    family="nonlinear",
    source="GPU-CMIknn, sections 4.1 and 4.2, Algorithm 2",
    summary="one test at a time: its local permutations, then its CMI values",
    params=SEARCH_PARAMS,
    open_test=open_test,
    tiers=True,
)
def gpucmiknn_single(problem: NonlinearProblem, run: Run) -> Skeleton:
    return pc_stable(problem, SingleSearch(problem, run), facts=dict(run.facts), progress=run.progress)


@method(
    "gpucmiknn-single-racing",
    family="nonlinear",
    source="GPU-CMIknn, sections 4.1 and 4.2, Algorithms 2 and 3 with another random generator",
    summary="the same, but the first thread to come takes a sample, so p-values change from run to run",
    params=SEARCH_PARAMS,
    open_test=open_test,
    random=True,
    tiers=True,
)
def gpucmiknn_single_racing(problem: NonlinearProblem, run: Run) -> Skeleton:
    return pc_stable(problem, SingleSearch(problem, run, racing=True), facts=dict(run.facts), progress=run.progress)


class ParallelSearch(Search):
    """The search in batches of sets, each with the tests of its variable and all neighbours that are still open."""

    def _test_all(self, level: int) -> None:
        rows = [row.nonzero()[0] for row in self.edges]
        for batch in self._batches(level, rows):
            sets = [(i, *members) for i, members, _ in batch]
            tests = [(index, j) for index, (_, _, others) in enumerate(batch) for j in others]
            self.make(level, sets, tests)

    def _batches(self, level: int, rows: list[np.ndarray]) -> Iterator[list[tuple[int, tuple[int, ...], list[int]]]]:
        """Yield the sets (i, S) with the V_j to test, in batches that fill the device. A batch takes the next set of
        each variable in turn. A pair then has few tests in a batch, so few of its tests are unnecessary if one of them
        separates the pair. If one set fills the device, all sets of a variable come before those of the next."""
        busy_tests, requested = self.estimator.busy_tests, self.params["delta"]
        most_tests = max(len(row) for row in rows) - level
        room = self.estimator.fitting(level, requested or max(1, int(busy_tests)), most_tests)
        enough = math.inf if requested else busy_tests
        queues = [(i, rows[i], itertools.combinations(rows[i].tolist(), level)) for i in range(self.p)]
        queues = [queue for queue in queues if len(queue[1]) > level]
        while queues:
            batch, tests, finished = [], 0, set()
            while len(batch) < room and tests < enough and len(finished) < len(queues):
                for place, (i, row, sets) in enumerate(queues):
                    if place in finished:
                        continue
                    chosen = self._next(level, i, row, sets)
                    if chosen is None:
                        finished.add(place)
                        continue
                    batch.append((i, *chosen))
                    tests += len(chosen[1])
                    if len(batch) >= room or tests >= enough:
                        break
            queues = [queue for place, queue in enumerate(queues) if place not in finished]
            if batch:
                batch.sort(key=lambda entry: entry[:2])
                yield batch

    def _next(
        self, level: int, i: int, row: np.ndarray, sets: Iterator[tuple[int, ...]]
    ) -> tuple[tuple[int, ...], list[int]] | None:
        """Return the variable's next set with an open test, and the V_j to test; None if no set is left."""
        others = row[row > i] if level == 0 else row
        candidates = others[self.open(i, others)].tolist()
        if not candidates:
            return None
        for members in sets:
            chosen = allowed_partners(self.problem.tiers, i, candidates, members)
            if chosen:
                return members, chosen
        return None


@method(
    "gpucmiknn-parallel",
    family="nonlinear",
    source="GPU-CMIknn, section 4.2, Algorithm 5",
    summary="permutations of several sets at once, each used for all neighbours of its variable",
    params={**SEARCH_PARAMS, "delta": SETS_AT_ONCE},
    tiers=True,
    kernels=search_kernels,
)
def gpucmiknn_parallel(problem: NonlinearProblem, run: Run) -> Skeleton:
    return pc_stable(problem, ParallelSearch(problem, run), facts=dict(run.facts), progress=run.progress)
