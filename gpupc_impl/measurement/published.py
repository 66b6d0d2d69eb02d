"""Reads published runs: a folder ``results/recorded/DEVICE`` of a few files, which `publish` writes and checks.

    config.yaml                 the complete config of the workflow that measured the runs
    machines.json               the environments of all runs, each under a hash of its content
    datasets.json               the facts of every data set's problem, by the data set's name
    records/EXPERIMENT.jsonl    one line per run, sorted by data set and setting
    skeletons/EXPERIMENT.zip    DATASET/SETTING.npz: the skeletons that tables and figures read
    sharing.csv, tests/TABLE.json, timelines/DATASET.csv, verification/ci_tests.csv     as in the workflow's results

A line is a `Record` in JSON that refers to its machine and its data set instead of repeating their facts, together with
the run's row of the verification. EXPERIMENT is the part of the config that requests the run: the name of an
experiment, or the family's name for runs on the config's data sets; no two parts request the same run. Equal content
gives equal bytes.
"""

import functools
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.core.files import read_bytes, shortened
from gpupc_impl.measurement.record import DATASET_FACTS, InvalidRecord, Record, parse

RunKey = tuple[str, str]  # the identity of a run: the names of its data set and its setting

NAME = re.compile("[A-Za-z0-9][A-Za-z0-9._=+-]{0,149}")
"""The names that a config may give to an experiment, a data set and a setting; files are called like them."""

MACHINES, DATASETS = "machines.json", "datasets.json"

CLOSED, OPEN, ALONE = "closed", "open", "alone"
"""The divisions of runs that found a skeleton: it is edge for edge the reference's, it is another one, or no other run
finished with which it could be compared."""


class PublishedRuns:
    """The runs, machines and data sets of a published folder, which are not compared with their schemas (see `check`).
    InvalidRecord is raised if a file is damaged, or two lines describe the same run.

    Attributes:
        experiments: the experiment of each run, sorted by data set and setting.
        datasets: the facts of each data set's problem, by name.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        datasets = self._read(DATASETS)
        self.datasets = {name: {"name": name, **(its.get("problem") or {}), **its} for name, its in datasets.items()}
        self._machines = self._read(MACHINES)
        self._lines: dict[RunKey, tuple[str, dict[str, Any]]] = {}  # the place of the line, and its content
        self._archives: dict[str, zipfile.Path] = {}
        experiments: dict[RunKey, str] = {}
        for path in sorted(self.folder.glob("records/*.jsonl")):
            for number, text in enumerate(read_bytes(path).splitlines(), 1):
                place = f"records/{path.name}, line {number}"
                line = parse(text, place)
                try:
                    dataset = line["dataset"]
                    key = dataset if isinstance(dataset, str) else dataset["name"], line["setting"]
                except (KeyError, TypeError) as error:
                    raise InvalidRecord(f"{place} is no run: it names no data set or no setting") from error
                for name in key:
                    if not (isinstance(name, str) and NAME.fullmatch(name)):
                        name = shortened(ascii(name), 100)
                        raise InvalidRecord(f"{place}: {name} is no name of a data set or setting")
                if key in self._lines:
                    there = f"records/{experiments[key]}.jsonl"
                    raise InvalidRecord(f"{place}: the run of {key[1]} on {key[0]} is in {there} already")
                self._lines[key], experiments[key] = (place, line), path.stem
        self.experiments = dict(sorted(experiments.items()))

    def __contains__(self, key: RunKey) -> bool:
        return key in self._lines

    def __iter__(self) -> Iterator[RunKey]:
        return iter(self.experiments)

    def record(self, dataset: str, setting: str) -> Record:
        """Return the record of a run; raises KeyError without this run, and InvalidRecord if its line is damaged."""
        place, line = self._lines[dataset, setting]
        machine = str(line.get("machine"))
        if machine not in self._machines:
            raise InvalidRecord(f"{place}: {MACHINES} has no machine {machine!r}")
        if dataset not in self.datasets:
            raise InvalidRecord(f"{place}: {DATASETS} has no data set {dataset!r}")
        defaults = defaults_of(self.datasets[dataset])
        content = {"problem": defaults["problem"], **line, "environment": self._machines[machine]}
        if line["dataset"] == dataset:
            content["dataset"] = {"name": dataset, **defaults["dataset"]}
        for column in ("machine", "verification"):
            content.pop(column, None)
        try:
            return Record.from_json(content)
        except (KeyError, TypeError) as error:
            raise InvalidRecord(f"{place} is no run: {error}") from error

    def records(self) -> list[Record]:
        """All records, sorted by data set and setting; see `record`."""
        return [self.record(*key) for key in self]

    def verification(self, dataset: str, setting: str) -> dict[str, str] | None:
        """Return the columns that verification adds to a run's record; None if the run was not verified."""
        columns: dict[str, str] | None = self._lines[dataset, setting][1].get("verification")
        return columns

    def division(self, dataset: str, setting: str) -> str | None:
        """Return the division of a run: `CLOSED`, `OPEN` or `ALONE`; None without a skeleton or its verification."""
        record, verified = self.record(dataset, setting), self.verification(dataset, setting)
        if not record.ok or verified is None:
            return None
        if verified["status"] not in ("equal", "alone"):
            return OPEN
        is_only = self._finished[dataset] == 1 and not verified.get("compared_with")
        return ALONE if is_only else CLOSED

    @functools.cached_property
    def _finished(self) -> Counter[str]:
        """The number of runs that found a skeleton, by data set."""
        return Counter(key[0] for key, (_, line) in self._lines.items() if line.get("status") == "ok")

    def skeleton_file(self, dataset: str, setting: str) -> zipfile.Path | Path:
        """Return the path of a run's skeleton, which need not exist; raises InvalidRecord if damaged."""
        experiment = self.experiments[dataset, setting]
        archive = self.folder / "skeletons" / f"{experiment}.zip"
        if experiment not in self._archives and archive.is_file():
            try:
                opened = zipfile.Path(archive)
                if any(each.compress_type != zipfile.ZIP_STORED for each in opened.root.infolist()):
                    raise ValueError("its members are compressed, so that reading them may take any amount of memory")
            except Exception as error:  # A damaged archive can raise nearly anything.
                raise InvalidRecord(f"skeletons/{archive.name} is damaged: {error}") from error
            self._archives[experiment] = opened
        return self._archives.get(experiment, archive).joinpath(dataset, f"{setting}.npz")

    def files_of(self, keys: Iterable[RunKey]) -> list[str]:
        """Return the files from which runs are read."""
        experiments = sorted({self.experiments[key] for key in keys})
        parts = [path for name in experiments for path in (f"records/{name}.jsonl", f"skeletons/{name}.zip")]
        return [str(path) for part in (MACHINES, DATASETS, *parts) if (path := self.folder / part).is_file()]

    def _read(self, name: str) -> dict[str, Any]:
        """Return the entries of a file; none if the file does not exist."""
        path = self.folder / name
        content = parse(read_bytes(path), name) if path.is_file() else {}
        if not (isinstance(content, dict) and all(isinstance(entry, dict) for entry in content.values())):
            raise InvalidRecord(f"{name} is no object of objects")
        return content


def open_published(folder: str | Path) -> PublishedRuns:
    """Return a published folder, which this process reads again only after its files have changed."""
    folder = Path(folder)
    files = [folder / MACHINES, folder / DATASETS, *folder.glob("records/*.jsonl"), *folder.glob("skeletons/*.zip")]
    state = tuple(sorted((path.name, path.stat().st_mtime_ns) for path in files if path.is_file()))
    return _opened(str(folder), str(folder.absolute()), state)


@functools.lru_cache(maxsize=4)
def _opened(folder: str, absolute: str, state: Sequence[tuple[str, int]]) -> PublishedRuns:
    return PublishedRuns(folder)


def defaults_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a line does not repeat: the facts of its data set and of its data set's problem."""
    return {"dataset": {key: facts[key] for key in DATASET_FACTS if key in facts}, "problem": facts.get("problem")}
