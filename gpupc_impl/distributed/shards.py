"""Shards: files with the results of tasks, each of which has a digest and is written atomically."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core.files import open_arrays, read_json, read_sealed, read_text, save_json, write_sealed
from gpupc_impl.core.problem import InvalidProblem

logger = logging.getLogger("gpupc_impl.distributed")

SETTINGS = "search.json"
"""The name of the file in a folder of shards that describes the search of the shards."""

FORMAT = 2

SEEN_WITHIN = 60.0
"""Upper bound on the seconds until all machines of a network file system see a file that one machine wrote."""

UNFINISHED = ("blocks/.*.*", "level-*/.*.*", ".*.*.npy")
"""Patterns of the temporary names of files that are being written."""

ABANDONED = 3600.0
"""Age in seconds from which on a file with a temporary name counts as left by a killed process."""


class MissingShard(RuntimeError):
    """A shard that holds a part of a result is missing or damaged; the message names the shard."""


@dataclasses.dataclass(frozen=True)
class ShardFolder:
    """A folder of shards, which the client and all workers see under the same path."""

    path: Path

    def block(self, i: int, j: int) -> Path:
        """Return the path of the shard of levels 0 and 1 of the block of panels I and J."""
        return self.path / "blocks" / f"{i:05d}-{j:05d}.npz"

    def rows(self, level: int, name: str) -> Path:
        """Return the path of the shard of a group of rows at a level from 2 on."""
        return self.path / f"level-{level}" / f"{name}.npz"

    @property
    def numbers(self) -> Path:
        """The file of the standardised samples, or of the correlation matrix if the problem has a matrix."""
        return self.path / "numbers.npy"

    @property
    def fixed(self) -> tuple[Path, Path]:
        """The files of required and of forbidden pairs, for a problem with background knowledge."""
        return self.path / "required.npy", self.path / "forbidden.npy"

    @property
    def key(self) -> Path:
        """The file by which a worker recognizes the client's folder."""
        return self.path / "search.key"

    def holds(self, key: str) -> bool:
        """Return whether the client of this search wrote its key into the folder."""
        for _ in _attempts(self.path):
            with contextlib.suppress(OSError, ValueError):
                if read_text(self.key) == key:
                    return True
        return False

    def make(self) -> None:
        """Create the folder.

        Raises:
            InvalidProblem: the folder cannot be written, or has links, which another user may have put there.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if linked := next((each.name for each in os.scandir(self.path) if each.is_symlink()), None):
                raise InvalidProblem(
                    f"{linked!r} in folder {str(self.path)!r} is a link, and a search writes and deletes files there; "
                    "remove the link, or name another folder"
                )
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> InvalidProblem:
        return InvalidProblem(f"folder {str(self.path)!r} cannot be used: {error}; name another")

    def claim(self, settings: Mapping[str, Any]) -> None:
        """Record the settings of the search, or compare them with the recorded ones, and remove unfinished files of
        killed processes.

        Raises:
            InvalidProblem: the folder cannot be written, or belongs to a search with other settings.
        """
        path, settings = self.path / SETTINGS, {"format": FORMAT, **settings}
        try:
            if not path.exists():
                save_json(settings, path)
                return
            recorded = read_json(path)
            if not isinstance(recorded, dict):
                raise TypeError("it holds no settings by name")
        except OSError as error:
            raise self._unusable(error) from error
        except (ValueError, TypeError) as error:
            raise InvalidProblem(f"{path} is damaged ({error}); remove the folder, or name another") from error
        for name in sorted(settings.keys() | recorded.keys()):
            if settings.get(name) != recorded.get(name):
                difference = {"fingerprint": "other data, or another alpha, max_level or test"}.get(
                    name, f"{name} {recorded.get(name)!r}, not {settings.get(name)!r}"
                )
                raise InvalidProblem(
                    f"folder {str(self.path)!r} holds shards of {difference}; name another folder, or remove this one"
                )
        for pattern in UNFINISHED:
            for left in self.path.glob(pattern):
                with contextlib.suppress(OSError):  # another process may have renamed the file
                    if time.time() - left.stat().st_mtime > ABANDONED:
                        left.unlink()

    def is_claimed(self) -> bool:
        """Return whether the folder belongs to a search already."""
        return (self.path / SETTINGS).exists()

    def rows_claimed(self) -> int:
        """Return the number of rows of a panel in the recorded settings of the folder; 0 if the folder has none."""
        try:
            return int(read_json(self.path / SETTINGS)["rows"])
        except (OSError, ValueError, TypeError, KeyError, OverflowError):
            return 0


def _attempts(folder: Path) -> Iterator[None]:
    """Yield once for each attempt to read a file that another machine wrote, with pauses, for up to `SEEN_WITHIN`
    seconds.

    Between attempts the folder is listed, which makes a network file system ask its server again.
    """
    end, pause = time.monotonic() + SEEN_WITHIN, 0.05
    yield
    while time.monotonic() < end:
        time.sleep(pause)
        pause = min(2 * pause, 2.0)
        with contextlib.suppress(OSError):
            os.listdir(folder)
        yield


def write(path: Path, search: str, outcome: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> int:
    """Write a shard into an existing folder atomically, and return its size in bytes.

    Equal content gives equal bytes. The file is not synchronised with the disk, because the digest reveals whether a
    power failure damaged the file. Two workers may write the same shard if the scheduler took a task for lost.

    Args:
        search: identifies the problem and the plan (`SearchSpec.identity`).
        outcome: values that the shard records besides arrays, such as counts, which JSON can represent.
    """
    temporary = path.with_name(f".{path.stem}.{uuid.uuid4().hex}")
    try:
        with open(temporary, "xb") as file:
            write_sealed(file, outcome, arrays, _place(path, search))
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path.stat().st_size


def read(
    path: Path, search: str, check: Callable[[dict[str, Any], dict[str, np.ndarray]], None]
) -> dict[str, Any] | None:
    """Return the outcome in a shard of this search; None if there is none.

    The result is also None, with a message in the log, if the shard is damaged, belongs to another search, level or
    group, or if `check` raises an exception.
    """
    try:
        outcome, arrays = read_sealed(path, _place(path, search))
        check(outcome, arrays)
        return outcome
    except FileNotFoundError:
        return None
    except MemoryError:
        raise
    except Exception as error:  # a damaged file may raise nearly any exception
        logger.warning("shard %s is damaged (%s) and is made again", path, error)
        return None


def _place(path: Path, search: str) -> list[str]:
    return [search, path.parent.name, path.name]


def read_array(path: Path, name: str) -> np.ndarray:
    """Return one array of a shard. This search has written or read the shard before, so the archive's own checksum
    suffices.

    Raises:
        MissingShard: the shard has been deleted or damaged since.
    """
    for _ in _attempts(path.parent):
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
        except Exception as error:  # see `read`
            failure = error
            break
    raise MissingShard(f"{path} is gone or damaged ({failure}); search again with the same folder") from failure
