"""Separating sets that do not depend on the order of the variables, and scans for them. A search keeps the first set
that separates a pair, which another order of the columns changes. Here all sets of the smallest size count. Whether a
variable between both ends is a collider is read from their union, as andrey-core does; where a single set is needed,
because tests are made given it, it is the one with the largest p-value. Only if several p-values are exactly equal, the
first of these sets by the variables' indexes is taken."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from gpupc_impl.core.independence import IndependenceTests
from gpupc_impl.core.pairs import distinct, find, gathered
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.result import Skeleton
from gpupc_impl.core.subsets import Subsets
from gpupc_impl.core.tiers import may_be_members

BATCH = 1 << 22  # the upper bound on the tests whose results are in memory at once


@dataclasses.dataclass(frozen=True, eq=False)
class Questions:
    """Lists of candidates for the separating sets of (m, 2) pairs, as `starts` and `candidates` in `Subsets`; several
    may be of one pair. A test that is not symmetric draws the set from the neighbours of a pair's first variable."""

    pairs: np.ndarray
    starts: np.ndarray
    candidates: np.ndarray

    def where(self, some: np.ndarray) -> Questions:
        """Return some of the lists, by index or (m,) bool."""
        numbers = np.flatnonzero(some) if some.dtype == bool else some
        starts, candidates = gathered(self.starts, self.candidates, numbers)
        return Questions(self.pairs[numbers], starts, candidates)

    def subsets(self, size: int) -> Subsets:
        return Subsets(self.pairs.astype(np.int32), self.starts, self.candidates.astype(np.int32), size)

    def allowed(self, tiers: np.ndarray | None, but: np.ndarray | None = None) -> Questions:
        """Return lists without the pairs' own variables, those that tiers exclude, and one more of each list, (m,)."""
        owners = np.repeat(np.arange(len(self.pairs)), np.diff(self.starts))
        kept = (self.candidates[:, None] != self.pairs[owners]).all(axis=1)
        if but is not None:
            kept &= self.candidates != but[owners]
        kept &= may_be_members(tiers, self.pairs[owners], self.candidates[:, None])[:, 0]
        return self.only(kept)

    def only(self, kept: np.ndarray) -> Questions:
        """Return the lists with some of their candidates, (c,) bool."""
        starts = np.concatenate([[0], np.cumsum(kept)])[self.starts]
        return Questions(self.pairs, starts, self.candidates[kept])


class Found(NamedTuple):
    """The separating sets of one size of k pairs i < j, ascending: (k, size) of each pair the set with the largest
    p-value, and as `union` (u, 2) rows of the number of a pair and a variable in any of its sets of this size."""

    pairs: np.ndarray
    sets: np.ndarray
    union: np.ndarray


def best_of_size(tests: IndependenceTests, questions: Questions, size: int) -> Found:
    """Return the sets of this size that separate pairs."""
    subsets = questions.subsets(size)
    ends, of_list = np.unique(np.sort(questions.pairs, axis=1), axis=0, return_inverse=True)
    of_list = of_list.reshape(-1)
    numbers, sets, values = np.empty(0, np.int64), np.empty((0, size), np.int64), np.empty(0)
    unions = np.empty((0, 2), np.int64)
    for first in range(0, subsets.total, BATCH):
        dependences = tests.dependences(subsets, first, min(first + BATCH, subsets.total))
        hits = np.flatnonzero(np.isfinite(dependences))
        if not len(hits):
            continue
        owners = subsets.owners(first + hits)
        members = subsets.members(first + hits, owners).astype(np.int64)
        pairs = of_list[owners]
        rows = np.stack([np.repeat(pairs, size), members.reshape(-1)], axis=1)
        unions = np.unique(np.concatenate([unions, rows]), axis=0)
        numbers, sets = np.concatenate([numbers, pairs]), np.concatenate([sets, members])
        values = np.concatenate([values, dependences[hits]])
        order = np.lexsort((*sets.T[::-1], values, numbers))
        kept = order[np.flatnonzero(np.diff(numbers[order], prepend=-1))]
        numbers, sets, values = numbers[kept], sets[kept], values[kept]
    unions[:, 0] = np.searchsorted(numbers, unions[:, 0])
    return Found(ends[numbers], sets, unions)


class Separations:
    """The separating sets of pairs that are not adjacent, found when they are first asked for. For a pair that the
    search removed at a level, they are sought among the neighbours of both ends at that level. For pairs that were
    removed later, `search` finds them. `as_found` keeps the sets that the search found, for tests whose answers depend
    on the order of the variables anyway, or take too long."""

    def __init__(self, skeleton: Skeleton, tests: IndependenceTests, problem: Problem, as_found: bool):
        self._skeleton, self._tests, self._problem, self._as_found = skeleton, tests, problem, as_found
        self._p, self._edges = problem.n_variables, skeleton.edges
        self._in_any = np.empty(0, np.int64)  # pair * p + member, ascending, for all sets of the smallest size
        self._of_one = np.empty(0, np.int64)  # pairs whose sets of one variable are not listed, since they are many
        self._keys, self._starts, self._members = np.empty(0, np.int64), np.zeros(1, np.int64), np.empty(0, np.int64)

    def may_be_removed(self, pairs: np.ndarray) -> np.ndarray:
        """Return which of (k, 2) pairs i < j background knowledge does not require to be edges, (k,) bool."""
        fixed = self._problem.fixed
        required = np.empty((0, 2), np.int64) if fixed is None else fixed.required.astype(np.int64)
        return ~np.isin(pairs @ [self._p, 1], required @ [self._p, 1])

    def search(self, questions: Questions, most: int | None = None) -> np.ndarray:
        """Record the smallest separating sets, of up to `most` members (None: any); returns (k, 2) pairs i < j."""
        longest = int(np.diff(questions.starts).max(initial=0))
        removed = [np.empty((0, 2), np.int64)]
        for size in range(min(longest, longest if most is None else most) + 1):
            if self._problem.obstacle(size) is not None or not len(questions.pairs):
                break
            questions = questions.where(np.diff(questions.starts) >= size)
            found = best_of_size(self._tests, questions, size)
            self._record(found)
            removed.append(found.pairs)
            keys = np.sort(questions.pairs, axis=1) @ [self._p, 1]
            questions = questions.where(~np.isin(keys, found.pairs @ [self._p, 1]))
        return np.concatenate(removed)

    def _record(self, found: Found) -> None:
        pairs, sets, union = found
        in_any = (pairs.astype(np.int64) @ [self._p, 1])[union[:, 0]] * self._p + union[:, 1]
        self._in_any = distinct(np.concatenate([self._in_any, in_any]))
        k, size = sets.shape
        keys = np.concatenate([self._keys, pairs.astype(np.int64) @ [self._p, 1]])
        starts = np.concatenate([self._starts, self._starts[-1] + size * np.arange(1, k + 1)])
        members = np.concatenate([self._members, np.sort(sets, axis=1).reshape(-1)])
        order = np.argsort(keys, kind="stable")
        self._keys = keys[order]
        self._starts, self._members = gathered(starts, members, order)

    def of(self, pairs: np.ndarray) -> Questions:
        """Return the sets of (k, 2) pairs, as the candidates of these pairs."""
        places = self._places(pairs)
        starts, members = gathered(self._starts, self._members, places)
        return Questions(pairs, starts, members)

    def contain(self, pairs: np.ndarray, variables: np.ndarray) -> np.ndarray:
        """Return which of (k,) variables, neighbours of either end, are in any smallest set of (k, 2) pairs."""
        places = self._places(pairs)
        _, contained = find(self._in_any, self._keys[places] * self._p + variables)
        some = np.flatnonzero(find(self._of_one, self._keys[places])[1])
        is_best = self._members[self._starts[places[some]]] == variables[some]
        contained[some] = is_best
        some = some[~is_best]
        contained[some] = self._tests.separates(pairs[some], variables[some, None])
        return contained

    def _places(self, pairs: np.ndarray) -> np.ndarray:
        keys = np.sort(pairs, axis=1).astype(np.int64) @ [self._p, 1]
        _, known = find(self._keys, keys)
        if not known.all():
            self._find(distinct(keys[~known]))
        return np.searchsorted(self._keys, keys)

    def _find(self, keys: np.ndarray) -> None:
        pairs = np.stack(np.divmod(keys, self._p), axis=1)
        starts, members = self._skeleton.sepsets.of(pairs)
        sizes = np.diff(starts)
        for level in np.unique(sizes).tolist():
            some = np.flatnonzero(sizes == level)
            if level and not self._as_found:
                found = self._best(level, pairs[some])
                self._record(found)
                some = some[~np.isin(keys[some], found.pairs @ [self._p, 1])]
            sets = members[starts[some, None] + np.arange(level)].astype(np.int64)
            rows = np.stack([np.repeat(np.arange(len(sets)), level), sets.reshape(-1)], axis=1)
            self._record(Found(pairs[some], sets, rows))

    def _best(self, level: int, pairs: np.ndarray) -> Found:
        members = self._tests.best_members(pairs) if level == 1 else None
        if members is None:
            return best_of_size(self._tests, self._neighbours(level, pairs).allowed(self._problem.tiers), level)
        some = members >= 0
        self._of_one = distinct(np.concatenate([self._of_one, pairs[some] @ [self._p, 1]]))
        return Found(pairs[some], members[some, None], np.empty((0, 2), np.int64))

    def _neighbours(self, level: int, pairs: np.ndarray) -> Questions:
        """Return the neighbours of both ends of each pair in the graph at the start of a level."""
        wanted = np.zeros(self._p, bool)
        wanted[pairs] = True
        i, j = np.concatenate([self._edges, self._skeleton.sepsets.from_level(level)]).T
        keys = np.concatenate([(i * self._p + j)[wanted[i]], (j * self._p + i)[wanted[j]]])
        sources, targets = np.divmod(np.sort(keys), self._p)
        owners = np.concatenate([pairs, pairs[:, ::-1]])
        starts, members = gathered(np.searchsorted(sources, np.arange(self._p + 1)), targets, owners[:, 0])
        return Questions(owners, starts, members)
