"""Are the skeletons of one problem the same, and was every removed edge rightly removed?

Two independent checks. *Comparison*: labelled edges, exact, against the first reference that finished; canonical
settings must agree in their separating sets too. A difference is explained by recomputing the test that decided it
in extended precision. *Certificates*: every removed edge's stored set is tested again from scratch, must lie in the
neighbourhood it was drawn from, and must have the size of the level at which the edge went. The extended precision
is `numpy.longdouble`: 64 bits of mantissa on x86.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core.problem import (
    PSEUDO_INVERSE_TOLERANCE,
    RESIDUAL_TOLERANCE,
    GaussianProblem,
    Problem,
    load_problem,
)
from gpupc_impl.core.result import Skeleton

STATUSES = ("equal", "near-threshold", "convention", "unexplained", "not-run")
"""From best to worst, `not-run` apart. Only `unexplained` fails a run."""

NEAR = 1e-9
"""A test is near its threshold when |r^2 / critical - 1| is below this, divided by the smallest residual variance
met on the way (the conditioning of the test), and below `NEAR_LIMIT` however ill-conditioned it is."""

NEAR_LIMIT = 1e-3

NAMED_AT_MOST = 20
"""Edges named in a row; how many more there are is said."""

EXPLAINED_AT_MOST = 1000
"""Differences explained one by one; any beyond count as unexplained, and the row says so."""

_KEPT = np.iinfo(np.int64).max
_CHUNK = 1 << 16


# --- one test, or many, again ----------------------------------------------------------------------------------------


class GaussianRetest:
    """Fisher's z test from scratch in extended precision, by the rules that `core.problem` states."""

    def __init__(self, problem: GaussianProblem):
        self._correlation = problem.correlation

    def statistics(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Squared partial correlations of (k, 2) pairs given (k, l) sets, and their tolerances, (k,) each.

        An undefined test, which never separates, has an infinite statistic.
        """
        squares = np.empty(len(pairs), np.longdouble)
        tolerances = np.empty(len(pairs))
        for start in range(0, len(pairs), _CHUNK):
            part = slice(start, start + _CHUNK)
            squares[part], tolerances[part] = self._chunk(pairs[part], sets[part])
        return squares, tolerances

    def _chunk(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        size = sets.shape[1]
        variables = np.concatenate([sets, pairs], axis=1)
        original = self._correlation[variables[:, :, None], variables[:, None, :]].astype(np.longdouble)
        matrix = original.copy()
        smallest = np.full(len(pairs), np.inf, np.longdouble)
        with np.errstate(divide="ignore", invalid="ignore"):
            for k in range(size):  # eliminate the set's members one by one: Cholesky without the roots
                pivot = matrix[:, k, k]
                smallest = np.fmin(smallest, pivot)
                column = matrix[:, k + 1 :, k]
                matrix[:, k + 1 :, k + 1 :] -= column[:, :, None] * column[:, None, :] / pivot[:, None, None]
        singular = np.flatnonzero(smallest <= RESIDUAL_TOLERANCE) if size else []
        residual = matrix[:, size:, size:]
        for k in singular:
            inverse = pseudo_inverse(original[k, :size, :size])
            cross = original[k, size:, :size]
            residual[k] = original[k, size:, size:] - cross @ inverse @ cross.T
        variance = np.minimum(residual[:, 0, 0], residual[:, 1, 1])
        undefined = variance <= RESIDUAL_TOLERANCE
        with np.errstate(divide="ignore", invalid="ignore"):
            squares = residual[:, 0, 1] ** 2 / (residual[:, 0, 0] * residual[:, 1, 1])
        squares[undefined] = np.inf
        conditioning = np.maximum(np.minimum(smallest, variance), RESIDUAL_TOLERANCE)
        return squares, np.minimum(NEAR / conditioning, NEAR_LIMIT).astype(float)


def pseudo_inverse(matrix: np.ndarray) -> np.ndarray:
    """Moore-Penrose inverse by Algorithm 7 of cuPC (Courrieu 2008), in the precision of its argument."""
    size = len(matrix)
    gram = matrix.T @ matrix
    diagonal = np.diagonal(gram)
    tolerance = PSEUDO_INVERSE_TOLERANCE * diagonal[diagonal > 0].min(initial=np.inf)
    factor = np.zeros_like(matrix)
    rank = 0
    for k in range(size):
        factor[k:, rank] = gram[k:, k] - factor[k:, :rank] @ factor[k, :rank]
        if factor[k, rank] > tolerance:
            factor[k, rank] = np.sqrt(factor[k, rank])
            factor[k + 1 :, rank] /= factor[k, rank]
            rank += 1
        else:
            factor[k:, rank] = 0
    factor = factor[:, :rank]
    inner = _inverse(factor.T @ factor)
    return factor @ inner @ inner @ factor.T @ matrix.T


def _inverse(matrix: np.ndarray) -> np.ndarray:
    """Inverse of a positive definite matrix; `numpy.linalg` has no extended precision."""
    size = len(matrix)
    work = np.concatenate([matrix, np.eye(size, dtype=matrix.dtype)], axis=1)
    for k in range(size):
        work[k] /= work[k, k]
        others = np.arange(size) != k
        work[others] -= work[others, k : k + 1] * work[k]
    return work[:, size:]


RETESTS = {"gaussian": GaussianRetest}
"""The test from scratch, by family."""


# --- one answer ------------------------------------------------------------------------------------------------------


class Answer:
    """A setting's skeleton, its record, and the problem as that setting understood it."""

    def __init__(self, problem: Problem, record: Mapping[str, Any], skeleton: Skeleton):
        self.record, self.skeleton = record, skeleton
        self.problem = problem
        convention = record["problem"].get("df_convention")
        if convention is not None and convention != problem.df_convention:
            self.problem = dataclasses.replace(problem, df_convention=convention)
        if record["problem"]["fingerprint"] != self.problem.fingerprint:
            raise ValueError(
                f"the record of {record['setting']!r} on {record['dataset']['name']!r} was made from another problem; "
                "measure it again"
            )
        self.canonical = record["canonical"] and record["separating_sets"] == "canonical"
        self._p = problem.n_variables
        edges = skeleton.edges
        self.sizes, self.set_keys = skeleton.sepsets.sizes(), self._key(skeleton.sepsets.pairs)
        keys = np.concatenate([self._key(edges), self.set_keys])
        levels = np.concatenate([np.full(len(edges), _KEPT), self.sizes])
        order = np.argsort(keys)
        self._keys, self._levels = keys[order], levels[order]

    def _key(self, pairs: np.ndarray) -> np.ndarray:
        pairs = np.asarray(pairs, np.int64)
        return pairs.min(axis=-1) * self._p + pairs.max(axis=-1)

    def level(self, pairs: np.ndarray) -> np.ndarray:
        """The level at which each of the (..., 2) pairs was removed; `_KEPT` for an edge."""
        if not len(self._keys):
            return np.zeros(np.shape(pairs)[:-1], np.int64)
        keys = self._key(pairs)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._levels[at], 0)

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

    def critical(self, level: int) -> float:
        """The squared correlation up to which a set separates; nothing does where no test can be made."""
        return self.problem.critical_r_squared(level) if self.problem.obstacle(level) is None else -1.0

    def label(self, pair: Sequence[int]) -> str:
        return " - ".join(self.problem.names[k] for k in pair)


# --- certificates ----------------------------------------------------------------------------------------------------


def certificates(answer: Answer) -> tuple[int, list[str]]:
    """Test every removed edge again: how many were tested, and a sentence for each that fails."""
    problem, sets = answer.problem, answer.skeleton.sepsets
    retest = RETESTS[problem.family](problem)
    checked, failures = _level_zero(answer)
    for level in np.unique(answer.sizes):
        chosen = np.flatnonzero(answer.sizes == level)
        pairs = sets.pairs[chosen].astype(np.int64)
        members = answer.members(chosen, level)
        checked += len(chosen)
        squares, tolerances = retest.statistics(pairs, members)
        misplaced = (members[:, :, None] == pairs[:, None, :]).any(axis=(1, 2)) | (
            answer.missing(pairs[:, 0], members).any(axis=1) & answer.missing(pairs[:, 1], members).any(axis=1)
        )
        critical = answer.critical(int(level))
        for k in np.flatnonzero(misplaced | ~(squares <= critical * (1 + tolerances))):
            given = ", ".join(problem.names[s] for s in members[k])
            fault = "the set is not of one end's neighbours" if misplaced[k] else _fault(squares[k], critical)
            failures.append(f"{answer.label(pairs[k])} given {{{given}}}: {fault}")
    return checked, failures + _sizes(answer)


def _level_zero(answer: Answer) -> tuple[int, list[str]]:
    """Certificates of the pairs with the empty set, row by row: they are the bulk, and are not listed."""
    problem = answer.problem
    p, critical = problem.n_variables, answer.critical(0)
    listed = np.concatenate([answer.skeleton.edges, answer.skeleton.sepsets.pairs]).astype(np.int64)
    listed = listed[np.argsort(listed[:, 0], kind="stable")]
    bounds = np.searchsorted(listed[:, 0], np.arange(p + 1))
    checked, failures = 0, []
    for i in range(p - 1):
        removed = np.ones(p, bool)
        removed[: i + 1] = False
        removed[listed[bounds[i] : bounds[i + 1], 1]] = False
        squares = problem.correlation[i] ** 2
        checked += int(np.count_nonzero(removed))
        wrong = np.flatnonzero(removed & (squares > critical * (1 + NEAR)))
        failures += [f"{answer.label((i, j))} given {{}}: {_fault(squares[j], critical)}" for j in wrong]
    return checked, failures


def _fault(square: float, critical: float) -> str:
    return f"r^2 = {square:.12g} does not separate (critical: {critical:.12g})"


def _sizes(answer: Answer) -> list[str]:
    """A set has the size of its level: then sizes and the edges left after each level say the same."""
    failures = []
    for level, edges in enumerate(answer.skeleton.edges_per_level):
        counted = int(np.count_nonzero(answer._levels > level))
        if counted != edges:
            failures.append(f"{edges} edges were left after level {level}, but by the sets' sizes {counted}")
    return failures


# --- comparison ------------------------------------------------------------------------------------------------------


class Comparison:
    """Two answers to one problem, and why they differ where they do."""

    def __init__(self, reference: Answer, candidate: Answer):
        self.reference, self.candidate = reference, candidate
        self._retest = RETESTS[reference.problem.family](reference.problem)
        differ = reference.skeleton.adjacency != candidate.skeleton.adjacency
        self.edges = np.argwhere(np.triu(differ))
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
        i, j = min(i, j), max(i, j)
        ours, theirs = self.reference.claim(i, j), self.candidate.claim(i, j)
        if theirs is None or (ours is not None and ours <= theirs):
            owner, other, members = self.reference, self.candidate, ours[-1]
        else:
            owner, other, members = self.candidate, self.reference, theirs[-1]
        level = len(members)
        squares, tolerances = self._retest.statistics(np.array([[i, j]]), np.array([members], int).reshape(1, level))
        square, tolerance = float(squares[0]), float(tolerances[0])

        def near(answer: Answer) -> bool:
            return abs(square - answer.critical(level)) < tolerance * answer.critical(level)

        sources = [end for end in (i, j) if not owner.absent(end, members)]
        if not sources:
            return "unexplained"
        if near(owner):
            return "near-threshold"
        if square > owner.critical(level):
            return "unexplained"
        if other.absent(i, members) and other.absent(j, members):
            causes = [self._explain(end, s) for end in sources for s in other.absent(end, members)]
            return max(causes, key=STATUSES.index)
        if near(other):
            return "near-threshold"
        return "convention" if square > other.critical(level) else "unexplained"


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
    reference = next((answer for answer in finished if answer.record["reference"]), finished[0] if finished else None)
    return [row(record, answer, reference) for (record, _), answer in zip(outcomes, answers, strict=True)]


def row(record: Mapping[str, Any], answer: Answer | None, reference: Answer | None) -> dict[str, Any]:
    """What was verified of one setting: one row of verification.csv."""
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
    checked, failures = certificates(answer)
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
        return [row(record, None, None) for record, _ in outcomes]  # there may be no problem, of a missing data set
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
