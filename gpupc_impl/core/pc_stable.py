"""The level loop of PC-stable (cuPC, Algorithms 1 and 2), shared by every family, method and reference.

A method only knows how to run one level. What stops the search, what is counted and what comes back is decided
here, once, so that it is the same for all.
"""

from __future__ import annotations

import abc
import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gpupc_impl.core.problem import Problem
from gpupc_impl.core.result import SeparatingSets, Skeleton

MAX_SETS = 2**62
"""Conditioning sets of one row are numbered in 64 bits, of which one tells the side and one is spare."""


@dataclasses.dataclass(frozen=True)
class LevelOutcome:
    """What one level did.

    Attributes:
        edges: edges left.
        max_degree: largest number of neighbours left to a variable with an edge to test: one that is not required.
        tests: CI tests performed.
        pairs: (k, 2) removed pairs, i < j, in any order; not needed at level 0, nor from a search that hands over all
            separating sets at its end.
        sets: (k, level) their separating sets, ascending.
        undefined: tests that were not decided (zero residual variance).
        pseudo_inverses: near-singular conditioning matrices met.
        seconds: what the level took, from a search that runs several in one call; None: the time of the call.
    """

    edges: int
    max_degree: int
    tests: int
    pairs: np.ndarray | None = None
    sets: np.ndarray | None = None
    undefined: int = 0
    pseudo_inverses: int = 0
    seconds: float | None = None


class LevelSearch(abc.ABC):
    """The search of a method for one problem, which the level loop drives."""

    @abc.abstractmethod
    def run_level(self, level: int) -> LevelOutcome:
        """Make the level's tests and remove the edges that were separated."""

    @abc.abstractmethod
    def adjacency(self) -> np.ndarray:
        """(p, p) bool: the edges left, in host memory."""

    def separating_sets(self, adjacency: np.ndarray) -> SeparatingSets | None:
        """The separating sets of all levels, from a search that collects them at its end.

        None from a search whose `LevelOutcome` holds each level's sets.
        """
        return None

    def pmax(self) -> np.ndarray | None:
        """(p, p) float64 largest p-values, or None when they were not asked for."""
        return None


@dataclasses.dataclass(frozen=True)
class Progress:
    """One level finished: what a progress line shows."""

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
    """Run levels 0, 1, 2, ... until no test is left, and collect the result."""
    max_degree = problem.n_variables - 1
    tests, edges_left, seconds = [], [], []
    removed: list[tuple[np.ndarray, np.ndarray]] = []
    undefined = pseudo_inverses = level = 0
    while (reason := stop_reason(problem, level, max_degree)) is None:
        start = time.perf_counter()
        outcome = search.run_level(level)
        elapsed = time.perf_counter() - start if outcome.seconds is None else outcome.seconds
        max_degree = outcome.max_degree
        tests.append(outcome.tests)
        edges_left.append(outcome.edges)
        seconds.append(elapsed)
        if outcome.pairs is not None and outcome.sets is not None:
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
    """Why a level is not run, as a sentence; None when it is run (cuPC, Algorithm 2, line 13, and our limits)."""
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
