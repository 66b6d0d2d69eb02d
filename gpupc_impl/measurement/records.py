"""Records: what one measured setting left behind, as one JSON file that `record.schema.json` describes key by key."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupc_impl.backends.base import PACKAGE_ROOT
from gpupc_impl.core.files import save_json
from gpupc_impl.core.registry import Method

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = 1

logger = logging.getLogger("gpupc_impl.records")


class InvalidRecord(ValueError):
    """A record does not fit the schema, or its file is not JSON; the message names the file, the key and the reason."""


@functools.cache
def schema() -> dict[str, Any]:
    """The JSON schema of a record."""
    return json.loads(Path(__file__).with_name("record.schema.json").read_text())


def validate(record: Mapping[str, Any], name: str = "record") -> None:
    """Check a record against the schema.

    Without jsonschema (a GPU machine with few packages, say) nothing is checked; whoever reads the record later does.

    Raises:
        InvalidRecord: it does not fit.
    """
    try:
        import jsonschema  # here, for the workers' sake, which start often and validate nothing
    except ImportError:
        logger.warning("%s is not validated: the package jsonschema is not installed", name)
        return
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema()).iter_errors(record))
    if error is not None:
        raise InvalidRecord(f"{name} is not a valid record: at {error.json_path}: {error.message}")


# --- files -----------------------------------------------------------------------------------------------------


def save(record: Mapping[str, Any], path: str | Path) -> None:
    """Write a valid record, all of the file or none.

    Raises:
        InvalidRecord: it does not fit the schema; nothing is written.
    """
    validate(record, Path(path).name)
    save_json(record, Path(path))


def load(path: str | Path) -> dict[str, Any]:
    """Read a record.

    Raises:
        InvalidRecord: the file is not JSON, or does not fit the schema.
    """
    path = Path(path)
    try:
        record = json.loads(path.read_text())
    except ValueError as error:
        raise InvalidRecord(f"{path.name} is not JSON: {error}") from error
    validate(record, path.name)
    return record


def load_records(source: str | Path | Iterable[str | Path]) -> list[dict[str, Any]]:
    """Read the records of a folder (those below it as well), or those at the paths given; by path, ascending."""
    if isinstance(source, (str, Path)):
        source = Path(source)
        paths = source.rglob("*.json") if source.is_dir() else [source]
    else:
        paths = map(Path, source)
    return [load(path) for path in sorted(paths) if not path.name.startswith(".")]


def to_frame(records: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """One row a record: its plain values by dotted name (``problem.alpha``), lists as lists, and the warm median with
    its band as ``median_s``, ``low_s``, ``high_s``."""
    import pandas

    rows = []
    for record in records:
        low, middle, high = band(record["time_s"]["warm"])
        rows.append({**dict(_flat(record)), "median_s": middle, "low_s": low, "high_s": high})
    return pandas.DataFrame(rows)


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        if isinstance(item, Mapping):
            yield from _flat(item, f"{prefix}{key}.")
        else:
            yield prefix + key, item


# --- numbers ---------------------------------------------------------------------------------------------------


def median(samples: Sequence[float]) -> float | None:
    """The median; None without samples."""
    return float(np.median(samples)) if len(samples) else None


def band(samples: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """20 % quantile, median and 80 % quantile; Nones without samples."""
    if not len(samples):
        return None, None, None
    return tuple(map(float, np.quantile(samples, (0.2, 0.5, 0.8))))


# --- the version of a method's code ------------------------------------------------------------------------------

_SHARED = ("gpupc_impl.core", "gpupc_impl.backends")
"""Packages whose modules do not count merely because a method imports them; `code_version` names those that do."""


def code_version(method: Method, backend: str) -> str:
    """sha256 over the sources that a measurement of the method depends on: a change of theirs asks for a new one.

    They are

    - the module of the method, and the modules it imports (and those import), as far as they lie in its own
      top-level package; ``gpupc_impl.core`` and ``gpupc_impl.backends`` excepted;
      (all ``.py`` files beside it, when it does not hold the method's name: then another module registered it);
    - the ``.cu`` files these modules name in strings, and the files those include (all ``.cu`` files beside a module
      that puts such a name together at run time);
    - ``core/pc_stable.py``;
    - on ``cuda`` and ``host``, the modules of that backend; on ``host`` everything it compiles from ``backends/simt``.

    So a method added beside it, or a change in another method, in the measuring or in the command line, leaves it
    alone.

    Args:
        backend: ``"cuda"``, ``"host"`` or ``"cpu"``.
    """
    digest = hashlib.sha256()
    for name, path in sorted(code_sources(method, backend).items()):
        content = path.read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def code_sources(method: Method, backend: str) -> dict[str, Path]:
    """The files behind `code_version`, by a name that does not depend on where the code lies."""
    modules = _imported(method.module, scope=method.module.split(".")[0], without=_SHARED)
    sources = dict(modules)
    home = modules[method.module]
    if method.name not in home.read_text():
        sources.update(_by_place(home.parent.glob("*.py")))
    for path in list(sources.values()):
        sources.update(_kernels(path))
    sources["gpupc_impl.core.pc_stable"] = PACKAGE_ROOT / "core" / "pc_stable.py"
    if backend != "cpu":
        sources.update(_imported(f"gpupc_impl.backends.{backend}", scope="gpupc_impl.backends", without=()))
    if backend == "host":
        simt = (PACKAGE_ROOT / "backends" / "simt").iterdir()
        sources.update(_by_place(path for path in simt if path.suffix in (".cpp", ".hpp", ".cuh")))
    return sources


def _imported(module: str, scope: str, without: tuple[str, ...]) -> dict[str, Path]:
    """A module and what it imports from a scope, transitively: source files by module name."""
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _source_file(name)
        if path is None or name in found:
            continue
        found[name] = path
        for base, attributes in _imports(name, path):
            if _within(base, scope) and not any(_within(base, other) for other in without):
                submodules = [f"{base}.{attribute}" for attribute in attributes]
                waiting += [submodule if _source_file(submodule) else base for submodule in submodules] or [base]
    return found


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _source_file(module: str) -> Path | None:
    """Where a module's source lies; None for a name that is no module (an attribute of one, say)."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec is not None and spec.has_location else None


def _imports(module: str, path: Path) -> Iterator[tuple[str, list[str]]]:
    """What a module imports, inside functions as well: absolute module names, each with the names taken from it."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield base, [alias.name for alias in node.names]


def _kernels(module_path: Path) -> dict[str, Path]:
    """The kernel sources that a module names, and what they include."""
    waiting = []
    for node in ast.walk(ast.parse(module_path.read_bytes())):
        if isinstance(node, ast.JoinedStr):
            if any(isinstance(part, ast.Constant) and ".cu" in str(part.value) for part in node.values):
                waiting += module_path.parent.rglob("*.cu")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(".cu"):
            waiting += [PACKAGE_ROOT / node.value, module_path.parent / node.value]
    found: set[Path] = set()
    while waiting:
        path = Path(os.path.normpath(waiting.pop()))
        if path in found or not path.is_file():
            continue
        found.add(path)
        for include in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.MULTILINE):
            waiting += [path.parent / include, PACKAGE_ROOT / include]
    return _by_place(found)


def _by_place(paths: Iterable[Path]) -> dict[str, Path]:
    return {os.path.relpath(path, PACKAGE_ROOT): path for path in paths}
