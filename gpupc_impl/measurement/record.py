"""What measurements leave behind: records, one JSON file a setting, and files of single tests, one a table.

`record.schema.json` and `single_tests.schema.json` describe them key by key.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core.files import read_json, save_json, shortened

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = 1

logger = logging.getLogger("gpupc_impl.record")


class InvalidRecord(ValueError):
    """A record does not fit the schema, or its file is not JSON; the message names the file, the key and the reason."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one run may take; None for no limit.

    Attributes:
        time_s: wall-clock seconds, for the cold run as well.
        memory_bytes: resident memory of the worker and all that descends from it.
        device_memory_bytes: device memory.
    """

    time_s: float | None = None
    memory_bytes: int | None = None
    device_memory_bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class Times:
    """Wall-clock seconds inside the clock (see measurement/clock.py).

    Attributes:
        cold: the first run of a fresh process; None where it did not finish.
        compile: the part of it spent compiling; None where nothing was compiled.
        warm: the repeats, in the order they were run.
        levels: for each repeat, the seconds of each level.
    """

    cold: float | None = None
    compile: float | None = None
    warm: Sequence[float] = dataclasses.field(default_factory=list)
    levels: Sequence[Sequence[float]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Result:
    """What was found; see `core.result.Skeleton` for the names."""

    edges: int
    levels_run: int
    stopped_because: str
    edges_per_level: Sequence[int]
    tests_per_level: Sequence[int]
    undefined_tests: int
    pseudo_inverses: int
    skeleton_sha256: str
    sepsets_sha256: str


@dataclasses.dataclass(frozen=True)
class Peaks:
    """Largest memory use over all runs, in bytes; None when unknown.

    Attributes:
        process: resident memory of the worker and all that descends from it.
        device: device memory through the backend.
    """

    process: int | None = None
    device: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """One setting (a method with its parameters) on one problem; the schema says more of each field.

    Attributes:
        dataset: the data set's name.
        dataset_facts: what else its caller said about it; in the file both are ``dataset``.
        problem: `Problem.facts`, as the method understood the problem; None where there are no data.
        status: see `measurement.isolate`; ``why`` is a sentence where it is not ``ok``.
        result: None unless the status is ok.
        code: the version of the sources (see `measurement.digest`).
        environment: see `measurement.environment`.
    """

    setting: str
    method: str
    family: str
    reference: bool
    canonical: bool
    random: bool = False
    backend: str
    params: Mapping[str, Any]
    separating_sets: str
    dataset: str
    dataset_facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    problem: Mapping[str, Any] | None
    status: str
    why: str | None
    limits: Limits
    time_s: Times = dataclasses.field(default_factory=Times)
    result: Result | None = None
    peak_bytes: Peaks = Peaks()
    code: str
    reused_samples: int = 0
    environment: Mapping[str, Any]

    # --- numbers for tables ------------------------------------------------------------------------------------

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def median(self) -> float | None:
        """Seconds of the warm runs; None, as `low` and `high`, unless the status is ok."""
        return self._band[1]

    @property
    def low(self) -> float | None:
        """The 20 % quantile of the warm runs."""
        return self._band[0]

    @property
    def high(self) -> float | None:
        """The 80 % quantile of the warm runs."""
        return self._band[2]

    @functools.cached_property
    def _band(self) -> tuple[float | None, float | None, float | None]:
        return band(self.time_s.warm if self.ok else ())

    @property
    def repeats(self) -> int:
        return len(self.time_s.warm)

    @property
    def edges(self) -> int | None:
        return None if self.result is None else self.result.edges

    @property
    def levels(self) -> int | None:
        """Levels run."""
        return None if self.result is None else self.result.levels_run

    @property
    def tests(self) -> int | None:
        """CI tests of all levels."""
        return None if self.result is None else sum(self.result.tests_per_level)

    @property
    def machine(self) -> str:
        """What ran it: the GPU's name, or the processor's with the number of threads."""
        threads = 1 if self.method.endswith("-serial") else self.params.get("workers") or self.environment["threads"]
        return machine_name(self.environment, self.backend, threads)

    @property
    def commit(self) -> str | None:
        """The commit's first characters, with a plus where files differed from it; None when unknown."""
        return commit_name(self.environment)

    @property
    def date(self) -> str | None:
        """The day on which it was measured, 2026-11-21 (UTC); None when that was not recorded."""
        return day(self.environment)

    # --- files -------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The content of its file."""
        content = {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(self)}
        return content | {"dataset": {"name": self.dataset, **content.pop("dataset_facts")}}

    def save(self, path: str | Path) -> None:
        """Write a valid record, all of the file or none.

        Raises:
            InvalidRecord: it does not fit the schema; nothing is written.
        """
        _save(self.to_json(), path, schema())

    @classmethod
    def load(cls, path: str | Path) -> Record:
        """Read a record.

        Raises:
            InvalidRecord: the file is not JSON, or does not fit the schema.
        """
        content = _load(path, schema())
        del content["schema_version"]
        dataset = content.pop("dataset")
        return cls(
            **content
            | {
                "dataset": dataset.pop("name"),
                "dataset_facts": dataset,
                "limits": Limits(**content["limits"]),
                "time_s": Times(**content["time_s"]),
                "result": content["result"] and Result(**content["result"]),
                "peak_bytes": Peaks(**content["peak_bytes"]),
            }
        )


def load_records(paths: Iterable[str | Path]) -> list[Record]:
    """The records at these paths, in their order; see `Record.load`."""
    return [Record.load(path) for path in paths]


def to_frame(records: Iterable[Record]) -> pandas.DataFrame:
    """One row a record: its plain values by dotted name (``problem.alpha``), lists as lists, and the warm median with
    its band as ``median_s``, ``low_s``, ``high_s``, of the runs that finished where the setting did not."""
    import pandas

    rows = []
    for record in records:
        low, middle, high = band(record.time_s.warm)
        rows.append({**dict(_flat(record.to_json())), "median_s": middle, "low_s": low, "high_s": high})
    return pandas.DataFrame(rows)


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        if isinstance(item, Mapping):
            yield from _flat(item, f"{prefix}{key}.")
        else:
            yield prefix + key, item


def machine_name(environment: Mapping[str, Any], backend: str, threads: int) -> str:
    """What ran something: see `Record.machine`."""
    if backend == "cuda" and environment["device"]:
        return str(environment["device"]["device"])
    return f"{environment['cpu']}, {threads} thread{'s' if threads > 1 else ''}"


def commit_name(environment: Mapping[str, Any]) -> str | None:
    """What code ran: see `Record.commit`."""
    commit: str | None = environment["git_commit"]
    return commit and commit[:10] + ("+" if environment["git_dirty"] else "")


def day(environment: Mapping[str, Any]) -> str | None:
    """When something ran: see `Record.date`."""
    began: str | None = environment.get("measured_at")
    return began and began[:10]


def band(samples: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """20 % quantile, median and 80 % quantile; Nones without samples."""
    if not len(samples):
        return None, None, None
    low, middle, high = map(float, np.quantile(samples, (0.2, 0.5, 0.8)))
    return low, middle, high


# --- single tests ----------------------------------------------------------------------------------------------------


def save_tests(content: Mapping[str, Any], path: str | Path) -> None:
    """Write a table's single tests, all of the file or none.

    Args:
        content: what `measurement.single_tests` returns, and as ``source`` where the data come from.

    Raises:
        InvalidRecord: it does not fit the schema; nothing is written.
    """
    _save(content, path, schema_of_tests())


def load_tests(path: str | Path) -> dict[str, Any]:
    """Read a table's single tests.

    Raises:
        InvalidRecord: the file is not JSON, or does not fit the schema.
    """
    return _load(path, schema_of_tests())


# --- schemas ---------------------------------------------------------------------------------------------------------


@functools.cache
def schema() -> dict[str, Any]:
    """The JSON schema of a record's file."""
    described: dict[str, Any] = json.loads(Path(__file__).with_name("record.schema.json").read_text(encoding="utf-8"))
    return described


@functools.cache
def schema_of_tests() -> dict[str, Any]:
    """The JSON schema of a file of single tests; their environments are those of records."""
    described: dict[str, Any] = json.loads(
        Path(__file__).with_name("single_tests.schema.json").read_text(encoding="utf-8")
    )
    described["properties"]["environments"]["additionalProperties"] = schema()["properties"]["environment"]
    return described


def _save(content: Mapping[str, Any], path: str | Path, schema: Mapping[str, Any]) -> None:
    _validate(content, Path(path).name, schema)
    save_json(content, Path(path))


def _load(path: str | Path, schema: Mapping[str, Any]) -> dict[str, Any]:
    path = Path(path)
    try:
        content: dict[str, Any] = read_json(path)
    except ValueError as error:
        raise InvalidRecord(f"{path.name} is not JSON: {error}") from error
    _validate(content, path.name, schema)
    return content


def _validate(content: Mapping[str, Any], name: str, schema: Mapping[str, Any]) -> None:
    """Check the content of a file against its schema.

    Without jsonschema (on a GPU machine with few packages, say) nothing is checked; it is when the file is read.
    """
    try:
        import jsonschema  # here, for the workers' sake, which start often and validate nothing
    except ImportError:
        logger.warning("%s is not validated: the package jsonschema is not installed", name)
        return
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema).iter_errors(content))
    if error is not None:
        raise InvalidRecord(
            f"{name} is not a valid record: at {shortened(error.json_path)}: {shortened(error.message)}"
        )
