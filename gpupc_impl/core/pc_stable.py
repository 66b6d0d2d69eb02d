"""The level loop of PC-stable (cuPC, Algorithms 1 and 2), shared by every method and reference. A method runs single
levels; this module decides when the search ends, what is counted and what is returned, so that all methods agree."""

import abc
import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend
from gpupc_impl.core import progress_watcher
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.result import SeparatingSets, Skeleton

MAX_SETS = 2**62  # conditioning sets of a row: keys have 62 bits for the rank of a set


@dataclasses.dataclass(frozen=True)
class LevelOutcome:
    """The result of one level: the numbers of edges left, of CI tests, and the fields below."""

    edges: int
    max_degree: int  # the largest number of neighbours left among the variables with an edge that is not required
    tests: int
    # (k, 2) removed pairs, i < j, in any order; None for a search that returns the separating sets of all levels at its
    # end. Those of level 0 are not used, since their sets are empty.
    pairs: np.ndarray | None = None
    sets: np.ndarray | None = None  # (k, level) the separating sets of these pairs, each ascending
    undefined: int = 0  # the number of tests that were not decided, because a residual variance was zero
    pseudo_inverses: int = 0  # the number of near-singular conditioning matrices
    seconds: float | None = None  # without waits for compilers, if a call runs several levels; None: the call's time


class LevelSearch(abc.ABC):
    """A method's search on one problem, which the level loop drives. Its `backend` is where the kernels run, None for a
    search without kernels; the loop subtracts this backend's waits for compilers from each level's time."""

    backend: Backend | None = None

    @abc.abstractmethod
    def run_level(self, level: int) -> LevelOutcome:
        """Perform the level's tests and remove the edges whose ends were separated."""

    @abc.abstractmethod
    def adjacency(self) -> np.ndarray:
        """(p, p) bool: the remaining edges, in host memory."""

    def separating_sets(self, adjacency: np.ndarray) -> SeparatingSets | None:
        """Return the sets of all levels; None if the search puts those of each level into its `LevelOutcome`."""
        return None

    def pmax(self) -> np.ndarray | None:
        """Return the largest p-values, (p, p) float64; None if they were not requested."""
        return None


class GraphSearch(LevelSearch):
    """A search whose graph, (p, p) bool, and largest p-values, (p, p) with NaN for none, lie in host memory."""

    def __init__(self, problem: Any, pmax: bool):
        self.problem = problem
        self.adjacent: np.ndarray = problem.start_graph()
        self.largest_p = np.full(self.adjacent.shape, np.nan) if pmax else None

    def adjacency(self) -> np.ndarray:
        return self.adjacent

    def pmax(self) -> np.ndarray | None:
        return self.largest_p

    def note_p_values(self, i: Any, j: Any, p_values: Any) -> None:
        if self.largest_p is not None:
            self.largest_p[i, j] = self.largest_p[j, i] = np.fmax(self.largest_p[i, j], p_values)

    def remove(self, level: int, tests: int, sets: Mapping[tuple[int, int], Sequence[int]]) -> LevelOutcome:
        """Remove the pairs i < j that these sets separate, and return the outcome of the level."""
        pairs = np.array(sorted(sets), np.int32).reshape(-1, 2)
        self.adjacent[pairs[:, 0], pairs[:, 1]] = self.adjacent[pairs[:, 1], pairs[:, 0]] = False
        degrees = self.adjacent.sum(axis=1)
        members = np.array([sets[i, j] for i, j in pairs.tolist()], np.int32).reshape(len(pairs), level)
        return LevelOutcome(int(degrees.sum()) // 2, self.problem.most_tested_degree(degrees), tests, pairs, members)


@dataclasses.dataclass(frozen=True)
class Progress:
    """A finished level, as a progress display receives it."""

    level: int
    edges: int
    tests: int
    seconds: float


def pc_stable(
    problem: Problem,
    search: LevelSearch,
    *,
    facts: dict[str, Any] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Skeleton:
    """Run levels 0, 1, 2, ... until no test is left, and return the skeleton."""
    max_degree = problem.n_variables - 1
    tests, edges_left, seconds = [], [], []
    removed: list[tuple[np.ndarray, np.ndarray]] = []
    undefined = pseudo_inverses = level = 0
    clock = time.perf_counter if search.backend is None else search.backend.clock
    watcher = progress_watcher.current()
    while (reason := stop_reason(problem, level, max_degree)) is None:
        if watcher is not None:
            watcher.begin(level)
        start = clock()
        outcome = search.run_level(level)
        elapsed = clock() - start if outcome.seconds is None else outcome.seconds
        if watcher is not None:
            watcher.end()
        max_degree = outcome.max_degree
        tests.append(outcome.tests)
        edges_left.append(outcome.edges)
        seconds.append(elapsed)
        if level and outcome.pairs is not None and outcome.sets is not None:
            removed.append((outcome.pairs, outcome.sets))
        undefined += outcome.undefined
        pseudo_inverses += outcome.pseudo_inverses
        if progress is not None:
            progress(Progress(level, outcome.edges, outcome.tests, elapsed))
        level += 1
    adjacency = search.adjacency()
    sepsets = search.separating_sets(adjacency)
    if sepsets is None:
        sepsets = SeparatingSets.from_levels(adjacency, removed)
    return Skeleton(
        adjacency=adjacency,
        sepsets=sepsets,
        names=problem.names,
        tests_per_level=tuple(tests),
        edges_per_level=tuple(edges_left),
        seconds_per_level=tuple(seconds),
        levels_run=level,
        stopped_because=reason,
        pmax=search.pmax(),
        undefined_tests=undefined,
        pseudo_inverses=pseudo_inverses,
        facts=facts or {},
    )


def stop_reason(problem: Problem, level: int, max_degree: int) -> str | None:
    """Return why a level is not run, as a sentence; None if it is (cuPC, Algorithm 2, line 13, and our limits)."""
    if max_degree - 1 < level:
        return f"complete: no variable has the {level + 1} neighbours that a test of level {level} needs"
    if problem.max_level is not None and level > problem.max_level:
        return f"max_level: levels up to {problem.max_level} were asked for"
    obstacle = problem.obstacle(level)
    if obstacle is not None:
        return obstacle
    if math.comb(max_degree, level) >= MAX_SETS:
        return (
            f"too many sets: {max_degree} neighbours have {math.comb(max_degree, level):.3g} subsets of size {level}, "
            f"more than a 64-bit key can number; set max_level to {level - 1} or lower alpha"
        )
    return None
