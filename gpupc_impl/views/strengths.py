"""Computes edge strengths: for each pair the largest p-value among its tests, and the conditioning set and the effect
of the test with this p-value.

The test of a removed pair is the one that separated the pair. The tests of an edge are those of the search: at every
level that was run, all sets of that size among the neighbours that either end had when the level began (PC-stable;
cuPC, Algorithm 1) that the problem's tiers allow. Pairs that background knowledge fixes were never tested.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core import mapped_arrays
from gpupc_impl.core.family import open_tests
from gpupc_impl.core.independence import IndependenceTests
from gpupc_impl.core.result import NO_PAIRS, Skeleton
from gpupc_impl.core.subsets import Subsets, concatenated
from gpupc_impl.core.tiers import allowed_members
from gpupc_impl.integers import ceil_div
from gpupc_impl.views.progress import bar
from gpupc_impl.views.result import Result, edges_with_kind, numbered_edges, skeleton_of

if TYPE_CHECKING:
    import pandas

PAIRS = ("edges", "removed", "all")
TESTS_AT_ONCE = 1 << 15  # the approximate number of tests that are passed to the family's test in one call


def strengths(result: Result, pairs: str, backend: str, progress: bool | None) -> pandas.DataFrame:
    """See `core.result_views.ResultViews.strengths`."""
    if pairs not in PAIRS:
        raise ValueError(f"pairs is {pairs!r}; choose one of: {', '.join(PAIRS)}")
    skeleton = skeleton_of(result)
    if skeleton.problem is None:
        raise ValueError(
            "the tests cannot be made again, since this result does not hold its data (it may have been read from a "
            "file); call strengths() of the result that gpupc_impl.pc or gpupc_impl.skeleton returns"
        )
    test, parts = open_tests(skeleton.problem, backend), []
    if pairs != "removed":
        edges, tested = _edges(result)
        tests = list(_edge_tests(skeleton, edges[tested]))
        with bar(progress, sum(subsets.total for subsets in tests), "tests of the edges", " tests") as display:
            strongest = _edge_strengths(tests, tested, test, display)
        parts.append((edges, edges_with_kind(result)["kind"].tolist(), *strongest))
    if pairs != "edges":
        removed = np.argwhere(np.triu(~skeleton.adjacency, 1))
        tested = ~_among(removed, skeleton.sepsets.gaps, len(skeleton.names))
        with bar(progress, int(tested.sum()), "removed pairs", " pairs") as display:
            strongest = _removed_strengths(skeleton, removed, tested, test, display)
        parts.append((removed, np.where(tested, "removed", "forbidden").tolist(), *strongest))
    names = skeleton.names
    rows = [
        (names[i], names[j], kind, p_value, tuple(names[v] for v in members), effect)
        for part in parts
        for (i, j), kind, p_value, members, effect in zip(part[0].tolist(), *part[1:], strict=True)
    ]
    return _printed_whole()(rows, columns=["source", "target", "kind", "p_value", "given", test.effect])


@functools.cache
def _printed_whole() -> type[pandas.DataFrame]:
    """A DataFrame that prints all of its columns; what is selected from it is a plain one."""
    import pandas

    class Strengths(pandas.DataFrame):
        @property
        def _constructor(self) -> type[pandas.DataFrame]:
            return pandas.DataFrame

        def __repr__(self) -> str:
            with pandas.option_context("display.max_columns", None, "display.expand_frame_repr", False):
                return super().__repr__()

    return Strengths


def count_edge_tests(result: Result) -> int:
    """The number of tests that `strengths` makes for the edges of a result that holds its problem."""
    edges, tested = _edges(result)
    return sum(subsets.total for subsets in _edge_tests(skeleton_of(result), edges[tested]))


def _edges(result: Result) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the edges, (k, 2), and whether each edge was tested, (k,) bool; required edges are not tested."""
    fixed = skeleton_of(result).problem.fixed
    edges = np.array([edge[:2] for edge in numbered_edges(result)], np.int64).reshape(-1, 2)
    return edges, ~_among(np.sort(edges, axis=1), NO_PAIRS if fixed is None else fixed.required, len(result.names))


# Of pairs the p-values, the sets and the effects: NaN, the empty set and NaN for those that were not tested.
Strengths = tuple[np.ndarray, list[tuple[int, ...]], np.ndarray]


def _among(pairs: np.ndarray, others: np.ndarray, p: int) -> np.ndarray:
    """Return whether each of the (k, 2) pairs of p variables is among the others, (k,) bool; all pairs have i < j."""
    return np.isin(pairs @ [p, 1], others @ [p, 1])


def _removed_strengths(
    skeleton: Skeleton, pairs: np.ndarray, tested: np.ndarray, test: IndependenceTests, display: Any
) -> Strengths:
    ends = zip(*pairs.T.tolist(), tested.tolist(), strict=True)
    sets = [skeleton.sepsets[i, j] if is_tested else () for i, j, is_tested in ends]
    sizes = np.array([len(members) for members in sets], np.int64)
    p_values, effects = np.full(len(pairs), np.nan), np.full(len(pairs), np.nan)
    ordered, alpha = _owner_first(skeleton, pairs, sets), skeleton.problem.alpha
    for level in np.unique(sizes[tested]):
        numbers = np.flatnonzero(tested & (sizes == level))
        for batch in np.array_split(numbers, ceil_div(len(numbers), TESTS_AT_ONCE)):
            members = np.array([sets[k] for k in batch], np.int64).reshape(len(batch), level)
            p_values[batch], effects[batch] = test.strengths(ordered[batch], members)
            # The set may have been drawn from the other end's neighbours if it is among the neighbours of both ends.
            doubtful = batch[p_values[batch] < alpha]
            if len(doubtful):
                p_swapped, effects_swapped = test.strengths(ordered[doubtful, ::-1], members[np.isin(batch, doubtful)])
                larger = p_swapped > p_values[doubtful]
                p_values[doubtful[larger]], effects[doubtful[larger]] = p_swapped[larger], effects_swapped[larger]
            display.update(len(batch))
    return p_values, sets, effects


def _owner_first(skeleton: Skeleton, pairs: np.ndarray, sets: list[tuple[int, ...]]) -> np.ndarray:
    """Order each pair so that the variable from whose neighbours the set was drawn is first, i before j."""
    ordered, rows = pairs.copy(), functools.cache(functools.partial(_rows, skeleton))
    for k, members in enumerate(sets):
        if members and not np.isin(members, rows(len(members))[pairs[k, 0]]).all():
            ordered[k] = pairs[k, ::-1]
    return ordered


def _edge_tests(skeleton: Skeleton, edges: np.ndarray) -> Iterator[Subsets]:
    """Yield the tests of the (k, 2) edges at each level: pairs 2 q and 2 q + 1 are the ends of edge q, with the sets
    among the neighbours of the first end. At level 0 pair q is edge q."""
    yield Subsets(edges, np.zeros(len(edges) + 1, np.int64), np.empty(0, np.int32), 0)
    ascending = np.sort(edges, axis=1)
    pairs = np.stack([ascending, ascending[:, ::-1]], axis=1).reshape(-1, 2)
    for level in range(1, skeleton.levels_run):
        rows, lists = _rows(skeleton, level), []
        for owner, other in pairs.tolist():
            row = rows[owner][rows[owner] != other]
            lists.append(row[allowed_members(skeleton.problem.tiers, row, owner, other)])
        yield Subsets(pairs, *concatenated(lists), level)


def _rows(skeleton: Skeleton, level: int) -> list[np.ndarray]:
    """Return the ascending neighbours of each variable at the start of a level, 1 or more."""
    pairs, p = np.concatenate([skeleton.edges, skeleton.sepsets.from_level(level)]), len(skeleton.names)
    row, near = np.divmod(np.sort(np.concatenate([pairs, pairs[:, ::-1]]).astype(np.int64) @ [p, 1]), p)
    return np.split(near, np.cumsum(np.bincount(row, minlength=p))[:-1])


def _edge_strengths(tests: Sequence[Subsets], tested: np.ndarray, test: IndependenceTests, display: Any) -> Strengths:
    largest, effects = np.full(len(tested), -np.inf), np.full(len(tested), np.nan)
    best_sets: list[tuple[int, ...]] = [()] * len(tested)
    edges = np.flatnonzero(tested)
    for subsets in tests:
        for part in mapped_arrays.pieces(subsets.total, TESTS_AT_ONCE):
            of_part = np.arange(part.start, part.stop)
            owners = subsets.owners(of_part)
            sets, numbers = subsets.members(of_part, owners), edges[owners // 2 if subsets.size else owners]
            p_values, part_effects = test.strengths(subsets.pairs[owners], sets.astype(np.int64))
            p_values = np.where(np.isnan(p_values), -np.inf, p_values)
            starts = np.flatnonzero(np.diff(numbers, prepend=-1))
            for start, stop in itertools.pairwise([*starts.tolist(), len(numbers)]):
                position, number = start + int(np.argmax(p_values[start:stop])), int(numbers[start])
                if p_values[position] > largest[number]:  # Of equal p-values the first is kept.
                    largest[number], effects[number] = p_values[position], part_effects[position]
                    best_sets[number] = tuple(sets[position].tolist())
            display.update(len(numbers))
    return np.where(np.isinf(largest), np.nan, largest), best_sets, effects
