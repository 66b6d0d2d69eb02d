"""Levels of problems whose tiers limit separating sets (`Problem.tiers`), without kernels of their own. A level from 1
on is run in parts, one for each last tier of its pairs (`core.tiers.last_tiers`). The part of a tier tests the edges
with that last tier, in the graph of the variables that may be in their sets. The other edges of that graph are required
in this part, so that they are not tested. The rows of this graph have no other variables, so the sets of a row, their
order and their ranks are those that the tiers allow. All parts use the graph as it is when the level starts."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gpupc_impl.core.fixed_pairs import FixedPairs
from gpupc_impl.core.pc_stable import LevelOutcome, LevelSearch
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.result import NO_PAIRS
from gpupc_impl.core.tiers import last_tiers

RunPart = Callable[[np.ndarray, FixedPairs], LevelOutcome]


def run_in_parts(level: int, problem: Problem, adjacent: np.ndarray, run_part: RunPart) -> LevelOutcome:
    """Run a level from 1 on by its parts, and remove the separated edges from the (p, p) bool graph `adjacent`."""
    pairs, sets, counts = [NO_PAIRS], [np.empty((0, level), np.int32)], np.zeros(3, np.int64)
    for edges, fixed in _parts(problem, adjacent):
        if fixed.most_tested_degree(edges.sum(axis=1)) <= level:  # no edge of the part has a conditioning set
            continue
        outcome = run_part(edges, fixed)
        if outcome.pairs is not None and outcome.sets is not None:
            pairs.append(outcome.pairs)
            sets.append(outcome.sets)
        counts += outcome.tests, outcome.undefined, outcome.pseudo_inverses
    removed = np.concatenate(pairs)
    adjacent[removed[:, 0], removed[:, 1]] = adjacent[removed[:, 1], removed[:, 0]] = False
    degrees, (tests, undefined, pseudo_inverses) = adjacent.sum(axis=1), counts.tolist()
    most, edges_left = problem.most_tested_degree(degrees), int(degrees.sum()) // 2
    return LevelOutcome(edges_left, most, tests, removed, np.concatenate(sets), undefined, pseudo_inverses)


def _parts(problem: Problem, adjacent: np.ndarray) -> Iterator[tuple[np.ndarray, FixedPairs]]:
    """Yield the graph of each part, (p, p) bool, with its required edges."""
    tiers = problem.tiers
    assert tiers is not None
    every = np.argwhere(np.triu(adjacent)).astype(np.int32)
    last, required = last_tiers(tiers, *every.T), np.zeros(len(every), bool)
    if problem.fixed is not None:
        keys = np.array([len(tiers), 1])
        required = np.isin(every @ keys, problem.fixed.required @ keys)
    for tier in np.unique(last[~required]):
        inside = tiers <= tier
        untested = inside[every].all(axis=1) & (required | (last != tier))
        yield adjacent & inside & inside[:, None], FixedPairs(every[untested], NO_PAIRS)


class TierSearch(LevelSearch):
    """A search in parts. `search` makes the tests of the same problem, by `run_level` those of level 0, and by
    ``run_part(level, edges, fixed) -> LevelOutcome`` those of a later level in the graph `edges`, (p, p) bool, except
    those of required edges; the outcome has the separated pairs and their sets. ``adjacency_now()`` returns the
    remaining edges, (p, p) bool in host memory."""

    def __init__(self, problem: Problem, search: Any):
        self.problem, self.search, self.backend = problem, search, search.backend
        self._adjacent = problem.start_graph()

    def run_level(self, level: int) -> LevelOutcome:
        if level:
            return run_in_parts(level, self.problem, self._adjacent, functools.partial(self.search.run_part, level))
        outcome: LevelOutcome = self.search.run_level(0)
        self._adjacent = self.search.adjacency_now()
        return outcome

    def adjacency(self) -> np.ndarray:
        return self._adjacent

    def pmax(self) -> np.ndarray | None:
        largest: np.ndarray | None = self.search.pmax()
        return largest
