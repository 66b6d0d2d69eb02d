"""Writes results to the paths that users name, in folders that other users of the machine may write to as well."""

import contextlib
import errno
import os
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np


@contextlib.contextmanager
def written(path: str | Path) -> Iterator[IO[bytes]]:
    """Yield a new file, which is renamed to `path` if the block ends without an error, else deleted.

    Unlike that of `core.files.write_whole`, the file is never opened again by its name, at which another user may have
    put a link meanwhile. Its name is short, so that every valid `path` can be written.

    Raises:
        OSError: the file cannot be written, or `path` is none.
    """
    path = checked_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{uuid.uuid4().hex}.part")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o666)
    try:
        with os.fdopen(descriptor, "wb+") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def checked_path(path: str | Path) -> Path:
    """Return a path; raises OSError if it has a null character or a lone surrogate, with which no file can exist."""
    try:
        if b"\0" not in os.fsencode(path):
            return Path(path)
    except UnicodeEncodeError:
        pass
    raise OSError(errno.EINVAL, "no path can have a null character or a lone surrogate; name another", ascii(str(path)))


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write an ``.npz`` as numpy.savez_compressed, but at zlib's fastest level: a quarter larger and four times as
    fast."""
    with written(path) as part, zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
