"""The phases of PCMCI and PCMCI+ that make tests, in batches; `reference` has the same phases written plainly.

- PC1 (Runge et al. 2019, Algorithm S1; Runge 2020, Algorithm 1): for each variable Y, the lagged variables are
  candidates for parents. Round p tests each candidate given the p strongest others, and removes it if the two are
  independent; candidates are then sorted by the least absolute value of their statistic so far.
- MCI (Runge et al. 2019, Algorithm S3) tests every link given the parents of both ends.
- The skeleton phase of PCMCI+ (Runge 2020, Algorithm 2) makes MCI tests with contemporaneous conditions. Round p tests
  each link given every set of p contemporaneous neighbours of its target, until one separates, and removes a
  contemporaneous link when it is separated in one direction. Lagged links, and contemporaneous ones from the smaller
  variable to the larger one, do not depend on what the round removes: they are tested together, then the other
  directions. Sets are tested in chunks of growing size; tests beyond the set that separates are dropped.
- The votes of PCMCI+ count which sets separate the ends of an unshielded triple (Runge 2020, Algorithm S3).

A link is its target and the column of its source. Matrices of links, (N, (tau_max + 1) N), have a row for each target.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from gpupc_impl.core.problem import InvalidProblem
from gpupc_impl.time_series.batches import Batch, LaggedTest, Parents

Separations = dict[tuple[int, int, int], tuple[int, ...]]
"""By source, lag (not negative) and target: the contemporaneous variables that separate them, if there are any. Both
directions of a contemporaneous link have an entry."""

Triple = tuple[int, int, int, int]  # i, tau (not negative), k and j (see `orientation`)
TESTS_A_CHUNK = 1 << 20
MOST_NEIGHBOURS = 24  # of a variable whose subsets of contemporaneous neighbours are all tested for colliders


class LaggedPhase(NamedTuple):
    """What PC1 found: the remaining candidates, matrices of the p-values and the statistics of the tests that removed
    links, which are 1 and 0 where none did or they are not kept, and the number of tests."""

    parents: Parents
    p_values: np.ndarray
    strengths: np.ndarray
    tests: int


def lagged_phase(
    test: LaggedTest, alpha: float, tau_min: int, max_conds_dim: int, max_combinations: int, keeps_outcomes: bool
) -> LaggedPhase:
    """Find a superset of the lagged parents, from lag `tau_min` > 0 on, of every variable at one level (PC1). A round
    tries up to `max_combinations` sets of conditions for a candidate, in lexicographic order. Tests take longer with
    `keeps_outcomes`, which asks for the p-values and the statistics."""
    n = test.series.n_variables
    links = n, (test.series.tau_max + 1) * n
    p_values, strengths, tests = np.ones(links), np.zeros(links), 0
    # The candidates of each target as columns, by variable and lag, which is their order if equally strong.
    own = np.arange(tau_min * n, links[1], dtype=np.int32).reshape(-1, n).T.ravel()
    column, least, counts = np.tile(own, n), np.full(n * len(own), np.inf), np.full(n, len(own))
    order = np.arange(len(column))
    size = 0
    while (goes_on := (counts > size) & (size <= max_conds_dim)).any():
        starts, target = np.append(0, np.cumsum(counts)), np.repeat(np.arange(n, dtype=np.int32), counts)
        tested, remain = np.flatnonzero(goes_on[target]), np.ones(len(column), bool)
        for combination in range(max_combinations):
            if combination == 0:  # The strongest others are the parents of a target that its tests share.
                parents: Parents | None = Parents(starts, column[order], size, 0, 0, True)
                at: Any = tested if len(tested) < len(column) else np.s_[:]  # A slice needs no copies.
                given = np.empty((len(tested), 0), np.int32)
            else:
                if combination == 1:
                    place, by_strength = np.empty_like(order), np.empty((n, counts.max()), np.int32)
                    place[order] = np.arange(len(order)) - starts[target]
                    by_strength[target, place] = column
                    sets = _Sets(by_strength, target, counts[target] - 1, place, size)
                    sets.left, chunks = tested, sets.chunks(1)
                    next(chunks)  # the first sets, which were tested above
                sets.left = sets.left[remain[sets.left]]
                if (chunk := next(chunks, None)) is None:
                    break
                (at, _, given), parents = chunk, None
            x, y = column[at], target[at]
            value, p_value = test.run(Batch(x, y, given), parents, None if keeps_outcomes else alpha)
            tests += len(x)
            least[at] = np.minimum(least[at], np.abs(value))
            separates = ~(p_value <= alpha)
            remain[at] = ~separates
            if keeps_outcomes:
                link = y[separates], x[separates]
                p_values[link], strengths[link] = p_value[separates], value[separates]
        counts = counts - np.bincount(target[~remain], minlength=n)
        column, least = column[remain], least[remain]
        order = _strongest_first(least, counts)
        size += 1
    return LaggedPhase(Parents(np.append(0, np.cumsum(counts)), column[order]), p_values, strengths, tests)


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
    """Test every link given the parents of both ends, with those of the source moved by its lag. Returns matrices of
    p-values and statistics, 1 and 0 where there is no test, and the number of tests."""
    n = test.series.n_variables
    wanted = np.ones((n, (test.series.tau_max + 1) * n), bool)
    wanted[:, : tau_min * n] = False
    # The two tests of a contemporaneous pair are one if both ends contribute all their parents, and masks act alike.
    masks_both = ("x" in test.series.mask_type) == ("y" in test.series.mask_type)
    is_symmetric = parents.most_of_target == parents.most_of_source and masks_both
    wanted[:, :n] &= ~np.tri(n, dtype=bool) if is_symmetric else ~np.eye(n, dtype=bool)
    target, column = (each.astype(np.int32) for each in np.nonzero(wanted))
    strengths, p_values = np.zeros(wanted.shape), np.ones(wanted.shape)
    strengths[wanted], p_values[wanted] = test.run(Batch(column, target, np.empty((len(column), 0), np.int32)), parents)
    if is_symmetric:
        for matrix in (strengths, p_values):
            matrix[:, :n] = np.where(np.tri(n, dtype=bool), matrix[:, :n].T, matrix[:, :n])
    return p_values, strengths, len(column)


class Skeleton:
    """What the skeleton phase found: matrices of the links that remain, of the largest p-value of each link, of the
    statistic of its test and of the least absolute statistic; the sets that removed links, and the number of tests."""

    def __init__(self, linked: np.ndarray):
        self.linked, self.p_values = linked.copy(), np.where(linked, 0.0, 1.0)
        self.strengths, self.least = np.zeros(linked.shape), np.full(linked.shape, np.inf)
        self.separations: Separations = {}
        self.tests = 0


def skeleton(test: LaggedTest, linked: np.ndarray, parents: Parents, alpha: float, max_conds_dim: int) -> Skeleton:
    """Test the links of a matrix with sets of up to so many contemporaneous conditions."""
    found, n = Skeleton(linked), len(linked)
    for size in range(max_conds_dim + 1):
        # Neighbours are listed by strength, infinite where no test was made; of equal ones, the smaller is first.
        now = found.linked[:, :n]
        neighbours = np.argsort(np.where(now, -found.least[:, :n], np.inf), axis=1, kind="stable")
        y, x = (each.astype(np.int32) for each in np.nonzero(found.linked))
        others = now.sum(axis=1)[y] - (x < n)
        if not (others >= size).any():
            break
        own = np.where(x < n, np.argsort(neighbours, axis=1)[y, x % n], n)
        is_second = (x < n) & (x > y)
        for turn in (~is_second, is_second):
            at = np.flatnonzero(turn & (others >= size) & found.linked[y, x])
            sets = _Sets(neighbours, y[at], others[at], own[at], size)
            # Each link is tested given its sets until one separates; the tests of each up to that are written down.
            for of, position, given in sets.chunks(1, 2 if test.is_speculative else 1):
                target, column = y[at[of]], x[at[of]]
                values, p_values = test.run(Batch(column, target, given), parents)
                separates = ~(p_values <= alpha)
                first = np.full(len(at), len(of))
                np.minimum.at(first, of[separates], position[separates])
                sets.left = sets.left[first[sets.left] == len(of)]
                made = np.flatnonzero(position <= first[of])
                link = target[made], column[made]
                found.tests += len(made)
                np.minimum.at(found.least, link, np.abs(values[made]))
                np.maximum.at(found.p_values, link, p_values[made])
                largest = made[p_values[made] == found.p_values[link]]  # Of equal ones, the last is kept.
                found.strengths[target[largest], column[largest]] = values[largest]
                removing = np.flatnonzero(separates & (position == first[of]))
                _remove(found, target[removing], column[removing], given[removing])
    return found


def _remove(found: Skeleton, target: np.ndarray, column: np.ndarray, given: np.ndarray) -> None:
    """Remove links, of contemporaneous ones both directions, and write down the sets that separate them."""
    n, now = len(found.linked), column < len(found.linked)
    found.linked[target, column] = found.linked[column[now], target[now]] = False
    found.p_values[column[now], target[now]] = found.p_values[target[now], column[now]]
    removed = zip(target.tolist(), column.tolist(), map(tuple, given.tolist()), strict=True)
    for j, x, separating in removed if given.shape[1] else ():  # A link without an entry has the empty set.
        found.separations[x % n, x // n, j] = separating
        if x < n:
            found.separations[j, 0, x] = separating


class _Sets:
    """The sets of one size of neighbours of (k,) variables `of`, in lexicographic order. Of each variable of the
    series, `neighbours` has the neighbours in the order of the sets. Sets have the first `counts` of them, without the
    one in the place `own`. `left` says which of the k are to have further sets."""

    def __init__(self, neighbours: np.ndarray, of: np.ndarray, counts: np.ndarray, own: np.ndarray, size: int):
        self._neighbours, self._of, self._counts, self._own, self._size = neighbours, of, counts, own, size
        self.left = np.arange(len(of))

    def chunks(self, chunk: int = TESTS_A_CHUNK, growth: int = 1) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield up to `chunk` sets of each variable, then `growth` times as many, and so on, about `TESTS_A_CHUNK` in
        all: whose each set is, its place in the chunk, and the (sets, size) int32 members."""
        later = {count: itertools.combinations(range(count), self._size) for count in np.unique(self._counts).tolist()}
        while len(self.left):
            chunk, counts = max(1, min(chunk, TESTS_A_CHUNK // len(self.left))), self._counts[self.left]
            parts = []
            for count in np.unique(counts).tolist():
                if listed := list(itertools.islice(later[count], chunk)):
                    these, places = self.left[counts == count], np.array(listed, int)
                    chosen = places + (places >= self._own[these, None, None])
                    sets = self._neighbours[self._of[these, None, None], chosen].astype(np.int32)
                    sets = sets.reshape(len(these) * len(places), self._size)
                    parts.append((np.repeat(these, len(places)), np.tile(np.arange(len(places)), len(these)), sets))
            if not parts:
                return
            of, position, sets = map(np.concatenate, zip(*parts, strict=True))
            self.left = np.unique(of)
            yield of, position, sets
            chunk *= growth


def votes(
    test: LaggedTest, linked: np.ndarray, parents: Parents, alpha: float, triples: Sequence[Triple]
) -> tuple[dict[Triple, tuple[int, int]], int]:
    """Return, by triple, how many sets of contemporaneous neighbours separate its ends, and how many of these contain
    its middle, and the number of tests. Neighbours are those of Y and, for a contemporaneous X, of X."""
    n, now = len(linked), linked[:, : len(linked)]
    counts, neighbours = now.sum(axis=1), np.argsort(~now, axis=1, kind="stable")
    place_of = np.argsort(neighbours, axis=1)
    pairs = {pair: number for number, pair in enumerate(dict.fromkeys((i, tau, j) for i, tau, _, j in triples))}
    column, target = np.array([(tau * n + i, j) for i, tau, j in pairs], np.int32).reshape(-1, 2).T
    is_now = np.flatnonzero(column < n)
    pair, end = np.append(np.arange(len(pairs)), is_now), np.append(target, column[is_now])
    if len(crowded := end[counts[end] > MOST_NEIGHBOURS]):
        raise InvalidProblem(
            f"variable {test.series.names[crowded[0]]!r} has {counts[crowded[0]]} contemporaneous neighbours, and this "
            f"rule tests all their subsets; more than {MOST_NEIGHBOURS} take too long: lower alpha, or choose "
            "collider_rule='none'"
        )
    # How many sets of each pair separate, and how many of these have each neighbour of Y, by its place.
    separating, having = np.zeros(len(pairs), np.int64), np.zeros((len(pairs), MOST_NEIGHBOURS), np.int64)
    tests = 0
    for size in range(counts[end].max(initial=-1) + 1):
        for of, _, sets in _Sets(neighbours, end, counts[end], np.full(len(end), n), size).chunks():
            # Sets of neighbours of X that are neighbours of Y, too, are among those of Y.
            is_new = (of < len(pairs)) | ~now[target[pair[of]][:, None], sets].all(axis=1)
            of_pair, sets = pair[of[is_new]], sets[is_new]
            if not len(of_pair):
                continue
            _, p_values = test.run(Batch(column[of_pair], target[of_pair], sets), parents, alpha)
            tests += len(of_pair)
            separates = ~(p_values <= alpha)
            of_pair, sets = of_pair[separates], sets[separates]
            separating += np.bincount(of_pair, minlength=len(pairs))
            test_of, member = np.nonzero(now[target[of_pair][:, None], sets])
            at = of_pair[test_of]
            np.add.at(having, (at, place_of[target[at], sets[test_of, member]]), 1)
    found = {
        (i, tau, k, j): (int(separating[pairs[i, tau, j]]), int(having[pairs[i, tau, j], place_of[j, k]]))
        for i, tau, k, j in triples
    }
    return found, tests
