"""Joins records with their verification for tables and figures, and selects runs."""

from __future__ import annotations

import dataclasses
import functools
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core.files import read_csv, read_json
from gpupc_impl.core.result import Skeleton
from gpupc_impl.measurement.digest import is_stale
from gpupc_impl.measurement.published import ALONE, open_published
from gpupc_impl.measurement.record import Record, band, load_tests
from gpupc_impl.reporting.sources import Source
from gpupc_impl.verification.known_differences import KNOWN_DIFFERENCES, status_with_known

NOT_VERIFIED = {"status": "not-verified"}
"""The verification of a published run for which none is recorded."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifiedRecord(Record):
    """The record of one setting on one data set, with its verification.

    Attributes:
        skeleton_file: the file of the skeleton, which need not exist.
        differing_edges: the number of edges that differ from the reference's, as text; empty if not compared.
    """

    skeleton_file: Path | zipfile.Path
    verification: str
    differing_edges: str
    stale: bool = False

    @property
    def counts(self) -> bool:
        """Whether a mean may include the run: it finished, and its result is verified."""
        return self.median is not None and self.verification not in ("unexplained", "explained", "not-verified")

    @property
    def levels_median(self) -> float | None:
        """The median time of all levels together, in seconds; None without a time, or if the program does not time its
        levels."""
        if self.median is None or not self.time_s.levels:
            return None
        return float(np.median([sum(levels) for levels in self.time_s.levels])) or None

    def level_band(self, level: int) -> tuple[float | None, float | None, float | None]:
        """Return the 20 % quantile, median and 80 % quantile of a level's time in seconds; None each without a time."""
        levels = self.time_s.levels if self.median is not None else []
        return band([times[level] for times in levels if len(times) > level])

    @property
    def known_difference(self) -> str | None:
        """The reason why the skeleton differs, if the verification is ``explained``."""
        return KNOWN_DIFFERENCES.get((self.method, self.dataset, self.edges))

    @property
    def left_by_level_0(self) -> float | None:
        """The percentage of all edges that level 0 left; None without a result."""
        if not self.result:
            return None
        p = self.problem["n_variables"]
        return 100 * self.result.edges_per_level[0] / (p * (p - 1) / 2)

    @functools.cached_property
    def skeleton(self) -> Skeleton | None:
        """The run's skeleton; None if the status is not ok or the skeleton was not published."""
        return Skeleton.load(self.skeleton_file) if self.ok and self.skeleton_file.is_file() else None


Runs = Sequence[VerifiedRecord]


def load(source: Source) -> list[VerifiedRecord]:
    """Return the runs of a source in order. A published verification may be older than the statuses ``alone`` and
    ``explained``, so both are derived here."""
    if source.folder is not None:
        published = open_published(source.folder)
        return [
            _verified(
                record := published.record(*key),
                published.verification(*key) or NOT_VERIFIED,
                published.skeleton_file(*key),
                stale=bool(is_stale(record.method, record.backend, record.code)),
                alone=published.division(*key) == ALONE,
            )
            for key in source.runs
        ]
    rows: dict[tuple[str, str], Mapping[str, str]] = {}
    for path in source.files["verification"]:  # If several tables contain a run, the first one counts.
        for row in read_csv(path):
            rows.setdefault((row["dataset"], row["setting"]), row)
    paths = dict.fromkeys(map(Path, source.files["records"]))
    records = {path: Record.load(path) for path in paths}
    return [_verified(r, rows[r.dataset, r.setting], path.with_suffix(".npz")) for path, r in records.items()]


def _verified(
    record: Record,
    row: Mapping[str, str],
    skeleton_file: Path | zipfile.Path,
    stale: bool = False,
    alone: bool = False,
) -> VerifiedRecord:
    status = "alone" if alone else status_with_known(row["status"], record.method, record.dataset, record.edges)
    return VerifiedRecord(
        **vars(record),
        skeleton_file=skeleton_file,
        verification=status,
        differing_edges="" if alone else row.get("differing_edges", ""),
        stale=stale,
    )


def load_facts(source: Source) -> list[Mapping[str, Any]]:
    """Return the facts of the problems of a source's data sets."""
    if source.folder is not None:
        return [open_published(source.folder).datasets[name] for name in source.datasets]
    return list(map(read_json, source.files["problems"]))


def load_single_tests(path: str | Path, recorded: bool = False) -> dict[str, Any]:
    """Read a table of single tests, and set ``stale`` in each cell whose code has changed since."""
    timed = load_tests(path)
    for cell in timed["cells"]:
        cell["stale"] = recorded and "code" in cell and bool(is_stale(cell["method"], cell["backend"], cell["code"]))
    return timed


def in_grid(run: VerifiedRecord) -> bool:
    """Return whether a setting is a configuration of a grid, named after its parameters: ``cupc-e-2-32``."""
    return re.fullmatch(rf"{re.escape(run.method)}(-\d+)+", run.setting) is not None


def datasets_of(runs: Iterable[VerifiedRecord]) -> list[str]:
    return list(dict.fromkeys(run.dataset for run in runs))


def kernels_of(runs: Iterable[VerifiedRecord]) -> str:
    """Return the one backend on which kernels ran, ``"cuda"`` or ``"host"``, or ``"cpu"`` if none did."""
    return next((run.backend for run in runs if run.backend != "cpu"), "cpu")


def of_method(
    runs: Iterable[VerifiedRecord], method: str, rules: Sequence[str] = ("canonical",), **params: Any
) -> list[VerifiedRecord]:
    """Return the runs of the first setting of a method with these parameters, or else of the first setting; `rules` are
    the allowed rules for separating sets, in order of preference."""
    runs = list(runs)
    candidates = [run for rule in rules for run in runs if (run.method, run.separating_sets) == (method, rule)]
    best = next((run for run in candidates if params.items() <= run.params.items()), next(iter(candidates), None))
    return [run for run in candidates if run.setting == best.setting]


def of_settings(runs: Iterable[VerifiedRecord], chosen: Iterable[Sequence[VerifiedRecord]]) -> list[VerifiedRecord]:
    """Return the runs that are in one of the chosen lists, in the order of ``runs``."""
    members = {id(run) for group in chosen for run in group}
    return [run for run in runs if id(run) in members]


def by_dataset(runs: Iterable[VerifiedRecord]) -> dict[str, VerifiedRecord]:
    """Return the runs of one setting by data set."""
    return {run.dataset: run for run in runs}
