"""The rows of a level whose sub-matrices are gathered, with the results of their tests."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from gpupc_impl.backends import Filled
from gpupc_impl.engine.graph import BINOMIALS
from gpupc_impl.engine.row_graph import RowGraph
from gpupc_impl.out_of_core.layout import LevelContext
from gpupc_impl.out_of_core.row_tests import ROW_SEARCH


@dataclasses.dataclass(frozen=True)
class LevelRows:
    """The graph at the level's start, and the results so far, which tests update.

    Attributes:
        graph: the graph.
        keys: (slots,) uint64 on the host: the best key of every slot.
        smallest: (slots,) uint64 on the host: the bits of the smallest r^2 of every slot; None unless p-values are
            recorded.
        max_degree: the most neighbours of a row.
        binomials: uint64 on the device: the table for rows up to that length.
        arena_bytes: the size of the one area of each pipeline.
    """

    context: LevelContext
    graph: RowGraph
    keys: np.ndarray
    smallest: np.ndarray | None
    max_degree: int
    binomials: Any
    arena_bytes: int

    def argument(self, keys: Any, smallest: Any) -> Filled:
        """The `ROW_SEARCH` for some rows, of which the keys and the smallest r^2 are on the device."""
        problem = self.context.problem
        return ROW_SEARCH(
            keys=keys,
            min_r_squared=smallest,
            counters=self.context.counters,
            binomial=BINOMIALS(table=self.binomials, max_n=self.max_degree),
            critical_r_squared=self.context.critical_r_squared,
            residual_tolerance=problem.residual_tolerance,
            pivot_tolerance=problem.pivot_tolerance,
            first_come=self.context.first_come,
        )
