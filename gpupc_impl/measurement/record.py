"""The results of measurements: a record is one JSON document per run, and single tests are one file per table.

`record.schema.json` and `single_tests.schema.json` describe both formats key by key.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core.files import parse_json, read_bytes, read_json, save_json, shortened

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = 1

logger = logging.getLogger("gpupc_impl.record")

MAX_NUMBER = 2.0**64  # the upper bound on the magnitude of a number in a record
DATASET_FACTS = ("source", "licence", "citation", "sha256")  # the facts of a data set that its records repeat


class InvalidRecord(ValueError):
    """A record does not fit the schema, or its file is not JSON; the message names the file, the key and the reason."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Upper bounds on the resources of one run, the cold one included; None means no limit."""

    time_s: float | None = None
    memory_bytes: int | None = None
    device_memory_bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class Times:
    """Wall-clock seconds; measurement/clock.py defines what they include."""

    cold: float | None = None
    compile: float | None = None
    warm: Sequence[float] = dataclasses.field(default_factory=list)
    levels: Sequence[Sequence[float]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Result:
    """The answer in numbers and digests; `core.result.Skeleton` explains the fields."""

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
    """The largest memory use over all runs, in bytes; None if it is unknown."""

    process: int | None = None
    device: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """The measurement of one setting (a method with its parameters) on one problem. The schema explains each field, and
    those of the other classes; its ``dataset`` holds the data set's name and the `dataset_facts`."""

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

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def out_of_memory(self) -> bool:
        """Whether memory was exhausted, or the budget of device memory, which records once called ``oom`` as well."""
        return self.status in ("oom", "refused")

    @functools.cached_property
    def _band(self) -> tuple[float | None, float | None, float | None]:
        return band(self.time_s.warm if self.ok else ())

    @property
    def low(self) -> float | None:
        """The 20 % quantile of the warm runs in seconds; like `median` and `high`, None unless the status is ok."""
        return self._band[0]

    @property
    def median(self) -> float | None:
        return self._band[1]

    @property
    def high(self) -> float | None:
        """The 80 % quantile of the warm runs in seconds."""
        return self._band[2]

    @property
    def repeats(self) -> int:
        return len(self.time_s.warm)

    @property
    def edges(self) -> int | None:
        return None if self.result is None else self.result.edges

    @property
    def levels(self) -> int | None:
        """The number of levels that were run."""
        return None if self.result is None else self.result.levels_run

    @property
    def tests(self) -> int | None:
        """The total number of CI tests of all levels."""
        return None if self.result is None else sum(self.result.tests_per_level)

    @property
    def machine(self) -> str:
        """The name of the GPU that the run used, or of the processor with the number of threads."""
        threads = 1 if self.method.endswith("-serial") else self.params.get("workers") or self.environment["threads"]
        return machine_name(self.environment, self.backend, threads)

    @property
    def commit(self) -> str | None:
        return commit_name(self.environment)

    def to_json(self) -> dict[str, Any]:
        """Return the record as the schema describes it; the result shares lists and mappings with the record."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(Record)}
        parts = {name: dict(vars(part)) for name, part in values.items() if dataclasses.is_dataclass(part)}
        dataset = {"name": self.dataset, **values.pop("dataset_facts")}
        return {"schema_version": SCHEMA_VERSION, **values, **parts, "dataset": dataset}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Record:
        """Return the record of a document that fits the schema."""
        dataset = dict(content["dataset"])
        return cls(
            **{key: value for key, value in content.items() if key != "schema_version"}
            | {
                "dataset": dataset.pop("name"),
                "dataset_facts": dataset,
                "limits": Limits(**content["limits"]),
                "time_s": Times(**content["time_s"]),
                "result": content["result"] and Result(**content["result"]),
                "peak_bytes": Peaks(**content["peak_bytes"]),
            }
        )

    def save(self, path: str | Path) -> None:
        """Write the record, all of the file or none; raises InvalidRecord if it does not fit the schema."""
        content = self.to_json()
        validate(content, Path(path).name, schema())
        save_json(content, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Record:
        """Read a record; raises InvalidRecord if the file is not JSON, or does not fit the schema."""
        return cls.from_json(_load(path, schema()))


def to_frame(records: Sequence[Record]) -> pandas.DataFrame:
    """Return a table with one row per record.

    Plain values stand under dotted names (``problem.alpha``), and lists stay lists. ``median_s``, ``low_s`` and
    ``high_s`` are the median and the band of the warm runs that finished, even if the status is not ok.
    """
    import pandas

    frame = pandas.json_normalize([record.to_json() for record in records])
    for place, name in enumerate(("low_s", "median_s", "high_s")):
        frame[name] = [band(record.time_s.warm)[place] for record in records]
    return frame


def machine_name(environment: Mapping[str, Any], backend: str, threads: int) -> str:
    """Return the name of a machine, as `Record.machine` describes it."""
    if backend == "cuda" and environment["device"]:
        return str(environment["device"]["device"])
    return f"{environment['cpu']}, {threads} thread{'s' if threads > 1 else ''}"


def commit_name(environment: Mapping[str, Any]) -> str | None:
    """Return the first ten characters of the commit, and a plus if files differed from it; None if it is unknown."""
    commit: str | None = environment["git_commit"]
    return commit and commit[:10] + ("+" if environment["git_dirty"] else "")


def day(environment: Mapping[str, Any]) -> str | None:
    """Return the day of a measurement (UTC), such as 2026-11-21; None if it is unknown."""
    start: str | None = environment.get("measured_at")
    return start and start[:10]


def band(samples: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """Return the 20 % quantile, the median and the 80 % quantile; all are None without samples."""
    if not len(samples):
        return None, None, None
    low, middle, high = map(float, np.quantile(samples, (0.2, 0.5, 0.8)))
    return low, middle, high


def save_tests(content: Mapping[str, Any], path: str | Path) -> None:
    """Write a table's single tests with the ``source`` of their data; raises InvalidRecord unless they fit the
    schema."""
    validate(content, Path(path).name, schema_of_tests())
    save_json(content, Path(path))


def load_tests(path: str | Path) -> dict[str, Any]:
    """A table's single tests; raises InvalidRecord if the file is not JSON, or does not fit the schema."""
    return _load(path, schema_of_tests())


@functools.cache
def schema() -> dict[str, Any]:
    content: dict[str, Any] = read_json(Path(__file__).with_name("record.schema.json"))
    return content


@functools.cache
def schema_of_tests() -> dict[str, Any]:
    """Return the JSON schema of a table of single tests, in which environments are those of records."""
    content: dict[str, Any] = read_json(Path(__file__).with_name("single_tests.schema.json"))
    content["properties"]["environments"]["additionalProperties"] = schema()["properties"]["environment"]
    return content


@functools.cache
def schema_of_facts() -> dict[str, Any]:
    """Return the JSON schema of the facts of a data set that others may have written."""
    edge = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 2, "maxItems": 2}
    edges = {"type": ["array", "null"], "items": edge}
    return {"properties": {"problem": schema()["properties"]["problem"], "true_edges": edges}}


@functools.cache
def _validator() -> Any:
    """Return a validator for which NaN, infinities and numbers from `MAX_NUMBER` on are no numbers; JSON has none of
    them, but Python reads them, and no table can show them."""
    import jsonschema  # The package is imported here because workers start often and validate nothing.

    plain = jsonschema.Draft202012Validator

    def bounded(kind: str) -> Callable[[Any, Any], bool]:
        return lambda _, value: plain.TYPE_CHECKER.is_type(value, kind) and abs(value) < MAX_NUMBER

    checker = plain.TYPE_CHECKER.redefine_many({kind: bounded(kind) for kind in ("number", "integer")})
    return jsonschema.validators.extend(plain, type_checker=checker)  # type: ignore[no-untyped-call]


def parse(text: bytes, source: str) -> Any:
    """The content of a JSON document; raises InvalidRecord, with the source's name, if it is not JSON in UTF-8."""
    try:
        return parse_json(text.decode())
    except ValueError as error:
        raise InvalidRecord(f"{source} is not JSON: {error}") from error


def validate(content: Any, source: str, schema: Mapping[str, Any]) -> None:
    """Compare a document with its schema; raises InvalidRecord, which names the source, the key and the reason. Without
    the package jsonschema (a GPU machine may have few packages), a warning is issued instead."""
    try:
        import jsonschema
    except ImportError:
        logger.warning("%s is not validated: the package jsonschema is not installed", source)
        return
    error = jsonschema.exceptions.best_match(_validator()(schema).iter_errors(content))
    if error is not None:
        place, reason = shortened(error.json_path), shortened(error.message)
        raise InvalidRecord(f"{source} is not a valid record: at {place}: {reason}")


def _load(path: str | Path, schema: Mapping[str, Any]) -> dict[str, Any]:
    path = Path(path)
    content: dict[str, Any] = parse(read_bytes(path), path.name)
    validate(content, path.name, schema)
    return content
