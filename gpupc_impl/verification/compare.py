"""Compares two answers edge by edge and set by set, and finds the reason for every difference.

Labelled edges are compared exactly, and canonical settings must agree in their separating sets too. A difference is
explained by making the test that decided it again from scratch. A difference is no fault if one of the two methods
draws its own random numbers.
"""

import numpy as np

from gpupc_impl.core import mapped_arrays
from gpupc_impl.core.result import NO_PAIRS
from gpupc_impl.verification.answer import Answer

STATUSES = ("equal", "alone", "near-threshold", "convention", "random", "explained", "unexplained", "not-run")
"""The statuses from best to worst, except for `not-run`. Only `unexplained` makes a workflow fail.

An answer is `alone` if no other setting finished. A difference is `explained` if `known_differences` lists it.
"""

EXPLAINED_AT_MOST = 1000  # the most differences that are examined; further ones count as unexplained

P_VALUES_AGREE = 1e-10  # the largest difference of two p-values of one test, whose operations have different orders


def _differing_marks(one: Answer, other: Answer) -> np.ndarray:
    """Return the (k, 2) pairs i <= j, ascending, of which two graphs with marks say different things."""
    ours, theirs = one.marks or {}, other.marks or {}
    if not (ours and theirs):
        return NO_PAIRS
    far = {key for key in ours.keys() & theirs.keys() if abs((ours[key] or 0) - (theirs[key] or 0)) > P_VALUES_AGREE}
    pairs = {(min(i, j), max(i, j)) for i, j, _ in far | (ours.keys() ^ theirs.keys())}
    return np.array(sorted(pairs), np.int64).reshape(-1, 2)


def _differing_edges(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the (k, 2) pairs i < j, ascending, that are an edge of exactly one of the graphs."""
    found = [NO_PAIRS]
    for rows in mapped_arrays.row_pieces(one):
        pairs = np.argwhere(np.triu(one[rows] != other[rows], rows.start + 1))
        pairs[:, 0] += rows.start
        found.append(pairs)
    return np.concatenate(found)


class Comparison:
    """Two answers to one problem, and the reasons for their differences."""

    def __init__(self, reference: Answer, candidate: Answer):
        self.reference, self.candidate = reference, candidate
        self.edges = self.sets = NO_PAIRS
        self.sets_compared = reference.canonical and candidate.canonical
        if reference is candidate:
            return
        edges = _differing_edges(reference.skeleton.adjacency, candidate.skeleton.adjacency)
        self.edges = np.unique(np.concatenate([edges, _differing_marks(reference, candidate)]), axis=0)
        if self.sets_compared:
            self.sets = self._differing_sets()

    def _differing_sets(self) -> np.ndarray:
        """The pairs that both answers removed, but with different sets."""
        ours, theirs = self.reference, self.candidate
        p = len(ours.skeleton.names)
        keys = [answer.skeleton.sepsets.pairs.astype(np.int64) @ [p, 1] for answer in (ours, theirs)]
        _, a, b = np.intersect1d(*keys, assume_unique=True, return_indices=True)
        differ = ours.sizes[a] != theirs.sizes[b]
        for level in np.unique(ours.sizes[a]):
            same = np.flatnonzero((ours.sizes[a] == level) & ~differ)
            differ[same] = (ours.members(a[same], level) != theirs.members(b[same], level)).any(axis=1)
        pairs = [ours.skeleton.sepsets.pairs[a[differ]]]
        # The other answer removed these pairs at level 0.
        for one, other, common in ((ours, theirs, a), (theirs, ours, b)):
            alone = np.delete(one.skeleton.sepsets.pairs, common, axis=0)
            pairs.append(alone[~other.skeleton.adjacency[alone[:, 0], alone[:, 1]]])
        return np.concatenate(pairs)

    def statuses(self) -> tuple[list[str], list[str]]:
        """Yield the status of every differing edge and every differing set, up to `EXPLAINED_AT_MOST` of them."""
        explained = [self._explain(int(i), int(j)) for i, j in self.edges[:EXPLAINED_AT_MOST]]
        left = EXPLAINED_AT_MOST - len(explained)
        return explained, [self._explain(int(i), int(j)) for i, j in self.sets[:left]]

    def _explain(self, i: int, j: int) -> str:
        """Return the reason why one answer removed a pair earlier in canonical order than the other, or the other did
        not remove it.

        The earlier answer claims that its set separates the pair. There are three cases: the claim is wrong; or the
        other answer missed the set; or the other answer could not test the set, because it had already removed the edge
        to one of the members, and then that removal has to be explained instead.
        """
        if self.reference.random or self.candidate.random:
            return "random"
        answers = (self.reference, self.candidate)
        if any(answer.marks is not None for answer in answers):  # No single test decides about a whole graph.
            return "convention" if any(answer.differs_by for answer in answers) else "unexplained"
        i, j = min(i, j), max(i, j)
        fixed = self.reference.problem.fixed
        if fixed is not None and (np.concatenate([fixed.required, fixed.forbidden]) == (i, j)).all(axis=1).any():
            return "unexplained"
        ours, theirs = self.reference.claim(i, j), self.candidate.claim(i, j)
        if theirs is None or (ours is not None and ours <= theirs):
            owner, other, members = self.reference, self.candidate, ours[-1]
        else:
            owner, other, members = self.candidate, self.reference, theirs[-1]
        test = np.array([[i, j]]), np.array([members], int).reshape(1, len(members))
        (ratio,), (tolerance,), (misplaced,) = owner.ratios(*test)
        if misplaced:
            return "unexplained"
        if abs(ratio - 1) < tolerance:
            return "near-threshold"
        if ratio > 1:
            return "unexplained"
        if other.absent(i, members) and other.absent(j, members):
            sources = [end for end in (i, j) if not owner.absent(end, members)]
            causes = [self._explain(end, s) for end in sources for s in other.absent(end, members)]
            return max(causes, key=STATUSES.index)
        (ratio,), (tolerance,), _ = other.ratios(*test)
        if abs(ratio - 1) < tolerance:
            return "near-threshold"
        return "convention" if ratio > 1 else "unexplained"
