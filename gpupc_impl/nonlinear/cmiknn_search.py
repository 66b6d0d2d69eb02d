"""The base class of the family's searches, with the graph, the separating sets and the checkpoint."""

import abc
import dataclasses
import logging
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from gpupc_impl.core import progress_watcher
from gpupc_impl.core.checkpoint import Checkpoint, SearchState
from gpupc_impl.core.fixed_pairs import write
from gpupc_impl.core.pc_stable import LevelOutcome, LevelSearch
from gpupc_impl.core.registry import Run
from gpupc_impl.core.result import NO_PAIRS
from gpupc_impl.nonlinear.cmi_estimator import CmiEstimator
from gpupc_impl.nonlinear.problem import NonlinearProblem

logger = logging.getLogger("gpupc_impl.nonlinear")

UNSEPARATED = 2  # the side of a pair without a separating set; the side of a pair with a separating set is 0 or 1
REQUIRED = -1  # the side of a pair whose edge is required, so that no set can become its separating set


class Search(LevelSearch):
    """A search on one backend; a subclass determines which tests a batch holds.

    A pair i < j is tested with sets from adj(i) in lexicographic order, then with sets from adj(j). The separating set
    of the pair is the first set in this order that separates. A batch may find a later set first, which an earlier set
    then replaces.

    Args:
        racing: see `device.CmiEstimator`.
    """

    estimator_of: ClassVar[type[CmiEstimator]] = CmiEstimator

    def __init__(self, problem: NonlinearProblem, run: Run, racing: bool = False):
        self.problem, self.backend, self.params = problem, run.backend, run.params
        self.estimator = self.estimator_of(problem, run.backend, run.params, racing)
        self.first_come = run.separating_sets == "first-come"
        p = self.p = problem.n_variables
        self.edges = problem.start_graph()
        self._required = NO_PAIRS if problem.fixed is None else problem.fixed.required
        self._pmax = np.full((p, p), np.nan) if run.pmax else None
        self.early = run.params["stopping"] == "early" and not run.pmax
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
        """Return whether a set from adj(i) can still become the separating set of the pair of i and j, for each of
        `js`."""
        lower, upper = np.minimum(i, js), np.maximum(i, js)
        return self._side[lower, upper] > (1 if self.first_come else np.greater(i, js))

    def make(self, level: int, sets: Sequence[Sequence[int]], tests: Sequence[tuple[int, int]]) -> None:
        """Make tests and record the sets that separate.

        Args:
            sets: for each set the permuted variable and the members of S ascending; the sets of a variable are in
                lexicographic order.
            tests: for each test the index of its set, and V_j.
        """
        indices, others = np.array(tests).T
        counts = self.estimator.counts(level, np.array(sets), np.array(tests), self.early)
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
