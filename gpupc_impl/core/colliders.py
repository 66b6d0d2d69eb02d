"""Finds v-structures: decides which unshielded triples of a skeleton are colliders and which are ambiguous. The
standard rule reads the separating sets. The conservative and the majority rule (Ramsey et al. 2006; Colombo and
Maathuis 2014, section 4.2; pcalg's ``conservative`` and ``maj.rule``) test the ends of each triple again, given every
subset of the neighbours of either end."""

import dataclasses
import itertools
import math
import warnings
from collections.abc import Iterator

import numpy as np

from gpupc_impl.core.family import open_tests
from gpupc_impl.core.pairs import find
from gpupc_impl.core.problem import InvalidProblem, Problem
from gpupc_impl.core.result import Skeleton
from gpupc_impl.core.tiers import may_be_members

AUTO = "auto"  # selects the rule of `Family.v_structures`
V_STRUCTURES = ("standard", "conservative", "majority")
MAX_TRIPLES = 2**20  # triples in memory at once
MAX_TESTS = 2**24  # tests of the conservative and the majority rule; those given at most one variable are always made


@dataclasses.dataclass(frozen=True, eq=False)
class Triples:
    """Unshielded triples i - k - j, int64 rows i, k, j with i < j: colliders, (c, 3), and ambiguous ones, (a, 3)."""

    colliders: np.ndarray
    ambiguous: np.ndarray


def judged_triples(skeleton: Skeleton, v_structures: str, problem: Problem | None) -> Iterator[Triples]:
    """Yield the colliders and ambiguous triples, as docs/knowledge.md defines them for each rule `v_structures`, in
    batches, ordered by k, then i, then j. InvalidProblem is raised if the rule needs tests and `problem` is None."""
    if v_structures == "standard":
        return _by_separating_sets(skeleton)
    if problem is None:
        raise InvalidProblem(
            f'v_structures="{v_structures}" makes tests, which needs the problem; give it as orient(..., problem=...)'
        )
    return iter([_by_votes(skeleton, v_structures, problem)])


def _unshielded(adjacency: np.ndarray) -> Iterator[np.ndarray]:
    """Yield every triple i - k - j with i < j not adjacent, as (t, 3) int64 batches, ordered by k, then i, then j."""
    k, neighbours = np.nonzero(adjacency)
    ends = np.searchsorted(k, k, side="right")
    later = ends - np.arange(len(k)) - 1  # the number of neighbours j of k that follow i
    batches = np.cumsum(later) // MAX_TRIPLES
    for part in np.split(np.arange(len(k)), np.flatnonzero(np.diff(batches)) + 1):
        first = np.repeat(part, later[part])
        second = first + 1 + np.arange(len(first)) - np.searchsorted(first, first)
        i, j = neighbours[first], neighbours[second]
        apart = ~adjacency[i, j]
        if apart.any():
            yield np.stack([i, k[first], j], axis=1)[apart]


def _by_separating_sets(skeleton: Skeleton) -> Iterator[Triples]:
    """The standard rule of `judged_triples`."""
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
    """The conservative and the majority rule of `judged_triples`. As in pcalg, a separating set among the neighbours of
    both ends counts twice, because either end yields it."""
    adjacency, p = skeleton.adjacency, len(skeleton.names)
    triples = np.concatenate([np.empty((0, 3), np.int64), *_unshielded(adjacency)])
    keys, of_pair = np.unique(triples[:, [0, 2]] @ [p, 1], return_inverse=True)
    pairs = np.stack(np.divmod(keys, p), axis=1)
    owners = np.concatenate([pairs, pairs[:, ::-1]])  # the end whose neighbours the sets are drawn from, and the other
    degrees, (_, neighbours) = adjacency.sum(axis=1), np.nonzero(adjacency)
    most = _largest_set(owners[:, 0], degrees[owners[:, 0]], problem)
    of_owner = np.repeat(np.arange(len(owners)), degrees[owners[:, 0]])
    place = np.arange(len(of_owner)) - np.searchsorted(of_owner, of_owner)
    candidates = neighbours[(np.cumsum(degrees) - degrees)[owners[of_owner, 0]] + place].astype(np.int32)
    allowed = may_be_members(problem.tiers, owners[of_owner], candidates[:, None])[:, 0]
    of_owner, candidates = of_owner[allowed], candidates[allowed]
    starts = np.searchsorted(of_owner, np.arange(len(owners) + 1))
    separating, containing = open_tests(problem).count_separating(owners, starts, candidates, most)
    of_ends = np.stack([of_pair, of_pair + len(pairs)])
    at, found = find(of_owner * p + candidates, (of_ends * p + triples[:, 1]).ravel())
    with_middle = np.zeros(of_ends.shape, np.int64)  # A middle may be in no set.
    with_middle.flat[found] = containing[at[found]]
    members, sets = with_middle.sum(axis=0), separating[of_ends].sum(axis=0)  # the sets with the middle, and all
    if v_structures == "conservative":
        collider, other = members == 0, members == sets
    else:
        collider, other = 2 * members < sets, 2 * members > sets
    known = sets > 0
    return Triples(triples[known & collider], triples[~known | ~(collider | other)])


def _largest_set(owners: np.ndarray, degrees: np.ndarray, problem: Problem) -> int:
    """Return the largest size of sets that vote for (k,) ends of these degrees, -1 for none; warn if tests limit it."""
    longest = int(degrees.max(initial=0))
    last = longest if problem.max_level is None else min(longest, problem.max_level)
    sizes = list(itertools.takewhile(lambda size: problem.obstacle(size) is None, range(last + 1)))
    counts = np.bincount(degrees).tolist()
    tests = [sum(math.comb(n, size) * count for n, count in enumerate(counts) if count) for size in sizes]
    affordable = len(sizes)
    while affordable > 2 and sum(tests[:affordable]) > MAX_TESTS:
        affordable -= 1
    if affordable < len(sizes):
        widest = problem.names[int(owners[degrees == longest].min())]
        warnings.warn(
            f"v-structures are found by subsets of at most {affordable - 1} neighbours: larger ones would take "
            f"{sum(tests):,} tests, more than {MAX_TESTS:,}, since {widest} has {longest} neighbours; "
            'lower alpha, or say v_structures="standard", which makes no tests and depends on the order of variables',
            stacklevel=2,
        )
    return affordable - 1
