"""Computes a digest of the code on which an output depends; an output is stale if its digest has changed since.

The code is all files to which some modules lead: by imports, by ``#include "..."``, and by strings that name a file (a
kernel), a module or an environment variable with a library. Comments and docstrings do not count.
"""

import ast
import functools
import hashlib
import importlib.util
import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from gpupc_impl.backends.base import PACKAGE_ROOT
from gpupc_impl.backends.sources import file_stamp, includes_of
from gpupc_impl.core.family import get_family
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
    variables = re.findall(r'"(GPUPC_\w+_LIBRARY)"', path.read_text(encoding="utf-8"))
    return [Path(os.environ.get(variable, "")).resolve() for variable in variables]


@functools.cache
def _leads_to(path: Path, named: bool, modified: int, size: int) -> list[Path]:
    """Return the files of the modules that a Python file imports, and the files and modules that its strings name."""
    modules: set[str] = set()
    found: list[Path] = []
    for node in ast.walk(_tree(path, modified, size)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            folder = ROOT.joinpath(*node.module.split("."))
            names = {alias.name for alias in node.names}
            modules |= {f"{node.module}.{name}" for name in names}
            modules |= set() if names <= {path.stem for path in folder.glob("*")} else {node.module}
        elif isinstance(node, ast.JoinedStr):  # A star is what is inserted.
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values)
            found += path.parent.rglob(text.rpartition("/")[2]) if text.endswith(CPP) else []
            found += ROOT.glob(text.replace(".", "/") + ".py") if named and re.fullmatch(r"\w+\.[\w.*]+", text) else []
        elif isinstance(node, ast.Constant) and re.fullmatch(r"[\w-][\w./-]*\.\w+", str(node.value)):
            modules |= {str(node.value)} if named else set()
            files = ((folder / str(node.value)).resolve() for folder in (path.parent, PACKAGE_ROOT))
            found += (file for file in files if file.suffix != ".py")
    for steps in (module.split(".") for module in modules):
        found += [ROOT.joinpath(*steps).with_suffix(".py"), ROOT.joinpath(*steps, "__init__.py")]
        found += (ROOT.joinpath(*steps[:end], "__init__.py") for end in range(2, len(steps)))
    return [file for file in found if file.is_file()]


@functools.cache
def _tree(path: Path, modified: int, size: int) -> ast.Module:
    """Return the syntax tree of a file without docstrings and imports for types."""
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            types = [part for part in body if isinstance(part, ast.If) and "TYPE_CHECKING" in ast.dump(part.test)]
            words = [part for part in body if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)]
            node.body = [part for part in body if part not in types + words]  # type: ignore[attr-defined]
    return tree


def _sha256(files: Iterable[Path]) -> str:
    contents = sorted(hashlib.sha256(_content(path, *file_stamp(path))).digest() for path in files)
    return hashlib.sha256(b"".join(contents)).hexdigest()


@functools.cache
def _content(path: Path, modified: int, size: int) -> bytes:
    """Return what Python or a compiler acts on in a file."""
    if path.suffix == ".py":
        return ast.dump(_tree(path, modified, size)).replace(", type_params=[]", "").encode()  # a field of Python 3.12
    if path.suffix in CPP:
        code = COMMENT_IN_CPP.sub(lambda found: found[1] or " ", path.read_text(encoding="utf-8"))
        return " ".join(code.split()).encode()
    return path.read_bytes()
