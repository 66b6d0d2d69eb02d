"""Which sources an output depends on, and a digest of them: an output is stale when its digest has changed.

One closure serves every rule of the workflow and every measured method. It starts at a script or a module and follows

- imports, inside functions as well; those under ``if TYPE_CHECKING:`` are never carried out and not followed. A
  package's ``__init__`` counts with its modules, but that of a top-level package (which offers the public names) only
  where something is taken from it;
- files that a module names in a string and that lie beside it or are named from the package ``gpupc_impl`` (kernels,
  C++ sources, a schema, a style), and what C++ and CUDA sources include by quotes;
- files that an environment variable of ours names, where a module names the variable (a library that the user built);
- unless told otherwise, modules of the project that a string names, ``f"datasets.{name}"`` all that fit.

What is left out is in the tables below, each with its reason.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import os
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpupc_impl.backends.base import PACKAGE_ROOT
from gpupc_impl.backends.sources import includes_of
from gpupc_impl.core.family import get_family

if TYPE_CHECKING:
    from gpupc_impl.core.registry import Method

ROOT = PACKAGE_ROOT.parent
PACKAGES = ("gpupc_impl", "baselines", "datasets", "workflow")
"""The project; of other packages, only that of a root is followed (a method's, say, that lies outside)."""

SOURCE_SUFFIXES = (".cu", ".cuh", ".cpp", ".hpp")

EXCLUDED = {
    "datasets/registry.yaml": "a rule has the entry of its data set among its parameters",
    "gpupc_impl/views/*": "pictures and files for a library's user: no rule and no measurement makes one",
}
"""Files that never count, by pattern of their path, and why."""

EXCLUDED_OF_SCRIPTS = {
    "gpupc_impl/backends/*": "a rule that runs kernels has the code of their methods among its parameters",
}
"""Files that count for no script."""

EXCLUDED_OF_METHODS = {
    "gpupc_impl/core/family.py": "it finds the families; what the method's own brings counts by itself",
    "gpupc_impl/core/registry.py": "what it decides, the method and all its parameters, is in the origin of a sample",
    "gpupc_impl/measurement/environment.py": "what it finds of the machine is in the origin of a sample",
    "gpupc_impl/measurement/isolate.py": "it feeds and ends the process, outside the clock",
}
"""Files that count for no measurement; further `EXCLUDED_OF_BACKENDS`."""

EXCLUDED_OF_BACKENDS = {
    "cpu": {"gpupc_impl/backends/*": "a reference runs on none"},
    "host": dict.fromkeys(("gpupc_impl/backends/cuda.py", "gpupc_impl/backends/nvrtc.py"), "they are for a GPU"),
    "cuda": dict.fromkeys(
        ("gpupc_impl/backends/host.py", "gpupc_impl/backends/simt/*.cpp", "gpupc_impl/backends/simt/*.hpp"),
        "they are for kernels on CPU cores",
    ),
}


@functools.cache
def digest(*roots: str, named: bool = True) -> str:
    """sha256 over `sources`, as they were when this process asked first."""
    return _digest(sources(*roots, named=named, without=EXCLUDED_OF_SCRIPTS))


def code_version(method: Method, backend: str) -> str:
    """sha256 over `code_sources`: measurements of a method are comparable, and reused, while it stays the same."""
    return _digest(code_sources(method, backend))


def still_made_by(method: Method, backend: str, version: str) -> bool:
    """Whether the code is still of this version, that a record of the method names.

    Where a library that the user built belongs to the code and is not here, nothing else can be compared: True.
    """
    home = importlib.util.find_spec(method.module)
    for variable in _mentions(Path(str(home and home.origin)).read_bytes()).variables:
        if not Path(os.environ.get(variable, "")).is_file():
            return True
    return code_version(method, backend) == version


def code_sources(method: Method, backend: str) -> dict[str, Path]:
    """What a measurement of a method depends on: its module, its problem's, the backend's, and the measuring process's.

    Modules that strings name do not count: a method imports what it uses, and of the families that the process finds
    by name it needs the method's alone.

    Args:
        backend: ``"cuda"``, ``"host"`` or ``"cpu"``.
    """
    roots = [method.module, get_family(method.family).problem.__module__, "gpupc_impl.measurement.worker"]
    if backend != "cpu":
        roots.append(f"gpupc_impl.backends.{backend}")
    spec = importlib.util.find_spec(method.module)
    home = Path(str(spec and spec.origin))
    if method.name not in home.read_text():  # another module beside it registered the method
        package = method.module.rpartition(".")[0]
        modules = [path.stem for path in home.parent.glob("*.py") if path.stem != "__init__"]
        roots += [f"{package}.{module}" for module in modules] + [package] if package else modules
    return sources(*roots, named=False, without=EXCLUDED_OF_METHODS | EXCLUDED_OF_BACKENDS[backend])


def sources(*roots: str, named: bool = True, without: Iterable[str] = ()) -> dict[str, Path]:
    """The sources of some scripts and modules, by a name that does not depend on where the project lies.

    Args:
        roots: modules (``"datasets.generate"``), or paths from the project's folder
            (``"workflow/scripts/measure.py"``).
        named: whether modules that strings name count.
        without: patterns of further names that do not count, nor what only they lead to.

    Raises:
        ValueError: a root cannot be found.
    """
    homes = dict.fromkeys(PACKAGES, ROOT)
    waiting = []
    for root in roots:
        top = root.partition(".")[0]
        if not root.endswith(".py") and top not in homes and (home := _home(top)):
            homes[top] = home
        start = ROOT / root if root.endswith(".py") else _module_file(root, homes)
        if start is None or not start.is_file():
            raise ValueError(f"{root} is no module and no script of the project")
        waiting.append(start)
    left_out = (*EXCLUDED, *without)
    found: dict[str, Path] = {}
    libraries: list[Path] = []
    while waiting:
        path = waiting.pop()
        name = next((path.relative_to(h).as_posix() for h in homes.values() if path.is_relative_to(h)), str(path))
        if path in libraries:  # which lie wherever the user put them
            name = path.name
        if name in found or any(fnmatchcase(name, pattern) for pattern in left_out):
            continue
        found[name] = path
        if path.suffix == ".py":
            content = path.read_bytes()
            waiting += _led_to(path, content, name, tuple(homes.items()), named)
            named_files = list(_files_of_variables(content))
            libraries += named_files
            waiting += named_files
        elif path.suffix in SOURCE_SUFFIXES:
            waiting += includes_of(path)
    return dict(sorted(found.items()))


def _digest(files: dict[str, Path]) -> str:
    total = hashlib.sha256()
    for name, path in files.items():
        content = path.read_bytes()
        total.update(f"{name} {len(content)}\n".encode() + content)
    return total.hexdigest()


def _home(top: str) -> Path | None:
    """The folder of a top-level package or module that is not ours."""
    spec = importlib.util.find_spec(top)
    places = spec and (spec.submodule_search_locations or [str(spec.origin)])
    return Path(places[0]).resolve().parent if places else None


def _module_file(module: str, homes: dict[str, Path]) -> Path | None:
    """Where a followed module's source lies; None for any other name."""
    home = homes.get(module.partition(".")[0])
    if home is None:
        return None
    path = home.joinpath(*module.split("."))
    return next((file for file in (path.with_name(path.name + ".py"), path / "__init__.py") if file.is_file()), None)


@functools.cache  # the closures of scripts and methods share most of their files
def _led_to(
    path: Path, content: bytes, name: str, homes: tuple[tuple[str, Path], ...], named: bool
) -> tuple[Path, ...]:
    """What a Python file imports, and the files and modules it names."""
    return tuple(_follow(path, _mentions(content), name, dict(homes), named))


def _follow(path: Path, mentions: _Mentions, name: str, homes: dict[str, Path], named: bool) -> Iterator[Path]:
    """The files behind what it mentions, as often as it does."""
    module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for base, taken in mentions.imports:
        base = importlib.util.resolve_name(base, package) if base.startswith(".") else base
        submodules = [f"{base}.{attribute}" for attribute in taken]
        yield from _with_packages(submodules or [base], homes)
        if not all(_module_file(submodule, homes) for submodule in submodules):
            yield from _with_packages([base], homes)
    for text in mentions.strings:
        for file in (path.parent / text, PACKAGE_ROOT / text):
            if file.suffix != ".py" and file.is_file():
                yield file.resolve()
        if named:
            yield from _with_packages([text], homes)
    for pattern in mentions.patterns:
        if pattern.endswith(SOURCE_SUFFIXES):
            yield from path.parent.rglob(pattern.rpartition("/")[2])
        elif named and (home := homes.get(pattern.partition(".")[0])):
            yield from home.glob(pattern.replace(".", "/") + ".py")


def _files_of_variables(content: bytes) -> Iterator[Path]:
    """The files that those environment variables name which a Python file mentions."""
    for variable in _mentions(content).variables:
        if (file := Path(os.environ.get(variable, ""))).is_file():
            yield file.resolve()


def _with_packages(modules: Iterable[str], homes: dict[str, Path]) -> Iterator[Path]:
    """The files of those that are modules, and of the packages that they lie in, top-level ones apart."""
    for module in modules:
        if (path := _module_file(module, homes)) is None:
            continue
        yield path
        package = module.rpartition(".")[0]
        while "." in package:
            if (path := _module_file(package, homes)) is not None:
                yield path
            package = package.rpartition(".")[0]


class _Mentions(NamedTuple):
    """What the text of a Python file names.

    Attributes:
        imports: modules, as written, each with the names taken from it.
        strings: words that may be files or modules.
        patterns: the same of f-strings, ``*`` for what is filled in.
        variables: names of environment variables.
    """

    imports: list[tuple[str, tuple[str, ...]]]
    strings: list[str]
    patterns: list[str]
    variables: list[str]


@functools.cache
def _mentions(content: bytes) -> _Mentions:
    imports: list[tuple[str, tuple[str, ...]]] = []
    texts: list[str] = []
    patterns: list[str] = []
    waiting: list[ast.AST] = [ast.parse(content)]
    while waiting:
        node = waiting.pop()
        children: Iterable[ast.AST] = ast.iter_child_nodes(node)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            children = node.orelse
        elif isinstance(node, ast.Import):
            imports += [(alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports.append(("." * node.level + (node.module or ""), tuple(alias.name for alias in node.names)))
        elif isinstance(node, ast.JoinedStr):
            patterns.append("".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values))
            children = [part for part in node.values if not isinstance(part, ast.Constant)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append(node.value)
        waiting += children
    return _Mentions(
        imports,
        [text for text in texts if re.fullmatch(r"[\w-][\w./-]*\.\w+", text)],
        [pattern for pattern in patterns if re.fullmatch(r"[\w./*-]*\.[\w./*-]*", pattern)],
        [text for text in texts if re.fullmatch("GPUPC_[A-Z_]+", text)],
    )
