"""What all adapters share: a check that a library is available, and the conversion of its answer to a `Skeleton`."""

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gpupc_impl.core.pc_stable import stop_reason
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.registry import InvalidParameter, Run
from gpupc_impl.core.result import SeparatingSets, Skeleton, complete_graph
from gpupc_impl.core.whole_graphs import Mark, whole_graph


def unavailable(variable: str, load: Callable[[str], Any]) -> Callable[[], str | None]:
    """Return a function that explains why the library named by an environment variable cannot be used, or returns None.

    ``load`` loads the library at a path and looks up its functions.
    """

    def reason() -> str | None:
        path = os.environ.get(variable)
        if not path:
            return f"{variable} does not name the library built from the authors' repository; docs/peers.md says how"
        try:
            load(path)
        except (OSError, AttributeError) as error:
            return f"{variable} names {path!r}, which cannot be used: {error}"
        return None

    return reason


def deepest_level(problem: Problem, limit: int) -> int:
    """Return the largest level, up to `limit`, that the problem allows; -1 if it allows no test."""
    if stop_reason(problem, 0, problem.n_variables - 1) is not None:
        return -1
    most = min(limit, problem.n_variables - 2)
    if problem.max_level is not None:
        most = min(most, problem.max_level)
    return next((level for level in range(most) if problem.obstacle(level + 1) is not None), most)


def refuse_pmax(run: Run) -> None:
    """Raise InvalidParameter if largest p-values are requested, in whose place these programs keep other numbers."""
    if run.pmax:
        raise InvalidParameter(f"method {run.facts.get('method')!r} records no largest p-values; leave pmax out")


def untested(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return the answer if no level is run: edges and sets as `to_skeleton` takes them."""
    p = problem.n_variables
    return complete_graph(p), np.empty((p, p, 0), np.int32)


def to_skeleton(
    problem: Problem, run: Run, edges: np.ndarray, sets: np.ndarray, deepest: int, level_seconds: list[float]
) -> Skeleton:
    """Return a program's answer as a `Skeleton`; ``facts["translation_s"]`` is the time of the conversion, to be
    subtracted.

    The programs do not count tests, so ``tests_per_level`` is 0 from level 1 on.

    Args:
        problem: the problem that the program solved.
        edges: (p, p) numbers, which are nonzero for edges.
        sets: (p, p, width) int32: for a removed pair the members of its set, padded with -1, at [i, j] or [j, i] or
            both.
        deepest: the largest level that the program was allowed; -1 if the program was not started.
        level_seconds: the times of levels that the program reports; empty where it reports none, and 0 is recorded.
    """
    start = time.perf_counter()
    p = problem.n_variables
    adjacency = np.asarray(edges) != 0
    pairs, members = _sets_of(adjacency, sets)
    sizes = np.count_nonzero(members >= 0, axis=1)
    kept = adjacency.sum(axis=1)

    level, max_degree, edges_per_level = 0, p - 1, []
    while (reason := stop_reason(problem, level, max_degree)) is None and level <= deepest:
        left = pairs[sizes > level]
        edges_per_level.append(int(kept.sum()) // 2 + len(left))
        max_degree = int((kept + np.bincount(left.ravel(), minlength=p)).max())
        level += 1
    removed = [(pairs[sizes == k], np.sort(members[sizes == k, :k], axis=1)) for k in range(1, level)]
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
    """Return the removed pairs i < j whose set is not empty, (k, 2) ascending, and their (k, width) sets."""
    if not sets.shape[2]:
        return np.empty((0, 2), np.int64), np.empty((0, 0), np.int32)
    has_set = sets[:, :, 0] >= 0
    pairs = np.argwhere(np.triu((has_set | has_set.T) & ~adjacency, 1))
    i, j = pairs.T
    return pairs, np.where(has_set[i, j][:, None], sets[i, j], sets[j, i])


def padded(flat: np.ndarray, p: int, first: int) -> np.ndarray:
    """Return (p, p, width) int32 sets, padded with -1, from ``i, j, size, members`` of each pair, where variables are
    numbered from `first` on."""
    found, at = [], 0
    while at < len(flat):
        i, j, size = flat[at : at + 3]
        found.append((i - first, j - first, flat[at + 3 : at + 3 + size] - first))
        at += 3 + size
    sets = np.full((p, p, max((len(members) for *_, members in found), default=0)), -1, np.int32)
    for i, j, members in found:
        sets[i, j, : len(members)] = members
    return sets


def samples_of(problem: Any) -> np.ndarray:
    """Return (n, p) samples for a program that takes no correlations: a discrete problem's codes, or for a Gaussian
    problem made-up samples whose correlations are the problem's up to rounding errors."""
    if problem.family == "discrete":
        return np.ascontiguousarray(problem.codes.T)
    problem.degrees_of_freedom(0)  # Problems whose tests have critical values of their own refuse here.
    values, vectors = np.linalg.eigh(problem.correlation)
    used = values > values[-1] * len(values) * np.finfo(float).eps
    noise = np.random.default_rng(0).standard_normal((problem.n_samples, int(used.sum())))
    directions, _ = np.linalg.qr(noise - noise.mean(axis=0))
    return np.ascontiguousarray(directions @ (vectors[:, used] * np.sqrt(values[used])).T) * np.sqrt(problem.n_samples)


def call_package(
    problem: Problem,
    run: Run,
    search: Callable[[Any], Any],
    translate: Callable[[Any], tuple[np.ndarray, Iterable[Mark]]],
    data: Callable[[Any], Any] = samples_of,
    **facts: Any,
) -> Skeleton:
    """Call a package that takes samples, and return its graph; only `search` counts.

    Args:
        search: calls the package with its data.
        translate: makes the adjacency matrix and the marks of what `search` returns.
        data: makes the package's data of the problem.
        facts: further facts of the result.
    """
    refuse_pmax(run)
    start = time.perf_counter()
    prepared = data(problem)
    called = time.perf_counter()
    found = search(prepared)
    ended = time.perf_counter()
    adjacency, marks = translate(found)
    answer = whole_graph(problem, run, adjacency, marks, **facts)
    answer.facts["translation_s"] = time.perf_counter() - ended + called - start
    return answer
