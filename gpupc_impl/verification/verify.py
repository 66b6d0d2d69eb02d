"""Verifies that the skeletons of one problem are the same and that every removed edge was rightly removed.

Every setting is checked in three ways: it is compared with the first reference that finished (`compare`), its removed
edges are tested again by its family's retest (`certificates`), and a sample of its edges by code that shares nothing
with the family (`yardstick`).
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core.family import load_problem
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.result import Skeleton
from gpupc_impl.measurement.record import Record, load_records
from gpupc_impl.verification.answer import Answer
from gpupc_impl.verification.certificates import certificates, wrong_sizes
from gpupc_impl.verification.compare import STATUSES, Comparison
from gpupc_impl.verification.known_differences import KNOWN_DIFFERENCES, status_with_known
from gpupc_impl.verification.yardstick import yardstick

NAMED_AT_MOST = 20  # the upper bound on the edges that a row names; further edges are only counted


def verify(
    problem: Problem,
    outcomes: Iterable[tuple[Record, Skeleton | None]],
    certify: bool = True,
    samples: np.ndarray | None = None,
) -> list[dict[str, Any]]:
    """Compare and certify the outcomes of one problem's settings.

    Args:
        problem: the problem that all settings solved.
        outcomes: the record of each setting in the config's order, with its skeleton if it finished.
        certify: whether removed edges are tested again; comparing skeletons alone takes moments.
        samples: see `yardstick`.

    Returns:
        a row for each setting, see `row_of`.

    Raises:
        ValueError: a record was made from another problem.
    """
    outcomes = list(outcomes)
    answers = [None if skeleton is None else Answer(problem, record, skeleton) for record, skeleton in outcomes]
    finished = [answer for answer in answers if answer is not None]
    first = min(finished, key=lambda a: (a.random, not a.record.reference), default=None)
    reference = first if len(finished) > 1 else None
    certified: dict[tuple[str, ...], tuple[int, list[str]]] | None = {} if certify else None
    return [
        row_of(record, answer, reference, certified, samples)
        for (record, _), answer in zip(outcomes, answers, strict=True)
    ]


def row_of(
    record: Record,
    answer: Answer | None,
    reference: Answer | None,
    certified: dict[tuple[str, ...], tuple[int, list[str]]] | None,
    samples: np.ndarray | None = None,
) -> dict[str, Any]:
    """Return what was verified of one setting, as one row of verification.csv.

    Args:
        reference: the answer to compare with; None if no other setting finished.
        certified: the certificates of earlier rows, which equal answers share; None if removed edges are not tested.
    """
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
    if answer.random or answer.marks is not None or certified is None:
        checked, failures = 0, []
    else:
        key = (answer.problem.fingerprint, answer.skeleton.sha256, answer.skeleton.sepsets.sha256)
        if key not in certified:
            _, wrong = yardstick(answer.problem, answer.skeleton, samples)
            checked, failures = certificates(answer)
            certified[key] = checked, failures + [f"by a test from the samples: {fault}" for fault in wrong]
        checked, failures = certified[key]
        failures = failures + wrong_sizes(answer)
    comparison = Comparison(reference or answer, answer)
    edges, sets = comparison.statuses()
    details = [
        _listing("edges differ", [f"{answer.label(e)} ({s})" for e, s in zip(comparison.edges, edges, strict=False)]),
        _listing("sets differ", [f"{answer.label(e)} ({s})" for e, s in zip(comparison.sets, sets, strict=False)]),
        _listing("certificates failed", failures),
        "removed edges were not tested again" if certified is None else "",
    ]
    if unexamined := len(comparison.edges) + len(comparison.sets) - len(edges) - len(sets):
        details.append(f"{unexamined} further differences not examined")
    unexplained = ["unexplained"] if failures or unexamined else []
    derived = max([*edges, *sets, *unexplained], key=STATUSES.index, default="equal" if reference else "alone")
    if derived == "convention":
        details.insert(0, answer.differs_by)
    difference = record.method, record.dataset, answer.skeleton.n_edges
    if (status := status_with_known(derived, *difference)) == "explained":
        details.insert(0, KNOWN_DIFFERENCES[difference])
    return row | {
        "compared_with": reference.record.setting if reference else "",
        "status": status,
        "edges": answer.skeleton.n_edges,
        "differing_edges": len(comparison.edges) if reference else "",
        "differing_sets": len(comparison.sets) if reference and comparison.sets_compared else "not compared",
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
    """Return a sentence for every row that must make a workflow fail."""
    return [
        f"{row['setting']} on {row['dataset']} (compared with {row['compared_with'] or 'none'}): {row['detail']}"
        for row in rows
        if row["status"] == "unexplained"
    ]


def verify_files(
    problem_path: str | Path,
    record_paths: Iterable[str | Path],
    certify: bool = True,
    samples: np.ndarray | None = None,
) -> list[dict[str, Any]]:
    """Run `verify` on files: the problem, and the records with the skeletons (``.npz``) that lie beside those with
    status ``ok``.

    Raises:
        ValueError: a skeleton is missing, or is not the one that its record describes; a record is not valid
            (`InvalidRecord`).
    """
    paths = list(map(Path, record_paths))
    outcomes = [(record, _skeleton_of(record, path)) for record, path in zip(load_records(paths), paths, strict=True)]
    if all(skeleton is None for _, skeleton in outcomes):  # There is no problem if the data set is not available.
        return [row_of(record, None, None, None) for record, _ in outcomes]
    return verify(load_problem(str(problem_path)), outcomes, certify, samples)


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
