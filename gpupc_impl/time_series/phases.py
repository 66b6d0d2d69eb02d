"""The phases of PCMCI and PCMCI+ that make tests, in batches; `reference` has the same phases written plainly.

- PC1 (Runge et al. 2019, Algorithm S1; Runge 2020, Algorithm 1): for each variable Y, the lagged variables are
  candidates for parents. Round p tests each candidate given the p strongest others, and removes it if the two are
  independent; candidates are then sorted by the least absolute value of their statistic so far.
- MCI (Runge et al. 2019, Algorithm S3) tests every link given the parents of both ends.
- The skeleton phase of PCMCI+ (Runge 2020, Algorithm 2) makes MCI tests with contemporaneous conditions. Round p tests
  each link given every set of p contemporaneous neighbours of its target, until one separates, and removes a
  contemporaneous link as soon as it is separated in one of its two directions. Links with a lag do not depend on what
  the round removes, nor do contemporaneous links from the smaller variable to the larger one; all of these are tested
  together, and then the other directions of the contemporaneous links that remain. The sets of a link are tested in
  chunks of growing size; what a chunk tests beyond the set that separates is dropped.
- The votes of PCMCI+ count which sets separate the ends of an unshielded triple (Runge 2020, Algorithm S3).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.time_series.batches import Batch, LaggedTest, Outcomes, Parents

Separations = dict[tuple[int, int, int], tuple[int, ...]]
"""By source, lag (not negative) and target: the contemporaneous variables that separate them, if there are any. Both
directions of a contemporaneous link have an entry."""

Triple = tuple[int, int, int, int]
"""i, tau (not negative), k and j (see `orientation`)."""

TESTS_A_CHUNK = 1 << 20

MOST_NEIGHBOURS = 24
"""Upper bound on the contemporaneous neighbours of a variable whose subsets are all tested for colliders."""


class LaggedPhase(NamedTuple):
    """What PC1 found: the remaining candidates, the p-value and the statistic of the test that removed each link,
    (N, N, tau_max + 1), which are 1 and 0 where none did or they are not kept, and the number of tests."""

    parents: Parents
    p_values: np.ndarray
    strengths: np.ndarray
    tests: int


def lagged_phase(
    test: LaggedTest, alpha: float, tau_min: int, max_conds_dim: int, max_combinations: int, keeps_outcomes: bool
) -> LaggedPhase:
    """Find a superset of the lagged parents of every variable at one significance level (PC1).

    Args:
        tau_min: the smallest lag of a candidate, at least 1.
        max_conds_dim: the largest number of conditions.
        max_combinations: how many sets of conditions a round tries for a candidate, in lexicographic order.
        keeps_outcomes: whether the p-values and the statistics are wanted, without which tests are faster.
    """
    n, tau_max = test.series.n_variables, test.series.tau_max
    # By target, source and lag, so that memory is written in the order of the candidates.
    p_values, strengths, tests = np.ones((n, n, tau_max + 1)), np.zeros((n, n, tau_max + 1)), 0
    # The candidates of each target as columns, by variable and lag, which is their order if equally strong.
    own = (np.arange(tau_min, tau_max + 1) * n + np.arange(n)[:, None]).astype(np.int32).ravel()
    column, least, counts = np.tile(own, n), np.full(n * len(own), np.inf), np.full(n, len(own))
    order = np.arange(len(column))
    ended: list[tuple[np.ndarray, ...]] = []  # candidates of targets without further tests: target, column, strength
    size = 0
    while len(column):
        starts, target = np.append(0, np.cumsum(counts)), np.repeat(np.arange(n, dtype=np.int32), counts)
        remain, later = np.ones(len(column), bool), _Combinations(size, 1)
        for combination in range(max_combinations):
            if combination == 0:  # The strongest others are the parents of a target that its tests share.
                at: Any = np.s_[:]
                given, parents = np.empty((len(column), 0), np.int32), Parents(starts, column[order], size, 0, 0, True)
            elif len(at := np.flatnonzero(remain)):
                place, by_strength = np.empty_like(order), np.empty((n, counts.max()), np.int32)
                place[order] = np.arange(len(order)) - starts[target]
                by_strength[target, place] = column
                others, parents = counts[target[at]] - 1, None
                owner, _, given = _sets(by_strength, target[at], others, place[at], later, 1)
                at = at[owner]
            of, lag = target[at], column[at] // np.int32(n)
            if not len(of):
                break
            source = column[at] - lag * np.int32(n)
            outcomes = test.run(Batch(source, lag, of, given), parents, None if keeps_outcomes else alpha)
            tests += len(of)
            least[at] = np.minimum(least[at], np.abs(outcomes.values))
            separates = ~(outcomes.p_values <= alpha)
            remain[at] = ~separates
            if keeps_outcomes:
                link = of[separates], source[separates], lag[separates]
                p_values[link], strengths[link] = outcomes.p_values[separates], outcomes.values[separates]
        size += 1
        left = counts - np.bincount(target[~remain], minlength=n)
        goes_on = (left > size) & (size <= max_conds_dim)
        of_next = np.repeat(goes_on, counts)
        ends, stays = np.flatnonzero(remain & ~of_next), np.flatnonzero(remain & of_next)
        ended.append((target[ends], column[ends], least[ends]))
        column, least, counts = column[stays], least[stays], np.where(goes_on, left, 0)
        order = _strongest_first(least, counts)
    target, column, least = map(np.concatenate, zip(*ended, strict=True))
    by_target, counts = np.argsort(target, kind="stable"), np.bincount(target, minlength=n)
    columns = column[by_target][_strongest_first(least[by_target], counts)]
    parents = Parents(np.append(0, np.cumsum(counts)), columns)
    return LaggedPhase(parents, p_values.transpose(1, 0, 2), strengths.transpose(1, 0, 2), tests)


def _strongest_first(strengths: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the order by target, as listed, and descending strength; equally strong candidates keep their order."""
    starts, counts = (np.cumsum(counts) - counts)[counts > 0], counts[counts > 0]
    present = np.arange(counts.max(initial=0)) < counts[:, None]
    table = np.full(present.shape, np.inf)
    table[present] = -strengths
    # NumPy's default sort is several times as fast as its stable one, which ties need.
    order = (np.argsort(table, axis=1) + starts[:, None])[present]
    in_order = strengths[order]
    if (in_order[1:] == in_order[:-1]).any():
        order = (np.argsort(table, axis=1, kind="stable") + starts[:, None])[present]
    return np.asarray(order)


def mci(test: LaggedTest, parents: Parents, tau_min: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Test every link given the parents of both ends, with those of the source moved by its lag.

    Returns (N, N, tau_max + 1) p-values and statistics, 1 and 0 where there is no test, and the number of tests.
    """
    n, tau_max = test.series.n_variables, test.series.tau_max
    wanted = np.ones((n, tau_max + 1, n), bool)  # by target, lag and source
    wanted[:, :tau_min] = False
    # The two tests of a contemporaneous pair are one if both ends contribute all their parents, and masks act alike.
    masks_both = ("x" in test.series.mask_type) == ("y" in test.series.mask_type)
    is_symmetric = parents.most_of_target == parents.most_of_source and masks_both
    wanted[:, 0] &= ~np.tri(n, dtype=bool) if is_symmetric else ~np.eye(n, dtype=bool)
    indices = np.indices(wanted.shape, np.int32, sparse=True)
    target, lag, source = (np.broadcast_to(each, wanted.shape)[wanted] for each in indices)
    outcomes = test.run(Batch(source, lag, target, np.empty((len(source), 0), np.int32)), parents)
    p_values, strengths = np.ones((n, n, tau_max + 1)), np.zeros((n, n, tau_max + 1))
    for matrix, of_tests in ((p_values, outcomes.p_values), (strengths, outcomes.values)):
        matrix.transpose(1, 2, 0)[wanted] = of_tests
        if is_symmetric:
            now = matrix[:, :, 0]
            now[...] = np.where(np.tri(n, dtype=bool), now, now.T)
    return p_values, strengths, len(source)


@dataclasses.dataclass(eq=False)
class Skeleton:
    """What the skeleton phase found: the links that remain, the largest p-value of each link and the statistic of its
    test, (N, N, tau_max + 1) each, the sets that removed links, and the number of tests."""

    linked: np.ndarray
    p_values: np.ndarray
    strengths: np.ndarray
    separations: Separations
    tests: int


def skeleton(test: LaggedTest, linked: np.ndarray, parents: Parents, alpha: float, max_conds_dim: int) -> Skeleton:
    """Test links, (N, N, tau_max + 1) bool, with sets of up to so many contemporaneous conditions."""
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
        # Neighbours that no test was made of have infinite strength.
        self._neighbours = np.argsort(np.where(linked, -self._least[:, :, 0].T, np.inf), axis=1, kind="stable")
        self._place_of = np.argsort(self._neighbours, axis=1)

    def others(self, links: np.ndarray) -> np.ndarray:
        """Return the numbers of neighbours of the targets, without the sources."""
        return np.asarray(self._counts[links[:, 1]] - (links[:, 2] == 0))

    def test_links(self, links: np.ndarray, size: int) -> None:
        """Test each link given sets of one size, until one separates or all are tested."""
        first, chunk, combinations = 0, 1, _Combinations(size)
        while len(links):
            chunk = max(1, min(chunk, TESTS_A_CHUNK // len(links)))
            source, target, lag = links.T
            own = np.where(lag == 0, self._place_of[target, source], len(self._neighbours))
            of, position, sets = _sets(self._neighbours, target, self.others(links), own, combinations, chunk)
            source, target, lag = links[of].astype(np.int32).T
            outcomes = self._test.run(Batch(source, lag, target, sets), self._parents)
            separated = self._record(links, of, position, sets, outcomes)
            first += chunk
            links = links[~separated & (_number_of_sets(self.others(links), size) > first)]
            chunk = 2 * chunk if self._test.is_speculative else 1

    def _record(
        self, links: np.ndarray, of: np.ndarray, position: np.ndarray, sets: np.ndarray, outcomes: Outcomes
    ) -> np.ndarray:
        """Write down the tests of each link up to the first that separates; return which links are separated."""

        def at(tests: np.ndarray) -> tuple[np.ndarray, ...]:
            return tuple(links[of[tests]].T)

        found, values, p_values = self._found, outcomes.values, outcomes.p_values
        separates = ~(p_values <= self._alpha)
        first = np.full(len(links), len(of))
        np.minimum.at(first, of[separates], position[separates])
        made = np.flatnonzero(position <= first[of])
        found.tests += len(made)
        np.minimum.at(self._least, at(made), np.abs(values[made]))
        most = np.zeros(len(links))
        np.maximum.at(most, of[made], p_values[made])
        largest = made[p_values[made] == most[of[made]]]  # of each link, by position: of equal ones, the last is kept
        update = largest[p_values[largest] >= found.p_values[at(largest)]]
        found.p_values[at(update)], found.strengths[at(update)] = p_values[update], values[update]

        removing = np.flatnonzero(separates & (position == first[of]))
        source, target, lag = at(removing)
        now = lag == 0
        found.linked[source, target, lag] = False
        found.linked[target[now], source[now], 0] = False
        found.p_values[target[now], source[now], 0] = found.p_values[source[now], target[now], 0]
        if sets.shape[1]:
            for i, j, tau, given in zip(*map(np.ndarray.tolist, (source, target, lag, sets[removing])), strict=True):
                found.separations[i, tau, j] = tuple(given)
                if tau == 0:
                    found.separations[j, 0, i] = tuple(given)
        return first < len(of)


def _number_of_sets(counts: np.ndarray, size: int) -> np.ndarray:
    """Return how many sets of one size so many variables have, up to a number that no search reaches."""
    of_count = [min(math.comb(count, size), 1 << 62) for count in range(counts.max(initial=0) + 1)]
    return np.asarray(np.array(of_count)[counts])


class _Combinations(dict[int, Iterator[tuple[int, ...]]]):
    """The places of the members of sets of one size among so many neighbours, in order, from set `first` on."""

    def __init__(self, size: int, first: int = 0):
        self.size, self.first = size, first

    def __missing__(self, count: int) -> Iterator[tuple[int, ...]]:
        self[count] = itertools.islice(itertools.combinations(range(count), self.size), self.first, None)
        return self[count]


def _sets(
    neighbours: np.ndarray, of: np.ndarray, counts: np.ndarray, own: np.ndarray, later: _Combinations, chunk: int
) -> tuple[np.ndarray, ...]:
    """Return sets of one size of neighbours of (k,) variables `of`, for each the next chunk of them: which of the k
    each set belongs to, its place in the chunk, and the (sets, size) int32 members. Later calls may
    leave variables out, and add none.

    Args:
        neighbours: the neighbours of each variable of the series, in the order of the sets.
        counts, own: (k,) how many neighbours are in sets, and the place of one that is not.
    """
    parts = []
    for count in np.unique(counts).tolist():
        these = np.flatnonzero(counts == count)
        combinations = list(itertools.islice(later[count], chunk))
        places = np.array(combinations, np.int64).reshape(len(combinations), later.size)
        chosen = places + (places >= own[these, None, None])
        sets = neighbours[of[these, None, None], chosen].reshape(len(these) * len(places), later.size)
        parts.append((np.repeat(these, len(places)), np.tile(np.arange(len(places)), len(these)), sets))
    owner, position, sets = map(np.concatenate, zip(*parts, strict=True))
    return owner, position, sets.astype(np.int32)


class Votes:
    """Which sets of contemporaneous neighbours separate the ends of triples.

    The sets are those of the neighbours of Y and, for a contemporaneous X, of X.
    """

    def __init__(self, test: LaggedTest, linked: np.ndarray, parents: Parents, alpha: float, triples: Iterable[Triple]):
        now = linked[:, :, 0]
        counts, neighbours = now.sum(axis=1), np.argsort(~now, axis=1, kind="stable")
        self._place_of = np.argsort(neighbours, axis=1)
        pairs = dict.fromkeys((i, tau, j) for i, tau, _, j in triples)
        self._numbers, self.tests = {pair: number for number, pair in enumerate(pairs)}, 0
        source, lag, target = np.array(list(pairs), np.int32).reshape(-1, 3).T
        is_now = np.flatnonzero(lag == 0)
        pair, end = np.append(np.arange(len(pairs)), is_now), np.append(target, source[is_now])
        if len(crowded := end[counts[end] > MOST_NEIGHBOURS]):
            raise InvalidProblem(
                f"variable {test.series.names[crowded[0]]!r} has {counts[crowded[0]]} contemporaneous neighbours, and "
                f"this rule tests all their subsets; more than {MOST_NEIGHBOURS} take too long: lower alpha, or choose "
                "collider_rule='none'"
            )
        # How many sets of each pair separate, and how many of these have each neighbour of Y, by its place.
        self._separating = np.zeros(len(pairs), np.int64)
        self._having = np.zeros((len(pairs), MOST_NEIGHBOURS), np.int64)
        for size in range(counts[end].max(initial=-1) + 1):
            first, left, combinations = 0, np.arange(len(end)), _Combinations(size)
            while len(left := left[_number_of_sets(counts[end[left]], size) > first]):
                chunk, nowhere = max(1, TESTS_A_CHUNK // len(left)), np.full(len(left), len(now))
                of, _, sets = _sets(neighbours, end[left], counts[end[left]], nowhere, combinations, chunk)
                first += chunk
                of_pair = pair[left[of]]
                # Sets of neighbours of X that are neighbours of Y, too, are among those of Y.
                is_new = (left[of] < len(pairs)) | ~now[target[of_pair][:, None], sets].all(axis=1)
                of_pair, sets = of_pair[is_new], sets[is_new]
                if not len(of_pair):
                    continue
                outcomes = test.run(Batch(source[of_pair], lag[of_pair], target[of_pair], sets), parents, alpha)
                self.tests += len(of_pair)
                separates = ~(outcomes.p_values <= alpha)
                of_pair, sets = of_pair[separates], sets[separates]
                self._separating += np.bincount(of_pair, minlength=len(pairs))
                test_of, member = np.nonzero(now[target[of_pair][:, None], sets])
                at = of_pair[test_of]
                np.add.at(self._having, (at, self._place_of[target[at], sets[test_of, member]]), 1)

    def of(self, triple: Triple) -> tuple[int, int]:
        """Return the number of sets that separate the ends of a triple, and how many of them contain its middle."""
        i, tau, k, j = triple
        number = self._numbers[i, tau, j]
        return int(self._separating[number]), int(self._having[number, self._place_of[j, k]])
