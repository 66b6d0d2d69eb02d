"""The common part of all layouts of a level: the context that a search passes to a layout, and the end of a level."""

from __future__ import annotations

import abc
import dataclasses
import functools
from typing import Any

import numpy as np

from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.core.registry import Run
from gpupc_impl.engine.graph import NO_KEY
from gpupc_impl.gaussian.partial_correlation import removed_p_values
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.out_of_core.memory_plan import MemoryPlan
from gpupc_impl.out_of_core.pipelines import Pipelines
from gpupc_impl.out_of_core.separations import BlockSeparations, take_out


@dataclasses.dataclass(frozen=True)
class LevelContext:
    """The part of the search's state that a layout needs for a level.

    Attributes:
        adjacency: (p, p) bool on the host: the graph, which the level updates.
        largest_p: (p, p) float64 largest p-values so far, which the level updates, or None.
        counters: uint64 on the device: the tests of the level (see engine/kernels/tally.cuh).
        budget: device memory in bytes.
        staging_bytes: pinned host memory of each pipeline.
    """

    level: int
    problem: GaussianProblem
    run: Run
    pipelines: Pipelines
    adjacency: np.ndarray
    largest_p: np.ndarray | None
    counters: Any
    budget: int
    staging_bytes: int

    @property
    def p(self) -> int:
        return self.problem.n_variables

    @functools.cached_property
    def critical_r_squared(self) -> float:
        return self.problem.critical_r_squared(self.level)

    @property
    def first_come(self) -> bool:
        """Whether any separating set, not only the canonical one, ends the tests of an edge."""
        return self.run.separating_sets == "first-come"


class Layout(abc.ABC):
    """A level in one layout.

    Attributes:
        plan: the memory and the transferred bytes of the level; some layouts have the plan only after `run`.
        separations: the separated pairs of the blocks that have been merged.
        tested: the number of tested pairs of the blocks that have been merged.
    """

    def __init__(self, context: LevelContext, plan: MemoryPlan | None = None):
        self.context, self.plan = context, plan
        self.separations: list[BlockSeparations] = []
        self.tested = 0

    @abc.abstractmethod
    def run(self) -> LevelOutcome:
        """Run the level's tests, and remove the separated edges from the graph."""

    def record_p_values(self, i: np.ndarray, j: np.ndarray, smallest: np.ndarray) -> None:
        """Update the largest p-values of pairs from the bits of each pair's smallest r^2; `NO_KEY` means no test."""
        problem, largest_p, tested = self.context.problem, self.context.largest_p, smallest != NO_KEY
        i, j, r_squared = i[tested], j[tested], smallest[tested].view(np.float64)
        p_values = problem.p_value(r_squared, self.context.level)
        largest_p[i, j] = largest_p[j, i] = np.fmax(largest_p[i, j], p_values)

    def remove_separated(self, pairs: np.ndarray, sets: np.ndarray) -> LevelOutcome:
        """Remove the separated edges, (k, 2) with their (k, level) sets, from the graph."""
        context, largest_p = self.context, self.context.largest_p
        take_out(context.adjacency, pairs)
        if largest_p is not None:
            i, j = pairs.T
            largest_p[i, j] = largest_p[j, i] = removed_p_values(context.problem, pairs, sets)
        tests, undefined, pseudo_inverses = map(int, context.run.backend.download(context.counters).sum(axis=0)[:3])
        return LevelOutcome(*self.count(), tests, pairs, sets, undefined, pseudo_inverses)

    def count(self) -> tuple[int, int]:
        """The number of edges left, and the largest degree of a variable with an edge to test."""
        degrees = np.array([np.count_nonzero(row) for row in self.context.adjacency])
        return int(degrees.sum()) // 2, self.context.problem.most_tested_degree(degrees)
