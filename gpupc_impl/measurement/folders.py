"""Reads folders of runs entry by entry, so that folders can be compared and merged (see `publish`).

A folder is either a published one (see `published`), or the results of a workflow, of which these files are read:

    config.yaml, experiments.json     the complete config, and the runs that each part of it asks for
    records/DATASET/SETTING.json      and the skeleton (.npz) beside it
    problems/DATASET.json, verification/NAME.csv, sharing.csv, tests/TABLE.json, timelines/DATASET.csv
"""

import contextlib
import csv
import dataclasses
import io
import math
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpupc_impl.core.files import no_formula, read_bytes, shortened
from gpupc_impl.core.result import Skeleton
from gpupc_impl.core.yaml_text import parse_yaml
from gpupc_impl.measurement.published import NAME, PublishedRuns, Run
from gpupc_impl.measurement.record import (
    InvalidRecord,
    Record,
    parse,
    schema,
    schema_of_facts,
    schema_of_tests,
    validate,
)

PLAIN_FILES = ("config.yaml", "tests/*.json", "timelines/*.csv", "verification/ci_tests.csv")
"""Files that are copied whole."""

EXPERIMENTS, SHARING = "experiments.json", "sharing.csv"

NUMBERS = {
    **dict.fromkeys(("rows", "sets", "level", "block", "stream"), "[0-9]{1,18}"),
    **dict.fromkeys(("start_s", "end_s"), r"[0-9]{1,9}(\.[0-9]{1,9})?"),
}
"""The form of the numbers in the CSV files of a folder of runs, by column."""

KEPT_SKELETON_BYTES = 1 << 18
"""The upper bound on the size of published skeletons of graphs whose truth is known; tables count the errors of these
skeletons."""

Name = tuple[str, ...]
"""The kind and the name of an entry (a run, data set, sharing or file), for example ``("run", "nci-60", "cupc-s")``."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """The content that one folder has under a name.

    Attributes:
        value: the content to be copied: a `Run`, the facts of a data set, rows of a table or the bytes of a file.
        content: the content to be compared, as JSON represents it.
        date: the time of the measurement in UTC (ISO 8601, so that texts compare as times do); empty if it is unknown.
    """

    folder: Path
    value: Any
    content: Any
    date: str = ""


def run_entry(folder: Path, run: Run) -> Entry:
    """Return the entry of a run. Its skeleton is not compared, since the record has its digest."""
    content = run.record.to_json() | ({} if run.verification is None else {"verification": dict(run.verification)})
    return Entry(folder, run, content, run.record.environment.get("measured_at", ""))


class Reader:
    """Reads a folder and collects its faults.

    Attributes:
        entries: the entries of the folder.
        faults: sentences about files that are damaged or missing.
        ignored: sentences about files that are left out.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.entries: dict[Name, Entry] = {}
        self.faults: list[str] = []
        self.ignored: list[str] = []
        if not folder.is_dir():
            self.faults.append(f"{folder} is no folder")
            return
        if any(folder.glob("records/*/*.json")):
            with self._naming(folder / EXPERIMENTS):
                self._read_results()
        else:
            with self._naming(folder):
                self._read_published()
        for path in (path for pattern in (*PLAIN_FILES, SHARING) for path in sorted(folder.glob(pattern))):
            with self._naming(path):
                self._read_plain(path.relative_to(folder).as_posix())
        if not (self.faults or any(name[0] == "run" or name[1].startswith("tests/") for name in self.entries)):
            self.faults.append(f"{folder} holds no runs: it has neither records nor tests/TABLE.json")

    @contextlib.contextmanager
    def _naming(self, path: Path) -> Iterator[None]:
        """Turn the errors of a damaged file into a sentence."""
        try:
            yield
        except MemoryError:
            raise
        except (ValueError, OSError) as error:
            self.faults.append(f"{path} is damaged: {shortened(str(error))}")
        except Exception as error:  # a damaged file can raise nearly anything
            self.faults.append(f"{path} is damaged: {type(error).__name__}: {shortened(str(error))}")

    def _read_published(self) -> None:
        for path in sorted(self.folder.rglob("*")):  # A link could bring any file of the reader into a merged folder.
            if path.is_symlink():
                self.faults.append(f"{shortened(ascii(str(path)))} is a link; put the file itself there")
        published = PublishedRuns(self.folder)
        for name, facts in published.datasets.items():
            with self._naming(self.folder):
                label = f"data set {shortened(ascii(name), 100)}"
                validate(facts, label, schema_of_facts())
                variables = (facts.get("problem") or {}).get("n_variables", math.inf)
                if any(max(edge) >= variables for edge in facts.get("true_edges") or ()):
                    raise InvalidRecord(f"{label} has {variables:,} variables, and a true edge with another one")
            self.entries["data set", name] = Entry(self.folder, facts, facts)
        for dataset, setting in published:
            with self._naming(self.folder):
                run = published.run(dataset, setting)
                validate(run.record.to_json(), f"the run of {setting} on {dataset}", schema())
                if run.record.ok and (run.record.result is None or run.record.problem is None):
                    raise InvalidRecord(f"the run of {setting} on {dataset} is ok, and has no result or no problem")
                if run.skeleton is not None:
                    _check_skeleton(published.skeleton_file(dataset, setting), run.record)
                self.entries["run", dataset, setting] = run_entry(self.folder, run)

    def _read_results(self) -> None:
        path = self.folder / EXPERIMENTS
        if not path.is_file():
            self.faults.append(f"{self.folder} has no {EXPERIMENTS}; run the workflow again, which writes it")
            return
        asked = parse(read_bytes(path), EXPERIMENTS)
        for name in asked:
            if not NAME.fullmatch(name):
                raise ValueError(f"{shortened(ascii(name), 100)} is no name of an experiment")
        experiments = {(d, s): name for name, its in asked.items() for d in its["datasets"] for s in its["settings"]}
        for path in sorted(self.folder.glob("problems/*.json")):
            with self._naming(path):
                facts = parse(read_bytes(path), path.name)
                if facts.get("name") != path.stem:
                    raise ValueError(f"its data set is {facts.get('name')!r}, and not that of the file's name")
                self.entries["data set", path.stem] = Entry(self.folder, facts, facts)
        tables = {}
        for path in sorted(self.folder.glob("verification/*.csv")):
            with self._naming(path):
                rows = {(row["dataset"], row["setting"]): row for row in read_rows(read_bytes(path))}
                tables[path.stem] = path.stat().st_mtime_ns, rows
        superfluous = unverified = 0
        for path in sorted(self.folder.glob("records/*/*.json")):
            dataset, setting = path.parent.name, path.stem
            experiment = experiments.get((dataset, setting))
            if experiment is None:
                superfluous += 1
                continue
            verified_at, rows = tables.get(experiment) or tables.get(dataset) or (0, {})
            row = rows.get((dataset, setting)) if verified_at >= path.stat().st_mtime_ns else None
            unverified += row is None
            with self._naming(path):
                self.entries["run", dataset, setting] = run_entry(self.folder, self._run(path, experiment, row))
        if superfluous:
            self.ignored.append(f"{self.folder}: {superfluous:,} records that the config does not ask for")
        if unverified:
            self.ignored.append(f"{self.folder}: verification of {unverified:,} records, which is missing or older")

    def _run(self, path: Path, experiment: str, row: Mapping[str, str] | None) -> Run:
        record = Record.load(path)
        if (record.dataset, record.setting) != (path.parent.name, path.stem):
            raise InvalidRecord(f"it is the record of {record.setting} on {record.dataset}")
        if ("data set", record.dataset) not in self.entries:
            raise ValueError(f"there is no problems/{record.dataset}.json")
        facts = self.entries["data set", record.dataset].value
        skeleton = _skeleton(path.with_suffix(".npz"), record) if "true_edges" in facts else None
        repeated = ("dataset", "setting", "method", "backend")
        return Run(experiment, record, row and {key: row[key] for key in row if key not in repeated}, skeleton)

    def _read_plain(self, name: str) -> None:
        if (self.folder / name).resolve() != self.folder.resolve() / name:
            raise ValueError("a link leads to it; put the file itself there")
        data = read_bytes(self.folder / name)
        if name == SHARING:
            for row in read_rows(data):
                run = self.entries.get(("run", row["dataset"], row["setting"]))
                rows = Entry(self.folder, [], [], run.date if run else "")
                rows = self.entries.setdefault(("sharing", row["dataset"]), rows)
                rows.value.append(row)
                rows.content.append(row)
            return
        if name.endswith(".json"):
            content = parse(data, name)
            validate(content, name, schema_of_tests())
        else:
            content = _yaml(data) if name.endswith(".yaml") else read_rows(data, of_runs=False)
        self.entries["file", name] = Entry(self.folder, data, content)


def _skeleton(path: Path, record: Record) -> bytes | None:
    """The content of a record's skeleton; None where there is none, or it is too large to be published."""
    if not path.is_file() or path.stat().st_size > KEPT_SKELETON_BYTES:
        return None
    _check_skeleton(path, record)
    return read_bytes(path)


def _check_skeleton(path: Path | zipfile.Path, record: Record) -> None:
    """Raise ValueError if the file is not that of the skeleton of a record."""
    try:
        digest = Skeleton.load(path).sha256
    except (ValueError, OSError) as error:
        raise ValueError(f"its skeleton {path.name} cannot be read: {error}") from error
    if record.result is None or digest != record.result.skeleton_sha256:
        raise ValueError(f"its skeleton {path.name} is another's: the digests differ")


def read_rows(data: bytes, of_runs: bool = True) -> list[dict[str, str]]:
    """Return the rows of a CSV file.

    Args:
        of_runs: whether each row must name its data set and setting.

    Raises:
        ValueError: the file is damaged.
    """
    reader = csv.DictReader(io.StringIO(data.decode(), newline=""), strict=True)
    try:
        rows = list(reader)
    except csv.Error as error:
        raise ValueError(f"it is no CSV: {error}") from error
    if any(None in row or None in row.values() for row in rows):
        raise ValueError("it is no CSV: a row has not as many values as the header has names")
    if formulas := [cell for row in rows for cell in (*row, *row.values()) if no_formula(cell) != cell]:
        raise ValueError(f"a spreadsheet takes {shortened(ascii(formulas[0]), 100)} for a formula")
    for name in reader.fieldnames or ():
        for row in rows:
            if name in NUMBERS and not re.fullmatch(NUMBERS[name], row[name]):
                raise ValueError(f"column {name} has {shortened(ascii(row[name]), 100)}, where a number is expected")
    if of_runs and (missing := {"dataset", "setting"} - set(reader.fieldnames or ())):
        raise ValueError(f"it has no column {' and no column '.join(sorted(missing))}")
    return rows


def _yaml(data: bytes) -> Any:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as error:
        raise ValueError("comparing configs needs the package pyyaml; pip install pyyaml") from error
    try:
        return parse_yaml(data.decode())
    except yaml.YAMLError as error:
        raise ValueError(f"it is no YAML: {error}") from error
