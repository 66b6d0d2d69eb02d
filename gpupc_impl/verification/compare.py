"""Are the skeletons of one problem the same, and was every removed edge rightly removed?

Two independent checks. *Comparison*: labelled edges, exact, against the first reference that finished; canonical
settings must agree in their separating sets too. A difference is explained by recomputing the test that decided it
from scratch. *Certificates*: every removed edge's stored set is tested again from scratch, must lie in the
neighbourhood it was drawn from, and must have the size of the level at which the edge went. Methods whose tests draw
random numbers of their own are compared, but nothing is concluded from a difference.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core import mapped
from gpupc_impl.core.family import get_family, load_problem
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.result import Skeleton

STATUSES = ("equal", "near-threshold", "convention", "random", "unexplained", "not-run")
"""From best to worst, `not-run` apart. Only `unexplained` fails a run."""

NAMED_AT_MOST = 20
"""Edges named in a row; how many more there are is said."""

EXPLAINED_AT_MOST = 1000
"""Differences explained one by one; any beyond count as unexplained, and the row says so."""

_KEPT = np.iinfo(np.int64).max
_PAIRS_AT_ONCE = 1 << 20


# --- one answer ------------------------------------------------------------------------------------------------------


class Answer:
    """A setting's skeleton, its record, and the problem as that setting understood it."""

    def __init__(self, problem: Problem, record: Mapping[str, Any], skeleton: Skeleton):
        self.record, self.skeleton = record, skeleton
        conventions = {key: record["problem"].get(key, getattr(problem, key)) for key in problem.PARAMETERS}
        changed = {key: value for key, value in conventions.items() if value != getattr(problem, key)}
        self.problem = dataclasses.replace(problem, **changed) if changed else problem
        if record["problem"]["fingerprint"] != self.problem.fingerprint:
            raise ValueError(
                f"the record of {record['setting']!r} on {record['dataset']['name']!r} was made from another problem; "
                "measure it again"
            )
        self.canonical = record["canonical"] and record["separating_sets"] == "canonical"
        self.random = record.get("random", False)
        self.retest = get_family(problem.family).retest(self.problem)
        self._p = problem.n_variables
        self.sizes, self.set_keys = skeleton.sepsets.sizes(), self._key(skeleton.sepsets.pairs)

    def _key(self, pairs: np.ndarray) -> np.ndarray:
        pairs = np.asarray(pairs, np.int64)
        return pairs.min(axis=-1) * self._p + pairs.max(axis=-1)

    def level(self, pairs: np.ndarray) -> np.ndarray:
        """The level at which each of the (..., 2) pairs was removed; `_KEPT` for an edge."""
        found = np.where(self.skeleton.adjacency[pairs[..., 0], pairs[..., 1]], _KEPT, 0)
        if len(self.set_keys):
            keys = self._key(pairs)
            at = np.minimum(np.searchsorted(self.set_keys, keys), len(self.set_keys) - 1)
            found = np.where(self.set_keys[at] == keys, self.sizes[at], found)
        return found

    def missing(self, ends: np.ndarray, sets: np.ndarray) -> np.ndarray:
        """(k, l) bool: which members of the (k, l) sets are no neighbours of (k,) `ends` at level l."""
        links = np.stack([np.broadcast_to(ends[:, None], sets.shape), sets], axis=-1)
        return (self.level(links) < sets.shape[1]) | (links[..., 0] == links[..., 1])

    def absent(self, end: int, members: Sequence[int]) -> list[int]:
        """The members of one set that are no neighbours of `end` at the set's level."""
        sets = np.array([members], np.int64).reshape(1, -1)
        return sets[self.missing(np.array([end]), sets)].tolist()

    def members(self, chosen: np.ndarray, level: int) -> np.ndarray:
        """(k, level) members of stored sets, given by their numbers, that all have that size."""
        sets = self.skeleton.sepsets
        return sets.members[sets.offsets[chosen][:, None] + np.arange(level)].astype(np.int64)

    def claim(self, i: int, j: int) -> tuple[int, bool, tuple[int, ...]] | None:
        """Where the set of a pair i < j stands in canonical order: level, side, members; None for an edge."""
        if self.skeleton.adjacency[i, j]:
            return None
        members = self.skeleton.sepsets[i, j]
        return len(members), bool(self.absent(i, members)), members

    def ratios(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of (k, 2) pairs, i < j, given (k, l) sets: the ratio and its tolerance, as a `Retest` gives them, and
        whether the set is misplaced: of neither end's neighbours, or holding an end.

        Where the set is of the neighbours of both, the end that comes nearer to separating counts.
        """
        ratios, tolerances = np.full(len(pairs), np.inf), np.zeros(len(pairs))
        misplaced = np.ones(len(pairs), bool)
        overlaps = (sets[:, :, None] == pairs[:, None, :]).any(axis=(1, 2))
        for ends in (pairs, pairs[:, ::-1]):
            placed = ~self.missing(ends[:, 0], sets).any(axis=1) & ~overlaps
            misplaced &= ~placed
            asked = np.flatnonzero(placed & ~(ratios <= 1))
            if len(asked):
                found, near = self.retest.ratios(ends[asked], sets[asked])
                better = found < ratios[asked]
                ratios[asked[better]], tolerances[asked[better]] = found[better], near[better]
        return ratios, tolerances, misplaced

    def label(self, pair: Sequence[int]) -> str:
        return " - ".join(self.problem.names[k] for k in pair)


# --- certificates ----------------------------------------------------------------------------------------------------


def certificates(answer: Answer) -> tuple[int, list[str]]:
    """Test every removed edge again: how many were tested, and a sentence for each that fails.

    Where a family's test takes too long for that, as many as it affords are tested, spread evenly over all.
    """
    if not answer.problem.decided_by_tests:
        return 0, []
    names = answer.problem.names
    removed = answer.problem.n_variables * (answer.problem.n_variables - 1) // 2 - answer.skeleton.n_edges
    stride = 1 if answer.retest.affordable is None else -(-removed // max(answer.retest.affordable, 1)) or 1
    checked, failures, offset = 0, [], 0
    for pairs, members in _removed(answer):
        some = np.arange(-offset % stride, len(pairs), stride)
        offset += len(pairs)
        pairs, members = pairs[some], members[some]
        checked += len(pairs)
        ratios, tolerances, misplaced = answer.ratios(pairs, members)
        for k in np.flatnonzero(misplaced | ~(ratios <= 1 + tolerances)):
            given = ", ".join(names[s] for s in members[k])
            fault = (
                "the set is not of one end's neighbours"
                if misplaced[k]
                else f"it does not separate: the statistic is {ratios[k]:.12g} times its critical value"
            )
            failures.append(f"{answer.label(pairs[k])} given {{{given}}}: {fault}")
    return checked, failures


def _removed(answer: Answer) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """All removed pairs with their sets, (k, 2) and (k, level), level by level and some at a time."""
    for pairs in _removed_at_level_zero(answer):
        yield pairs, np.empty((len(pairs), 0), np.int64)
    for level in np.unique(answer.sizes):
        chosen = np.flatnonzero(answer.sizes == level)
        for part in mapped.pieces(len(chosen), _PAIRS_AT_ONCE):
            yield answer.skeleton.sepsets.pairs[chosen[part]].astype(np.int64), answer.members(chosen[part], level)


def _removed_at_level_zero(answer: Answer) -> Iterator[np.ndarray]:
    """The pairs with the empty set, which are the bulk and are not listed, some rows at a time."""
    p, listed = answer.problem.n_variables, answer.skeleton.sepsets.pairs
    rows = max(_PAIRS_AT_ONCE // p, 1)
    for first in range(0, p, rows):
        last = min(first + rows, p)
        removed = (np.arange(p) > np.arange(first, last)[:, None]) & ~answer.skeleton.adjacency[first:last]
        start, stop = np.searchsorted(answer.set_keys, (first * p, last * p))
        here = listed[start:stop].astype(np.int64)
        removed[here[:, 0] - first, here[:, 1]] = False
        pairs = np.argwhere(removed)
        pairs[:, 0] += first
        yield pairs


def _sizes(answer: Answer) -> list[str]:
    """A set has the size of its level: then sizes and the edges left after each level say the same."""
    failures = []
    for level, edges in enumerate(answer.skeleton.edges_per_level):
        counted = answer.skeleton.n_edges + int(np.count_nonzero(answer.sizes > level))
        if counted != edges:
            failures.append(f"{edges} edges were left after level {level}, but by the sets' sizes {counted}")
    return failures


# --- comparison ------------------------------------------------------------------------------------------------------


def _differing_edges(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(k, 2) pairs i < j, ascending, that are an edge of one graph only."""
    found = [np.empty((0, 2), np.int64)]
    for rows in mapped.row_pieces(one):
        pairs = np.argwhere(np.triu(one[rows] != other[rows], rows.start + 1))
        pairs[:, 0] += rows.start
        found.append(pairs)
    return np.concatenate(found)


class Comparison:
    """Two answers to one problem, and why they differ where they do."""

    def __init__(self, reference: Answer, candidate: Answer):
        self.reference, self.candidate = reference, candidate
        self.edges = _differing_edges(reference.skeleton.adjacency, candidate.skeleton.adjacency)
        self.sets_compared = reference.canonical and candidate.canonical
        self.sets = self._differing_sets() if self.sets_compared else np.empty((0, 2), np.int64)

    def _differing_sets(self) -> np.ndarray:
        """Pairs that both removed, with different sets."""
        ours, theirs = self.reference, self.candidate
        _, a, b = np.intersect1d(ours.set_keys, theirs.set_keys, return_indices=True)
        differ = ours.sizes[a] != theirs.sizes[b]
        for level in np.unique(ours.sizes[a]):
            same = np.flatnonzero((ours.sizes[a] == level) & ~differ)
            differ[same] = (ours.members(a[same], level) != theirs.members(b[same], level)).any(axis=1)
        pairs = [ours.skeleton.sepsets.pairs[a[differ]]]
        for one, other, common in ((ours, theirs, a), (theirs, ours, b)):  # the other removed these at level 0
            alone = np.delete(one.skeleton.sepsets.pairs, common, axis=0)
            pairs.append(alone[~other.skeleton.adjacency[alone[:, 0], alone[:, 1]]])
        return np.concatenate(pairs)

    def statuses(self) -> tuple[list[str], list[str]]:
        """The status of every differing edge and of every differing set, as far as `EXPLAINED_AT_MOST` reaches."""
        explained = [self._explain(int(i), int(j)) for i, j in self.edges[:EXPLAINED_AT_MOST]]
        left = EXPLAINED_AT_MOST - len(explained)
        return explained, [self._explain(int(i), int(j)) for i, j in self.sets[:left]]

    def _explain(self, i: int, j: int) -> str:
        """Why one answer removed a pair earlier in canonical order than the other, or alone.

        The earlier answer claims that its set separates. Either that is wrong, or the other answer should have
        found the set, or it could not, because it had removed a link to one of the members before; then that
        removal is what has to be explained.
        """
        if self.reference.random or self.candidate.random:
            return "random"
        i, j = min(i, j), max(i, j)
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


# --- all settings of one problem -------------------------------------------------------------------------------------


def verify(problem: Problem, outcomes: Iterable[tuple[Mapping[str, Any], Skeleton | None]]) -> list[dict[str, Any]]:
    """Compare and certify the outcomes of one problem's settings.

    Args:
        problem: the problem all of them were given.
        outcomes: a record of each setting in the config's order, with its skeleton when it finished.

    Returns:
        a row for each setting, see `row`.

    Raises:
        ValueError: a record was made from another problem.
    """
    outcomes = list(outcomes)
    answers = [None if skeleton is None else Answer(problem, record, skeleton) for record, skeleton in outcomes]
    finished = [answer for answer in answers if answer is not None]
    reference = min(finished, key=lambda a: (a.random, not a.record["reference"]), default=None)
    certified: dict[tuple[str, ...], tuple[int, list[str]]] = {}
    return [row(record, answer, reference, certified) for (record, _), answer in zip(outcomes, answers, strict=True)]


def row(
    record: Mapping[str, Any],
    answer: Answer | None,
    reference: Answer | None,
    certified: dict[tuple[str, ...], tuple[int, list[str]]],
) -> dict[str, Any]:
    """What was verified of one setting: one row of verification.csv. Equal answers share their certificates."""
    found = {
        "dataset": record["dataset"]["name"],
        "setting": record["setting"],
        "method": record["method"],
        "backend": record["backend"],
        "compared_with": "",
        "status": "not-run",
        "edges": "",
        "differing_edges": "",
        "differing_sets": "",
        "certificates_checked": "",
        "certificates_failed": "",
        "detail": record["why"] or "",
    }
    if answer is None:
        return found
    if answer.random:
        checked, failures = 0, []
    else:
        key = (answer.problem.fingerprint, answer.skeleton.sha256, answer.skeleton.sepsets.sha256)
        if key not in certified:
            certified[key] = certificates(answer)
        checked, failures = certified[key]
        failures = failures + _sizes(answer)
    comparison = Comparison(reference, answer)
    edges, sets = comparison.statuses()
    details = [
        _listing("edges differ", [f"{answer.label(e)} ({s})" for e, s in zip(comparison.edges, edges, strict=False)]),
        _listing("sets differ", [f"{answer.label(e)} ({s})" for e, s in zip(comparison.sets, sets, strict=False)]),
        _listing("certificates failed", failures),
    ]
    if unexamined := len(comparison.edges) + len(comparison.sets) - len(edges) - len(sets):
        details.append(f"{unexamined} further differences not examined")
    unexplained = ["unexplained"] if failures or unexamined else []
    return found | {
        "compared_with": reference.record["setting"],
        "status": max([*edges, *sets, *unexplained], key=STATUSES.index, default="equal"),
        "edges": answer.skeleton.n_edges,
        "differing_edges": len(comparison.edges),
        "differing_sets": len(comparison.sets) if comparison.sets_compared else "not compared",
        "certificates_checked": checked,
        "certificates_failed": len(failures),
        "detail": "; ".join(filter(None, details)),
    }


def _listing(what: str, items: Sequence[str]) -> str:
    if not items:
        return ""
    more = f", and {len(items) - NAMED_AT_MOST} more" if len(items) > NAMED_AT_MOST else ""
    return f"{what}: {', '.join(items[:NAMED_AT_MOST])}{more}"


def complaints(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """A sentence for every row that must fail a run."""
    return [
        f"{row['setting']} on {row['dataset']} (compared with {row['compared_with']}): {row['detail']}"
        for row in rows
        if row["status"] == "unexplained"
    ]


def verify_files(problem_path: str | Path, record_paths: Iterable[str | Path]) -> list[dict[str, Any]]:
    """`verify` on files: the problem and the records, each ``ok`` one with its skeleton beside it (``.npz``).

    Raises:
        ValueError: a skeleton is missing, or is not the one its record is about.
    """
    outcomes = [(record, _skeleton_of(record, Path(path))) for path in record_paths for record in [_read(path)]]
    if all(skeleton is None for _, skeleton in outcomes):
        return [row(record, None, None, {}) for record, _ in outcomes]  # there may be no problem, of a missing data set
    return verify(load_problem(problem_path), outcomes)


def _read(path: str | Path) -> dict[str, Any]:
    return json.loads(Path(path).read_text(encoding="utf-8"))


def _skeleton_of(record: Mapping[str, Any], path: Path) -> Skeleton | None:
    if record["status"] != "ok":
        return None
    stored = path.with_suffix(".npz")
    if not stored.is_file():
        raise ValueError(f"{stored.name} is missing beside {path}; delete {path.name} and run again")
    skeleton = Skeleton.load(stored)
    if skeleton.sha256 != record["result"]["skeleton_sha256"]:
        raise ValueError(f"{stored} is not the skeleton that {path.name} is about; delete both and run again")
    return skeleton
