"""The messages of the client to workers: the description of a search, and groups of rows to test."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from gpupc_impl.distributed.panel_plan import PanelPlan
from gpupc_impl.distributed.shards import ShardFolder


@dataclasses.dataclass(frozen=True)
class SearchSpec:
    """The description of a search, which is small because each task receives a copy.

    Attributes:
        key: identifies this run of the search, so that a worker knows to which search its state belongs.
        identity: identifies the problem and the plan in the digests of shards; a resumed search has the same identity.
        code: digest of the client's code.
        folder: path of the shards and of the numbers.
        shape: shape of the numbers, which are samples or a correlation matrix.
        is_matrix: whether the numbers are a correlation matrix.
        plan: panels and budget.
        backend: where workers run kernels.
        is_limited: whether the user set the device memory of a worker.
        critical: critical r^2 of level 0 and of level 1; None for level 1 if the search ends before it.
        knowledge: whether background knowledge fixes pairs.
    """

    key: str
    identity: str
    code: str
    folder: str
    shape: tuple[int, int]
    is_matrix: bool
    plan: PanelPlan
    backend: str
    is_limited: bool
    critical: tuple[float, float | None]
    residual_tolerance: float
    pivot_tolerance: float
    knowledge: bool

    @property
    def samples(self) -> int:
        """The number of samples that a worker holds: 0 if the numbers are a correlation matrix."""
        return 0 if self.is_matrix else self.shape[0]

    @property
    def shards(self) -> ShardFolder:
        return ShardFolder(Path(self.folder))


@dataclasses.dataclass(frozen=True)
class RowGroup:
    """Rows of the graph that a task tests at a level from 2 on.

    Attributes:
        name: name of the group's shard.
        rows: (rows,) int64 variables.
        degrees: (rows,) int64 numbers of neighbours.
        neighbours: (slots,) int32: the neighbours, row after row, ascending in each.
        required: (k,) int64 slots of required edges.
    """

    name: str
    rows: np.ndarray
    degrees: np.ndarray
    neighbours: np.ndarray
    required: np.ndarray

    def part(self, rows: slice) -> RowGroup:
        """Return the group of some of the rows."""
        first, last = (int(self.degrees[:end].sum()) for end in (rows.start, rows.stop))
        required = self.required[(first <= self.required) & (self.required < last)] - first
        return RowGroup(self.name, self.rows[rows], self.degrees[rows], self.neighbours[first:last], required)
