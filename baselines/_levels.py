"""Runs the levels of PC-stable on the CPU, with a level's edges distributed over threads, for all references."""

import concurrent.futures
import dataclasses
from collections.abc import Callable
from typing import Protocol

import numpy as np

from baselines._compile import compiled, inlined
from gpupc_impl.core import progress_watcher
from gpupc_impl.core.pc_stable import GraphSearch, LevelOutcome, pc_stable
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.registry import Run
from gpupc_impl.core.result import Skeleton

LEAST_TASK, LARGEST_TASK = 16, 4096  # edges: handing over a task takes as long as a few, and their sets take memory


@dataclasses.dataclass(frozen=True)
class Graph:
    """The graph G' at the start of a level. Row i's neighbours, ascending, are ``neighbours[starts[i] : starts[i +
    1]]``. The (m, 2) int32 edges i < j to test are ascending, without required edges; tiers are `Problem.tiers`, of
    length 0 if sets are not limited."""

    starts: np.ndarray
    neighbours: np.ndarray
    edges: np.ndarray
    tiers: np.ndarray


@dataclasses.dataclass(frozen=True)
class Tested:
    """The results of testing some edges at one level: (k,) indexes of the removed ones, and their (k, level) sets.
    Counts are those of `Skeleton`; the largest p-value of each edge is NaN if it has none."""

    removed: np.ndarray
    sets: np.ndarray
    tests: int
    undefined: int = 0
    pseudo_inverses: int = 0
    p_values: np.ndarray | None = None


class Tests(Protocol):
    def separate_pairs(self, adjacent: np.ndarray, pmax: np.ndarray | None, map_tasks: Callable) -> int:
        """Run level 0 on the complete graph, (p, p) bool, and write p-values; return the number of edges left."""

    def separate_edges(self, graph: Graph, task: slice, level: int) -> Tested:
        """Test each edge of a task, in canonical order, up to the first set that separates it."""

    def after_level(self, graph: Graph, level: int, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, ...]:
        """Choose from the separated (k, 2) pairs and their (k, level) sets those that are removed after the level."""
        return pairs, sets


def search(problem: Problem, run: Run, tests: Tests, threads: int) -> Skeleton:
    """Find the skeleton with threads that share tasks of edges; the answer does not depend on their number."""
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        levels = _Levels(problem, tests, run.pmax, threads, map if threads == 1 else pool.map)
        return pc_stable(problem, levels, facts=run.facts, progress=run.progress)


class _Levels(GraphSearch):
    """PC-stable on one problem (cuPC, Algorithm 1)."""

    def __init__(self, problem: Problem, tests: Tests, pmax: bool, threads: int, map_tasks):
        super().__init__(problem, pmax)
        self._tests, self._threads, self._map_tasks = tests, threads, map_tasks

    def run_level(self, level: int) -> LevelOutcome:
        if level == 0:
            edges = self._tests.separate_pairs(self.adjacent, self.largest_p, self._map_tasks)
            if self.problem.fixed is not None:
                self.problem.fixed.apply(self.adjacent)
                edges = int(np.count_nonzero(self.adjacent)) // 2
            return LevelOutcome(edges, self._max_degree(), self.problem.tests_of_level_zero)
        starts, neighbours, all_edges = neighbour_lists(self.adjacent)
        edges = self.problem.edges_to_test(all_edges)
        tiers = np.empty(0, np.int32) if self.problem.tiers is None else self.problem.tiers
        graph = Graph(starts, neighbours, edges, tiers)
        size = min(max(len(edges) // (32 * self._threads), LEAST_TASK), LARGEST_TASK)
        tasks = [slice(first, min(first + size, len(edges))) for first in range(0, len(edges), size)]
        results = []
        for result in self._map_tasks(lambda task: self._tests.separate_edges(graph, task, level), tasks):
            results.append(result)
            progress_watcher.advance(tasks[len(results) - 1].stop, len(edges), "edges")
        pairs = np.concatenate([edges[task][part.removed] for task, part in zip(tasks, results, strict=True)])
        pairs, sets = self._tests.after_level(graph, level, pairs, np.concatenate([part.sets for part in results]))
        self.adjacent[pairs[:, 0], pairs[:, 1]] = self.adjacent[pairs[:, 1], pairs[:, 0]] = False
        if self.largest_p is not None:
            self.note_p_values(*edges.T, np.concatenate([part.p_values for part in results]))
        return LevelOutcome(
            edges=len(all_edges) - len(pairs),
            max_degree=self._max_degree(),
            tests=sum(part.tests for part in results),
            pairs=pairs,
            sets=sets,
            undefined=sum(part.undefined for part in results),
            pseudo_inverses=sum(part.pseudo_inverses for part in results),
        )

    def _max_degree(self) -> int:
        return self.problem.most_tested_degree(self.adjacent.sum(axis=1))


# --- graphs and subsets -----------------------------------------------------------------------------------------------
@compiled
def neighbour_lists(adjacent):
    """Return the graph G' of a level as (starts, neighbours, edges); see `Graph`."""
    p = len(adjacent)
    starts = np.zeros(p + 1, np.int64)
    for i in range(p):
        starts[i + 1] = starts[i] + adjacent[i].sum()
    neighbours = np.empty(starts[p], np.int32)
    edges = np.empty((starts[p] // 2, 2), np.int32)
    filled = listed = 0
    for i in range(p):
        for j in range(p):
            if adjacent[i, j]:
                neighbours[filled] = j
                filled += 1
                if i < j:
                    edges[listed, 0] = i
                    edges[listed, 1] = j
                    listed += 1
    return starts, neighbours, edges


@inlined
def may_be_member(tiers, i, j, k):
    """Return whether the (p,) tiers let a variable be in a set for a pair; see `gpupc_impl.core.tiers`."""
    if len(tiers) == 0 or tiers[i] < 0 or tiers[j] < 0:
        return True
    return tiers[k] <= max(tiers[i], tiers[j])


@inlined
def neighbours_without(starts, neighbours, row, other, tiers, out):
    """Write the neighbours of ``row`` that may be in a set for it and ``other``; return their number."""
    n = 0
    for at in range(starts[row], starts[row + 1]):
        if neighbours[at] != other and may_be_member(tiers, row, other, neighbours[at]):
            out[n] = neighbours[at]
            n += 1
    return n


@inlined
def next_combination(chosen, n):
    """Advance to the next subset of range(n); return the first position that changed, -1 at the end."""
    size = len(chosen)
    place = size - 1
    while place >= 0 and chosen[place] == n - size + place:
        place -= 1
    if place >= 0:
        chosen[place] += 1
        for t in range(place + 1, size):
            chosen[t] = chosen[t - 1] + 1
    return place
