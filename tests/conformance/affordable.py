"""Random problems, cut to the levels that every method searches quickly."""

import dataclasses
import math

from gpupc_impl import Skeleton, skeleton
from gpupc_impl.core.problem import Problem


def affordable(problem: Problem, reference: str, most_tests: int) -> tuple[Problem, Skeleton]:
    """The problem up to its deepest level of surely at most so many tests, and the reference's answer to it.

    Levels are added one by one, because to search all of them may take minutes where the graph stays dense.
    """
    level = 0
    while True:
        shallow = dataclasses.replace(problem, max_level=level)
        found = skeleton(shallow, method=reference)
        degrees = found.adjacency.sum(axis=1).tolist()
        next_tests = sum(degree * math.comb(degree - 1, level + 1) for degree in degrees if degree)
        if level == problem.max_level or next_tests > most_tests or "max_level" not in found.stopped_because:
            return shallow, found
        level += 1
