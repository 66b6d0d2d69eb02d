"""A level of a discrete search: its graph, tests made in one way, and whether they wait for their kernel."""

import dataclasses
import logging
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from gpupc_impl.backends import Backend, KernelSource
from gpupc_impl.discrete.declarations import REQUESTED_CODE
from gpupc_impl.discrete.problem import DiscreteProblem
from gpupc_impl.engine import graph
from gpupc_impl.integers import ceil_div

logger = logging.getLogger("gpupc_impl.discrete")  # logs the memory of searches, and where tables lie

HURRIED_SAMPLES = 1 << 36
"""Upper bound on the samples that the tests of a level read for a search not to wait: slower kernels read them in about
a second, and the fastest ones take a compiler several seconds."""


@dataclasses.dataclass(frozen=True)
class Level(graph.Rows):
    """One level's graph on the device, as the kernels of a level from 1 on take it."""

    busy_ends: int  # ends of edges whose row has more neighbours than a set has members
    busy: int
    busy_rows: Any  # (p,) int32: the first `busy` entries are the rows that have tests
    row_cells: Any  # (p,) uint64: upper bounds on the cells of each row's tables
    largest_table: int  # upper bound on the cells of a table

    @property
    def edges_with_tests(self) -> int:
        """A lower bound on the number of edges that have tests; at least 1."""
        return max(1, ceil_div(self.busy_ends, 2))

    @property
    def most_sets(self) -> int:
        """Upper bound on the sets of one end of an edge."""
        return math.comb(self.max_degree - 1, self.level)


class LevelTests(NamedTuple):
    """The tests of a level that are made in one way: by batches, by products of planes, or by blocks of threads. Every
    table with up to `covered` cells is made in this way; `launch` queues the tests, given the first arguments of the
    kernel, for level 0 or for one side of a later level."""

    covered: int
    launch: Callable[[list], None]


NO_TESTS = LevelTests(0, lambda arguments: None)


def largest_pair_table(problem: DiscreteProblem) -> int:
    """Return an upper bound on the cells of level 0's tables, with the sums of their columns."""
    larger, smaller = [*problem.descending[:2], 1][:2]
    return (smaller + 1) * larger


def is_worth_waiting_for(kernel: KernelSource, backend: Backend, problem: DiscreteProblem, level: Level) -> bool:
    """Return whether a level runs with its fastest kernel, because it is ready or because the tests are worth the wait.
    Cores always wait, because on them slower kernels are missing or take as long to compile."""
    if not backend.multiprocessors or problem.codes.dtype.name != REQUESTED_CODE or backend.is_ready(kernel):
        return True
    return level.edges_with_tests * 2 * level.most_sets * problem.n_samples > HURRIED_SAMPLES
