"""Pairs of variables that a search never tests: required edges, whose ends are neighbours at every level, and gaps
(forbidden edges), which are removed before level 0. pcalg calls them ``fixedEdges`` and ``fixedGaps``."""

import dataclasses
import hashlib

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class FixedPairs:
    """Required and forbidden edges: (k, 2) int32 distinct pairs i < j each, ascending; no pair is in both."""

    required: np.ndarray
    forbidden: np.ndarray

    def __len__(self) -> int:
        return len(self.required) + len(self.forbidden)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FixedPairs):
            return NotImplemented
        return np.array_equal(self.required, other.required) and np.array_equal(self.forbidden, other.forbidden)

    @property
    def digest(self) -> bytes:
        digest = hashlib.sha256(b"fixed pairs")
        for pairs in (self.required, self.forbidden):
            digest.update(len(pairs).to_bytes(8, "little"))
            digest.update(np.ascontiguousarray(pairs, np.int32).data)
        return digest.digest()

    def apply(self, adjacency: np.ndarray) -> None:
        write(adjacency, self.forbidden, False)
        write(adjacency, self.required, True)

    def broken_by(self, adjacency: np.ndarray) -> np.ndarray:
        """Return the fixed pairs, (k, 2), that a (p, p) bool adjacency matrix contradicts."""
        missing = self.required[~adjacency[tuple(self.required.T)]]
        return np.concatenate([missing, self.forbidden[adjacency[tuple(self.forbidden.T)]]])

    def without_tests(self, degrees: np.ndarray) -> np.ndarray:
        """Return which variables have only required edges, (p,) bool, from the (p,) degrees."""
        return degrees <= np.bincount(self.required.reshape(-1), minlength=len(degrees))

    def most_tested_degree(self, degrees: np.ndarray) -> int:
        """Return the largest degree among variables with an edge to test, which decides when a search ends."""
        return int(degrees[~self.without_tests(degrees)].max(initial=0))


def sorted_pairs(pairs: np.ndarray) -> np.ndarray:
    """Convert pairs in any order to (k, 2) int32 distinct pairs i < j, ascending."""
    pairs = np.sort(np.asarray(pairs, np.int32).reshape(-1, 2), axis=1)
    return np.unique(pairs, axis=0) if len(pairs) else pairs


def write(matrix: np.ndarray, pairs: np.ndarray, value: object) -> None:
    """Write a value into the cells [i, j] and [j, i] of a matrix for (k, 2) pairs."""
    i, j = pairs.T
    matrix[i, j] = matrix[j, i] = value
