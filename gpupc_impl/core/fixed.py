"""Pairs of variables that a search does not test: edges that are required, and gaps, whose edges are forbidden.

pcalg calls them ``fixedEdges`` and ``fixedGaps``. A gap is removed before level 0, so its ends are never neighbours;
the ends of a required edge are neighbours at every level. Neither is ever tested.
"""

import dataclasses
import hashlib

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class FixedPairs:
    """The required and the forbidden edges of a problem.

    Attributes:
        required, forbidden: (k, 2) int32 distinct pairs i < j, ascending; no pair is in both.
    """

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
        """sha256 over both lists."""
        digest = hashlib.sha256(b"fixed pairs")
        for pairs in (self.required, self.forbidden):
            digest.update(len(pairs).to_bytes(8, "little"))
            digest.update(np.ascontiguousarray(pairs, np.int32).data)
        return digest.digest()

    def apply(self, adjacency: np.ndarray) -> None:
        """Write the edges and gaps into a (p, p) adjacency matrix."""
        write(adjacency, self.forbidden, False)
        write(adjacency, self.required, True)

    def broken_by(self, adjacency: np.ndarray) -> np.ndarray:
        """(k, 2) pairs that a (p, p) bool adjacency matrix contradicts."""
        missing = self.required[~adjacency[tuple(self.required.T)]]
        return np.concatenate([missing, self.forbidden[adjacency[tuple(self.forbidden.T)]]])

    def without_tests(self, degrees: np.ndarray) -> np.ndarray:
        """(p,) bool: the variables all of whose edges are required, given the (p,) degrees."""
        return degrees <= np.bincount(self.required.reshape(-1), minlength=len(degrees))

    def most_tested_degree(self, degrees: np.ndarray) -> int:
        """The largest of (p,) degrees among the variables with an edge to test, which decides when a search ends."""
        return int(degrees[~self.without_tests(degrees)].max(initial=0))


def sorted_pairs(pairs: np.ndarray) -> np.ndarray:
    """Pairs in any order as (k, 2) int32 distinct pairs i < j, ascending."""
    pairs = np.sort(np.asarray(pairs, np.int32).reshape(-1, 2), axis=1)
    return np.unique(pairs, axis=0) if len(pairs) else pairs


def write(matrix: np.ndarray, pairs: np.ndarray, value: object) -> None:
    """Write a value into both cells of (k, 2) pairs."""
    i, j = pairs.T
    matrix[i, j] = matrix[j, i] = value
