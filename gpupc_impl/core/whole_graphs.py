"""Answers of whole calls, such as a PAG, as skeletons with marks, to be measured and compared like those of methods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from gpupc_impl.core.problem import Problem
from gpupc_impl.core.registry import Run
from gpupc_impl.core.result import SeparatingSets, Skeleton, complete_graph

Mark = tuple[int, int, str, float | None]  # i, j, what a graph says about them, a p-value: (0, 1, "arrow", None)


def whole_graph(
    problem: Problem, run: Run, adjacency: np.ndarray, marks: Iterable[Mark], tests: int = 0, **facts: Any
) -> Skeleton:
    """Return the skeleton of a graph without separating sets and levels, given the (p, p) symmetric bool `adjacency`,
    whose diagonal is not used, and the number of tests, 0 if it is unknown. Verification compares the marks too, which
    become ``facts["marks"]`` in an order that only depends on the graph. Among the further facts, ``differs_by`` is a
    sentence about a rule of the program's own, by which verification explains what differs."""
    adjacency = adjacency & complete_graph(len(adjacency))
    return Skeleton(
        adjacency=adjacency,
        sepsets=SeparatingSets.from_levels(adjacency, []),
        names=problem.names,
        tests_per_level=(tests,),
        edges_per_level=(int(np.count_nonzero(adjacency)) // 2,),
        seconds_per_level=(0.0,),
        levels_run=1,
        stopped_because="the call has ended",
        facts={**run.facts, **facts, "marks": sorted(map(list, marks), key=str)},
    )
