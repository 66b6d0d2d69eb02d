"""Level 0 from canonical correlations, for problems that `filter` cannot decide: those given as a correlation matrix,
with background knowledge, or without a tolerance for residual variances."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from gpupc_impl.distributed.communicator import Communicator
from gpupc_impl.distributed.correlations import Numbers
from gpupc_impl.distributed.progress import Laps
from gpupc_impl.gaussian.problem import GaussianProblem

PAIR_BYTES = 48
"""An upper bound on the device memory for a pair of a tile: its correlation, flags, and its numbers as an edge."""

MOST_PAIRS = 1 << 26


@dataclasses.dataclass(frozen=True)
class GroupResult:
    """Levels 0 and 1 of a group of rows, or of a worker's share of them. Row j has the edges i < j, ascending.

    Attributes:
        rows: the range of variables j whose rows these are; `group_stop` is the row after the last one of the group.
        starts: (rows + 1,) int64: the edges of row j after level 0 begin at index ``starts[j - rows.start]``.
        partners, values: (edges,) uint32 on the device (kernels/filter.cu, `EdgeRows`).
        levels: the number of levels that were run: 1 or 2.
    """

    rows: slice
    starts: np.ndarray
    partners: Any
    values: Any
    levels: int
    group_stop: int


class LevelZero:
    """Level 0 of a problem on a worker. In a group of rows, each worker takes consecutive rows."""

    def __init__(self, problem: GaussianProblem, workers: Communicator, numbers: Numbers, laps: Laps):
        self._problem, self._workers, self._numbers, self._laps = problem, workers, numbers, laps
        backend, self.p = workers.backend, problem.n_variables
        free = min(workers.all_gather(backend.memory_limit - backend.memory_used))
        self._height = max(1, min(MOST_PAIRS, free // PAIR_BYTES) // self.p)
        self.degrees = np.zeros(self.p, np.int32)
        self.counts = np.zeros(3, np.int64)

    def group(self, first: int) -> GroupResult:
        """Run level 0 for the next rows of all workers, from `first` on; returns the share of this worker."""
        bounds = [min(first + k * self._height, self.p) for k in range(self._workers.size + 1)]
        own, backend = slice(*bounds[self._workers.number :][:2]), self._workers.backend
        edges = self._edges(own) if own.stop > own.start else np.empty((0, 2), np.int64)
        self._laps.lap("level 0")
        count = own.stop - own.start
        starts = np.concatenate(([0], np.cumsum(np.bincount(edges[:, 0] - own.start, minlength=count))))
        self.degrees = np.bincount(edges.reshape(-1), minlength=self.p).astype(np.int32)
        partners = backend.upload(edges[:, 1].astype(np.uint32))
        return GroupResult(own, starts, partners, backend.full(len(edges), 0, np.uint32), 1, bounds[-1])

    def _edges(self, rows: slice) -> np.ndarray:
        """Return (k, 2) int64: the edges (j, i) of rows j, with i < j, in ascending order."""
        critical, fixed = self._problem.critical_r_squared(0), self._problem.fixed
        with self._workers.backend.array_library() as library:
            tile = self._numbers.tile(rows, rows.stop)
            found = library.flatnonzero(tile * tile > critical)
        row, partner = np.divmod(self._workers.backend.download(found).astype(np.int64), rows.stop)
        row += rows.start
        numbers = (row * self.p + partner)[partner < row]
        if fixed is not None:
            forbidden, required = (
                pairs[:, 1].astype(np.int64) * self.p + pairs[:, 0] for pairs in (fixed.forbidden, fixed.required)
            )
            in_rows = (rows.start * self.p <= required) & (required < rows.stop * self.p)
            numbers = np.union1d(np.setdiff1d(numbers, forbidden, assume_unique=True), required[in_rows])
        return np.stack(np.divmod(numbers, self.p), axis=1)
