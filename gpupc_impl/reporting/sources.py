"""Where the numbers of a table or figure were measured: on this machine, or on a device whose runs are recorded."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpupc_impl.backends.machine import cpu_name
from gpupc_impl.core.files import read_json
from gpupc_impl.measurement.record import commit_name, day, machine_name

HERE = "this machine"
STALE = "‡"
"""The mark of a number that was recorded, and whose code has changed since."""

NAMED_AT_MOST = 3
"""Commits that a heading names; the table of provenance has all of them."""


@dataclasses.dataclass(frozen=True)
class Source:
    """What a table or figure is made from, as one machine has it.

    Attributes:
        device: the name of a folder of recorded runs; None for this machine.
        backend: where its config ran the kernels: ``"cuda"`` or ``"host"``.
        files: paths by kind, see `catalogue.READERS`; as ``about`` records of the machine, for what reads neither runs
            nor single tests.
        given: what its config says, see `catalogue.GIVEN`.
        absent: the runs that its config asks for and that are not there, as (data set, setting).
    """

    device: str | None
    backend: str
    files: Mapping[str, Any]
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    absent: Sequence[tuple[str, str]] = ()

    @property
    def recorded(self) -> bool:
        return self.device is not None

    @property
    def name(self) -> str:
        return self.device or HERE


@dataclasses.dataclass(frozen=True)
class Heading:
    """What stands above one machine's part of a table or figure.

    Attributes:
        name: of the source.
        gpu: whether its kernels ran on a GPU.
        text: machine, day, commit, and how much of it is stale.
    """

    name: str
    gpu: bool
    text: str

    @property
    def kind(self) -> str:
        """The word that tells a GPU from CPU cores at a glance."""
        return "GPU" if self.gpu else "CPU cores"

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def heading(source: Source, made_of: Mapping[str, Any]) -> Heading:
    """The heading of what was made.

    Args:
        made_of: what was read of the source, by kind.
    """
    ran = _environments(source, made_of)
    kernels = [place for place in ran if place[0] != "cpu"] or ran
    machines = _each(machine_name(facts, backend, facts["threads"]) for backend, facts in kernels)
    gpu = any(backend == "cuda" for backend, _ in kernels) if kernels else source.backend == "cuda"
    if not machines and not source.recorded and not gpu:
        machines = [cpu_name()]
    days = sorted({found for _, facts in kernels if (found := day(facts))})
    when = f" {days[0]}" + (f" to {days[-1]}" if len(days) > 1 else "") if days else ""
    commits = _each(commit_name(facts) or "unknown" for _, facts in kernels)
    named = ", ".join(commits[:NAMED_AT_MOST])
    if len(commits) > NAMED_AT_MOST:
        named += f" and {len(commits) - NAMED_AT_MOST} more"
    words = [
        ", ".join(machines),
        f"recorded{when}" if source.recorded else HERE,
        f"commit{'s' * (len(commits) > 1)} {named}" if commits else "",
        _stale(made_of) if source.recorded else "",
    ]
    return Heading(source.name, gpu, ", ".join(filter(None, words)))


def absent_note(source: Source) -> list[str]:
    """Which runs of its config a recorded source lacks, by the settings that lack them."""
    if not source.absent:
        return []
    by_dataset: dict[str, list[str]] = {}
    for dataset, setting in source.absent:
        by_dataset.setdefault(dataset, []).append(setting)
    together: dict[tuple[str, ...], list[str]] = {}
    for dataset, settings in by_dataset.items():
        together.setdefault(tuple(settings), []).append(dataset)
    lines = "; ".join(f"{', '.join(settings)} on {', '.join(sets)}" for settings, sets in together.items())
    return [f"Not run there, of what its config asks for: {lines}."]


def _environments(source: Source, made_of: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The backends and environments of what was read."""
    if "runs" in made_of:
        return [(run.backend, run.environment) for run in made_of["runs"] if run.status != "skipped"]
    if "tests" in made_of:
        return list(made_of["tests"]["environments"].items())
    about = map(read_json, source.files.get("about", ()))
    return [(found["backend"], found["environment"]) for found in about if found["status"] != "skipped"]


def _stale(made_of: Mapping[str, Any]) -> str:
    """How many of the numbers were made by code that has changed since; nothing where none was."""
    timed = [run.stale for run in made_of.get("runs", ()) if run.median is not None]
    timed += [cell.get("stale", False) for cell in made_of.get("tests", {}).get("cells", ()) if cell["status"] == "ok"]
    return f"stale {STALE}: {sum(timed)} of {len(timed)} runs" if any(timed) else ""


def _each(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
