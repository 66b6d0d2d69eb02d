"""A level of the block-based search: what every layout has in common."""

import abc
import dataclasses
from typing import Any

import numpy as np

from gpupc_impl.core.pc_stable import LevelOutcome
from gpupc_impl.core.registry import Run
from gpupc_impl.engine.graph import COUNTER_SHAPE, NO_KEY
from gpupc_impl.gaussian.partial_correlation import removed_p_values
from gpupc_impl.gaussian.problem import GaussianProblem
from gpupc_impl.out_of_core import host_blocks
from gpupc_impl.out_of_core.host_blocks import length
from gpupc_impl.out_of_core.pipelines import Pipeline, Pipelines
from gpupc_impl.out_of_core.plans import Plan
from gpupc_impl.out_of_core.separations import BlockSeparations, take_out


@dataclasses.dataclass
class Level(abc.ABC):
    """A level in one layout."""

    level: int
    problem: GaussianProblem
    run: Run
    pipelines: Pipelines
    adjacency: np.ndarray  # (p, p) bool on the host: the graph, which the level updates
    largest_p: np.ndarray | None  # (p, p) float64 largest p-values so far, which the level updates
    plan: Plan

    def __post_init__(self) -> None:
        self.p, self.backend = self.problem.n_variables, self.run.backend
        self.critical_r_squared = self.problem.critical_r_squared(self.level)
        self.first_come = self.run.separating_sets == "first-come"  # whether any set ends an edge's tests
        self.counters: Any = self.backend.full(COUNTER_SHAPE, 0, np.uint64)  # of tests (tally.cuh)
        self.backend.synchronize()  # the pipelines' streams do not wait for the backend's stream
        self.separations: list[BlockSeparations] = []  # of the blocks that have been merged
        self.tested = 0  # the number of tested pairs of these blocks

    @abc.abstractmethod
    def search(self) -> LevelOutcome:
        """Run the level's tests, and remove the separated edges from the graph."""

    def extract(
        self, pipeline: Pipeline, rows: slice, columns: slice, areas: tuple[str, str], n_words: int
    ) -> list[tuple[Any, np.ndarray]]:
        """Copy a block of matrix and graph (`n_words` a row) into two areas; returns both as ``(device, host)``."""
        c, device_c = pipeline.area(areas[0], (length(rows), length(columns)), np.float64)
        bits, device_bits = pipeline.area(areas[1], (length(rows), n_words), np.uint32)
        host_blocks.read(self.problem.correlation, rows, columns, c)
        host_blocks.read_bits(self.adjacency, rows, columns, bits)
        return [(device_c, c), (device_bits, bits)]

    def record_p_values(self, i: np.ndarray, j: np.ndarray, smallest: np.ndarray) -> None:
        """Update the largest p-values of pairs from the bits of each pair's smallest r^2; `NO_KEY` means no test."""
        tested, largest_p = smallest != NO_KEY, self.largest_p
        i, j, r_squared = i[tested], j[tested], smallest[tested].view(np.float64)
        p_values = self.problem.p_value(r_squared, self.level)
        largest_p[i, j] = largest_p[j, i] = np.fmax(largest_p[i, j], p_values)

    def remove_separated(self, pairs: np.ndarray, sets: np.ndarray) -> LevelOutcome:
        """Remove the edges (k, 2) with their (k, level) separating sets from the graph."""
        take_out(self.adjacency, pairs)
        if self.largest_p is not None:
            i, j = pairs.T
            self.largest_p[i, j] = self.largest_p[j, i] = removed_p_values(self.problem, pairs, sets)
        tests, undefined, pseudo_inverses = map(int, self.backend.download(self.counters).sum(axis=0)[:3])
        return LevelOutcome(*self.count(), tests, pairs, sets, undefined, pseudo_inverses)

    def count(self) -> tuple[int, int]:
        """The number of edges left, and the largest degree of a variable with an edge to test."""
        degrees = degrees_of(self.adjacency)
        return int(degrees.sum()) // 2, self.problem.most_tested_degree(degrees)


def degrees_of(adjacency: np.ndarray) -> np.ndarray:
    """The (p,) degrees of a graph, without a temporary matrix."""
    return np.array([np.count_nonzero(row) for row in adjacency], np.int64)
