"""Writes files atomically, and reads and writes JSON, CSV and archives of arrays.

Other users of the machine may be able to write to a folder, and a file may hold anything. All reading therefore goes
through `open_regular`, which refuses pipes and files that are too large. All writing goes through the descriptor of a
new file, or of a file that `open_own` has checked: another user may put a link where the file's name was.
"""

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
import stat
import unicodedata
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from gpupc_impl.ownership import checked_file, is_own, open_regular

DEFLATE_RATIO = 1032
"""The upper bound on the bytes to which one byte of zlib's output can decompress."""

MAX_TEXT = 1 << 28
"""The upper bound on the bytes of JSON, YAML and other files that are read at once."""

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def open_own(path: Path, *, append: bool = False, mode: int = 0o666) -> IO[bytes]:
    """Open a file for writing at a path that other users may know: the file is new or belongs to the caller, and is no
    link.

    Args:
        append: whether to keep the present content.
        mode: the mode of a new file.

    Raises:
        OSError: the file cannot be opened, is a link, is no regular file, or belongs to another user.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_APPEND if append else 0)
    descriptor = checked_file(os.open(path, flags, mode), path)
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid() or status.st_nlink != 1:
        os.close(descriptor)
        raise OSError(errno.EPERM, "it belongs to another user, or has another name as well; remove it", str(path))
    if not append:
        os.ftruncate(descriptor, 0)
    return os.fdopen(descriptor, "ab" if append else "wb")


def remove_foreign(path: Path) -> None:
    """Remove the file at a path, unless it is a regular file of the caller to which no other user may write."""
    if os.path.lexists(path) and not is_own(path):
        path.unlink()


def open_lock(path: Path) -> IO[bytes]:
    """Open the file of a lock as `open_own` does; in a folder to which the caller alone may write, nobody else can open
    a new one, and hold its lock."""
    return open_own(path, mode=_lock_mode(path.parent))


def _lock_mode(folder: Path) -> int:
    """Return the mode of the file of a lock in a folder."""
    status = folder.stat()
    own = status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return 0o600 if own else 0o666


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is created if necessary; the system releases the lock if the process dies.

    Unlike that of `open_lock`, the file may belong to another user, with whom the caller shares the folder.

    Raises:
        OSError: the file is a link or no regular file, or cannot be opened.
    """
    flags = os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = checked_file(os.open(path, flags, _lock_mode(path.parent)), path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def checked_path(path: str | Path) -> Path:
    """Return a path; raises OSError if it has a null character or a lone surrogate, with which no file can exist."""
    try:
        if b"\0" not in os.fsencode(path):
            return Path(path)
    except UnicodeEncodeError:
        pass
    raise OSError(errno.EINVAL, "no path can have a null character or a lone surrogate; name another", ascii(str(path)))


@contextlib.contextmanager
def write_whole(path: str | Path) -> Iterator[IO[bytes]]:
    """Yield a new file, which is renamed to `path` if the block ends without an error, else deleted. Missing folders
    are made.

    Raises:
        OSError: the file cannot be written, or `path` is none, or leads to a folder, a device or a pipe.
    """
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
    """Write a text in UTF-8, atomically."""
    with write_whole(path) as file:
        file.write(text.encode())


def save_json(content: Any, path: Path) -> None:
    """Write JSON atomically."""
    write_text(path, json.dumps(content, indent=1) + "\n")


def read_bytes(path: str | Path) -> bytes:
    """The content of a file of at most `MAX_TEXT` bytes.

    Raises:
        OSError: it cannot be read, or is larger.
    """
    with open_regular(path, MAX_TEXT) as file:
        return file.read()


def read_text(path: str | Path) -> str:
    """Read a UTF-8 file of at most `MAX_TEXT` bytes.

    Raises:
        OSError: the file cannot be read, or is larger.
        UnicodeDecodeError: the file is not UTF-8.
    """
    return read_bytes(path).decode("utf-8")


def read_json(path: str | Path) -> Any:
    """Read a JSON file.

    Raises:
        OSError: the file cannot be read, or is larger than `MAX_TEXT`.
        ValueError: the file is not JSON.
    """
    return parse_json(read_text(path))


def parse_json(text: str) -> Any:
    """Return the content of a JSON text; raises ValueError if the text is not JSON, or is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def shortened(text: str, length: int = 1000) -> str:
    """Shorten a text for a message by omitting the middle of a long one, since a file may hold anything."""
    half = length // 2
    return text if len(text) <= length else f"{text[:half]} ({len(text) - 2 * half:,} characters) {text[-half:]}"


def read_csv(path: str | Path) -> list[dict[str, str]]:
    """Read a CSV file with a header: one dictionary of texts by column for each row."""
    with open_regular(path) as file, io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


def write_csv(path: str | Path, rows: Sequence[Mapping[str, Any]], columns: Iterable[str] = ()) -> None:
    """Write rows as CSV atomically. A cell is empty if its row has no value for the column.

    Args:
        columns: the first columns, even if no row has them; the other columns follow in the order of their first
            appearance.
    """
    names = dict.fromkeys([*columns, *(name for row in rows for name in row)])
    write_text(path, csv_line(names) + "".join(csv_line([row.get(name) for name in names]) for row in rows))


def csv_line(values: Iterable[Any]) -> str:
    """Return a row of a CSV file none of whose cells a spreadsheet interprets as a formula.

    Programs that split a line at semicolons or tabs, or at every line end, see cells inside of a text, which quotes in
    the middle of their lines do not hold together; so each part that begins like a formula gets an apostrophe.
    """
    cells = ["" if value is None else no_formula(value) if isinstance(value, str) else str(value) for value in values]
    if cells == [""]:
        return '""\n'  # Readers skip an empty line.
    return ",".join(map(_quoted, cells)) + "\n"


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if re.search('[",;\t\r\n]', cell) else cell


def no_formula(text: str) -> str:
    """Return a text none of whose parts between semicolons, tabs and line ends a spreadsheet interprets as a formula.

    An apostrophe is put before a part that begins like a formula, also in full-width characters or after blanks and
    control characters, unless the part is a number.
    """
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
    """The arrays of an ``.npz`` file, each of which is read when it is accessed. Nothing is unpickled.

    Before anything is read, the declared sizes of the members are compared with their bytes, so that a small file
    cannot exhaust the memory.

    Raises:
        ValueError: a member declares more data than it can hold, or is no array. A damaged file can raise almost any
            other exception, both when it is opened and when an array is accessed.
    """
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
    """Compare the declared size of a member with its bytes; see `open_arrays`."""
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
    """Raise ValueError if the header of an ``.npy`` declares more than its bytes can hold, or is missing."""
    version = np.lib.format.read_magic(content)
    if version not in _HEADERS:
        raise ValueError(f"{name} is written in format {version}, which is not known")
    shape, _, dtype = _HEADERS[version](content)
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"{name} declares {shape} of {dtype}, and holds {size:,} bytes")


def load_array(path: str | Path, *, mapped: bool = False) -> np.ndarray:
    """Read the array of an ``.npy``. Nothing is unpickled, and no more memory is allocated than the file holds.

    Args:
        mapped: whether the file is mapped into memory instead of read.

    Raises:
        OSError: the file cannot be opened, or is no regular file.
        ValueError: the file is no ``.npy``, or declares more data than it holds.
    """
    with open_regular(path) as file:
        try:
            check_array(file, os.fstat(file.fileno()).st_size, Path(path).name)
            file.seek(0)
            array: np.ndarray = np.load(path if mapped else file, mmap_mode="r" if mapped else None, allow_pickle=False)
            return array
        except (EOFError, SyntaxError, TypeError, MemoryError, RecursionError, OverflowError) as error:
            raise ValueError(f"it is damaged ({type(error).__name__}: {error})") from error


# --- archives that a program reads back -------------------------------------------------------------------------------


def write_sealed(file: IO[bytes], description: Mapping[str, Any], arrays: Mapping[str, Any], place: Any = None) -> None:
    """Write an ``.npz`` of arrays with a description and a digest of the arrays, the description and the place.

    Args:
        description: values that JSON can represent.
        place: what the content belongs to, such as a problem and a level, as JSON can represent it; it enters the
            digest and is not written.
    """
    described = {**description, "sha256": _seal(description, arrays, place)}
    contents = {"described": np.array(json.dumps(described, sort_keys=True)), **arrays}
    with zipfile.ZipFile(file, "w") as archive:  # This is numpy.savez without a copy of each array, which takes time.
        for name, array in contents.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                array = np.ascontiguousarray(array).reshape(np.shape(array))
                np.lib.format.write_array_header_1_0(entry, np.lib.format.header_data_from_array_1_0(array))
                entry.write(array.reshape(-1).view(np.uint8).data)


def read_sealed(path: str | Path, place: Any = None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read the description and the arrays that `write_sealed` wrote for this place.

    Raises:
        OSError: the file cannot be opened.
        ValueError: the stored digest is not that of the content at this place. A damaged file can raise almost any
            other exception.
    """
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
