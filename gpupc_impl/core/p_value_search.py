"""PC-stable with tests by p-value, in batches of conditioning sets: tests that share work of a set are faster together,
and a reference that makes them one at a time runs the same search with batches of one set. A family supplies a
`BatchedTests` for its method, and a function of one test for its reference and for verification. The rest follows: the
search, single tests (`PValueTests`) and the retest (`PValueRetest`)."""

import concurrent.futures
import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np

from gpupc_impl.backends import Backend
from gpupc_impl.core import progress_watcher
from gpupc_impl.core.independence import TESTS_AT_ONCE, IndependenceTests
from gpupc_impl.core.pc_stable import GraphSearch, LevelOutcome, pc_stable
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.registry import Run
from gpupc_impl.core.result import Skeleton
from gpupc_impl.core.tiers import allowed_sets

FIRST_TESTS, MOST_TESTS = {"cuda": 1 << 10, "host": 1 << 6, "cpu": 1}, {"cuda": 1 << 14, "host": 1 << 9, "cpu": 1}
"""Tests in a level's first and largest batch, by backend (``"cpu"``: one set at a time); batches double in size."""

TOLERANCE = 1e-5  # relative difference of p-values that another order of additions may cause
Batch = TypeVar("Batch")
SingleTest = Callable[..., tuple[float, float]]  # (i, j, members of a set) -> p-value, statistic


class BatchedTests(Protocol):
    def p_values(self, sets: np.ndarray, tests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the p-values and the statistics of t tests, (t,) each. A row of `tests`, (t, 3), has the number of a
        conditioning set, which is a row of `sets`, (k, l), and two variables i < j. Tests are ordered by set."""


class OneByOne:
    """Implements `BatchedTests` by a function of one test."""

    def __init__(self, test: SingleTest):
        self._test = test

    def p_values(self, sets: np.ndarray, tests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        results = [self._test(i, j, tuple(sets[number].tolist())) for number, i, j in tests.tolist()]
        p_values, statistics = np.array(results, float).reshape(-1, 2).T
        return p_values, statistics


def search_by_p_values(problem: Problem, run: Run, tests: BatchedTests) -> Skeleton:
    return pc_stable(problem, PValueSearch(problem, run, tests), facts=dict(run.facts), progress=run.progress)


class PValueSearch(GraphSearch):
    """A PC-stable search of one problem. A test has an unordered pair and a set, so a set among the neighbours of both
    ends is tested once. A level's sets are tested in lexicographic order, first those among the neighbours of each
    pair's smaller variable, then those only among its larger one's. The first set that separates a pair is therefore
    the canonical one, and all pairs with the same set are tested in one batch."""

    def __init__(self, problem: Problem, run: Run, tests: BatchedTests):
        super().__init__(problem, run.pmax)
        self._place, self._tests = "cpu" if run.backend is None else run.backend.name, tests

    def run_level(self, level: int) -> LevelOutcome:
        to_test = self.problem.edges_to_test(np.argwhere(np.triu(self.adjacent)))
        self._open = np.zeros_like(self.adjacent)
        self._open[tuple(to_test.T)] = True
        removed: dict[tuple[int, int], tuple[int, ...]] = {}
        tests, possible = 0, progress_watcher.possible_tests(self.adjacent, level)
        for batch_sets, batch in self._batches(level):
            tests += len(batch)
            p_values, _ = self._tests.p_values(batch_sets, batch)
            progress_watcher.advance(tests, possible, "possible tests")
            for (number, i, j), p_value in zip(batch.tolist(), p_values.tolist(), strict=True):
                if not self._open[i, j]:  # an earlier set of the batch separates the pair
                    continue
                self.note_p_values(i, j, p_value)
                if p_value >= self.problem.alpha:
                    self._open[i, j] = False
                    removed[i, j] = tuple(batch_sets[number].tolist())
        return self.remove(level, tests, removed)

    def _batches(self, level: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield batches, as `BatchedTests.p_values` takes them."""
        if not level:
            pairs = np.argwhere(self._open)
            if len(pairs):
                yield np.empty((1, 0), np.int64), np.insert(pairs, 0, 0, axis=1)
            return
        wanted, most = FIRST_TESTS[self._place], MOST_TESTS[self._place]
        for larger in (False, True):
            sets: list[tuple[int, ...]] = []
            tests: list[np.ndarray] = []
            count = 0
            for members, owners in self._sets(level, larger):
                pairs = self._pairs(members, owners, larger)
                if len(pairs):
                    tests.append(np.insert(pairs, 0, len(sets), axis=1))
                    sets.append(members)
                    count += len(pairs)
                if count >= wanted:
                    yield np.array(sets), np.concatenate(tests)
                    sets, tests, count, wanted = [], [], 0, min(2 * wanted, most)
            if sets:
                yield np.array(sets), np.concatenate(tests)

    def _sets(self, level: int, larger: bool) -> Iterator[tuple[tuple[int, ...], list[int]]]:
        """Yield the sets of a round in order, each with the variables to which all its members are adjacent."""

        def own_sets(variable: int) -> Iterator[tuple[tuple[int, ...], int]]:
            for members in itertools.combinations(np.flatnonzero(self.adjacent[variable]).tolist(), level):
                if not (self._open[:, variable] if larger else self._open[variable]).any():
                    return
                yield members, variable

        merged = heapq.merge(*map(own_sets, range(self.problem.n_variables)))
        for members, group in itertools.groupby(merged, key=lambda entry: entry[0]):
            yield members, [variable for _, variable in group]

    def _pairs(self, members: tuple[int, ...], owners: list[int], larger: bool) -> np.ndarray:
        """Return the pairs i < j, (k, 2), that a round tests given a set; no earlier set separates them."""
        if not larger:
            owner, other = np.nonzero(self._open[owners])
            pairs = np.stack([np.array(owners)[owner], other], axis=1)
        else:
            other, owner = np.nonzero(self._open[:, owners])
            pairs = np.stack([other, np.array(owners)[owner]], axis=1)
            pairs = pairs[~self.adjacent[pairs[:, :1], list(members)].all(axis=1)]  # pairs that only this round tests
        pairs = pairs[~np.isin(pairs, members).any(axis=1)]
        allowed = allowed_sets(self.problem.tiers, pairs, np.broadcast_to(members, (len(pairs), len(members))))
        tested: np.ndarray = pairs[allowed]
        return tested


def single_test(tests: BatchedTests, i: int, j: int, members: Iterable[int]) -> tuple[float, float]:
    sets = np.array(sorted(members), np.int64).reshape(1, -1)
    p_values, statistics = tests.p_values(sets, np.array([[0, min(i, j), max(i, j)]]))
    return float(p_values[0]), float(statistics[0])


class PValueTests(IndependenceTests):
    """The tests of one problem. The effect is the statistic, which grows with the number of samples."""

    def __init__(self, problem: Problem, tests: BatchedTests):
        self._problem, self._tests = problem, tests

    def separates(self, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
        return self.strengths(pairs, sets)[0] >= self._problem.alpha

    def strengths(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        different, numbers = np.unique(np.sort(sets, axis=1), axis=0, return_inverse=True)
        rows = np.column_stack([numbers.reshape(-1), np.sort(pairs, axis=1)])
        tests, of_row = np.unique(rows, axis=0, return_inverse=True)  # either end of a pair may ask for the same test
        p_values, statistics = self._tests.p_values(different, tests) if len(pairs) else np.empty((2, 0))
        return p_values[of_row.reshape(-1)], statistics[of_row.reshape(-1)]

    def count_separating(
        self, pairs: np.ndarray, starts: np.ndarray, candidates: np.ndarray, most: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `IndependenceTests.count_separating`; here all pairs with sets of one size share batches."""
        separating, containing = np.zeros(len(pairs), np.int64), np.zeros(len(candidates), np.int64)
        spans = [range(*span) for span in itertools.pairwise(starts.tolist())]
        for size in range(min(most, max(map(len, spans), default=-1)) + 1):
            subsets = ((q, *chosen) for q, span in enumerate(spans) for chosen in itertools.combinations(span, size))
            while some := list(itertools.islice(subsets, TESTS_AT_ONCE)):
                of_pair, places = np.split(np.array(some, np.int64), [1], axis=1)
                separates = self.separates(pairs[of_pair[:, 0]], candidates[places])
                np.add.at(separating, of_pair[separates, 0], 1)
                np.add.at(containing, places[separates], 1)
        return separating, containing


class PValueRetest:
    """See `core.family.Retest`. The ratio is alpha over the p-value of one test, computed from scratch."""

    def __init__(self, test: SingleTest, alpha: float, affordable: int):
        self._test, self._alpha, self.affordable = test, alpha, max(affordable, 1)

    def ratios(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p_values = np.array([self._test(*pair, members)[0] for pair, members in zip(pairs, sets, strict=True)], float)
        with np.errstate(divide="ignore"):
            return self._alpha / p_values, np.full(len(pairs), TOLERANCE)


def for_each(work: Callable[[Batch], None], batches: Sequence[Batch], backend: Backend) -> None:
    """Do the work of every batch in any order, in parallel on cores; each batch writes only its own results."""
    threads = min(backend.array_threads, len(batches))
    if threads <= 1:
        for batch in batches:
            work(batch)
        return
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, batches))
