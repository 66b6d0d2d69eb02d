"""Single tests of a problem: the entry point for orientation, searches with hidden causes and searches in time series,
which need the answers of the family's CI test for sets that no skeleton search has tested.
`gpupc_impl.core.family.open_tests` opens the tests of a problem on a backend."""

import abc
import itertools
from collections.abc import Iterator

import numpy as np

from gpupc_impl.core.subsets import Subsets

TESTS_AT_ONCE = 2**16  # upper bound on the tests in a batch


class IndependenceTests(abc.ABC):
    """The CI tests of a problem on a backend, by family (`Family.tests`). `effect` names the effect of `strengths`.
    Pairs are (k, 2) variable indexes and sets are (k, l) conditioning sets with members in any order. If the test is
    not symmetric (CMIknn), it permutes the first variable of a pair, from whose neighbours the set is drawn."""

    effect: str = "statistic"

    @abc.abstractmethod
    def separates(self, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
        """Return which sets separate their pairs, (k,) bool: the decisions of a search on the problem. A test that no
        search would make, because `Problem.obstacle` states a reason, separates nothing."""

    @abc.abstractmethod
    def strengths(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return p-values and effect sizes, (k,) float64 each; the effect size of an undefined test is NaN, and its
        p-value 0 or NaN. They are for reports: near alpha a p-value can contradict `separates`, which is exact."""

    def dependences(self, subsets: Subsets, first: int, last: int) -> np.ndarray:
        """Test the subsets with the numbers from `first` to `last` - 1, in batches. The result, (last - first,)
        float64, is infinite for a subset that does not separate its pair, and else the smaller the larger the p-value
        is, comparable among sets of one size, with the same bits on every backend."""
        result = np.full(last - first, np.inf)
        for start in range(first, last, TESTS_AT_ONCE):
            numbers = np.arange(start, min(start + TESTS_AT_ONCE, last))
            owners = subsets.owners(numbers)
            pairs, sets = subsets.pairs[owners], subsets.members(numbers, owners)
            hits = np.flatnonzero(self.separates(pairs, sets))
            if len(hits):
                result[start - first + hits] = self.dependence(pairs[hits], sets[hits])
        return result

    def dependence(self, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
        """Return the numbers of `dependences` for sets that separate their pairs, (k,) float64."""
        return -self.strengths(pairs, sets)[0]

    def count_separating(
        self, pairs: np.ndarray, starts: np.ndarray, candidates: np.ndarray, most: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Count (int64) the subsets of at most `most` candidates that separate each pair, (m,), and those with each
        candidate. Pair q has ascending int32 candidates, from ``starts[q]`` to ``starts[q + 1]`` - 1, without its
        own."""
        separating, containing = np.zeros(len(pairs), np.int64), np.zeros(len(candidates), np.int64)
        sizes = np.diff(starts)
        for n in np.unique(sizes).tolist():
            alike = np.flatnonzero(sizes == n)
            places = starts[alike, None] + np.arange(n)
            for numbers, members in self.separating_subsets(pairs[alike], candidates[places], most):
                np.add.at(separating, alike[numbers], 1)
                np.add.at(containing, places[numbers[:, None], members], 1)
        return separating, containing

    def best_members(self, pairs: np.ndarray) -> np.ndarray | None:
        """Return for (k, 2) pairs the member of the separating set of smallest dependence, (k,) int64, the first of
        several; -1 if no set of one variable separates a pair. The sets are those of level 1: the variables that no
        test of level 0 separates from one of the ends. None if the tests have no faster way than `dependences`."""
        return None

    def separating_subsets(
        self, pairs: np.ndarray, candidates: np.ndarray, most: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield subsets of at most `most` of the (m, n) candidates, none of the pair's own, that separate m pairs, in
        batches of any order: (h,) positions of pairs among the m, and (h, size) positions of members among the n."""
        m, n = candidates.shape
        for level in range(min(most, n) + 1):
            subsets = itertools.combinations(range(n), level)
            while some := list(itertools.islice(subsets, TESTS_AT_ONCE)):
                positions = np.array(some, np.int64).reshape(len(some), level)
                at_once = max(TESTS_AT_ONCE // len(some), 1)
                for first in range(0, m, at_once):
                    part = np.arange(first, min(first + at_once, m))
                    numbers, chosen = np.repeat(part, len(some)), np.tile(positions, (len(part), 1))
                    separates = self.separates(pairs[numbers], candidates[numbers[:, None], chosen])
                    yield numbers[separates], chosen[separates]
