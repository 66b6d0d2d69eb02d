"""Results of tasks in files: each there whole or not at all, with a digest of what it holds."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core.files import open_arrays, read_json, save_json
from gpupc_impl.core.problem import InvalidProblem

logger = logging.getLogger("gpupc_impl.distributed")

SETTINGS = "search.json"
"""The file of a folder that says what its shards are of."""

FORMAT = 1

SEEN_WITHIN = 60.0
"""Seconds within which a network file system shows on all machines what one of them wrote."""


UNFINISHED = ("blocks/.*.*", "level-*/.*.*", ".*.*.npy")
"""Temporary names of files that are being written."""

ABANDONED = 3600.0
"""Seconds after which nobody writes such a file any more."""


class MissingShard(RuntimeError):
    """A shard that a result is made of is gone or damaged; the message names it."""


@dataclasses.dataclass(frozen=True)
class Folder:
    """A folder of shards, which the client and all workers see under the same path."""

    path: Path

    def block(self, i: int, j: int) -> Path:
        """Of the block of panels I and J: levels 0 and 1."""
        return self.path / "blocks" / f"{i:05d}-{j:05d}.npz"

    def rows(self, level: int, name: str) -> Path:
        """Of a group of rows at a level from 2 on."""
        return self.path / f"level-{level}" / f"{name}.npz"

    @property
    def numbers(self) -> Path:
        """Standardised samples, or a matrix of correlations that was given."""
        return self.path / "numbers.npy"

    @property
    def fixed(self) -> tuple[Path, Path]:
        """Required and forbidden pairs, of a problem that has such."""
        return self.path / "required.npy", self.path / "forbidden.npy"

    @property
    def key(self) -> Path:
        """Tells workers whether the folder that they see is the client's."""
        return self.path / "search.key"

    def holds(self, key: str) -> bool:
        """Whether the client of this search wrote its key here."""
        for _ in _looks(self.path):
            with contextlib.suppress(OSError):
                if self.key.read_text() == key:
                    return True
        return False

    def make(self) -> None:
        """Make the folder.

        Raises:
            InvalidProblem: it cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> InvalidProblem:
        return InvalidProblem(f"folder {str(self.path)!r} cannot be used: {error}; name another")

    def claim(self, settings: Mapping[str, Any]) -> None:
        """Make sure that a folder that is there is for shards of these settings, and remove what killed writers left.

        Raises:
            InvalidProblem: it cannot be written, or is for others.
        """
        path, settings = self.path / SETTINGS, {"format": FORMAT, **settings}
        try:
            found = dict(read_json(path)) if path.exists() else None
            if found is None:
                save_json(settings, path)
                return
        except OSError as error:
            raise self._unusable(error) from error
        except (ValueError, TypeError) as error:
            raise InvalidProblem(f"{path} is damaged ({error}); remove the folder, or name another") from error
        for name in sorted(settings.keys() | found.keys()):
            if settings.get(name) != found.get(name):
                what = {"fingerprint": "other data, or another alpha, max_level or test"}.get(
                    name, f"{name} {found.get(name)!r}, not {settings.get(name)!r}"
                )
                raise InvalidProblem(
                    f"folder {str(self.path)!r} holds shards of {what}; name another folder, or remove this one"
                )
        for pattern in UNFINISHED:
            for left in self.path.glob(pattern):
                with contextlib.suppress(OSError):  # it was renamed meanwhile
                    if time.time() - left.stat().st_mtime > ABANDONED:
                        left.unlink()

    def is_claimed(self) -> bool:
        """Whether it is for shards of some settings already."""
        return (self.path / SETTINGS).exists()

    def rows_claimed(self) -> int:
        """The panels' size of the shards that are there; 0 where there are none."""
        try:
            return int(read_json(self.path / SETTINGS)["rows"])
        except (OSError, ValueError, TypeError, KeyError):
            return 0


def _looks(folder: Path) -> Iterator[None]:
    """Chances to find what another machine wrote, for up to `SEEN_WITHIN`.

    In between the folder is listed, which makes a network file system ask its server again.
    """
    end, pause = time.monotonic() + SEEN_WITHIN, 0.05
    yield
    while time.monotonic() < end:
        time.sleep(pause)
        pause = min(2 * pause, 2.0)
        with contextlib.suppress(OSError):
            os.listdir(folder)
        yield


def write(path: Path, said: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> int:
    """Write a shard into a folder that is there, all of it or none, and return its size in bytes.

    The same content has the same bytes. The disk is not waited for: what a power failure leaves of a shard, the digest
    tells from a whole one. Two workers may write the same one, where a task was thought lost.
    """
    described = {**said, "sha256": _digest(arrays)}
    temporary = path.with_name(f".{path.stem}.{uuid.uuid4().hex}")
    try:
        with open(temporary, "wb") as file:
            np.savez(file, described=np.array(json.dumps(described, sort_keys=True)), **arrays)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path.stat().st_size


def read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """What a shard says, and its arrays; None where there is none, or it is damaged, which is logged."""
    try:
        with open_arrays(path) as stored:
            said = json.loads(str(stored["described"]))
            arrays = {name: stored[name] for name in stored if name != "described"}
        if said.pop("sha256") != _digest(arrays):
            raise ValueError("its digest is not that of its arrays")
        return said, arrays
    except FileNotFoundError:
        return None
    except MemoryError:
        raise
    except Exception as error:  # a damaged file raises nearly anything
        logger.warning("shard %s is damaged (%s) and is made again", path, error)
        return None


def read_array(path: Path, name: str) -> np.ndarray:
    """One array of a shard that has been written or read before: its archive's own checksum is compared, and no more.

    Raises:
        MissingShard: it is gone or damaged since.
    """
    for _ in _looks(path.parent):
        try:
            with open_arrays(path) as stored:
                array: np.ndarray = stored[name]
                return array
        except FileNotFoundError as error:
            failure: Exception = error
            if not path.parent.exists():
                break
        except MemoryError:
            raise
        except Exception as error:  # a damaged file raises nearly anything
            failure = error
            break
    raise MissingShard(f"{path} is gone or damaged ({failure}); search again with the same folder") from failure


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
