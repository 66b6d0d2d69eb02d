"""Certificates: every removed edge is tested again from scratch.

An edge's separating set must separate it, consist of neighbours of one of its ends, have no member that the problem's
tiers keep out of it, and have the size of the level at which the edge was removed.
"""

from collections.abc import Iterator

import numpy as np

from gpupc_impl.core import mapped_arrays
from gpupc_impl.integers import ceil_div
from gpupc_impl.verification.answer import Answer

_PAIRS_AT_ONCE = 1 << 20


def certificates(answer: Answer) -> tuple[int, list[str]]:
    """Test removed edges again; returns the number of tested edges, and a sentence for each that fails.

    If a family's test takes too long for all of them, an evenly spread sample of the size that `Retest.affordable`
    allows is tested.
    """
    if not answer.problem.decided_by_tests:
        return 0, []
    names = answer.problem.names
    removed = answer.problem.n_variables * (answer.problem.n_variables - 1) // 2 - answer.skeleton.n_edges
    removed -= len(answer.gaps)
    stride = 1 if answer.retest.affordable is None else ceil_div(removed, max(answer.retest.affordable, 1)) or 1
    checked, failures, offset = 0, _broken(answer), 0
    misplacement = "the set is not of one end's neighbours"
    if answer.problem.tiers is not None:
        misplacement += ", or has a member that is later than both ends"
    for pairs, members in _removed(answer):
        some = np.arange(-offset % stride, len(pairs), stride)
        offset += len(pairs)
        pairs, members = pairs[some], members[some]
        checked += len(pairs)
        ratios, tolerances, misplaced = answer.ratios(pairs, members)
        for k in np.flatnonzero(misplaced | ~(ratios <= 1 + tolerances)):
            given = ", ".join(names[s] for s in members[k])
            fault = (
                misplacement
                if misplaced[k]
                else f"it does not separate: the statistic is {ratios[k]:.12g} times its critical value"
            )
            failures.append(f"{answer.label(pairs[k])} given {{{given}}}: {fault}")
    return checked, failures


def _broken(answer: Answer) -> list[str]:
    """Return a sentence for each required edge that the answer lacks and each forbidden edge that it has."""
    if answer.problem.fixed is None:
        return []
    sepsets, broken = answer.skeleton.sepsets, answer.problem.fixed.broken_by(answer.skeleton.adjacency)
    faults = [f"{answer.label(pair)}: background knowledge requires or forbids it" for pair in broken]
    with_set = answer.level(sepsets.pairs) < 0
    return faults + [f"{answer.label(pair)}: it is forbidden, and has a set" for pair in sepsets.pairs[with_set]]


def _removed(answer: Answer) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield all removed pairs with their sets, (k, 2) and (k, level), level by level in batches."""
    for pairs in _removed_at_level_zero(answer):
        yield pairs, np.empty((len(pairs), 0), np.int64)
    for level in np.unique(answer.sizes):
        chosen = np.flatnonzero(answer.sizes == level)
        for part in mapped_arrays.pieces(len(chosen), _PAIRS_AT_ONCE):
            yield answer.skeleton.sepsets.pairs[chosen[part]].astype(np.int64), answer.members(chosen[part], level)


def _removed_at_level_zero(answer: Answer) -> Iterator[np.ndarray]:
    """Yield the pairs with the empty set, a few rows at a time; these are most of the pairs, and no list of them
    exists."""
    p, listed = answer.problem.n_variables, answer.skeleton.sepsets.pairs
    rows = max(_PAIRS_AT_ONCE // p, 1)
    for first in range(0, p, rows):
        last = min(first + rows, p)
        removed = (np.arange(p) > np.arange(first, last)[:, None]) & ~answer.skeleton.adjacency[first:last]
        start, stop = np.searchsorted(answer.set_keys, (first * p, last * p))
        here = listed[start:stop].astype(np.int64)
        removed[here[:, 0] - first, here[:, 1]] = False
        gaps = answer.gaps[slice(*np.searchsorted(answer.gaps[:, 0], (first, last)))]
        removed[gaps[:, 0] - first, gaps[:, 1]] = False
        pairs = np.argwhere(removed)
        pairs[:, 0] += first
        yield pairs


def wrong_sizes(answer: Answer) -> list[str]:
    """Check that the sizes of the sets agree with the numbers of edges left after each level."""
    failures = []
    for level, edges in enumerate(answer.skeleton.edges_per_level):
        counted = answer.skeleton.n_edges + int(np.count_nonzero(answer.sizes > level))
        if counted != edges:
            failures.append(f"{edges} edges were left after level {level}, but by the sets' sizes {counted}")
    return failures
