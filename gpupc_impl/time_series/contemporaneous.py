"""The skeleton phase of PCMCI+ (Runge 2020, Algorithm 2): MCI tests with contemporaneous conditions.

Round p tests each link given every set of p contemporaneous neighbours of its target, until one separates, and removes
a contemporaneous link as soon as it is separated in one of its two directions. Links with a lag do not depend on what
the round removes, nor do contemporaneous links from the smaller variable to the larger one; all of these are tested
together, and then the other directions of the contemporaneous links that remain. The sets of a link are tested in
chunks of growing size; what a chunk tests beyond the set that separates is dropped.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np

from gpupc_impl.time_series.batches import Batch, LaggedTest, Outcomes, Parents

Separations = dict[tuple[int, int, int], tuple[int, ...]]
"""By source, lag (not negative) and target: the contemporaneous variables that separate them, if there are any. Both
directions of a contemporaneous link have an entry."""

TESTS_A_CHUNK = 1 << 20


@dataclasses.dataclass(eq=False)
class Skeleton:
    """What the phase found.

    Attributes:
        linked: (N, N, tau_max + 1) bool: the links that remain.
        p_values, strengths: (N, N, tau_max + 1): the largest p-value of each link, and the statistic of its test.
        separations: the sets that removed links.
        tests: the number of tests.
    """

    linked: np.ndarray
    p_values: np.ndarray
    strengths: np.ndarray
    separations: Separations
    tests: int


def skeleton(test: LaggedTest, linked: np.ndarray, parents: Parents, alpha: float, max_conds_dim: int) -> Skeleton:
    """Test links with sets of up to so many contemporaneous conditions.

    Args:
        linked: (N, N, tau_max + 1) bool: the links at first.
    """
    found = Skeleton(linked.copy(), np.where(linked, 0.0, 1.0), np.zeros(linked.shape), Separations(), 0)
    phase = _Phase(test, parents, alpha, found)
    for size in range(max_conds_dim + 1):
        phase.sort_neighbours()
        links = np.argwhere(found.linked)
        links = links[phase.others(links) >= size]
        if not len(links):
            break
        is_second = (links[:, 2] == 0) & (links[:, 0] > links[:, 1])
        phase.test_links(links[~is_second], size)
        links = links[is_second]
        phase.test_links(links[found.linked[tuple(links.T)]], size)
    return found


class _Phase:
    """The phase while it runs. Links are (k, 3): source, target and lag."""

    def __init__(self, test: LaggedTest, parents: Parents, alpha: float, found: Skeleton):
        self._test, self._parents, self._alpha, self._found = test, parents, alpha, found
        self._least = np.full(found.linked.shape, np.inf)  # the least absolute statistic of each link

    def sort_neighbours(self) -> None:
        """List the contemporaneous neighbours of each variable, strongest first; of equal ones, the smaller first."""
        linked = self._found.linked[:, :, 0].T
        self._counts = linked.sum(axis=1)
        # Neighbours that no test was made of have infinite strength, and others none.
        order = np.lexsort((-self._least[:, :, 0].T, ~linked), axis=1)
        self._neighbours = order[:, : int(self._counts.max(initial=0))]

    def others(self, links: np.ndarray) -> np.ndarray:
        """Return the numbers of neighbours of the targets, without the sources."""
        others: np.ndarray = self._counts[links[:, 1]] - (links[:, 2] == 0)
        return others

    def test_links(self, links: np.ndarray, size: int) -> None:
        """Test each link given sets of one size, until one separates or all are tested."""
        first, chunk = 0, 1
        while len(links):
            chunk = max(1, min(chunk, TESTS_A_CHUNK // len(links)))
            of, position, sets = self._sets(links, size, first, chunk)
            source, target, lag = links[of].astype(np.int32).T
            outcomes = self._test.run(Batch(source, lag, target, sets.astype(np.int32)), self._parents)
            separated = self._record(links, of, position, sets, outcomes)
            first += chunk
            has_more = np.array([math.comb(count, size) > first for count in self.others(links).tolist()], bool)
            links = links[~separated & has_more]
            chunk = 2 * chunk if self._test.is_speculative else 1

    def _sets(self, links: np.ndarray, size: int, first: int, chunk: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the tests of links given their sets of neighbours of one size, from set `first` on.

        Returns:
            (tests,) the link of each test, (tests,) the place of its set among those of the link, and the (tests, size)
            sets.
        """
        others, parts = self.others(links), []
        for count in np.unique(others).tolist():
            these = np.flatnonzero(others == count)
            combinations = list(itertools.islice(itertools.combinations(range(count), size), first, first + chunk))
            places = np.array(combinations, np.int64).reshape(len(combinations), size)
            of = np.repeat(these, len(places))
            position = np.tile(np.arange(len(places)), len(these))
            source, target, lag = links[of].T
            neighbours = self._neighbours[target]
            is_source = (neighbours == source[:, None]) & (lag == 0)[:, None]
            own = np.where(is_source.any(axis=1), is_source.argmax(axis=1), neighbours.shape[1])
            chosen = places[position] + (places[position] >= own[:, None])
            parts.append((of, position, np.take_along_axis(neighbours, chosen, axis=1)))
        of, position, sets = (np.concatenate(each) for each in zip(*parts, strict=True))
        return of, position, sets

    def _record(
        self, links: np.ndarray, of: np.ndarray, position: np.ndarray, sets: np.ndarray, outcomes: Outcomes
    ) -> np.ndarray:
        """Write down the tests of each link up to the first that separates; return which links are separated."""
        found, values, p_values = self._found, np.abs(outcomes.values), outcomes.p_values
        separates = ~(p_values <= self._alpha)
        first = np.full(len(links), np.iinfo(np.int64).max)
        np.minimum.at(first, of[separates], position[separates])
        made = np.flatnonzero(position <= first[of])
        found.tests += len(made)
        at = tuple(links[of[made]].T)
        np.minimum.at(self._least, at, values[made])
        order = made[np.lexsort((position[made], p_values[made], of[made]))]
        largest = order[np.flatnonzero(np.diff(of[order], append=-1))]  # of each link; the last of equal ones
        at = tuple(links[of[largest]].T)
        update = largest[p_values[largest] >= found.p_values[at]]
        at = tuple(links[of[update]].T)
        found.p_values[at], found.strengths[at] = p_values[update], outcomes.values[update]

        removing = np.flatnonzero(separates & (position == first[of]))
        source, target, lag = links[of[removing]].T
        now = lag == 0
        found.linked[source, target, lag] = False
        found.linked[target[now], source[now], 0] = False
        found.p_values[target[now], source[now], 0] = found.p_values[source[now], target[now], 0]
        if sets.shape[1]:
            for i, j, tau, given in zip(*map(np.ndarray.tolist, (source, target, lag, sets[removing])), strict=True):
                found.separations[i, tau, j] = tuple(given)
                if tau == 0:
                    found.separations[j, 0, i] = tuple(given)
        return first < np.iinfo(np.int64).max
