"""Copies or downloads the registry's files into a cache folder, from mirror folders or the network, and verifies them.

A file that users build themselves (key `how`) has no checksum, and is read from a mirror folder without verification.
"""

import hashlib
import http.client
import os
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from datasets import registry
from datasets.dataset import DatasetUnavailable, RegistryError
from gpupc_impl.core.files import locked, write_whole
from gpupc_impl.ownership import open_regular

MIRRORS_VARIABLE = "GPUPC_MIRRORS"
RETRIES = 2
BACKOFF_S = 1.0
TIMEOUT_S = 20.0
CHUNK = 1 << 16
MAX_BYTES = 1 << 32  # the upper bound on a download, whose checksum is compared only at the end


def fetch(
    name: str,
    cache_dir: str | Path | None = None,
    mirrors: Sequence[str | Path] = (),
    offline: bool = False,
    *,
    spec: Mapping[str, Any] | None = None,
) -> Path:
    """Return the path of a verified file: CACHE_DIR/NAME/FILE, or the mirrored file if users build it.

    The file is looked for in the cache (by default ``gpupc/datasets`` in the user's cache folder), then by its name in
    the mirror folders, those of GPUPC_MIRRORS last, then at its address unless `offline`. A file with a wrong checksum
    is never kept. If several processes need the same file, one downloads it and the others wait. `spec` is an entry
    declared outside the registry.

    Raises:
        DatasetUnavailable: the file cannot be obtained; the message explains why and how to provide it.
        RegistryError: the registry has no entry of this name, or the entry is not a file.
    """
    entry = registry.resolve(name, spec)
    if entry["kind"] != "file":
        raise RegistryError(f"data set {name!r} is of kind {entry['kind']}: there is no file to fetch")
    return fetch_file(name, entry, cache_dir, mirrors, offline)


def fetch_file(
    name: str,
    entry: Mapping[str, Any],
    cache_dir: str | Path | None = None,
    mirrors: Sequence[str | Path] = (),
    offline: bool = False,
) -> Path:
    """Return the path of one file of a data set, one of `registry.files` of its entry, as `fetch` does."""
    mirrored = mirrored_paths(entry, mirrors)
    if "path" in entry and not mirrored:
        raise DatasetUnavailable(f"data set {name!r} is not available: there is no file {entry['path']}")
    if "how" in entry and not mirrored:
        raise DatasetUnavailable(_sentence(name, entry, mirrors, [f"it has to be built: {entry['how']}"]))
    if "how" in entry or "path" in entry:
        return mirrored[0]
    target = cached_path(name, entry, cache_dir)
    if target.is_file() and _mismatch(target, entry) is None:
        return target
    faults = []
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.with_name(f".{target.name}.lock")):
        if target.is_file():
            if (fault := _mismatch(target, entry)) is None:  # Another process downloaded the file in the meantime.
                return target
            target.unlink()
            faults.append(f"the copy in the cache was damaged and is removed ({fault})")
        for source in mirrored:
            try:
                with open_regular(source) as file:
                    _keep(file, target, entry)
                return target
            except (OSError, _Refused) as error:
                faults.append(f"the copy in {source.parent} cannot be used ({error})")
        if "url" not in entry:
            faults.append("it has no address")
        elif offline:
            faults.append(f"{entry['url']} was not tried (offline)")
        elif (fault := _download(entry, target)) is None:
            return target
        else:
            faults.append(f"{entry['url']} failed ({fault})")
    raise DatasetUnavailable(_sentence(name, entry, mirrors, faults))


def cached_path(name: str, entry: Mapping[str, Any], cache_dir: str | Path | None) -> Path:
    """Return the path of the entry's file in the cache, in which each data set has a folder; entries for the same file
    in several families share one, which the key `cache` names."""
    if cache_dir is None:
        try:
            cache_dir = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpupc" / "datasets"
        except RuntimeError as error:
            raise DatasetUnavailable(
                f"data set {name!r} is not available: there is no home folder for a cache; set XDG_CACHE_HOME, or HOME"
            ) from error
    return Path(cache_dir) / entry.get("cache", name) / entry["file"]


def mirrored_paths(entry: Mapping[str, Any], mirrors: Sequence[str | Path]) -> list[Path]:
    """Return the files with the entry's file name in the mirror folders, or the file of a user's own table."""
    own = [Path(entry["path"])] if "path" in entry else None
    return [path for path in own or [each / entry["file"] for each in _mirror_folders(mirrors)] if path.is_file()]


def _mirror_folders(mirrors: Sequence[str | Path]) -> list[Path]:
    from_environment = os.environ.get(MIRRORS_VARIABLE, "").split(os.pathsep)
    return [Path(folder) for folder in (*mirrors, *filter(None, from_environment))]


def _sentence(name: str, entry: Mapping[str, Any], mirrors: Sequence[str | Path], faults: Sequence[str]) -> str:
    looked_in = [f"{folder}{'' if folder.is_dir() else ' (no such folder)'}" for folder in _mirror_folders(mirrors)]
    mirrors_text = f"mirrors looked in: {', '.join(looked_in)}" if looked_in else "no mirror folder is set"
    return (
        f"data set {name!r} is not available: {'; '.join(faults)}; {mirrors_text}; "
        f"to provide it, put {entry['file']} in a folder and set {MIRRORS_VARIABLE} to that folder"
    )


def _mismatch(path: Path, entry: Mapping[str, Any]) -> str | None:
    """Return how a file's checksum differs from the entry's; None if it does not."""
    with open_regular(path) as file:
        return _difference(file, entry)


def _difference(file: IO[bytes], entry: Mapping[str, Any]) -> str | None:
    """Return how the checksum of an open file differs from the entry's; None if it does not."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    kind, new = "sha256", hashlib.sha256
    if kind not in entry:
        kind, new = "git_blob_sha1", lambda: hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    actual = hashlib.file_digest(file, new).hexdigest()
    return None if actual == entry[kind] else f"expected {kind} {entry[kind]}, found {actual}"


class _Refused(Exception):
    """The content is not that of the registered file, so a retry would not help."""


def _keep(source: IO[bytes], target: Path, entry: Mapping[str, Any]) -> None:
    """Copy a file into the cache; raises `_Refused` if it is too long or has another checksum."""
    size = 0
    with write_whole(target) as copy:
        while chunk := source.read(CHUNK):
            size += len(chunk)
            if size > MAX_BYTES:
                raise _Refused(f"it has more than {MAX_BYTES:,} bytes, the limit")
            copy.write(chunk)
        if getattr(source, "length", None):  # of an HTTP response: the bytes that did not arrive
            raise ConnectionError(f"the connection ended after {size} bytes")
        if fault := _difference(copy, entry):
            raise _Refused(fault)


def _download(entry: Mapping[str, Any], target: Path) -> str | None:
    """Download into the cache, with retries; returns the reason if that fails."""
    for attempt in range(1 + RETRIES):
        time.sleep(BACKOFF_S * attempt)
        try:
            with urllib.request.urlopen(entry["url"], timeout=TIMEOUT_S) as response:  # The schema admits only http(s).
                _keep(response, target, entry)
            return None
        except _Refused as refusal:
            return str(refusal)
        # ValueError means that the address is invalid.
        except (OSError, http.client.HTTPException, ValueError) as error:
            status = getattr(error, "code", None)  # HTTPError has a reason as well.
            reason = error if status else getattr(error, "reason", error)  # URLError wraps the underlying error.
            fault = str(reason) or type(error).__name__
            if status is not None and 400 <= status < 500 and status not in (408, 429):
                return fault  # A retry would fail likewise.
    return f"{fault}, {1 + RETRIES} attempts"
