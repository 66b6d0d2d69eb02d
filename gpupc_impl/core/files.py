"""Files that are written atomically, and JSON, CSV and archives of arrays."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

DEFLATE_RATIO = 1032
"""The upper bound on the bytes to which one byte of zlib's output decompresses."""

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


@contextlib.contextmanager
def write_whole(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, renamed to `path` when the block ends without an error; else deleted."""
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
    """Write JSON atomically."""
    with write_whole(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n")


def read_json(path: str | Path) -> Any:
    return json.loads(Path(path).read_text(encoding="utf-8"))


def read_csv(path: str | Path) -> list[dict[str, str]]:
    """The rows of a CSV file with a header, by column, as text."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_csv(path: str | Path, rows: Sequence[Mapping[str, Any]], columns: Iterable[str] = ()) -> None:
    """Write rows as CSV, atomically. A row without a value for a column leaves it empty.

    Args:
        columns: the first columns, whether any row has them or not; the rows' other columns follow as they appear.
    """
    names = dict.fromkeys([*columns, *(name for row in rows for name in row)])
    with write_whole(Path(path)) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(names), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def no_formula(text: str) -> str:
    """Text for a cell of a CSV that no spreadsheet takes for a formula.

    Text that begins like a formula and is no number gets an apostrophe in front.
    """
    if not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return text
    with contextlib.suppress(ValueError):
        float(text)
        return text
    return f"'{text}"


@contextlib.contextmanager
def open_arrays(file: str | Path | IO[bytes]) -> Iterator[Mapping[str, Any]]:
    """The arrays of an ``.npz``, each read when it is accessed. Nothing is unpickled.

    The sizes that its members declare are compared with their bytes before anything is read, so that a small file
    cannot exhaust the memory.

    Raises:
        ValueError: a member declares more than it can hold, or is no array. A damaged file can raise nearly anything
            else, when it is opened and when an array is accessed.
    """
    with np.load(file, allow_pickle=False) as stored:
        if not isinstance(stored, np.lib.npyio.NpzFile):
            raise ValueError("it holds one array, and is no archive of them")
        assert stored.zip is not None
        for member in stored.zip.infolist():
            with stored.zip.open(member) as content:
                _check_member(member, content)
        yield stored


def _check_member(member: zipfile.ZipInfo, content: IO[bytes]) -> None:
    """Compare what a member declares with its size; see `open_arrays`."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{member.filename} is compressed in a way that NumPy does not write")
    ratio = 1 if member.compress_type == zipfile.ZIP_STORED else DEFLATE_RATIO
    if member.file_size > ratio * member.compress_size:
        raise ValueError(f"{member.filename} cannot be of {member.file_size:,} bytes")
    if content.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX:  # else NumPy returns its bytes
        content.seek(0)
        check_array(content, member.file_size, member.filename)


def check_array(content: IO[bytes], size: int, name: str) -> None:
    """Compare what the header of an ``.npy`` declares with its size in bytes.

    Raises:
        ValueError: it declares more than it can hold, or has no header.
    """
    version = np.lib.format.read_magic(content)
    if version not in _HEADERS:
        raise ValueError(f"{name} is written in format {version}, which is not known")
    shape, _, dtype = _HEADERS[version](content)
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"{name} declares {shape} of {dtype}, and holds {size:,} bytes")
