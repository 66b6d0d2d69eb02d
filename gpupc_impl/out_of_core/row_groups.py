"""Groups of rows of the graph that share neighbours, so that each group needs one sub-matrix."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from gpupc_impl.engine.row_graph import RowGraph
from gpupc_impl.out_of_core.memory_plan import cluster_bytes


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A group of rows, and the variables that the tests of these rows read.

    Attributes:
        rows: the rows' variables.
        members: (m,) the rows and their neighbours, ascending.
        slots: the sum of the rows' degrees.
    """

    rows: np.ndarray
    members: np.ndarray
    slots: int

    def nbytes(self, pmax: bool) -> int:
        return cluster_bytes(len(self.members), len(self.rows), self.slots, pmax)


def clusters(graph: RowGraph, rows: np.ndarray, limit: int, pmax: bool) -> Iterator[Cluster]:
    """Group rows greedily, in their order: a row joins the present group if the joint sub-matrix is no larger than the
    group's and the row's sub-matrices together.

    Args:
        limit: upper bound on the bytes of a group in a pipeline; every single row must fit.
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
            and cluster_bytes(joined, len(group) + 1, slots + len(near), pmax) <= limit
        ):
            yield close()
            number, group, slots, joined = number + 1, [], 0, alone
        group_of[near] = group_of[i] = number
        group.append(int(i))
        members, slots = joined, slots + len(near)
    if group:
        yield close()


def batches(groups: Iterator[Cluster], limit: int, pmax: bool) -> Iterator[list[Cluster]]:
    """Batches of consecutive groups, each of which fits into a pipeline."""
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
