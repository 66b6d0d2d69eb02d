"""Checks published folders, each alone and then against the others."""

import dataclasses
import functools
import itertools
import json
import platform
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gpupc_impl.core.files import read_bytes
from gpupc_impl.core.registry import UnknownMethod, get_method
from gpupc_impl.measurement.digest import is_current_version
from gpupc_impl.measurement.publish import MergeError, contents_of, label, read
from gpupc_impl.measurement.published import ALONE, CLOSED, PublishedRuns
from gpupc_impl.measurement.record import load_tests

HOME_FOLDER = re.compile(rb"/(home|Users|root)/")

NAMED_AT_MOST = 3
"""The upper bound on the runs that a fault of several runs names."""

LEAST_HOST_NAME = 5
"""The least length of a host's name that is looked for in files: shorter ones may be words."""


def check(folder: Path) -> list[str]:
    """Return the faults of a published folder, one sentence each; there are none if `publish` could have written it.

    The checks: records and tables of single tests fit their schemas, references to machines and data sets resolve, no
    run occurs twice, lines are sorted and compact, no entry is unused, and there are no home folders, no e-mail
    addresses and no names of hosts (of a cluster's node or of this machine).
    """
    try:
        (reader,) = read([folder])
    except MergeError as error:
        return str(error).splitlines()
    expected = contents_of(reader.entries)
    present = {p.relative_to(folder).as_posix() for kind in ("records", "skeletons") for p in folder.glob(f"{kind}/*")}
    faults = [f"{name} holds no run" for name in sorted(present - expected.keys())]
    for name, data in expected.items():
        path = folder / name
        lines, sorted_lines = read_bytes(path).splitlines() if path.is_file() else [], data.splitlines()
        if lines != sorted_lines:
            pairs = enumerate(itertools.zip_longest(lines, sorted_lines), 1)
            number = next(number for number, (line, other) in pairs if line != other)
            faults.append(f"{name}, line {number} is not what publishing writes: sorted, compact, and no unused entry")
        if not name.endswith(".zip"):
            faults += [
                f"{name}, line {number} tells {what}"
                for number, line in enumerate(lines, 1)
                for what, private in _private().items()
                if private.search(line)
            ]
    for key, entry in reader.entries.items():
        if key[0] == "run" and (node := entry.value.record.environment.get("node")):
            faults.append(f"{label(key)} names the host {node!r}, which publishing leaves out")
    return faults


def _private() -> dict[str, re.Pattern[bytes]]:
    """Return patterns of text that a published file must not contain, by the name of such text in messages."""
    # Possessive, and only from where a word begins: otherwise the time would grow with the square of a word's length.
    patterns = {
        "a home folder": HOME_FOLDER,
        "an e-mail address": re.compile(rb"(?<![\w.+-])[\w.+-]++@[\w-]++\.[A-Za-z]"),
    }
    host = platform.node().encode()
    if len(host) >= LEAST_HOST_NAME:
        patterns["this machine's name"] = re.compile(rb"(?<![\w.-])" + re.escape(host) + rb"(?![\w-])")
    return patterns


def unknown_origins(folder: Path) -> list[str]:
    """Return sentences about runs of a valid published folder whose code cannot be looked up in a commit."""
    found: dict[str, list[str]] = {}
    for record in PublishedRuns(folder).records():
        commit, dirty = record.environment["git_commit"], record.environment["git_dirty"]
        if record.status != "skipped" and (dirty or not commit):
            why = (
                f"files differed from commit {commit[:10]}; commit them"
                if commit
                else "no commit is named; use a clone"
            )
            found.setdefault(why, []).append(f"{record.setting} on {record.dataset}")
    return [f"{_some(runs)}: {why}, and measure again" for why, runs in found.items()]


@functools.cache
def is_stale(method: str, backend: str, code: str) -> bool:
    """Return whether a method's present code has another digest than the record."""
    try:
        return not is_current_version(get_method(method), backend, code)
    except UnknownMethod:
        return True


def stale_runs(folder: Path) -> list[str]:
    """Return a sentence about runs and single tests of a valid published folder whose code has changed since; none if
    there are no such runs."""
    stale = [
        f"{record.setting} on {record.dataset}"
        for record in PublishedRuns(folder).records()
        if record.status != "skipped" and is_stale(record.method, record.backend, record.code)
    ]
    stale += [
        f"{cell['implementation']} in {path.stem}"
        for path in sorted(folder.glob("tests/*.json"))
        for cell in load_tests(path)["cells"]
        if "code" in cell and is_stale(cell["method"], cell["backend"], cell["code"])
    ]
    return [f"{_some(stale)}: the code has changed since the measurement; measure again"] if stale else []


def _some(runs: Iterable[str]) -> str:
    """Return the names of different runs, of which at most `NAMED_AT_MOST` are told."""
    names = list(dict.fromkeys(runs))
    return ", ".join(names[:NAMED_AT_MOST]) + " and others" * (len(names) > NAMED_AT_MOST)


@dataclasses.dataclass(frozen=True)
class Agreement:
    """How the answers of one published folder agree with those of others.

    Attributes:
        divisions: the number of runs in each division (see `PublishedRuns.division`).
        problems: the number of its problems that some run solved.
        shared: the number of these that a run of another folder solved as well, by the fingerprint of the problem.
        alike: the number of other problems of this folder for which a run of another folder found the same skeleton, in
            the same data but with other last digits of the correlations.
    """

    divisions: Mapping[str | None, int]
    problems: int
    shared: int
    alike: int


def compare(folders: Sequence[Path]) -> tuple[dict[Path, Agreement], list[str]]:
    """Compare the answers of valid published folders.

    Returns:
        The agreement of each folder, and sentences about problems for which runs outside of the open division found
        different skeletons, or different canonical separating sets.
    """
    answers: dict[tuple[str, str], tuple[str, str]] = {}  # by problem and kind: the digest, and who found it
    solved: dict[Path, dict[str, str]] = {}  # by fingerprint: the data, the parameters and the skeleton
    divisions: dict[Path, Counter[str | None]] = {}
    faults = []
    for folder in folders:
        published = PublishedRuns(folder)
        divisions[folder], solved[folder] = Counter(published.division(*key) for key in published), {}
        for record in (r for r in published.records() if published.division(r.dataset, r.setting) in (CLOSED, ALONE)):
            assert record.problem is not None
            assert record.result is not None
            problem = record.problem["fingerprint"]
            facts = {name: fact for name, fact in record.problem.items() if name != "fingerprint"}
            data = [record.dataset, record.dataset_facts.get("sha256"), facts, record.result.skeleton_sha256]
            solved[folder][problem] = json.dumps(data, sort_keys=True)
            found = {"skeleton": record.result.skeleton_sha256}
            if record.canonical:
                found["separating sets"] = record.result.sepsets_sha256
            who = f"{record.setting} on {record.dataset} in {folder}"
            for kind, digest in found.items():
                first, other = answers.setdefault((problem, kind), (digest, who))
                if digest != first:
                    faults.append(f"{who}: the {kind} {digest[:10]} of the same problem is {first[:10]} of {other}")
    agreement = {}
    for folder, problems in solved.items():
        others = [its for other, its in solved.items() if other != folder]
        shared = problems.keys() & set().union(*others)
        skeletons = {skeleton for its in others for skeleton in its.values()}
        alike = sum(problem not in shared and skeleton in skeletons for problem, skeleton in problems.items())
        agreement[folder] = Agreement(divisions[folder], len(problems), len(shared), alike)
    return agreement, faults
