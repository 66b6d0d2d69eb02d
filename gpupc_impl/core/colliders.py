"""Finds v-structures: decides which unshielded triples of a skeleton are colliders and which are ambiguous.

The standard rule reads the separating sets. The conservative and the majority rule (Ramsey et al. 2006; Colombo and
Maathuis 2014, section 4.2; pcalg's ``conservative`` and ``maj.rule``) test the two ends of each triple again, given
every subset of the neighbours of the first end and every subset of the neighbours of the second end.
"""

import dataclasses
import itertools
import math
import warnings
from collections.abc import Iterator

import numpy as np

from gpupc_impl.core import mapped
from gpupc_impl.core.family import get_family
from gpupc_impl.core.problem import InvalidProblem, Problem
from gpupc_impl.core.result import Skeleton
from gpupc_impl.core.tiers import allowed_sets

AUTO = "auto"
"""The value of ``v_structures`` that selects the rule of `Family.v_structures`."""

V_STRUCTURES = ("standard", "conservative", "majority")

MAX_TRIPLES = 2**22
"""The upper bound on the triples in memory at once; a variable with very many neighbours would otherwise exceed it."""

MAX_TESTS = 2**24
"""The upper bound on the tests of the conservative and the majority rule; tests given at most one variable are always
made."""

TESTS_AT_ONCE = 2**16
"""The upper bound on the tests in a batch."""


@dataclasses.dataclass(frozen=True, eq=False)
class Triples:
    """Unshielded triples i - k - j that are colliders or ambiguous.

    Attributes:
        colliders: (c, 3) int64 rows i, k, j, i < j: v-structures i -> k <- j.
        ambiguous: (a, 3) int64 rows i, k, j, i < j: triples for which the tests do not decide; no rule uses them.
    """

    colliders: np.ndarray
    ambiguous: np.ndarray


def default_rule(problem: Problem) -> str:
    """Return the rule that ``"auto"`` selects: that of the problem's family."""
    return get_family(problem.family).v_structures


def judged_triples(skeleton: Skeleton, v_structures: str, problem: Problem | None) -> Iterator[Triples]:
    """Yield the colliders and the ambiguous triples in batches, ordered by k, then i, then j.

    Args:
        v_structures: ``"standard"``: a triple is a collider if k is not in the separating set of (i, j); triples of a
            pair that background knowledge forbids are ambiguous, because such a pair has no separating set.
            ``"conservative"``: a triple is a collider if k is in none of the separating subsets of the neighbours of i
            or of j, and ambiguous if k is in some but not in all of them, or if nothing separates i and j.
            ``"majority"``: a triple is a collider if k is in fewer than half of these subsets, and ambiguous if k is in
            exactly half.
        problem: the problem whose tests decide; the standard rule does not use it.

    Raises:
        InvalidProblem: the rule needs tests but no problem was passed.
    """
    if v_structures == "standard":
        return _by_separating_sets(skeleton)
    if problem is None:
        raise InvalidProblem(
            f'v_structures="{v_structures}" makes tests, which needs the problem; give it as orient(..., problem=...)'
        )
    return iter([_by_votes(skeleton, v_structures, problem)])


def _unshielded(adjacency: np.ndarray) -> Iterator[np.ndarray]:
    """Yield every triple i - k - j with i < j not adjacent, as (t, 3) int64 batches with the same k."""
    for k, row in enumerate(adjacency):
        neighbours = np.flatnonzero(row)
        for some in np.array_split(neighbours, len(neighbours) ** 2 // MAX_TRIPLES + 1):
            i, j = np.nonzero(~adjacency[np.ix_(some, neighbours)])
            i, j = some[i], neighbours[j]
            i, j = i[i < j], j[i < j]
            if len(i):
                yield np.stack([i, np.full(len(i), k), j], axis=1)


def _by_separating_sets(skeleton: Skeleton) -> Iterator[Triples]:
    """Implements the standard rule of `judged_triples`."""
    sepsets, p = skeleton.sepsets, len(skeleton.names)
    pairs, gaps = (array.astype(np.int64) @ [p, 1] for array in (sepsets.pairs, sepsets.gaps))
    members = np.repeat(np.arange(len(pairs)), sepsets.sizes()) * p + sepsets.members
    for triples in _unshielded(skeleton.adjacency):
        i, k, j = triples.T
        number, stored = find(pairs, i * p + j)
        _, member = find(members, number * p + k)
        _, untested = find(gaps, i * p + j)
        yield Triples(triples[~(stored & member) & ~untested], triples[untested])


def _by_votes(skeleton: Skeleton, v_structures: str, problem: Problem) -> Triples:
    """Implements the conservative and the majority rule of `judged_triples`."""
    triples = np.concatenate([np.empty((0, 3), np.int64), *_unshielded(skeleton.adjacency)])
    members, separating = _votes(triples, skeleton.adjacency, problem)
    if v_structures == "conservative":
        collider, other = members == 0, members == separating
    else:
        collider, other = 2 * members < separating, 2 * members > separating
    known = separating > 0
    return Triples(triples[known & collider], triples[~known | ~(collider | other)])


def find(ascending: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of numbers in an ascending array (insertion points), and whether the array contains them."""
    positions = np.searchsorted(ascending, numbers)
    contained = positions < len(ascending)
    contained[contained] = ascending[positions[contained]] == numbers[contained]
    return positions, contained


def _votes(triples: np.ndarray, adjacency: np.ndarray, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Count for each triple the separating sets of its two ends that contain its middle, and all of them: (t,) int64
    each.

    As in pcalg, a set among the neighbours of both ends counts twice, because either end yields it.
    """
    p, retest = len(adjacency), get_family(problem.family).retest(problem)
    ends = triples[:, [0, 2]] @ [p, 1]
    pairs, of_pair = np.unique(ends, return_inverse=True)
    counts, separating = np.zeros((len(pairs), p), np.int64), np.zeros(len(pairs), np.int64)
    for tested, sets, numbers in _tests(pairs, adjacency, problem):
        ratios, _ = retest.ratios(tested, sets)
        hits = np.flatnonzero(ratios <= 1)
        np.add.at(separating, numbers[hits], 1)
        np.add.at(counts, (np.repeat(numbers[hits], sets.shape[1]), sets[hits].reshape(-1)), 1)
    return counts[of_pair, triples[:, 1]], separating[of_pair]


def _tests(
    keys: np.ndarray, adjacency: np.ndarray, problem: Problem
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the tests of the pairs in batches of one level: (t, 2) the variable whose neighbours the set is drawn from
    and the other variable, (t, level) the set, and (t,) the number of the pair."""
    p = len(adjacency)
    pairs = np.stack(np.divmod(keys, p), axis=1)
    neighbours = [np.flatnonzero(row) for row in adjacency]
    owners = np.concatenate([pairs, pairs[:, ::-1]])
    widest = max(np.unique(owners), key=lambda owner: len(neighbours[owner]), default=0)
    longest = len(neighbours[widest]) if len(owners) else 0
    levels = []
    for level in range(longest + 1):
        if problem.obstacle(level) is not None or (problem.max_level is not None and level > problem.max_level):
            break
        levels.append(level)
    degrees = np.array(list(map(len, neighbours)), np.int64)[owners[:, 0]]
    counts = tuple(array.tolist() for array in np.unique(degrees, return_counts=True))
    tests = [sum(math.comb(n, level) * count for n, count in zip(*counts, strict=True)) for level in levels]
    affordable = levels
    while len(affordable) > 2 and sum(tests[: len(affordable)]) > MAX_TESTS:
        affordable = affordable[:-1]
    if affordable != levels:
        warnings.warn(
            f"v-structures are found by subsets of at most {affordable[-1]} neighbours: larger ones would take "
            f"{sum(tests):,} tests, more than {MAX_TESTS:,}, since {problem.names[widest]} has {longest} neighbours; "
            'lower alpha, or say v_structures="standard", which makes no tests and depends on the order of variables',
            stacklevel=2,
        )
        levels = affordable
    for level, n in itertools.product(levels, np.unique(degrees).tolist()):
        alike = np.flatnonzero(degrees == n)
        rows = np.stack([neighbours[owner] for owner in owners[alike, 0]])
        for positions in _combinations(n, level):
            count = len(positions)
            for part in mapped.pieces(len(alike), max(TESTS_AT_ONCE // count, 1)):
                some = alike[part]
                sets = rows[part][:, positions].reshape(len(some) * count, level)
                tested, numbers = np.repeat(owners[some], count, axis=0), np.repeat(some % len(pairs), count)
                allowed = allowed_sets(problem.tiers, tested, sets)
                yield tested[allowed], sets[allowed], numbers[allowed]


def _combinations(n: int, size: int) -> Iterator[np.ndarray]:
    """Yield the subsets of range(n) in batches, each (c, size) int64."""
    subsets = itertools.combinations(range(n), size)
    while some := list(itertools.islice(subsets, TESTS_AT_ONCE)):
        yield np.array(some, np.int64).reshape(len(some), size)
