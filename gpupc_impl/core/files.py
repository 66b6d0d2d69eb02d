"""Writing files so that each is there whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
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
