"""A folder in which a long calculation keeps its parts, from which it continues when it is called again."""

import json
import logging
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gpupc_impl.core.files import checked_path, read_json, read_sealed, save_json, write_sealed, write_whole
from gpupc_impl.core.problem import InvalidProblem

logger = logging.getLogger("gpupc_impl.core")

Value = TypeVar("Value")


class ResultFolder:
    """The folder of one calculation. Each file is written whole or not at all, and has a digest that binds it to its
    name and to the settings: what decides the results, in values that JSON can represent, with the problem's
    fingerprint as ``data``. They are in the file ``{kind}.json``, which `kind` names after what the folder holds.
    InvalidProblem is raised if the folder cannot be written, or belongs to other settings."""

    def __init__(self, path: Path, kind: str, settings: Mapping[str, Any]):
        self._path, self._settings = checked_path(path), json.loads(json.dumps(settings))
        file = path / f"{kind}.json"
        try:
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                pass
            if not file.exists():
                save_json(self._settings, file)
            recorded = read_json(file)
            if not isinstance(recorded, dict):
                raise ValueError("it holds no settings by name")
        except OSError as error:
            raise InvalidProblem(f"folder {str(path)!r} cannot be used: {error}; name another") from error
        except ValueError as error:
            raise InvalidProblem(f"{file} is damaged ({error}); remove the folder, or name another") from error
        for name in sorted(self._settings.keys() | recorded.keys()):
            if self._settings.get(name) != recorded.get(name):
                data = "other data, or another alpha, max_level or test"
                other = data if name == "data" else f"{name} {recorded.get(name)!r}"
                raise InvalidProblem(f"{path} holds a {kind} of {other}; name another folder, or remove this one")

    def write(self, name: str, outcome: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Write a file of arrays, with an outcome that JSON can represent."""
        with write_whole(self._path / f"{name}.npz") as file:
            write_sealed(file, outcome, arrays, [self._settings, name])

    def read(self, name: str, make: Callable[[dict[str, Any], dict[str, np.ndarray]], Value]) -> Value | None:
        """Return what `make` makes of a file; None without one, or, logged, if it is damaged or belongs elsewhere."""
        path = self._path / f"{name}.npz"
        for tries_left in reversed(range(5)):
            try:
                return make(*read_sealed(path, [self._settings, name]))
            except FileNotFoundError:
                return None
            except MemoryError:
                raise
            except Exception as error:  # a damaged file may raise nearly any exception
                # In threads CPython 3.11 at times fails to parse an array's header (python/cpython#106905).
                if tries_left == 0 or not isinstance(error, SystemError):
                    logger.warning("%s is damaged (%s) and is made again", path, error)
                    return None
        return None
