"""Single tests of a problem: the entry point for callers that choose pairs and conditioning sets themselves.

Orientation, searches with hidden causes and searches in time series need the answers of the family's CI test for sets
that no skeleton search has tested. `gpupc_impl.core.family.open_tests` opens the tests of a problem on a backend.
"""

import abc
import itertools
from collections.abc import Iterator

import numpy as np

from gpupc_impl.core.subsets import Subsets

TESTS_AT_ONCE = 2**16  # upper bound on the tests in a batch


class IndependenceTests(abc.ABC):
    """The CI tests of one problem on one backend; each family has a subclass (`Family.tests`).

    Pairs are (k, 2) variable indexes and sets are (k, l) conditioning sets of one size, whose members may be in any
    order. If the test is not symmetric (CMIknn), it permutes the first variable of a pair, from whose neighbours the
    set is drawn.

    Attributes:
        effect: the name of the effect size that `strengths` returns.
    """

    effect: str = "statistic"

    @abc.abstractmethod
    def separates(self, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
        """Return which sets separate their pairs, (k,) bool: the decisions of a search on the problem.

        A test that no search would make, because `Problem.obstacle` states a reason, separates nothing.
        """

    @abc.abstractmethod
    def strengths(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return p-values and effect sizes, (k,) float64 each; the effect size of an undefined test is NaN, and its
        p-value 0 or NaN.

        They are for reports: near alpha a p-value can contradict `separates`, which is exact.
        """

    def dependences(self, subsets: Subsets, first: int, last: int) -> np.ndarray:
        """Test the subsets with the numbers from `first` to `last` - 1, in batches.

        Returns:
            (last - first,) float64: for a subset that separates its pair, a number that is the smaller the larger the
            p-value is, comparable among sets of one size; infinity for a subset that does not. The numbers have the
            same bits on every backend.
        """
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

    def separating_subsets(
        self, pairs: np.ndarray, candidates: np.ndarray, allowed: np.ndarray, most: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield all subsets of the candidates that separate the pairs, in batches and in any order.

        Args:
            candidates: (m, n) variables for m pairs, without the pairs' own.
            allowed: (m, n) bool: which candidates may be in a set for the pair.
            most: the upper bound on the size of a subset.

        Yields:
            (h,) positions of pairs among the m, and (h, n) bool: the members of a separating set.
        """
        m, n = candidates.shape
        for level in range(min(most, n) + 1):
            subsets = itertools.combinations(range(n), level)
            while some := list(itertools.islice(subsets, TESTS_AT_ONCE)):
                positions = np.array(some, np.int64).reshape(len(some), level)
                at_once = max(TESTS_AT_ONCE // len(some), 1)
                for first in range(0, m, at_once):
                    part = slice(first, first + at_once)
                    possible = allowed[part][:, positions].all(axis=2).reshape(-1)
                    numbers = np.repeat(np.arange(m)[part], len(some))[possible]
                    chosen = np.tile(positions, (len(candidates[part]), 1))[possible]
                    separates = self.separates(pairs[numbers], candidates[numbers[:, None], chosen])
                    members = np.zeros((np.count_nonzero(separates), n), bool)
                    np.put_along_axis(members, chosen[separates], True, axis=1)
                    yield numbers[separates], members
