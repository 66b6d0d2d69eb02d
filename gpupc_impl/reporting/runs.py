"""Runs as tables and figures read them: a record with what the verification says of it; and how to find one."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.core.files import read_csv
from gpupc_impl.core.registry import UnknownMethod, get_method
from gpupc_impl.core.result import Skeleton
from gpupc_impl.measurement.digest import is_current_version
from gpupc_impl.measurement.record import Record, load_tests

NOT_VERIFIED = {"status": "not-verified", "differing_edges": ""}
"""What is said of a recorded run of which the recorded verification says nothing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifiedRecord(Record):
    """One setting on one data set: its record, with what the verification says of it.

    Attributes:
        path: the record's file; the skeleton lies beside it.
        verification: the status in the verification's table.
        differing_edges: from the reference's skeleton, as that table has it; empty when nothing was compared.
        stale: recorded, and the code that made it has changed since.
    """

    path: Path
    verification: str
    differing_edges: str
    stale: bool = False

    @property
    def counts(self) -> bool:
        """Finished with a verified result: fit for a mean."""
        return self.median is not None and self.verification not in ("unexplained", "not-verified")

    @functools.cached_property
    def skeleton(self) -> Skeleton | None:
        """What it found; None unless the status is ok, and where it was recorded without its skeleton."""
        path = self.path.with_suffix(".npz")
        return Skeleton.load(path) if self.ok and path.is_file() else None


def load(
    record_paths: Iterable[str | Path], verification_paths: Iterable[str | Path], recorded: bool = False
) -> list[VerifiedRecord]:
    """All runs, in the order of their paths.

    Args:
        verification_paths: of the data sets and of experiments; where several list a run, the first one counts.
        recorded: whether they are of another day: the code may have changed, and the verification may lack some.
    """
    verified: dict[tuple[str, str], Mapping[str, str]] = {}
    for path in verification_paths:
        for row in read_csv(path):
            verified.setdefault((row["dataset"], row["setting"]), row)
    runs = []
    for path in dict.fromkeys(map(Path, record_paths)):
        record = Record.load(path)
        place = record.dataset, record.setting
        row = verified.get(place, NOT_VERIFIED) if recorded else verified[place]
        said = {"verification": row["status"], "differing_edges": row["differing_edges"]}
        stale = recorded and is_stale(record.method, record.backend, record.code)
        runs.append(VerifiedRecord(**vars(record), path=path, stale=stale, **said))
    return runs


def load_single_tests(path: str | Path, recorded: bool = False) -> dict[str, Any]:
    """A table's single tests; each cell says as ``stale`` whether the code that made it has changed since."""
    timed = load_tests(path)
    for cell in timed["cells"]:
        cell["stale"] = recorded and "code" in cell and is_stale(cell["method"], cell["backend"], cell["code"])
    return timed


@functools.cache
def is_stale(method: str, backend: str, code: str) -> bool:
    """Whether a method's code is no longer what a record names."""
    try:
        return not is_current_version(get_method(method), backend, code)
    except UnknownMethod:
        return True


def in_grid(run: VerifiedRecord) -> bool:
    """Whether a setting is one configuration of a grid, which is named after its parameters: ``cupc-e-2-32``."""
    return re.fullmatch(rf"{re.escape(run.method)}(-\d+)+", run.setting) is not None


def datasets_of(runs: Iterable[VerifiedRecord]) -> list[str]:
    return list(dict.fromkeys(run.dataset for run in runs))


def device_backends(runs: Iterable[VerifiedRecord]) -> list[str]:
    """The backends kernels ran on; their times are never mixed in one row or panel."""
    return sorted({run.backend for run in runs} - {"cpu"})


def on_backend(runs: Iterable[VerifiedRecord], backend: str) -> list[VerifiedRecord]:
    """The runs that may be compared: those of one backend and of the CPU references."""
    return [run for run in runs if run.backend in (backend, "cpu")]


def of_method(
    runs: Iterable[VerifiedRecord], method: str, rules: Sequence[str] = ("canonical",), **params: Any
) -> list[VerifiedRecord]:
    """The runs of one setting of a method, found by what it is: the first with these parameters or, where there is
    none, the first.

    Args:
        rules: for separating sets; settings with another are left out, those with an earlier one come first.
    """
    runs = list(runs)
    found = [run for rule in rules for run in runs if (run.method, run.separating_sets) == (method, rule)]
    best = next((run for run in found if params.items() <= run.params.items()), next(iter(found), None))
    return [run for run in found if run.setting == best.setting]


def of_settings(runs: Iterable[VerifiedRecord], chosen: Iterable[Sequence[VerifiedRecord]]) -> list[VerifiedRecord]:
    """Those among runs that are in one of the chosen lists, in their own order."""
    inside = {id(run) for some in chosen for run in some}
    return [run for run in runs if id(run) in inside]


def by_backend(runs: Iterable[VerifiedRecord]) -> dict[str, dict[str, VerifiedRecord]]:
    """The contents of rows: for each backend, the runs by data set."""
    found: dict[str, dict[str, VerifiedRecord]] = {}
    for run in sorted(runs, key=lambda run: run.backend):
        found.setdefault(run.backend, {})[run.dataset] = run
    return found
