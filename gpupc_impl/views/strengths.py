"""Edge strength: of each pair the largest p-value, the set it was found with, and the effect there.

A removed pair's test is the one that separated it. An edge's tests are those of the search: at every level that was
run, all sets of that size among the neighbours that either end had when the level began (PC-stable; cuPC, Algorithm 1).
What background knowledge fixes was never tested.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core.family import Strength, get_family
from gpupc_impl.core.result import Skeleton
from gpupc_impl.integers import ceil_div
from gpupc_impl.views.progress import bar
from gpupc_impl.views.result import Result, edges_with_kind, numbered_edges, skeleton_of

if TYPE_CHECKING:
    import pandas

PAIRS = ("edges", "removed", "all")

TESTS_AT_ONCE = 1 << 15


def strengths(result: Result, pairs: str, backend: str, progress: bool | None) -> pandas.DataFrame:
    """See `core.shown.Shown.strengths`."""
    import pandas

    if pairs not in PAIRS:
        raise ValueError(f"pairs is {pairs!r}; choose one of: {', '.join(PAIRS)}")
    skeleton = skeleton_of(result)
    test = _tests_of(skeleton, backend)
    fixed = skeleton.problem.fixed
    parts = []
    if pairs != "removed":
        edges = np.array([edge[:2] for edge in numbered_edges(result)], np.int64).reshape(-1, 2)
        tested = ~_among(np.sort(edges, axis=1), [] if fixed is None else fixed.required)
        with bar(progress, int(_counts(skeleton, edges[tested]).sum()), "tests of the edges", " tests") as shown:
            found = _untested(_of_edges(skeleton, edges[tested], test, shown), tested)
        parts.append((edges, edges_with_kind(result)["kind"].tolist(), *found))
    if pairs != "edges":
        removed = np.argwhere(np.triu(~skeleton.adjacency, 1))
        tested = ~_among(removed, skeleton.sepsets.gaps)
        with bar(progress, int(tested.sum()), "removed pairs", " pairs") as shown:
            found = _untested(_of_removed(skeleton, removed[tested], test, shown), tested)
        parts.append((removed, np.where(tested, "removed", "forbidden").tolist(), *found))
    names = skeleton.names
    rows = [
        (names[i], names[j], kind, p_value, tuple(names[v] for v in given), effect)
        for part in parts
        for (i, j), kind, p_value, given, effect in zip(part[0].tolist(), *part[1:], strict=True)
    ]
    return pandas.DataFrame(rows, columns=["source", "target", "kind", "p_value", "given", test.effect])


def _tests_of(skeleton: Skeleton, backend: str) -> Strength:
    problem = skeleton.problem
    if problem is None:
        raise ValueError(
            "the tests cannot be made again, since this result does not hold its data (it was read from a file, say); "
            "ask the one that gpupc_impl.pc or gpupc_impl.skeleton returns"
        )
    make = get_family(problem.family).strength
    if make is None:
        raise ValueError(f"family {problem.family!r} does not say how strong an edge is (Family.strength)")
    return make(problem, backend)


Found = tuple[np.ndarray, list[tuple[int, ...]], np.ndarray]
"""Of some pairs: p-values, sets and effects."""


def _among(pairs: np.ndarray, some: Sequence[Sequence[int]] | np.ndarray) -> np.ndarray:
    """(k,) bool: which of the (k, 2) pairs are among some others, i < j in all."""
    known = {tuple(pair) for pair in np.asarray(some).tolist()}
    return np.array([tuple(pair) in known for pair in pairs.tolist()], bool)


def _untested(found: Found, tested: np.ndarray) -> Found:
    """What was found of the pairs that were tested, with NaN and no set for the others."""
    p_values, effects = np.full(len(tested), np.nan), np.full(len(tested), np.nan)
    p_values[tested], effects[tested] = found[0], found[2]
    given = iter(found[1])
    return p_values, [next(given) if one else () for one in tested], effects


def _of_removed(skeleton: Skeleton, pairs: np.ndarray, test: Strength, shown: Any) -> Found:
    given = [skeleton.sepsets[i, j] for i, j in pairs.tolist()]
    sizes = np.array([len(members) for members in given], np.int64)
    p_values, effects = np.full(len(pairs), np.nan), np.full(len(pairs), np.nan)
    ordered, alpha = _owner_first(skeleton, pairs, given), skeleton.problem.alpha
    for level in np.unique(sizes):
        chosen = np.flatnonzero(sizes == level)
        for some in np.array_split(chosen, ceil_div(len(chosen), TESTS_AT_ONCE)):
            members = np.array([given[k] for k in some], np.int64).reshape(len(some), level)
            p_values[some], effects[some] = test(ordered[some], members)
            other = some[p_values[some] < alpha]  # a set of both ends' neighbours may have separated from the other end
            if len(other):
                turned = test(ordered[other, ::-1], members[np.isin(some, other)])
                better = turned[0] > p_values[other]
                p_values[other[better]], effects[other[better]] = turned[0][better], turned[1][better]
            shown.update(len(some))
    return p_values, given, effects


def _owner_first(skeleton: Skeleton, pairs: np.ndarray, given: list[tuple[int, ...]]) -> np.ndarray:
    """The pairs with the variable first whose neighbours the set was drawn from: adj(i) comes before adj(j)."""
    ordered = pairs.copy()
    graphs: dict[int, np.ndarray] = {}
    for k, members in enumerate(given):
        if members:
            level = len(members)
            if level not in graphs:
                graphs[level] = skeleton.adjacency_at(level)
            if not graphs[level][pairs[k, 0], list(members)].all():
                ordered[k] = pairs[k, ::-1]
    return ordered


def _counts(skeleton: Skeleton, edges: np.ndarray) -> np.ndarray:
    """How many tests each edge had."""
    from scipy.special import comb

    counts = np.ones(len(edges))
    for level in range(1, skeleton.levels_run):
        near = skeleton.adjacency_at(level).sum(axis=1) - 1
        counts += comb(near[edges], level).sum(axis=1)
    return counts


def _of_edges(skeleton: Skeleton, edges: np.ndarray, test: Strength, shown: Any) -> Found:
    best = np.full(len(edges), -np.inf)
    effects = np.full(len(edges), np.nan)
    given: list[tuple[int, ...]] = [()] * len(edges)
    for level in range(skeleton.levels_run):
        for numbers, pairs, sets in _batches(_tests_of_level(skeleton, edges, level), level):
            p_values, found = test(pairs, sets)
            p_values = np.where(np.isnan(p_values), -np.inf, p_values)
            starts = np.flatnonzero(np.diff(numbers, prepend=-1))
            for start, stop in itertools.pairwise([*starts.tolist(), len(numbers)]):
                at, number = start + int(np.argmax(p_values[start:stop])), int(numbers[start])
                if p_values[at] > best[number]:  # of equal ones the first
                    best[number], effects[number] = p_values[at], found[at]
                    given[number] = tuple(sets[at].tolist())
            shown.update(len(numbers))
    return np.where(np.isinf(best), np.nan, best), given, effects


def _tests_of_level(
    skeleton: Skeleton, edges: np.ndarray, level: int
) -> Iterator[tuple[int, tuple[int, int], np.ndarray]]:
    """The tests that edges had at a level: an edge's number, one end, the other, and (k, level) sets of the first's."""
    if level == 0:
        yield from ((number, (i, j), np.empty((1, 0), np.int64)) for number, (i, j) in enumerate(edges.tolist()))
        return
    graph = skeleton.adjacency_at(level)
    rows = [np.flatnonzero(row) for row in graph]
    for number, (i, j) in enumerate(np.sort(edges, axis=1).tolist()):
        for owner, other in ((i, j), (j, i)):
            sets = itertools.combinations(rows[owner][rows[owner] != other].tolist(), level)
            while len(some := _table(itertools.islice(sets, TESTS_AT_ONCE), level)):
                yield number, (owner, other), some


def _table(sets: Iterator[tuple[int, ...]], level: int) -> np.ndarray:
    return np.fromiter(itertools.chain.from_iterable(sets), np.int64).reshape(-1, level)


def _batches(
    tests: Iterator[tuple[int, tuple[int, int], np.ndarray]], level: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Tests together: (k,) numbers of edges, (k, 2) pairs, (k, level) sets; those of an edge stay side by side."""
    waiting: list[tuple[int, tuple[int, int], np.ndarray]] = []
    size = 0
    for one in itertools.chain(tests, [None]):
        if waiting and (one is None or size >= TESTS_AT_ONCE):
            lengths = [len(sets) for _, _, sets in waiting]
            numbers = np.repeat([number for number, _, _ in waiting], lengths)
            pairs = np.repeat(np.array([pair for _, pair, _ in waiting]), lengths, axis=0)
            yield numbers, pairs, np.concatenate([sets for _, _, sets in waiting])
            waiting, size = [], 0
        if one is not None:
            waiting.append(one)
            size += len(one[2])
