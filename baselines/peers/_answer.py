"""What a program of other people found, as a `Skeleton`."""

import time

import numpy as np

from gpupc_impl.core.pc_stable import stop_reason
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.registry import InvalidParameter, Run
from gpupc_impl.core.result import SeparatingSets, Skeleton, complete_graph


def deepest_level(problem: Problem, limit: int) -> int:
    """The largest level that the problem allows, at most `limit`; -1 where no test can be made."""
    if stop_reason(problem, 0, problem.n_variables - 1) is not None:
        return -1
    most = min(limit, problem.n_variables - 2)
    if problem.max_level is not None:
        most = min(most, problem.max_level)
    return next((level for level in range(most) if problem.obstacle(level + 1) is not None), most)


def refuse_pmax(run: Run) -> None:
    """These programs keep numbers of their own beside an edge.

    Raises:
        InvalidParameter: largest p-values are asked for.
    """
    if run.pmax:
        raise InvalidParameter(f"method {run.facts.get('method')!r} records no largest p-values; leave pmax out")


def untested(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """The answer where no level is run, in the form that `to_skeleton` takes."""
    p = problem.n_variables
    return complete_graph(p), np.empty((p, p, 0), np.int32)


def to_skeleton(
    problem: Problem, run: Run, edges: np.ndarray, sets: np.ndarray, deepest: int, level_seconds: list[float]
) -> Skeleton:
    """The answer as a `Skeleton`; ``facts["translation_s"]`` says how long that took, which is no time of theirs.

    The programs count no tests: ``tests_per_level`` is 0 from level 1 on.

    Args:
        problem: the problem as the program understood it.
        edges: (p, p) numbers, not 0 for an edge.
        sets: (p, p, width) int32: of a removed pair the set's members and then -1, at [i, j] or at [j, i] or both.
        deepest: the level that the program was told to go to at most; -1 where it was not started.
        level_seconds: what it says each level took; empty where it does not say, and then 0 is recorded.
    """
    start = time.perf_counter()
    p = problem.n_variables
    adjacency = np.asarray(edges) != 0
    pairs, found = _sets_of(adjacency, sets)
    sizes = np.count_nonzero(found >= 0, axis=1)
    kept = adjacency.sum(axis=1)

    level, max_degree, edges_per_level = 0, p - 1, []
    while (reason := stop_reason(problem, level, max_degree)) is None and level <= deepest:
        left = pairs[sizes > level]
        edges_per_level.append(int(kept.sum()) // 2 + len(left))
        max_degree = int((kept + np.bincount(left.ravel(), minlength=p)).max())
        level += 1
    removed = [(pairs[sizes == k], np.sort(found[sizes == k, :k], axis=1)) for k in range(1, level)]
    sepsets = SeparatingSets.from_levels(adjacency, removed)
    seconds = (*level_seconds, *[0.0] * level)[:level]
    return Skeleton(
        adjacency=adjacency,
        sepsets=sepsets,
        names=problem.names,
        tests_per_level=(p * (p - 1) // 2, *[0] * level)[:level],
        edges_per_level=tuple(edges_per_level),
        seconds_per_level=tuple(map(float, seconds)),
        levels_run=level,
        stopped_because=reason or f"the program's limit: it was told to end with level {deepest}",
        facts={**run.facts, "problem": problem.facts(), "translation_s": time.perf_counter() - start},
    )


def _sets_of(adjacency: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(k, 2) removed pairs i < j, ascending, that have a set with members, and their (k, width) sets."""
    if not sets.shape[2]:
        return np.empty((0, 2), np.int64), np.empty((0, 0), np.int32)
    given = sets[:, :, 0] >= 0
    pairs = np.argwhere(np.triu((given | given.T) & ~adjacency, 1))
    i, j = pairs.T
    return pairs, np.where(given[i, j][:, None], sets[i, j], sets[j, i])
