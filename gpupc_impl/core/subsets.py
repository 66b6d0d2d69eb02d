"""Numbered subsets of lists of candidates, for searches that draw conditioning sets from lists of their own."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

MOST_SUBSETS = 2**62  # the upper bound on numbers of subsets, which have 64 bits; larger ones count as this one


@dataclasses.dataclass(frozen=True, eq=False)
class Subsets:
    """All subsets of one size of the candidates of m pairs, numbered from 0 by pair and lexicographic order."""

    pairs: np.ndarray  # (m, 2) int32 variables; the same pair may occur with several lists
    starts: np.ndarray  # (m + 1,) int64: pair number q has ``candidates[starts[q]:starts[q + 1]]``
    candidates: np.ndarray  # int32 variables, ascending within a pair and without the pair's own
    size: int

    @classmethod
    def of_sets(cls, pairs: np.ndarray, sets: np.ndarray) -> Subsets:
        """Make the subsets of (k, 2) pairs that have one (k, size) set each, with members in any order."""
        k, size = sets.shape
        starts = np.arange(k + 1, dtype=np.int64) * size
        return cls(pairs.astype(np.int32), starts, np.sort(sets, axis=1).astype(np.int32).reshape(-1), size)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """The (m,) numbers of candidates."""
        return np.diff(self.starts)

    @functools.cached_property
    def binomials(self) -> np.ndarray:
        """The (size + 1, n + 1) int64 binomials C(m, k) at [k, m], up to the longest list; at most `MOST_SUBSETS`."""
        longest = int(self.lengths.max(initial=0))
        table = np.zeros((self.size + 1, longest + 1), np.int64)
        table[0] = 1
        for k in range(1, self.size + 1):
            for m in range(k, longest + 1):
                table[k, m] = min(int(table[k - 1, m - 1]) + int(table[k, m - 1]), MOST_SUBSETS)
        return table

    @functools.cached_property
    def total(self) -> int:
        lengths, counts = np.unique(self.lengths, return_counts=True)
        return sum(math.comb(n, self.size) * count for n, count in zip(lengths.tolist(), counts.tolist(), strict=True))

    @functools.cached_property
    def ends(self) -> np.ndarray:
        """The (m,) int64 numbers that follow the last subset of each pair, for a `total` up to `MOST_SUBSETS`."""
        return np.cumsum(self.binomials[self.size, self.lengths])

    def owners(self, numbers: np.ndarray) -> np.ndarray:
        """Return which of the m pairs the subsets with these numbers belong to."""
        return np.searchsorted(self.ends, numbers, side="right")

    def members(self, numbers: np.ndarray, owners: np.ndarray) -> np.ndarray:
        """Return the (k, size) members, ascending, of the subsets with these numbers."""
        before = self.ends[owners] - self.binomials[self.size, self.lengths[owners]]
        following = self.ends[owners] - 1 - numbers if self.size else before
        lengths, starts = self.lengths[owners], self.starts[owners]
        result = np.empty((len(numbers), self.size), np.int32)
        for t in range(self.size):  # The combinatorial number system (Knuth, 7.2.1.3) counts those that follow.
            k = self.size - t
            place = np.searchsorted(self.binomials[k], following, side="right") - 1
            following = following - self.binomials[k, place]
            result[:, t] = self.candidates[starts + lengths - 1 - place]
        return result


def concatenated(lists: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the (m + 1,) int64 starts of m lists of variables, and all of them in one int32 array."""
    starts = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(each) for each in lists], out=starts[1:])
    return starts, np.concatenate([np.empty(0, np.int32), *lists]).astype(np.int32)
