"""Runs as tables and figures read them: a record with what the verification says of it; and how to find one."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.core.files import read_csv
from gpupc_impl.core.result import Skeleton
from gpupc_impl.measurement.record import Record


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifiedRecord(Record):
    """One setting on one data set: its record, with what the verification says of it.

    Attributes:
        path: the record's file; the skeleton lies beside it.
        verification: the status in the verification's table.
        differing_edges: from the reference's skeleton, as that table has it; empty when nothing was compared.
    """

    path: Path
    verification: str
    differing_edges: str

    @property
    def counts(self) -> bool:
        """Finished with a verified result: fit for a mean."""
        return self.median is not None and self.verification != "unexplained"

    @functools.cached_property
    def skeleton(self) -> Skeleton | None:
        """What it found; None unless the status is ok."""
        return Skeleton.load(self.path.with_suffix(".npz")) if self.ok else None


def load(record_paths: Iterable[str | Path], verification_paths: Iterable[str | Path]) -> list[VerifiedRecord]:
    """All runs, in the order of their paths.

    Args:
        verification_paths: of the data sets and of experiments; where several list a run, the first one counts.
    """
    verified: dict[tuple[str, str], Mapping[str, str]] = {}
    for path in verification_paths:
        for row in read_csv(path):
            verified.setdefault((row["dataset"], row["setting"]), row)
    runs = []
    for path in dict.fromkeys(map(Path, record_paths)):
        record = Record.load(path)
        row = verified[record.dataset, record.setting]
        said = {"verification": row["status"], "differing_edges": row["differing_edges"]}
        runs.append(VerifiedRecord(**vars(record), path=path, **said))
    return runs


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
