"""Records: what one measured setting left behind, as one JSON file that `record.schema.json` describes key by key."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.core.files import save_json

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = 1

logger = logging.getLogger("gpupc_impl.records")


class InvalidRecord(ValueError):
    """A record does not fit the schema, or its file is not JSON; the message names the file, the key and the reason."""


@functools.cache
def schema() -> dict[str, Any]:
    """The JSON schema of a record."""
    return json.loads(Path(__file__).with_name("record.schema.json").read_text())


def validate(record: Mapping[str, Any], name: str = "record") -> None:
    """Check a record against the schema.

    Without jsonschema (a GPU machine with few packages, say) nothing is checked; whoever reads the record later does.

    Raises:
        InvalidRecord: it does not fit.
    """
    try:
        import jsonschema  # here, for the workers' sake, which start often and validate nothing
    except ImportError:
        logger.warning("%s is not validated: the package jsonschema is not installed", name)
        return
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema()).iter_errors(record))
    if error is not None:
        raise InvalidRecord(f"{name} is not a valid record: at {error.json_path}: {error.message}")


# --- files -----------------------------------------------------------------------------------------------------


def save(record: Mapping[str, Any], path: str | Path) -> None:
    """Write a valid record, all of the file or none.

    Raises:
        InvalidRecord: it does not fit the schema; nothing is written.
    """
    validate(record, Path(path).name)
    save_json(record, Path(path))


def load(path: str | Path) -> dict[str, Any]:
    """Read a record.

    Raises:
        InvalidRecord: the file is not JSON, or does not fit the schema.
    """
    path = Path(path)
    try:
        record = json.loads(path.read_text())
    except ValueError as error:
        raise InvalidRecord(f"{path.name} is not JSON: {error}") from error
    validate(record, path.name)
    return record


def load_records(source: str | Path | Iterable[str | Path]) -> list[dict[str, Any]]:
    """Read the records of a folder (those below it as well), or those at the paths given; by path, ascending."""
    if isinstance(source, (str, Path)):
        source = Path(source)
        paths = source.rglob("*.json") if source.is_dir() else [source]
    else:
        paths = map(Path, source)
    return [load(path) for path in sorted(paths) if not path.name.startswith(".")]


def to_frame(records: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """One row a record: its plain values by dotted name (``problem.alpha``), lists as lists, and the warm median with
    its band as ``median_s``, ``low_s``, ``high_s``."""
    import pandas

    rows = []
    for record in records:
        low, middle, high = band(record["time_s"]["warm"])
        rows.append({**dict(_flat(record)), "median_s": middle, "low_s": low, "high_s": high})
    return pandas.DataFrame(rows)


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        if isinstance(item, Mapping):
            yield from _flat(item, f"{prefix}{key}.")
        else:
            yield prefix + key, item


# --- numbers ---------------------------------------------------------------------------------------------------


def median(samples: Sequence[float]) -> float | None:
    """The median; None without samples."""
    return float(np.median(samples)) if len(samples) else None


def band(samples: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """20 % quantile, median and 80 % quantile; Nones without samples."""
    if not len(samples):
        return None, None, None
    return tuple(map(float, np.quantile(samples, (0.2, 0.5, 0.8))))
