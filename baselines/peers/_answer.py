"""What all adapters share: registration, libraries that users build, and the conversion of answers to a `Skeleton`."""

import ctypes
import functools
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gpupc_impl.core.pc_stable import stop_reason
from gpupc_impl.core.problem import InvalidProblem, Problem
from gpupc_impl.core.registry import InvalidParameter, Run, method
from gpupc_impl.core.result import SeparatingSets, Skeleton, complete_graph
from gpupc_impl.core.whole_graphs import Mark, whole_graph


def peer(name: str, **attributes: Any) -> Callable[[Any], Any]:
    """Register others' program as a method: by default on CPUs, with its own sets, without background knowledge."""
    return method(name, **{"backends": ("cpu",), "canonical": False, "knowledge": False, **attributes})


class Library(NamedTuple):
    """A shared library that the user builds (see `build`): the environment variable with its path, and its functions by
    name, each with the type of its result and those of its arguments."""

    variable: str
    functions: Mapping[str, tuple[Any, Sequence[Any]]]

    def unavailable(self) -> str | None:
        if not os.environ.get(self.variable):
            return (
                f"{self.variable} does not name the library built from the authors' repository; docs/peers.md says how"
            )
        try:
            self.load()
        except (OSError, AttributeError) as error:
            return f"{self.variable} names {os.environ[self.variable]!r}, which cannot be used: {error}"
        return None

    def load(self) -> ctypes.CDLL:
        library = _loaded(os.environ[self.variable])
        for name, (result, arguments) in self.functions.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        return library


_loaded = functools.cache(ctypes.CDLL)


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


def refuse_workload(problem: Any, run: Run) -> None:
    """Raise InvalidProblem if a discrete problem is the workload of a fixed number of tests an edge."""
    if not getattr(problem, "decided_by_tests", True):
        raise InvalidProblem(
            f"method {run.facts.get('method')!r} makes the tests that its search needs, not tests_per_edge = "
            f"{problem.tests_per_edge} of them; leave it out of this workload"
        )


class Found(NamedTuple):
    """The answer of a program."""

    edges: np.ndarray  # (p, p) numbers, which are nonzero for edges
    sets: np.ndarray  # (p, p, width) int32: a removed pair's set, padded with -1, at [i, j] or [j, i] or both
    level_seconds: Sequence[float] = ()  # the times of levels that the program reports; 0 is recorded for others
    seconds: float | None = None  # the time of the search by the program's own clock; None to count the whole call
    facts: Mapping[str, Any] = {}  # further facts of the result


def call_program(problem: Any, run: Run, most: int, search: Callable[[int], Found]) -> Skeleton:
    """Call a program for the search up to a level, at most its deepest one (`most`), and return its answer as a
    `Skeleton`. `search` calls it, given the largest level at which it may make tests. InvalidParameter is raised if
    largest p-values are requested, InvalidProblem for the workload of a fixed number of tests an edge."""
    refuse_pmax(run)
    refuse_workload(problem, run)
    deepest, p = deepest_level(problem, most), problem.n_variables
    if deepest < 0:
        return to_skeleton(problem, run, Found(complete_graph(p), np.empty((p, p, 0), np.int32)), deepest)
    start = time.perf_counter()
    found = search(deepest)
    skeleton = to_skeleton(problem, run, found, deepest)
    if found.seconds is not None:
        skeleton.facts["translation_s"] = time.perf_counter() - start - found.seconds
    return skeleton


def to_skeleton(problem: Problem, run: Run, found: Found, deepest: int) -> Skeleton:
    """Return a program's answer as a `Skeleton`; ``facts["translation_s"]`` is the time of the conversion, to be
    subtracted. The programs do not count tests, so ``tests_per_level`` is 0 from level 1 on. `deepest` is the largest
    level that the program was allowed; -1 if it was not started."""
    start = time.perf_counter()
    p = problem.n_variables
    adjacency = np.asarray(found.edges) != 0
    pairs, members = _sets_of(adjacency, found.sets)
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
    seconds = (*found.level_seconds, *[0.0] * level)[:level]
    return Skeleton(
        adjacency=adjacency,
        sepsets=sepsets,
        names=problem.names,
        tests_per_level=(p * (p - 1) // 2, *[0] * level)[:level],
        edges_per_level=tuple(edges_per_level),
        seconds_per_level=tuple(map(float, seconds)),
        levels_run=level,
        stopped_because=reason or f"the program's limit: it was told to end with level {deepest}",
        facts={**run.facts, **found.facts, "problem": problem.facts(), "translation_s": time.perf_counter() - start},
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
    """Return (p, p, width) int32 sets, padded with -1, of ``i, j, size, members`` for pairs, counted from `first`."""
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


def timed_call(
    problem: Any,
    run: Run,
    search: Callable[[Any], Any],
    answer: Callable[[Any], Skeleton],
    data: Callable[[Any], Any] = samples_of,
) -> Skeleton:
    """Return a package's answer. `data` prepares its input, `search` calls it, and `answer` converts what it returns;
    only the time of `search` is measured."""
    refuse_pmax(run)
    start = time.perf_counter()
    prepared = data(problem)
    called = time.perf_counter()
    found = search(prepared)
    ended = time.perf_counter()
    skeleton = answer(found)
    skeleton.facts["translation_s"] = time.perf_counter() - ended + called - start
    return skeleton


def call_package(
    problem: Any,
    run: Run,
    search: Callable[[Any], Any],
    translate: Callable[[Any], tuple[np.ndarray, Iterable[Mark]]],
    data: Callable[[Any], Any] = samples_of,
    **facts: Any,
) -> Skeleton:
    """Return the graph of a `timed_call`, of which `translate` makes adjacency matrix and marks, with further facts."""
    return timed_call(
        problem, run, search, lambda found: whole_graph(problem, run, *translate(found), **facts), data=data
    )
