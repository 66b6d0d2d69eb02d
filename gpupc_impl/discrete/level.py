"""The graph of one level on the device, with the numbers that the kernels of discrete tests need."""

import dataclasses
from typing import Any

from gpupc_impl.engine import graph
from gpupc_impl.integers import ceil_div


@dataclasses.dataclass(frozen=True)
class Level:
    """One level's graph on the device, as the kernels of a level take it.

    Attributes:
        level: the size of conditioning sets, at least 1.
        max_degree: largest number of neighbours.
        edges: number of edges.
        busy_ends: number of ends of edges from whose row sets are drawn, since it has more neighbours than a set has
            members.
        busy: number of rows that have tests.
        rows: the neighbours of each variable.
        busy_rows: (p,) int32: the first `busy` entries are the rows that have tests.
        row_cells: (p,) uint64: upper bounds on the cells of each row's tables.
        largest_table: upper bound on the cells of a table.
    """

    level: int
    max_degree: int
    edges: int
    busy_ends: int
    busy: int
    rows: graph.Rows
    busy_rows: Any
    row_cells: Any
    largest_table: int

    @property
    def edges_with_tests(self) -> int:
        """A lower bound on the number of edges that have tests; at least 1."""
        return max(1, ceil_div(self.busy_ends, 2))
