"""Writes files atomically, and reads and writes JSON, YAML, CSV and archives of arrays. A file may hold anything, so
reading goes through `open_regular`, which refuses pipes and files that are too large."""

import contextlib
import csv
import errno
import fcntl
import hashlib
import io
import json
import math
import os
import re
import unicodedata
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from gpupc_impl.ownership import open_regular

DEFLATE_RATIO = 1032  # upper bound on the bytes to which one byte of zlib's output can decompress
MAX_TEXT = 1 << 28  # upper bound on the bytes of JSON, YAML and other files that are read at once
MAX_EXPANDED = 1 << 22  # characters and nodes of a text after its aliases are expanded
MAX_DIGITS = 1000  # of an integer; Python writes none of more than 4,300 digits in a message
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is made if it is missing; the system releases the lock if the process dies."""
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def checked_path(path: str | Path) -> Path:
    """Return a path; OSError for a null character or a lone surrogate, with which no file can exist."""
    try:
        if b"\0" not in os.fsencode(path):
            return Path(path)
    except UnicodeEncodeError:
        pass
    raise OSError(errno.EINVAL, "no path can have a null character or a lone surrogate; name another", ascii(str(path)))


@contextlib.contextmanager
def write_whole(path: str | Path) -> Iterator[IO[bytes]]:
    """Yield a new file, which replaces the one at `path` if the block ends without an error; folders are made."""
    path = checked_path(path)
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no regular file, and would be replaced; name another", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{uuid.uuid4().hex}.part")  # This name is short, so every valid `path` can be written.
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb+") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    with write_whole(path) as file:
        file.write(text.encode())


def save_json(content: Any, path: Path) -> None:
    write_text(path, json.dumps(content, indent=1) + "\n")


def read_bytes(path: str | Path) -> bytes:
    """The content of a file of at most `MAX_TEXT` bytes."""
    with open_regular(path, MAX_TEXT) as file:
        return file.read()


def read_text(path: str | Path) -> str:
    return read_bytes(path).decode("utf-8")


def read_json(path: str | Path) -> Any:
    return parse_json(read_text(path))


def parse_json(text: str) -> Any:
    """Return the content of a JSON text; raises ValueError if the text is not JSON, or is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def parse_yaml(text: str, loader: Any = None) -> Any:
    """Parse YAML, by PyYAML's safe loader or another one that is written in Python; ValueError for an invalid value,
    `yaml.YAMLError` for other text or one that expands too far."""
    import yaml  # type: ignore[import-untyped]

    stream = (loader or yaml.SafeLoader)(text)
    try:
        node = stream.get_single_node()
        if node is None:
            return None
        if _expanded(node, {}) > MAX_EXPANDED:
            raise yaml.YAMLError(f"with its aliases expanded it is longer than {MAX_EXPANDED:,} characters")
        return stream.construct_document(node)
    except RecursionError as error:
        raise yaml.YAMLError("it is nested too deeply") from error
    except (LookupError, AttributeError, TypeError, OverflowError) as error:  # of values such as `!!int ''`
        raise ValueError(f"a value does not have the type that its tag states ({error})") from error
    finally:
        stream.dispose()


def _expanded(node: Any, sizes: dict[int, int]) -> int:
    """Count the characters and nodes below a node; one that contains itself counts once, as the loader refuses it."""
    if id(node) not in sizes:
        sizes[id(node)] = 0
        if isinstance(node.value, str):
            if node.tag == "tag:yaml.org,2002:int" and len(node.value) > MAX_DIGITS:
                line = node.start_mark.line + 1
                raise ValueError(f"line {line}: an integer has {len(node.value):,} characters; quote a name")
            sizes[id(node)] = 1 + len(node.value)
        else:
            parts = (part for entry in node.value for part in (entry if isinstance(entry, tuple) else (entry,)))
            sizes[id(node)] = 1 + sum(_expanded(part, sizes) for part in parts)
    return sizes[id(node)]


def shortened(text: str, length: int = 1000) -> str:
    """Shorten a text for a message, since a file may hold anything."""
    half = length // 2
    return text if len(text) <= length else f"{text[:half]} ({len(text) - 2 * half:,} characters) {text[-half:]}"


def read_csv(path: str | Path) -> list[dict[str, str]]:
    """Read a CSV file with a header: a dictionary of texts by column for each row."""
    with open_regular(path) as file, io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


def write_csv(path: str | Path, rows: Sequence[Mapping[str, Any]], columns: Iterable[str] = ()) -> None:
    """Write rows as CSV atomically; `columns` come first even if no row has them, others as they appear."""
    names = dict.fromkeys([*columns, *(name for row in rows for name in row)])
    write_text(path, csv_line(names) + "".join(csv_line([row.get(name) for name in names]) for row in rows))


def csv_line(values: Iterable[Any]) -> str:
    """Return a row of a CSV file none of whose cells a spreadsheet interprets as a formula."""
    cells = ["" if value is None else no_formula(value) if isinstance(value, str) else str(value) for value in values]
    if cells == [""]:
        return '""\n'  # Readers skip an empty line.
    return ",".join(map(_quoted, cells)) + "\n"


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if re.search('[",;\t\r\n]', cell) else cell


def no_formula(text: str) -> str:
    """Put an apostrophe before each part of a text that a spreadsheet would interpret as a formula, in full-width
    characters too, or after blanks and control characters; a number is none. Parts end at semicolons, tabs and line
    ends, at which programs split lines whatever the quotes."""
    text = re.sub("[^;\t\r\n]+", lambda part: _no_formula(part[0]), text)
    return _no_formula(text)  # A line end before the whole text hides nothing.


def _no_formula(part: str) -> str:
    visible = (each for each in unicodedata.normalize("NFKC", part) if unicodedata.category(each)[0] not in "CZ")
    if next(visible, "") not in ("=", "+", "-", "@"):
        return part
    with contextlib.suppress(ValueError):
        float(part)
        return part
    return f"'{part}"


@contextlib.contextmanager
def open_arrays(file: str | Path | IO[bytes]) -> Iterator[Mapping[str, Any]]:
    """The arrays of an ``.npz`` file, each read when it is accessed. Nothing is unpickled, and declared sizes are first
    compared with their bytes, so that a small file cannot exhaust the memory. A damaged file may raise anything."""
    with contextlib.ExitStack() as stack:
        if isinstance(file, (str, Path)):
            file = stack.enter_context(open_regular(file))
        stored = np.load(file, allow_pickle=False)
        if not isinstance(stored, np.lib.npyio.NpzFile):
            raise ValueError("it holds one array, and is no archive of them")
        stack.enter_context(stored)
        assert stored.zip is not None
        for member in stored.zip.infolist():
            with stored.zip.open(member) as content:
                _check_member(member, content)
        yield stored


def _check_member(member: zipfile.ZipInfo, content: IO[bytes]) -> None:
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{member.filename} is compressed in a way that NumPy does not write")
    ratio = 1 if member.compress_type == zipfile.ZIP_STORED else DEFLATE_RATIO
    if member.file_size > ratio * member.compress_size:
        raise ValueError(f"{member.filename} cannot be of {member.file_size:,} bytes")
    # Otherwise NumPy returns the member's bytes instead of an array.
    if content.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX:
        content.seek(0)
        check_array(content, member.file_size, member.filename)


def check_array(content: IO[bytes], size: int, name: str) -> None:
    """Raise ValueError if the header of an ``.npy`` is missing or declares more than its bytes can hold."""
    version = np.lib.format.read_magic(content)
    if version not in _HEADERS:
        raise ValueError(f"{name} is written in format {version}, which is not known")
    shape, _, dtype = _HEADERS[version](content)
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"{name} declares {shape} of {dtype}, and holds {size:,} bytes")


def load_array(path: str | Path, *, mapped: bool = False) -> np.ndarray:
    """Read or map the array of an ``.npy``, with no more memory than the file holds; ValueError if it is none."""
    with open_regular(path) as file:
        try:
            check_array(file, os.fstat(file.fileno()).st_size, Path(path).name)
            file.seek(0)
            array: np.ndarray = np.load(path if mapped else file, mmap_mode="r" if mapped else None, allow_pickle=False)
            return array
        except (EOFError, SyntaxError, TypeError, MemoryError, RecursionError, OverflowError) as error:
            raise ValueError(f"it is damaged ({type(error).__name__}: {error})") from error


def write_arrays(file: IO[bytes], arrays: Mapping[str, Any]) -> None:
    """Write an ``.npz`` as numpy.savez_compressed, but at zlib's fastest level: a quarter larger, four times faster."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)


# --- archives that a program reads back -------------------------------------------------------------------------------
def write_sealed(file: IO[bytes], description: Mapping[str, Any], arrays: Mapping[str, Any], place: Any = None) -> None:
    """Write an ``.npz`` of arrays with a description and a digest of both and of `place`, to which the content belongs,
    such as a problem and a level; `place` is not written."""
    described = {**description, "sha256": _seal(description, arrays, place)}
    contents = {"described": np.array(json.dumps(described, sort_keys=True)), **arrays}
    with zipfile.ZipFile(file, "w") as archive:  # This is numpy.savez without a copy of each array, which takes time.
        for name, array in contents.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                array = np.ascontiguousarray(array).reshape(np.shape(array))
                np.lib.format.write_array_header_1_0(entry, np.lib.format.header_data_from_array_1_0(array))
                entry.write(array.reshape(-1).view(np.uint8).data)


def read_sealed(path: str | Path, place: Any = None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read what `write_sealed` wrote for this place; another digest raises ValueError, damage anything."""
    with open_arrays(path) as stored:
        arrays = {name: stored[name] for name in stored}
    description = dict(parse_json(str(arrays.pop("described"))))
    if description.pop("sha256", None) != _seal(description, arrays, place):
        raise ValueError("its digest is not that of what it holds, or it belongs elsewhere")
    return description, arrays


def _seal(description: Mapping[str, Any], arrays: Mapping[str, np.ndarray], place: Any) -> str:
    digest = hashlib.sha256(json.dumps([place, description], sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
