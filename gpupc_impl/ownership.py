"""Checks of whether other users of the machine can have written or replaced a file, such as code in a cache, which
would run with the user's rights; and functions that open files safely."""

import contextlib
import errno
import functools
import grp
import io
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path


def fault_of_folder(folder: Path) -> str | None:
    """Return why another user may have written code in an existing folder, as a clause; None if only the caller can:
    the folder is the caller's, and those above it, also of links in the path, are the caller's or the system's."""
    status = folder.stat()
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    if _others_write(status):
        return "others may write to it (after a look at what it holds, chmod go-w mends that)"
    # In a user namespace, system files may belong to another user than root.
    system = {0, os.geteuid(), os.stat("/").st_uid}
    for place in _places(folder.absolute()):
        status = place.lstat()
        if status.st_uid not in system:
            return f"{place}, above it, belongs to another user"
        if not stat.S_ISLNK(status.st_mode) and _others_write(status) and not status.st_mode & stat.S_ISVTX:
            return f"others may write to {place} above it"
    return None


def is_own(path: Path) -> bool:
    """Return whether this is a regular file of the caller to which no other user may write."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not _others_write(status)


def open_regular(path: str | Path, limit: int | None = None) -> io.BufferedReader:
    """Open a regular file of at most `limit` bytes for reading; OSError for any other."""
    with _path_errors(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # O_NONBLOCK avoids waiting for a pipe.
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and (limit is None or status.st_size <= limit):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes, over the limit of {limit:,}", str(path))


def is_regular(path: str | Path) -> bool:
    with _path_errors(path):
        return stat.S_ISREG(os.stat(path).st_mode)


@contextlib.contextmanager
def _path_errors(path: str | Path) -> Iterator[None]:
    try:
        yield
    except ValueError as error:  # The path has a null character or a lone surrogate.
        raise OSError(errno.EINVAL, f"this is no path ({error})", ascii(str(path))) from error


def _others_write(status: os.stat_result) -> bool:
    mode = status.st_mode
    return bool(mode & stat.S_IWOTH) or (bool(mode & stat.S_IWGRP) and not _is_private(status.st_gid))


@functools.cache
def _is_private(group: int) -> bool:
    """Return whether the caller is the only member of a group, such as the private one of many systems."""
    try:
        user = pwd.getpwuid(os.geteuid())
        members = {*grp.getgrgid(group).gr_mem, *(entry.pw_name for entry in pwd.getpwall() if entry.pw_gid == group)}
    except KeyError:
        return False
    return members == {user.pw_name}


def _places(path: Path) -> Iterator[Path]:
    """Yield a path and all folders above it, and for each link among them the same of its target."""
    for place in (*reversed(path.parents), path):
        yield place
        if place.is_symlink():
            yield from _places(place.parent / place.readlink())
