"""Computes a digest of the code on which an output depends; an output is stale if its digest has changed since.

The code is all files to which some modules lead: by imports, by ``#include "..."``, and by strings that name a file (a
kernel), a module or an environment variable with a library. Comments and docstrings do not count.
"""

import ast
import atexit
import contextlib
import functools
import hashlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from gpupc_impl.backends import KernelCompilationError
from gpupc_impl.backends.base import PACKAGE_ROOT
from gpupc_impl.backends.simt.build import open_cache
from gpupc_impl.backends.sources import file_stamp, includes_of
from gpupc_impl.core.family import get_family
from gpupc_impl.core.files import read_json, save_json
from gpupc_impl.core.registry import Method, UnknownMethod, get_method

ROOT = PACKAGE_ROOT.parent
CPP = (".cu", ".cuh", ".cpp", ".hpp")
COMMENT_IN_CPP = re.compile(r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\\n])')|//[^\n]*|/\*.*?\*/""", re.DOTALL)

# Displays, and what rules have among their parameters: the entries of data sets, and the code of the methods they run.
_DISPLAYS = ("gpupc_impl/views/*", "gpupc_impl/core/result_views.py", "gpupc_impl/core/progress_watcher.py")
OUTSIDE = [*_DISPLAYS, "datasets/registry.yaml"]
OUTSIDE_OF_SCRIPTS = [*OUTSIDE, "gpupc_impl/backends/*"]
# The clock does not run in these, which find methods, and read and write files.
_CORE = ("checkpoint", "family", "files", "registry")
OUTSIDE_OF_METHODS = [*OUTSIDE, *(f"gpupc_impl/core/{name}.py" for name in _CORE), "gpupc_impl/ownership.py"]
OUTSIDE_OF_BACKEND = {
    "cpu": ["gpupc_impl/backends/*"],
    "host": ["gpupc_impl/backends/cuda*"],
    "cuda": ["gpupc_impl/backends/host*", "gpupc_impl/backends/simt/*pp"],
}


@functools.cache
def digest(*roots: str, named: bool = True) -> str:
    """Return the sha256 of the `sources` of scripts and modules, as they are at the first call in this process."""
    return _sha256(sources(*roots, without=OUTSIDE_OF_SCRIPTS, named=named))


def code_version(method: Method, backend: str) -> str:
    """Return the sha256 of `code_sources`; samples and records of a method are current while it stays the same."""
    return _sha256(code_sources(method, backend))


def code_sources(method: Method, backend: str) -> list[Path]:
    """Return what runs inside the clock: a method, its family's problem, a backend (or ``"cpu"``) and the clock."""
    roots = [*(method.code or (method.module,)), get_family(method.family).problem.__module__]
    roots.append("gpupc_impl.measurement.clock")
    roots += [] if backend == "cpu" else [f"gpupc_impl.backends.{backend}"]
    return sources(*roots, without=OUTSIDE_OF_METHODS + OUTSIDE_OF_BACKEND[backend], named=False)


@functools.cache
def is_stale(method: str, backend: str, code: str) -> bool | None:
    """Return whether a method's code has changed; None if it includes a library that this machine lacks."""
    try:
        found = get_method(method)
    except UnknownMethod:
        return True
    libraries = [library for path in _files_of(found.module) for library in _libraries(path)]
    return code_version(found, backend) != code if all(map(Path.is_file, libraries)) else None


def sources(*roots: str, without: Iterable[str] = (), named: bool = True) -> list[Path]:
    """Return the files to which modules, and scripts as paths below the project, lead: without those that fit the
    patterns `without` and all to which only they lead, and without modules that strings name unless `named`."""
    patterns, found = [str(ROOT / pattern) for pattern in without], set()
    pending = [path for root in roots for path in _files_of(root)]
    while pending:
        path = pending.pop()
        if path not in found and not any(fnmatchcase(str(path), pattern) for pattern in patterns):
            found.add(path)
            if path.suffix == ".py":
                pending += _leads_to(path, named, *file_stamp(path))
                pending += filter(Path.is_file, _libraries(path))
            pending += includes_of(path) if path.suffix in CPP else []
    return sorted(found)


def _files_of(root: str) -> list[Path]:
    """Return a script, or a module of the project, or the whole package of a plug-in; raise ValueError without one."""
    spec = None if root.endswith(".py") else importlib.util.find_spec(root)
    path = Path(str(spec.origin)).resolve() if spec else ROOT / root
    if not path.is_file():
        raise ValueError(f"{root} is no module and no script of the project")
    is_plugin = not path.is_relative_to(ROOT) and "." in root
    return [file for file in path.parent.rglob("*") if file.suffix in (".py", *CPP)] if is_plugin else [path]


def _libraries(path: Path) -> list[Path]:
    """Return the libraries that environment variables name; one that is not set names the present folder."""
    variables = _facts(path, *file_stamp(path))["libraries"] if path.suffix == ".py" else []
    return [Path(os.environ.get(variable, "")).resolve() for variable in variables]


@functools.cache
def _leads_to(path: Path, named: bool, modified: int, size: int) -> list[Path]:
    """Return the files of the modules that a Python file imports, and the files and modules that its strings name."""
    facts = _facts(path, modified, size)
    found: list[Path] = []
    modules = {*facts["imports"], *(facts["strings"] if named else ())}
    for module, *names in facts["names"]:
        modules |= {f"{module}.{name}" for name in names}
        stems = {path.stem for path in ROOT.joinpath(*module.split(".")).glob("*")}
        modules |= set() if stems.issuperset(names) else {module}
    for text in facts["patterns"]:
        found += path.parent.rglob(text.rpartition("/")[2]) if text.endswith(CPP) else []
        found += ROOT.glob(text.replace(".", "/") + ".py") if named and re.fullmatch(r"\w+\.[\w.*]+", text) else []
    for text in facts["strings"]:
        files = ((folder / text).resolve() for folder in (path.parent, PACKAGE_ROOT))
        found += (file for file in files if file.suffix != ".py")
    for steps in (module.split(".") for module in modules):
        found += [ROOT.joinpath(*steps).with_suffix(".py"), ROOT.joinpath(*steps, "__init__.py")]
        found += (ROOT.joinpath(*steps[:end], "__init__.py") for end in range(2, len(steps)))
    return [file for file in found if file.is_file()]


# --- what a Python file says ---------------------------------------------------------------------------------------
def _facts(path: Path, modified: int, size: int) -> dict[str, Any]:
    """Return what `_read` does; to read all files takes seconds, so it is kept for later processes."""
    kept = _kept()
    key = f"{path} {modified} {size}"
    if key not in kept:
        kept[key] = _read(path)
        atexit.unregister(_keep)  # so that it runs only once
        atexit.register(_keep)
    found: dict[str, Any] = kept[key]
    return found


@functools.cache
def _kept() -> dict[str, Any]:
    """Return the facts that earlier processes have kept, by file and stamp."""
    with contextlib.suppress(KernelCompilationError, OSError, ValueError):  # no place for it, or a damaged file
        return dict(read_json(_place()))
    return {}


def _place() -> Path:
    reader = hashlib.sha256(Path(__file__).read_bytes() + sys.version.encode()).hexdigest()
    return open_cache("digests") / f"{reader}.json"


def _keep() -> None:
    """Keep the facts about files that are still as they were."""
    there: dict[str, Any] = {}
    for key, facts in _kept().items():
        with contextlib.suppress(OSError):
            path, *stamp = key.rsplit(" ", 2)
            there |= {key: facts} if file_stamp(path) == tuple(map(int, stamp)) else {}
    with contextlib.suppress(KernelCompilationError, OSError):
        save_json(there, _place())


def _read(path: Path) -> dict[str, Any]:
    """Return the modules that a Python file imports, names with the modules from which it imports them, strings that
    may name files or modules, those with a star for what is inserted, names of libraries, and the sha256 of what
    Python acts on: the syntax tree without docstrings and imports for types."""
    text = path.read_bytes()
    tree = ast.parse(text)
    facts: dict[str, Any] = {kind: [] for kind in ("imports", "names", "strings", "patterns")}
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            types = [part for part in body if isinstance(part, ast.If) and "TYPE_CHECKING" in ast.dump(part.test)]
            words = [part for part in body if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)]
            node.body = [part for part in body if part not in types + words]  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            facts["imports"] += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            facts["names"].append([node.module, *(alias.name for alias in node.names)])
        elif isinstance(node, ast.JoinedStr):
            parts = (str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values)
            facts["patterns"].append("".join(parts))
        elif isinstance(node, ast.Constant) and re.fullmatch(r"[\w-][\w./-]*\.\w+", str(node.value)):
            facts["strings"].append(str(node.value))
    code = ast.dump(tree).replace(", type_params=[]", "")  # a field of Python 3.12
    libraries = re.findall(r'"(GPUPC_\w+_LIBRARY)"', text.decode("utf-8"))
    return {**facts, "libraries": libraries, "sha256": hashlib.sha256(code.encode()).hexdigest()}


def _sha256(files: Iterable[Path]) -> str:
    contents = sorted(bytes.fromhex(_sha256_of(path, *file_stamp(path))) for path in files)
    return hashlib.sha256(b"".join(contents)).hexdigest()


@functools.cache
def _sha256_of(path: Path, modified: int, size: int) -> str:
    """Return the digest of what Python or a compiler acts on in a file."""
    if path.suffix == ".py":
        return str(_facts(path, modified, size)["sha256"])
    content = path.read_bytes()
    if path.suffix in CPP:
        code = COMMENT_IN_CPP.sub(lambda found: found[1] or " ", content.decode("utf-8"))
        content = " ".join(code.split()).encode()
    return hashlib.sha256(content).hexdigest()
