"""Verifies that the skeletons of one problem are the same and that every removed edge was rightly removed.

Every setting is checked in three ways: it is compared with the first reference that finished (`compare`), its removed
edges are tested again by its family's retest (`certificates`), and a sample of its edges by code that shares nothing
with the family (`yardstick`). A certificate says that an edge's set separates it, consists of neighbours of one of its
ends, has no member that the tiers keep out of it, and has the size of the level at which the edge was removed.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core import mapped_arrays
from gpupc_impl.core.family import load_problem
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.registry import get_method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.integers import ceil_div
from gpupc_impl.measurement.record import Record
from gpupc_impl.verification.answer import Answer
from gpupc_impl.verification.compare import STATUSES, Comparison
from gpupc_impl.verification.known_differences import KNOWN_DIFFERENCES, status_with_known
from gpupc_impl.verification.yardstick import yardstick

NAMED_AT_MOST = 20  # the upper bound on the edges that a row names; further edges are only counted


def verify(
    problem: Problem, outcomes: Iterable[tuple[Record, Skeleton | None]], samples: np.ndarray | None = None
) -> list[dict[str, Any]]:
    """Compare and certify the outcomes of one problem's settings, which are the record of each in the config's order,
    with its skeleton if it finished; returns a row for each (see `row_of`). ValueError is raised if a record was made
    from another problem. For `samples` see `yardstick`."""
    outcomes = list(outcomes)
    answers = [None if skeleton is None else Answer(problem, record, skeleton) for record, skeleton in outcomes]
    finished = [answer for answer in answers if answer is not None]
    first = min(finished, key=lambda a: (a.random, not a.record.reference), default=None)
    reference = first if len(finished) > 1 else None
    certified: dict[tuple[str, ...], tuple[int, int, list[str]]] = {}
    return [
        row_of(record, answer, reference, certified, samples)
        for (record, _), answer in zip(outcomes, answers, strict=True)
    ]


def row_of(
    record: Record,
    answer: Answer | None,
    reference: Answer | None,
    certified: dict[tuple[str, ...], tuple[int, int, list[str]]],
    samples: np.ndarray | None = None,
) -> dict[str, Any]:
    """Return what was verified of one setting, as one row of verification.csv: compared with `reference`, None if no
    other setting finished. `certified` has the certificates of earlier rows, which equal answers share."""
    measured = ("compared_with", "status", "edges", "differing_edges", "differing_sets")
    row = {name: getattr(record, name) for name in ("dataset", "setting", "method", "backend")}
    row |= dict.fromkeys((*measured, "certificates_checked", "yardstick_tests", "certificates_failed"), "")
    row |= {"status": "not-run", "detail": record.why or ""}
    if answer is None:
        return row
    if answer.random or answer.marks is not None:
        checked, made, failures = 0, 0, []
    else:
        key = (answer.problem.fingerprint, answer.skeleton.sha256, answer.skeleton.sepsets.sha256)
        if key not in certified:
            made, wrong = yardstick(answer.problem, answer.skeleton, samples)
            checked, failures = certificates(answer)
            certified[key] = checked, made, failures + [f"by a test from the samples: {fault}" for fault in wrong]
        checked, made, failures = certified[key]
        failures = failures + wrong_sizes(answer)
    comparison = Comparison(reference or answer, answer)
    edges, sets = comparison.statuses()
    details = [
        _listing("edges differ", [f"{answer.label(e)} ({s})" for e, s in zip(comparison.edges, edges, strict=False)]),
        _listing("sets differ", [f"{answer.label(e)} ({s})" for e, s in zip(comparison.sets, sets, strict=False)]),
        _listing("certificates failed", failures),
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
        "yardstick_tests": made,
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


def misses_nothing(row: Mapping[str, Any]) -> bool:
    """Return whether a setting was to run on its data set, and misses no program of its own; without an answer it then
    lacks a compiler or a GPU."""
    method = get_method(row["method"])
    is_asked = not str(row["detail"]).startswith("the config measures")
    return is_asked and row["backend"] in (*method.backends, "cpu") and method.unavailable() is None


def verify_files(
    problem_path: str | Path, record_paths: Iterable[str | Path], samples: np.ndarray | None = None
) -> list[dict[str, Any]]:
    """Run `verify` on files: the problem, and the records with the skeletons (``.npz``) that lie beside those with
    status ``ok``. ValueError is raised if a skeleton is missing or is not the one that its record describes."""
    outcomes: list[tuple[Record, Skeleton | None]] = []
    for path in map(Path, record_paths):
        record, stored, skeleton = Record.load(path), path.with_suffix(".npz"), None
        if record.result is not None:
            if not stored.is_file():
                raise ValueError(f"{stored.name} is missing beside {path}; delete {path.name} and run again")
            skeleton = Skeleton.load(stored)
            if skeleton.sha256 != record.result.skeleton_sha256:
                raise ValueError(f"{stored} is not the skeleton that {path.name} is about; delete both and run again")
        outcomes.append((record, skeleton))
    if all(skeleton is None for _, skeleton in outcomes):  # There is no problem if the data set is not available.
        return [row_of(record, None, None, {}) for record, _ in outcomes]
    return verify(load_problem(str(problem_path)), outcomes, samples)


# --- certificates ----------------------------------------------------------------------------------------------------
_PAIRS_AT_ONCE = 1 << 18  # of each thread, whose tests of them take 0.3 GB


def certificates(answer: Answer) -> tuple[int, list[str]]:
    """Test removed edges again; returns the number of tested edges, and a sentence for each that fails. If a family's
    test takes too long for all of them, an evenly spread sample of the size `Retest.affordable` is tested."""
    if not answer.problem.decided_by_tests:
        return 0, []
    names, p = answer.problem.names, answer.problem.n_variables
    removed = p * (p - 1) // 2 - answer.skeleton.n_edges - len(answer.gaps)
    stride = 1 if answer.retest.affordable is None else ceil_div(removed, max(answer.retest.affordable, 1)) or 1
    checked, failures, offset = 0, _broken(answer), 0
    misplacement = "the set is not of one end's neighbours"
    if answer.problem.tiers is not None:
        misplacement += ", or has a member that is later than both ends"

    def faults(pairs: np.ndarray, members: np.ndarray) -> list[str]:
        ratios, tolerances, misplaced = answer.ratios(pairs, members)
        listed = []
        for k in np.flatnonzero(misplaced | ~(ratios <= 1 + tolerances)):
            given = ", ".join(names[s] for s in members[k])
            fault = f"it does not separate: the statistic is {ratios[k]:.12g} times its critical value"
            listed.append(f"{answer.label(pairs[k])} given {{{given}}}: {misplacement if misplaced[k] else fault}")
        return listed

    # Only tests of arrays, which are so fast that all edges are tested again, run in several threads.
    threads = available_cores() if answer.retest.affordable is None else 1
    with ThreadPoolExecutor(threads) as pool:
        begun: deque[Future[list[str]]] = deque()
        for pairs, members in _removed(answer):
            some = np.arange(-offset % stride, len(pairs), stride)
            offset += len(pairs)
            checked += len(some)
            begun.append(pool.submit(faults, pairs[some], members[some]))
            if len(begun) > threads:  # so that few batches are in memory
                failures += begun.popleft().result()
        for batch in begun:
            failures += batch.result()
    return checked, failures


def _broken(answer: Answer) -> list[str]:
    """Return a sentence for each required edge that the answer lacks and each forbidden edge that it has."""
    if answer.problem.fixed is None:
        return []
    listed, broken = answer.skeleton.sepsets.pairs, answer.problem.fixed.broken_by(answer.skeleton.adjacency)
    faults = [f"{answer.label(pair)}: background knowledge requires or forbids it" for pair in broken]
    with_set = answer.levels[listed[:, 0], listed[:, 1]] < 0
    return faults + [f"{answer.label(pair)}: it is forbidden, and has a set" for pair in listed[with_set]]


def _removed(answer: Answer) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield all removed pairs with their sets, (k, 2) and (k, level), level by level in batches."""
    p, listed = answer.problem.n_variables, answer.skeleton.sepsets.pairs
    for rows in mapped_arrays.pieces(p, max(_PAIRS_AT_ONCE // p, 1)):  # Most sets are empty and are in no list.
        pairs = np.argwhere(np.triu(answer.levels[rows] == 0, rows.start + 1))
        pairs[:, 0] += rows.start
        yield pairs, np.empty((len(pairs), 0), np.int64)
    for level in np.flatnonzero(np.bincount(answer.sizes)):
        chosen = np.flatnonzero(answer.sizes == level)
        for part in mapped_arrays.pieces(len(chosen), _PAIRS_AT_ONCE):
            yield listed[chosen[part]].astype(np.int64), answer.members(chosen[part], level)


def wrong_sizes(answer: Answer) -> list[str]:
    """Check that the sizes of the sets agree with the numbers of edges left after each level."""
    failures = []
    for level, edges in enumerate(answer.skeleton.edges_per_level):
        counted = answer.skeleton.n_edges + int(np.count_nonzero(answer.sizes > level))
        if counted != edges:
            failures.append(f"{edges} edges were left after level {level}, but by the sets' sizes {counted}")
    return failures
