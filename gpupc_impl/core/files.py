"""Files: written so that each is there whole or not at all; JSON and CSV."""

from __future__ import annotations

import contextlib
import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def write_whole(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place when the block ends well: all of a file, or none."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def save_json(content: Any, path: Path) -> None:
    """Write JSON, all of the file or none."""
    with write_whole(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n")


def read_json(path: str | Path) -> Any:
    return json.loads(Path(path).read_text(encoding="utf-8"))


def read_csv(path: str | Path) -> list[dict[str, str]]:
    """The rows of a CSV file with a header, everything in it as text."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_csv(path: str | Path, rows: Sequence[Mapping[str, Any]], columns: Iterable[str] = ()) -> None:
    """Write rows as CSV; a row without a value for a column leaves it empty.

    Args:
        columns: those to begin with, whether any row has them or not; after them come the rows' own, as they appear.
    """
    names = dict.fromkeys([*columns, *(name for row in rows for name in row)])
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(names), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
