"""The folder of a search: files with the results of levels 0 and 1 and of later levels, from which a search that was
killed continues."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gpupc_impl.core.files import read_json, read_sealed, save_json, write_sealed, write_whole
from gpupc_impl.core.problem import InvalidProblem

logger = logging.getLogger("gpupc_impl.distributed")

Value = TypeVar("Value")

SETTINGS = "search.json"
FORMAT = 4


class SearchFolder:
    """The folder of one search, which only its client writes and reads.

    Each file is written whole or not at all, and has a digest that binds it to the search and to its name.

    Raises:
        InvalidProblem: the folder cannot be written, or belongs to another search.
    """

    def __init__(self, path: Path, search: str):
        self._path, self._search = path, search
        file, settings = path / SETTINGS, {"format": FORMAT, "fingerprint": search}
        try:
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                pass
            if not file.exists():
                save_json(settings, file)
            recorded = read_json(file)
        except OSError as error:
            raise InvalidProblem(f"folder {str(path)!r} cannot be used: {error}; name another") from error
        except ValueError as error:
            raise InvalidProblem(f"{file} is damaged ({error}); remove the folder, or name another") from error
        if recorded != settings:
            raise InvalidProblem(
                f"folder {str(path)!r} holds a search of other data, or with another alpha, max_level or test, or "
                "by another version of gpupc; name another folder, or remove this one"
            )

    def write(self, name: str, outcome: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Write a file of arrays, with an outcome that JSON can represent."""
        with write_whole(self._path / f"{name}.npz") as file:
            write_sealed(file, outcome, arrays, [self._search, name])

    def read(self, name: str, make: Callable[[dict[str, Any], dict[str, np.ndarray]], Value]) -> Value | None:
        """Return what a function makes of an outcome and its arrays; None if there is no file, or, with a message in
        the log, if the file is damaged or belongs elsewhere."""
        path = self._path / f"{name}.npz"
        try:
            return make(*read_sealed(path, [self._search, name]))
        except FileNotFoundError:
            return None
        except MemoryError:
            raise
        except Exception as error:  # a damaged file may raise nearly any exception
            logger.warning("%s is damaged (%s) and is made again", path, error)
            return None
