"""Are the skeletons of one problem the same, and was every removed edge rightly removed?

Two independent checks of every setting: it is compared with the first reference that finished (`compare`), and its
removed edges are tested again (`certificates`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.core.family import load_problem
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.result import Skeleton
from gpupc_impl.measurement.record import Record, load_records
from gpupc_impl.verification.answer import Answer
from gpupc_impl.verification.certificates import certificates, wrong_sizes
from gpupc_impl.verification.compare import STATUSES, Comparison

NAMED_AT_MOST = 20
"""Edges named in a row; how many more there are is said."""


def verify(problem: Problem, outcomes: Iterable[tuple[Record, Skeleton | None]]) -> list[dict[str, Any]]:
    """Compare and certify the outcomes of one problem's settings.

    Args:
        problem: the problem all of them were given.
        outcomes: a record of each setting in the config's order, with its skeleton when it finished.

    Returns:
        a row for each setting, see `row_of`.

    Raises:
        ValueError: a record was made from another problem.
    """
    outcomes = list(outcomes)
    answers = [None if skeleton is None else Answer(problem, record, skeleton) for record, skeleton in outcomes]
    finished = [answer for answer in answers if answer is not None]
    reference = min(finished, key=lambda a: (a.random, not a.record.reference), default=None)
    certified: dict[tuple[str, ...], tuple[int, list[str]]] = {}
    return [row_of(record, answer, reference, certified) for (record, _), answer in zip(outcomes, answers, strict=True)]


def row_of(
    record: Record,
    answer: Answer | None,
    reference: Answer | None,
    certified: dict[tuple[str, ...], tuple[int, list[str]]],
) -> dict[str, Any]:
    """What was verified of one setting: one row of verification.csv. Equal answers share their certificates."""
    row = {
        "dataset": record.dataset,
        "setting": record.setting,
        "method": record.method,
        "backend": record.backend,
        "compared_with": "",
        "status": "not-run",
        "edges": "",
        "differing_edges": "",
        "differing_sets": "",
        "certificates_checked": "",
        "certificates_failed": "",
        "detail": record.why or "",
    }
    if answer is None:
        return row
    if answer.random:
        checked, failures = 0, []
    else:
        key = (answer.problem.fingerprint, answer.skeleton.sha256, answer.skeleton.sepsets.sha256)
        if key not in certified:
            certified[key] = certificates(answer)
        checked, failures = certified[key]
        failures = failures + wrong_sizes(answer)
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
    return row | {
        "compared_with": reference.record.setting,
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


def verify_files(
    problem_path: str | Path | None,
    record_paths: Iterable[str | Path],
    earlier: Iterable[Mapping[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """`verify` on files: the problem and the records, each ``ok`` one with its skeleton beside it (``.npz``).

    Args:
        earlier: the rows of an earlier verification, maybe none, where skeletons of earlier measurements were not kept:
            a record whose skeleton is missing is then compared by its digests (`row_by_digests`), and all of them are
            where there is no problem. None: they are here.

    Raises:
        ValueError: a skeleton is missing, or is not the one its record is about; a record is not valid
            (`InvalidRecord`).
    """
    paths = list(map(Path, record_paths))
    records = load_records(paths)
    kept = paths if earlier is None else [path for path in paths if problem_path and path.with_suffix(".npz").is_file()]
    outcomes = [(r, _skeleton_of(r, path)) for r, path in zip(records, paths, strict=True) if path in kept]
    if all(skeleton is None for _, skeleton in outcomes):  # there may be no problem: the data set may be missing
        rows = [row_of(record, None, None, {}) for record, _ in outcomes]
    else:
        rows = verify(load_problem(str(problem_path)), outcomes)
    if len(kept) == len(paths):
        return rows
    fresh, known = {row["setting"]: row for row in rows}, {row["setting"]: row for row in earlier or ()}
    reference = min((r for r in records if r.ok), key=lambda r: (r.random, not r.reference), default=None)
    return [
        row_by_digests(record, reference, known.get(record.setting), fresh.get(record.setting)) for record in records
    ]


def row_by_digests(
    record: Record, reference: Record | None, earlier: Mapping[str, Any] | None, fresh: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The row of a setting where skeletons were not kept, its own or the reference's: the digests in the records settle
    whether its edges and, where both are canonical, its sets are the reference's.

    Args:
        earlier: its row in an earlier verification: it has certificates, and may explain a difference.
        fresh: its row of a verification among those whose skeletons are here.
    """
    known = fresh or earlier
    row = row_of(record, None, None, {})
    if record.result is None or reference is None or reference.result is None:
        return row
    if fresh and fresh["compared_with"] == reference.setting:
        return dict(fresh)
    ours, theirs = record.result, reference.result
    sets_compared = record.canonical and reference.canonical
    row |= {"compared_with": reference.setting, "edges": ours.edges}
    same_sets = not sets_compared or ours.sepsets_sha256 == theirs.sepsets_sha256
    if ours.skeleton_sha256 != theirs.skeleton_sha256 or not same_sets:
        if earlier and not fresh:
            return dict(earlier)
        status = "random" if record.random or reference.random else "unexplained"
        return row | {"status": status, "detail": f"not the answer of {reference.setting}, whose skeleton was not kept"}
    certified = {name: known[name] for name in ("certificates_checked", "certificates_failed")} if known else {}
    return (
        row
        | {"status": "equal", "differing_edges": 0, "differing_sets": 0 if sets_compared else "not compared"}
        | certified
        | {"detail": "by digests" + ("" if known else "; its skeleton was not kept to test its removed edges again")}
    )


def _skeleton_of(record: Record, path: Path) -> Skeleton | None:
    if record.result is None:
        return None
    stored = path.with_suffix(".npz")
    if not stored.is_file():
        raise ValueError(f"{stored.name} is missing beside {path}; delete {path.name} and run again")
    skeleton = Skeleton.load(stored)
    if skeleton.sha256 != record.result.skeleton_sha256:
        raise ValueError(f"{stored} is not the skeleton that {path.name} is about; delete both and run again")
    return skeleton
