"""Graphs in host memory as ascending neighbour rows, and the separating sets that keys of edges identify."""

import dataclasses
from typing import Any, Self

import numpy as np

from gpupc_impl.engine.graph import NO_KEY, binomial_table

SECOND_SIDE = np.uint64(2**62)  # set in a key if the set is drawn from the neighbours of the edge's second end
KEY_CONSTANTS = {"SECOND_SIDE": int(SECOND_SIDE)}  # of kernels/keys.cuh, for kernels that write keys


@dataclasses.dataclass(frozen=True)
class RowGraph:
    """The graph at the start of a level, by rows; a slot is one direction of an edge."""

    starts: np.ndarray  # (p + 1,) int64; row i consists of the slots from ``starts[i]`` to ``starts[i + 1]``
    neighbours: np.ndarray  # (slots,) int32, ascending in a row
    reverse: np.ndarray  # (slots,) int64: the slot of the same edge in the other end's row

    @classmethod
    def from_matrix(cls, adjacency: np.ndarray, rows_at_once: int = 1024) -> Self:
        """The rows of a (p, p) bool matrix."""
        p = len(adjacency)
        counts, columns = np.zeros(p + 1, np.int64), []
        for start in range(0, p, rows_at_once):
            row, column = np.nonzero(adjacency[start : start + rows_at_once])
            counts[start + 1 : start + rows_at_once + 1] = np.bincount(row, minlength=min(rows_at_once, p - start))
            columns.append(column.astype(np.int32))
        neighbours = np.concatenate(columns)
        # Slots ordered by column, then row, are those of the transpose, and the graph is its own transpose.
        return cls(np.cumsum(counts), neighbours, np.argsort(neighbours, kind="stable"))

    @classmethod
    def from_pairs(cls, pairs: np.ndarray, p: int) -> Self:
        """The rows of a graph of p variables with (k, 2) edges i < j, in ascending order."""
        from scipy import sparse

        i, j = pairs.T
        above, below = np.bincount(i, minlength=p), np.bincount(j, minlength=p)  # neighbours on either side
        starts = np.concatenate(([0], np.cumsum(above + below)))
        # Edges are in the order of i. By columns a sparse matrix has them in the order of j, which takes no sorting.
        first = np.concatenate(([0], np.cumsum(above)))
        by_second = sparse.csr_matrix((np.arange(len(pairs)), j, first), shape=(p, p)).tocsc()
        forth = np.arange(len(pairs)) + (starts[:-1] + below - first[:-1])[i]
        back = np.empty_like(forth)
        back[by_second.data] = np.arange(len(pairs)) + np.repeat(starts[:-1] - by_second.indptr[:-1], below)
        neighbours, reverse = np.empty(2 * len(pairs), np.int32), np.empty(2 * len(pairs), np.int64)
        neighbours[forth], neighbours[back] = j, i
        reverse[forth], reverse[back] = back, forth
        return cls(starts, neighbours, reverse)

    @property
    def degrees(self) -> np.ndarray:
        return np.diff(self.starts)

    def row(self, i: int) -> np.ndarray:
        return self.neighbours[self.starts[i] : self.starts[i + 1]]

    def row_slots(self, rows: np.ndarray) -> np.ndarray:
        """Return the slots of some rows, one row after the other, as (k,) int64; there must be at least one row."""
        starts = self.starts[rows]
        counts = self.starts[rows + 1] - starts
        ends = np.cumsum(counts)
        slots: np.ndarray = np.arange(int(ends[-1])) + np.repeat(starts - ends + counts, counts)
        return slots

    def edge_slots(self, pairs: np.ndarray) -> np.ndarray:
        """Return the slots of (k, 2) edges, both directions of each, as (2 k,) int64."""
        p = len(self.starts) - 1
        rows = np.repeat(np.arange(p), self.degrees)
        both = np.concatenate([pairs, pairs[:, ::-1]]).astype(np.int64)
        slots: np.ndarray = np.searchsorted(rows * p + self.neighbours, both @ np.array([p, 1]))
        return slots

    def order(self) -> np.ndarray:
        """Return all variables ordered so that those that share neighbours are near (reverse Cuthill-McKee)."""
        from scipy import sparse

        p = len(self.starts) - 1
        matrix = sparse.csr_matrix((np.ones(len(self.neighbours), np.int8), self.neighbours, self.starts), shape=(p, p))
        order: np.ndarray = sparse.csgraph.reverse_cuthill_mckee(matrix, symmetric_mode=True)
        return order

    def separated(self, keys: np.ndarray, level: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the separated pairs i < j, (k, 2) int32, ascending, and the (k, level) int32 members of their sets.
        For each slot `keys`, (slots,) uint64, has the best key that the search of its row found, or `NO_KEY`."""
        i = np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), self.degrees)
        keys = np.minimum(keys, keys[self.reverse])
        slots = np.flatnonzero((i < self.neighbours) & (keys != NO_KEY))
        keys, pairs = keys[slots], np.stack([i[slots], self.neighbours[slots]], axis=1)
        owners = np.where(keys & SECOND_SIDE, pairs[:, 1], pairs[:, 0])
        positions = unrank(keys & ~SECOND_SIDE, self.degrees[owners], level)
        return pairs, self.neighbours[self.starts[owners][:, None] + positions]


def unrank(ranks: Any, sizes: Any, level: int, xp: Any = np) -> Any:
    """Return the ascending positions, (k, level) int64, of combinations with (k,) lexicographic ranks, drawn from (k,)
    `sizes` elements each, all of NumPy or CuPy; kernels have `unrank_combination` (kernels/combinations.cuh)."""
    positions = xp.empty((len(ranks), level), np.int64)
    if not len(ranks):
        return positions
    table = xp.asarray(binomial_table(int(sizes.max()), level).astype(np.int64))
    following = table[level, sizes] - 1 - ranks.astype(np.int64)
    for c in range(level):
        row = table[level - c]
        m = xp.searchsorted(row, following, side="right") - 1  # the largest m with C(m, k) <= following
        following = following - row[m]
        positions[:, c] = sizes - 1 - m
    return positions
