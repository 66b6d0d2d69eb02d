"""The runs of a source (this machine, or a device with published runs) with their verification, and selections."""

import dataclasses
import functools
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.backends.machine import cpu_name
from gpupc_impl.core.files import read_csv, read_json
from gpupc_impl.core.result import Skeleton
from gpupc_impl.measurement.digest import is_stale
from gpupc_impl.measurement.published import ALONE, open_published
from gpupc_impl.measurement.record import Record, band, commit_name, day, load_tests, machine_name
from gpupc_impl.verification.known_differences import KNOWN_DIFFERENCES, status_with_known

HERE = "this machine"
STALE = "‡"  # the mark of a number that was recorded with code that has changed since
MAX_NAMED_COMMITS = 3  # the upper bound on the commits that a heading names; the table of provenance has all of them


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
    """The line above one machine's part of an output, with the days, the commits, and the number of stale runs."""

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
    machines = list(dict.fromkeys(machine_name(facts, backend, facts["threads"]) for backend, facts in kernels))
    gpu = any(backend == "cuda" for backend, _ in kernels) if kernels else source.backend == "cuda"
    if not machines and not source.recorded and not gpu:
        machines = [cpu_name()]
    days = sorted({date for _, facts in kernels if (date := day(facts))})
    when = f" {' to '.join(dict.fromkeys([days[0], days[-1]]))}" if days else ""
    commits = list(dict.fromkeys(commit_name(facts) or "unknown" for _, facts in kernels))
    more = f" and {len(commits) - MAX_NAMED_COMMITS} more" if len(commits) > MAX_NAMED_COMMITS else ""
    names = ", ".join(commits[:MAX_NAMED_COMMITS]) + more
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
    by_settings = grouped((tuple(its), dataset) for dataset, its in grouped(source.absent).items())
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


def by_key(items: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    """Return the items with each key, in order."""
    groups: dict[Any, list[Any]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def grouped(pairs: Iterable[tuple[Any, str]]) -> dict[Any, list[str]]:
    """Group distinct names by key, in the order of the pairs."""
    groups = by_key(pairs, lambda pair: pair[0])
    return {key: list(dict.fromkeys(name for _, name in its)) for key, its in groups.items()}


# --- runs ------------------------------------------------------------------------------------------------------------
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
        """The median time of all levels together, in seconds; None if the program does not time its levels."""
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
        published, found = open_published(source.folder), []
        for key in source.runs:
            record, row = published.record(*key), published.verification(*key) or {"status": "not-verified"}
            row = {"status": "alone"} if published.division(*key) == ALONE else row
            stale = bool(is_stale(record.method, record.backend, record.code))
            found.append(_verified(record, row, published.skeleton_file(*key), stale))
        return found
    rows: dict[tuple[str, str], Mapping[str, str]] = {}
    for path in source.files["verification"]:  # If several tables contain a run, the first one counts.
        for row in read_csv(path):
            rows.setdefault((row["dataset"], row["setting"]), row)
    paths = dict.fromkeys(map(Path, source.files["records"]))
    records = {path: Record.load(path) for path in paths}
    return [_verified(r, rows[r.dataset, r.setting], path.with_suffix(".npz")) for path, r in records.items()]


def _verified(record: Record, row: Mapping[str, str], file: Path | zipfile.Path, stale: bool = False) -> VerifiedRecord:
    status = status_with_known(row["status"], record.method, record.dataset, record.edges)
    verified = {"verification": status, "differing_edges": row.get("differing_edges", "")}
    return VerifiedRecord(**vars(record), **verified, skeleton_file=file, stale=stale)


def load_facts(source: Source) -> list[Mapping[str, Any]]:
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
    return {run.dataset: run for run in runs}
