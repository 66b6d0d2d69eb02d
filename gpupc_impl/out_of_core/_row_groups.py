"""Rows of the graph in groups that share neighbours, each with the variables whose correlations its tests need."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from gpupc_impl.out_of_core import _plan


@dataclasses.dataclass(frozen=True)
class Graph:
    """The graph at the start of a level, by rows; a slot is one direction of an edge.

    Attributes:
        starts: (p + 1,) int64; row i has the slots from ``starts[i]`` to ``starts[i + 1]``.
        neighbours: (slots,) int32, ascending in a row.
        reverse: (slots,) int64: the slot of the same edge in the other end's row.
    """

    starts: np.ndarray
    neighbours: np.ndarray
    reverse: np.ndarray

    @classmethod
    def of(cls, adjacency: np.ndarray, piece: int = 1024) -> Graph:
        """From a (p, p) bool matrix, read a few rows at a time."""
        p = len(adjacency)
        counts, columns = np.zeros(p + 1, np.int64), []
        for start in range(0, p, piece):
            row, column = np.nonzero(adjacency[start : start + piece])
            counts[start + 1 : start + piece + 1] = np.bincount(row, minlength=min(piece, p - start))
            columns.append(column.astype(np.int32))
        neighbours = np.concatenate(columns)
        # Slots in order of column, then row, are those of the transpose, which is the graph itself.
        return cls(np.cumsum(counts), neighbours, np.argsort(neighbours, kind="stable"))

    @property
    def degrees(self) -> np.ndarray:
        return np.diff(self.starts)

    def row(self, i: int) -> np.ndarray:
        return self.neighbours[self.starts[i] : self.starts[i + 1]]

    def slots(self, pairs: np.ndarray) -> np.ndarray:
        """(2 k,) int64: the slots of (k, 2) edges, both directions of each."""
        p = len(self.starts) - 1
        rows = np.repeat(np.arange(p), self.degrees)
        both = np.concatenate([pairs, pairs[:, ::-1]]).astype(np.int64)
        return np.searchsorted(rows * p + self.neighbours, both @ [p, 1])

    def order(self) -> np.ndarray:
        """All variables, those that share neighbours near one another (reverse Cuthill-McKee)."""
        from scipy import sparse

        p = len(self.starts) - 1
        matrix = sparse.csr_matrix((np.ones(len(self.neighbours), np.int8), self.neighbours, self.starts), shape=(p, p))
        return sparse.csgraph.reverse_cuthill_mckee(matrix, symmetric_mode=True)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Some rows, and all that their tests read.

    Attributes:
        rows: the rows' variables.
        members: (m,) the rows and their neighbours, ascending.
        slots: number of edges of the rows, each counted in each of its rows.
    """

    rows: np.ndarray
    members: np.ndarray
    slots: int

    def nbytes(self, pmax: bool) -> int:
        return _plan.cluster_bytes(len(self.members), len(self.rows), self.slots, pmax)


def clusters(graph: Graph, rows: np.ndarray, limit: int, pmax: bool) -> Iterator[Cluster]:
    """Group rows greedily, in the order given: a row joins while that moves no more than a matrix of its own would.

    Args:
        limit: bytes of a pipeline that a group may take; every single row must fit.
    """
    p = len(graph.starts) - 1
    group_of = np.full(p, -1, np.int64)
    group: list[int] = []
    number = members = slots = 0

    def close() -> Cluster:
        return Cluster(np.array(group), np.flatnonzero(group_of == number), slots)

    for i in rows:
        near = graph.row(i)
        alone = len(near) + 1
        joined = members + int(np.count_nonzero(group_of[near] != number)) + int(group_of[i] != number)
        if group and not (
            joined**2 <= members**2 + alone**2
            and _plan.cluster_bytes(joined, len(group) + 1, slots + len(near), pmax) <= limit
        ):
            yield close()
            number, group, slots, joined = number + 1, [], 0, alone
        group_of[near] = group_of[i] = number
        group.append(int(i))
        members, slots = joined, slots + len(near)
    if group:
        yield close()


def batches(groups: Iterator[Cluster], limit: int, pmax: bool) -> Iterator[list[Cluster]]:
    """Groups packed into batches that fit a pipeline."""
    batch: list[Cluster] = []
    used = 0
    for group in groups:
        size = group.nbytes(pmax)
        if batch and used + size > limit:
            yield batch
            batch, used = [], 0
        batch.append(group)
        used += size
    if batch:
        yield batch
