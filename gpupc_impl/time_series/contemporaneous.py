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


@dataclasses.dataclass(frozen=True, eq=False)
class Links:
    """Links of which each has its own tests: (k,) source, target and lag."""

    source: np.ndarray
    target: np.ndarray
    lag: np.ndarray

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, part: np.ndarray) -> Links:
        return Links(self.source[part], self.target[part], self.lag[part])

    @property
    def at(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.source, self.target, self.lag

    def batch(self, sets: np.ndarray) -> Batch:
        """Return the tests of each link given each of its (k, sets, size) sets."""
        repeated = (np.repeat(each, sets.shape[1]).astype(np.int32) for each in (self.source, self.lag, self.target))
        return Batch(*repeated, sets.reshape(len(self) * sets.shape[1], sets.shape[2]).astype(np.int32))


class SkeletonPhase:
    """The phase; `run` makes it.

    Attributes:
        linked: (N, N, tau_max + 1) bool: the links that remain.
        p_values, strengths: (N, N, tau_max + 1): the largest p-value of each link, and the statistic of its test.
        separations: the sets that removed links.
        tests: the number of tests.

    Args:
        linked: the links at first.
        one_by_one: whether a chunk holds one set, for a test so slow that none is to be made in vain.
    """

    def __init__(self, test: LaggedTest, linked: np.ndarray, parents: Parents, alpha: float, one_by_one: bool):
        self._test, self._parents, self._alpha, self._one_by_one = test, parents, alpha, one_by_one
        self.linked, self.separations, self.tests = linked.copy(), Separations(), 0
        self.p_values, self.strengths = np.where(linked, 0.0, 1.0), np.zeros(linked.shape)
        self._least = np.full(linked.shape, np.inf)  # the least absolute statistic of each link
        self._sort_neighbours()

    def run(self, max_conds_dim: int) -> None:
        """Test with sets of up to so many contemporaneous conditions."""
        for size in range(max_conds_dim + 1):
            links = Links(*np.nonzero(self.linked))
            links = links[self._others(links) >= size]
            if not len(links):
                return
            is_second = (links.lag == 0) & (links.source > links.target)
            self._test_links(links[~is_second], size)
            links = links[is_second]
            self._test_links(links[self.linked[links.at]], size)
            self._sort_neighbours()

    def _sort_neighbours(self) -> None:
        """List the contemporaneous neighbours of each variable, strongest first; of equal ones, the smaller first."""
        linked = self.linked[:, :, 0].T
        self._counts = linked.sum(axis=1)
        order = np.argsort(np.where(linked, -self._least[:, :, 0].T, np.inf), axis=1, kind="stable")
        # Neighbours that no test was made of have infinite strength, and others none.
        order = np.take_along_axis(order, np.argsort(~np.take_along_axis(linked, order, 1), axis=1, kind="stable"), 1)
        self._neighbours = order[:, : int(self._counts.max(initial=0))]

    def _others(self, links: Links) -> np.ndarray:
        """Return the numbers of neighbours of the targets, without the sources."""
        return self._counts[links.target] - (links.lag == 0)

    def _test_links(self, links: Links, size: int) -> None:
        """Test each link given sets of one size, until one separates or all are tested."""
        first, chunk = 0, 1
        while len(links):
            others = self._others(links)
            chunk = max(1, min(chunk, TESTS_A_CHUNK // len(links)))
            groups = []
            for count in np.unique(others).tolist():
                combinations = list(itertools.islice(itertools.combinations(range(count), size), first, first + chunk))
                places = np.array(combinations, np.int64).reshape(len(combinations), size)
                these = np.flatnonzero(others == count)
                groups.append((these, self._sets(links[these], places)))
            outcomes = run_joined(self._test, [links[these].batch(sets) for these, sets in groups], self._parents)
            separated = np.zeros(len(links), bool)
            for (these, sets), outcome in zip(groups, outcomes, strict=True):
                separated[these] = self._record(links[these], sets, outcome)
            numbers = {count: math.comb(count, size) for count in np.unique(others).tolist()}
            first += chunk
            has_more = np.array([numbers[count] > first for count in others.tolist()], bool)
            links = links[~separated & has_more]
            chunk = 1 if self._one_by_one else 2 * chunk

    def _sets(self, links: Links, places: np.ndarray) -> np.ndarray:
        """Return (links, sets, size) neighbours of the targets at (sets, size) places, not counting the sources."""
        neighbours = self._neighbours[links.target]
        is_source = (neighbours == links.source[:, None]) & (links.lag == 0)[:, None]
        own = np.where(is_source.any(axis=1), is_source.argmax(axis=1), neighbours.shape[1])
        shifted = places[None] + (places[None] >= own[:, None, None])
        return neighbours[np.arange(len(links))[:, None, None], shifted]

    def _record(self, links: Links, sets: np.ndarray, outcome: Outcomes) -> np.ndarray:
        """Write down the tests of each link up to the first that separates; return which links are separated."""
        shape = sets.shape[:2]
        values, p_values = outcome.values.reshape(shape), outcome.p_values.reshape(shape)
        independent = ~(p_values <= self._alpha)
        separated = independent.any(axis=1)
        first = np.where(separated, independent.argmax(axis=1), shape[1])
        made = np.arange(shape[1]) <= first[:, None]
        self.tests += int(made.sum())
        at, row = links.at, np.arange(len(links))
        self._least[at] = np.minimum(self._least[at], np.where(made, np.abs(values), np.inf).min(axis=1))
        considered = np.where(made, p_values, -1.0)
        largest = shape[1] - 1 - considered[:, ::-1].argmax(axis=1)  # the last of equal ones
        update = considered[row, largest] >= self.p_values[at]
        self.p_values[at] = np.where(update, considered[row, largest], self.p_values[at])
        self.strengths[at] = np.where(update, values[row, largest], self.strengths[at])
        gone = links[separated]
        self.linked[gone.at] = False
        now = gone.lag == 0
        mirrored = gone.target[now], gone.source[now], gone.lag[now]
        self.linked[mirrored] = False
        self.p_values[mirrored] = self.p_values[gone[now].at]
        if sets.shape[2]:
            chosen = sets[separated, first[separated]].tolist()
            for source, target, lag, given in zip(*map(np.ndarray.tolist, gone.at), chosen, strict=True):
                self.separations[source, lag, target] = tuple(given)
                if lag == 0:
                    self.separations[target, 0, source] = tuple(given)
        return separated


def run_joined(test: LaggedTest, batches: list[Batch], parents: Parents | None) -> list[Outcomes]:
    """Make the tests of batches with sets of one size as one batch."""
    names = ("sources", "lags", "targets", "sets")
    joined = Batch(*(np.concatenate([getattr(each, name) for each in batches]) for name in names))
    outcomes = test.run(joined, parents)
    ends = np.cumsum([len(each) for each in batches])[:-1]
    parts = zip(np.split(outcomes.values, ends), np.split(outcomes.p_values, ends), strict=True)
    return [Outcomes(*part) for part in parts]
