"""The source of the numbers of a table or figure: this machine, or a device with published runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.backends.machine import cpu_name
from gpupc_impl.measurement.published import open_published
from gpupc_impl.measurement.record import commit_name, day, machine_name

HERE = "this machine"
STALE = "‡"
"""The mark of a number that was recorded with code that has changed since."""

MAX_NAMED_COMMITS = 3
"""The upper bound on the commits that a heading names; the table of provenance has all of them."""


@dataclasses.dataclass(frozen=True)
class Source:
    """The data that one machine has for a table or figure.

    Attributes:
        folder: a folder of published runs (see `measurement.published`); None for the results of this machine.
        backend: the backend on which its config ran kernels: ``"cuda"`` or ``"host"``.
        files: paths by kind (see `catalogue.READERS`); ``published`` lists the files of a published folder.
        given: the arguments that come from its config (see `catalogue.GIVEN`).
        runs, absent: the published runs, as (data set, setting), and those that the config requests and the folder
        lacks. datasets: the data sets whose published facts it reads.
    """

    folder: str | None
    backend: str
    files: Mapping[str, Any]
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    runs: Sequence[tuple[str, str]] = ()
    datasets: Sequence[str] = ()
    absent: Sequence[tuple[str, str]] = ()

    @property
    def recorded(self) -> bool:
        return self.folder is not None

    @property
    def name(self) -> str:
        return Path(self.folder).name if self.folder else HERE


@dataclasses.dataclass(frozen=True)
class Heading:
    """The line above one machine's part of a table or figure, whose text has the machine, the days, the commits, and
    the number of stale runs."""

    name: str
    gpu: bool
    text: str

    @property
    def kind(self) -> str:
        """The words that distinguish a GPU from CPU cores."""
        return "GPU" if self.gpu else "CPU cores"

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def heading(source: Source, contents: Mapping[str, Any]) -> Heading:
    """Return the heading of a table or figure, given what was read from the source, by kind."""
    environments = _environments(source, contents)
    kernels = [place for place in environments if place[0] != "cpu"] or environments
    machines = _distinct(machine_name(facts, backend, facts["threads"]) for backend, facts in kernels)
    gpu = any(backend == "cuda" for backend, _ in kernels) if kernels else source.backend == "cuda"
    if not machines and not source.recorded and not gpu:
        machines = [cpu_name()]
    days = sorted({date for _, facts in kernels if (date := day(facts))})
    when = f" {' to '.join(dict.fromkeys([days[0], days[-1]]))}" if days else ""
    commits = _distinct(commit_name(facts) or "unknown" for _, facts in kernels)
    names = ", ".join(commits[:MAX_NAMED_COMMITS])
    if len(commits) > MAX_NAMED_COMMITS:
        names += f" and {len(commits) - MAX_NAMED_COMMITS} more"
    parts = [
        ", ".join(machines),
        f"recorded{when}" if source.recorded else HERE,
        f"commit{'s' * (len(commits) > 1)} {names}" if commits else "",
        _stale(contents) if source.recorded else "",
    ]
    return Heading(source.name, gpu, ", ".join(filter(None, parts)))


def absent_note(source: Source) -> list[str]:
    """Return a sentence about the runs that a published source lacks, if any, grouped by settings."""
    if not source.absent:
        return []
    by_dataset: dict[str, list[str]] = {}
    for dataset, setting in source.absent:
        by_dataset.setdefault(dataset, []).append(setting)
    by_settings: dict[tuple[str, ...], list[str]] = {}
    for dataset, settings in by_dataset.items():
        by_settings.setdefault(tuple(settings), []).append(dataset)
    lines = "; ".join(f"{', '.join(settings)} on {', '.join(sets)}" for settings, sets in by_settings.items())
    return [f"Requested by the config but not run: {lines}."]


def _environments(source: Source, contents: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the backends and environments of what was read, otherwise of the source's runs."""
    if "tests" in contents:
        return list(contents["tests"]["environments"].items())
    runs = contents.get("runs")
    if runs is None:
        runs = [open_published(source.folder).record(*key) for key in source.runs] if source.folder else []
    return [(run.backend, run.environment) for run in runs if run.status != "skipped"]


def _stale(contents: Mapping[str, Any]) -> str:
    """Return a text with the number of values whose code has changed since; empty if there are none."""
    timed = [run.stale for run in contents.get("runs", ()) if run.median is not None]
    timed += [cell.get("stale", False) for cell in contents.get("tests", {}).get("cells", ()) if cell["status"] == "ok"]
    return f"stale {STALE}: {sum(timed)} of {len(timed)} runs" if any(timed) else ""


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
