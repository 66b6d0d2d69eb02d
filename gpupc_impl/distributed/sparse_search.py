"""The common part of searches of very many variables: edges between levels as a list, and sets of level 1 in shards."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core import mapped
from gpupc_impl.core.pc_stable import LevelOutcome, LevelSearch
from gpupc_impl.core.registry import InvalidParameter, Run
from gpupc_impl.core.result import SeparatingSets, complete_graph
from gpupc_impl.distributed.sharded_sets import FirstShards, ShardedSets
from gpupc_impl.gaussian.problem import GaussianProblem

ENTRIES_AT_ONCE = 1 << 16
"""The entries of the adjacency matrix that a thread writes at a time."""


class SparseSearch(LevelSearch):
    """A search that has no p x p matrix but that of the result, of which only memory pages with edges are allocated.

    Attributes:
        _edges: (k, 2) int32 edges i < j, ascending, that remain and may have tests; None before level 0.
        _settled: lists of remaining edges that have no more tests.

    Raises:
        InvalidParameter: pmax is requested.
    """

    def __init__(self, problem: GaussianProblem, run: Run):
        if run.pmax:
            raise InvalidParameter(
                "method 'distributed' records no pmax, which is a p x p matrix; leave it out, or take out-of-core-block"
            )
        self.problem, self.run, self.params, self.p = problem, run, run.params, problem.n_variables
        self._edges: np.ndarray | None = None
        self._settled: list[np.ndarray] = []
        self._adjacency: np.ndarray | None = None
        self._shards: FirstShards | None = None
        self._later_sets: list[tuple[np.ndarray, np.ndarray]] = []

    def adjacency(self) -> np.ndarray:
        if self._edges is None or self._adjacency is None:  # no level was run
            return complete_graph(self.p)
        adjacency = self._adjacency
        # Nearly every entry is the first in its memory page, so threads share the allocation of pages.
        edges = np.concatenate([self._edges, *self._settled])
        ends = np.concatenate([edges, edges[:, ::-1]])

        def connect(part: slice) -> None:
            adjacency[ends[part, 0], ends[part, 1]] = True

        with ThreadPoolExecutor(available_cores()) as pool:
            list(pool.map(connect, mapped.pieces(len(ends), ENTRIES_AT_ONCE)))
        return adjacency

    def separating_sets(self, adjacency: np.ndarray) -> SeparatingSets:
        if self._shards is None:
            return SeparatingSets.from_levels(adjacency, [])
        return ShardedSets(adjacency, self._shards, self._later_sets)

    def _keep_edges(self, edges: np.ndarray) -> None:
        """Keep (k, 2) edges i < j, in ascending order."""
        keys = np.sort(edges[:, 0].astype(np.int64) * self.p + edges[:, 1])  # much faster than sorting rows
        self._edges = np.stack(np.divmod(keys, self.p), axis=1).astype(np.int32)

    def _count(self) -> tuple[int, int]:
        """Return the number of edges left, and the largest degree of a variable with an edge that may be tested."""
        assert self._edges is not None
        degrees = np.bincount(self._edges.reshape(-1), minlength=self.p)
        return sum(map(len, (self._edges, *self._settled))), self.problem.most_tested_degree(degrees)

    def _remove(self, pairs: np.ndarray, sets: np.ndarray, totals: Counter[str]) -> LevelOutcome:
        """Remove the ascending pairs that a level from 2 on has separated.

        Args:
            sets: their separating sets.
            totals: the counts ``tests``, ``undefined`` and ``pseudo_inverses`` of the level.
        """
        assert self._edges is not None
        self._later_sets.append((pairs, sets))
        to_number = np.array([self.p, 1])
        numbers, removed = self._edges @ to_number, pairs @ to_number  # both ascending
        left = np.ones(len(numbers), bool)
        left[np.searchsorted(numbers, removed)] = False
        self._edges = self._edges[left]
        counts = {name: totals[name] for name in ("undefined", "pseudo_inverses")}
        return LevelOutcome(*self._count(), totals["tests"], **counts)
