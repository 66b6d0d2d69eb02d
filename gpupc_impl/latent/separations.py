"""Separating sets that do not depend on the order of the variables, and scans for them. A search keeps the first set
that separates a pair, which another order of the columns changes. Here all sets of the smallest size count. Whether a
variable between both ends is a collider is read from their union, as andrey-core does; where a single set is needed,
because tests are made given it, it is the one with the largest p-value. Only if several p-values are exactly equal, the
first of these sets by the variables' indexes is taken."""

from __future__ import annotations

import dataclasses
import functools

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

    @functools.cached_property
    def owners(self) -> np.ndarray:
        """(c,) the list of each candidate."""
        return np.repeat(np.arange(len(self.pairs)), np.diff(self.starts))

    def where(self, some: np.ndarray) -> Questions:
        """Return some of the lists, by index or (m,) bool."""
        numbers = np.flatnonzero(some) if some.dtype == bool else some
        return Questions(self.pairs[numbers], *gathered(self.starts, self.candidates, numbers))

    def subsets(self, size: int) -> Subsets:
        return Subsets(self.pairs.astype(np.int32), self.starts, self.candidates.astype(np.int32), size)

    def allowed(self, tiers: np.ndarray | None, but: np.ndarray | None = None) -> Questions:
        """Return lists without the pairs' own variables, those that tiers exclude, and one more of each list, (m,)."""
        ends = self.pairs[self.owners]
        kept = (self.candidates[:, None] != ends).all(axis=1)
        if but is not None:
            kept &= self.candidates != but[self.owners]
        return self.only(kept & may_be_members(tiers, ends, self.candidates[:, None])[:, 0])

    def only(self, kept: np.ndarray) -> Questions:
        """Return the lists with some of their candidates, (c,) bool."""
        starts = np.concatenate([[0], np.cumsum(kept)])[self.starts]
        return Questions(self.pairs, starts, self.candidates[kept])


class Separations:
    """The separating sets of pairs that are not adjacent, found when they are first asked for. For a pair that the
    search removed at a level, they are sought among the neighbours of both ends at that level. For pairs that were
    removed later, `search` finds them. `as_found` keeps the sets that the search found, for tests whose answers depend
    on the order of the variables anyway, or take too long."""

    def __init__(self, skeleton: Skeleton, tests: IndependenceTests, problem: Problem, as_found: bool):
        self.tests, self.problem, self._skeleton, self._as_found = tests, problem, skeleton, as_found
        self._p, self._edges = problem.n_variables, skeleton.edges
        self._in_any = np.empty(0, np.int64)  # pair * p + member, ascending, for all sets of the smallest size
        self._of_one = np.empty(0, np.int64)  # pairs whose sets of one variable are not listed, since they are many
        self._keys, self._starts, self._members = np.empty(0, np.int64), np.zeros(1, np.int64), np.empty(0, np.int64)

    def _keys_of(self, pairs: np.ndarray) -> np.ndarray:
        return np.sort(pairs, axis=1).astype(np.int64) @ [self._p, 1]

    def may_be_removed(self, pairs: np.ndarray) -> np.ndarray:
        """Return which of (k, 2) pairs background knowledge does not require to be edges, (k,) bool."""
        fixed = self.problem.fixed
        required = np.empty((0, 2), np.int64) if fixed is None else fixed.required
        return ~np.isin(self._keys_of(pairs), self._keys_of(required))

    def search(self, questions: Questions, most: int | None = None) -> np.ndarray:
        """Record the smallest separating sets, of up to `most` members (None: any), that background knowledge allows;
        returns (k, 2) pairs i < j."""
        questions = questions.where(self.may_be_removed(questions.pairs)).allowed(self.problem.tiers)
        longest = int(np.diff(questions.starts).max(initial=0))
        removed = [np.empty((0, 2), np.int64)]
        for size in range(min(longest, longest if most is None else most) + 1):
            if self.problem.obstacle(size) is not None or not len(questions.pairs):
                break
            questions = questions.where(np.diff(questions.starts) >= size)
            removed.append(self._search_size(questions, size))
            found = np.isin(self._keys_of(questions.pairs), self._keys_of(removed[-1]))
            questions = questions.where(~found)
        return np.concatenate(removed)

    def _search_size(self, questions: Questions, size: int) -> np.ndarray:
        """Record the sets of this size that separate pairs; returns the (k, 2) separated pairs i < j, ascending."""
        subsets, keys_of_lists = questions.subsets(size), self._keys_of(questions.pairs)
        keys, sets, values = np.empty(0, np.int64), np.empty((0, size), np.int64), np.empty(0)
        in_any = np.empty(0, np.int64)
        for first in range(0, subsets.total, BATCH):
            dependences = self.tests.dependences(subsets, first, min(first + BATCH, subsets.total))
            hits = np.flatnonzero(np.isfinite(dependences))
            owners = subsets.owners(first + hits)
            own, members = keys_of_lists[owners], subsets.members(first + hits, owners).astype(np.int64)
            in_any = distinct(np.append(in_any, own[:, None] * self._p + members))
            keys, sets = np.concatenate([keys, own]), np.concatenate([sets, members])
            values = np.concatenate([values, dependences[hits]])
            order = np.lexsort((*sets.T[::-1], values, keys))
            kept = order[np.flatnonzero(np.diff(keys[order], prepend=-1))]
            keys, sets, values = keys[kept], sets[kept], values[kept]
        self._record(keys, sets, in_any)
        return np.stack(np.divmod(keys, self._p), axis=1)

    def _record(self, keys: np.ndarray, sets: np.ndarray, in_any: np.ndarray) -> None:
        """Record the (k, size) sets with the largest p-value of k pairs, and which variables are in any set of them."""
        self._in_any = distinct(np.concatenate([self._in_any, in_any]))
        k, size = sets.shape
        keys = np.concatenate([self._keys, keys])
        starts = np.concatenate([self._starts, self._starts[-1] + size * np.arange(1, k + 1)])
        members = np.concatenate([self._members, np.sort(sets, axis=1).reshape(-1)])
        order = np.argsort(keys, kind="stable")
        self._keys = keys[order]
        self._starts, self._members = gathered(starts, members, order)

    def of(self, pairs: np.ndarray) -> Questions:
        """Return the sets of (k, 2) pairs, as the candidates of these pairs."""
        places = self._places(pairs)  # It adds to the lists that the next line reads.
        return Questions(pairs, *gathered(self._starts, self._members, places))

    def contain(self, pairs: np.ndarray, variables: np.ndarray) -> np.ndarray:
        """Return which of (k,) variables, neighbours of either end, are in any smallest set of (k, 2) pairs."""
        places = self._places(pairs)
        _, contained = find(self._in_any, self._keys[places] * self._p + variables)
        some = np.flatnonzero(find(self._of_one, self._keys[places])[1])
        contained[some] = self._members[self._starts[places[some]]] == variables[some]
        some = some[~contained[some]]
        contained[some] = self.tests.separates(pairs[some], variables[some, None])
        return contained

    def _places(self, pairs: np.ndarray) -> np.ndarray:
        keys = self._keys_of(pairs)
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
                self._find_best(level, pairs[some])
                some = some[~find(self._keys, keys[some])[1]]
            sets = members[starts[some, None] + np.arange(level)].astype(np.int64)
            self._record(keys[some], sets, (keys[some, None] * self._p + sets).reshape(-1))

    def _find_best(self, level: int, pairs: np.ndarray) -> None:
        best = self.tests.best_members(pairs) if level == 1 else None
        if best is None:
            self._search_size(self._neighbours(level, pairs).allowed(self.problem.tiers), level)
            return
        keys, sets = self._keys_of(pairs[best >= 0]), best[best >= 0, None]
        self._of_one = distinct(np.concatenate([self._of_one, keys]))
        self._record(keys, sets, np.empty(0, np.int64))

    def _neighbours(self, level: int, pairs: np.ndarray) -> Questions:
        """Return the neighbours of both ends of each pair in the graph at the start of a level."""
        wanted = np.zeros(self._p, bool)
        wanted[pairs] = True
        i, j = np.concatenate([self._edges, self._skeleton.sepsets.from_level(level)]).T
        keys = np.concatenate([(i * self._p + j)[wanted[i]], (j * self._p + i)[wanted[j]]])
        sources, targets = np.divmod(np.sort(keys), self._p)
        owners = np.concatenate([pairs, pairs[:, ::-1]])
        starts = np.searchsorted(sources, np.arange(self._p + 1))
        return Questions(owners, *gathered(starts, targets, owners[:, 0]))
