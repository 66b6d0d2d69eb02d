"""Which sources an output depends on, and a digest of them: an output is stale when its digest has changed.

One closure serves every rule of the workflow and every measured method. It starts at a script or a module and follows

- imports, inside functions as well. Imports under ``if TYPE_CHECKING:`` are never carried out and are not followed. A
  package's ``__init__`` counts with its modules, but that of a top-level package (which offers the public names) only
  where something is imported from it;
- files that a module names in a string and that lie beside it or are named from the package ``gpupc_impl`` (kernels,
  C++ sources, a schema, a style), and what C++ and CUDA sources include by quotes;
- files that an environment variable of ours names, where a module names the variable (a library that the user built);
- unless ``named=False``, modules of the project that a string names; of ``f"datasets.{name}"`` all that match.

The digest is of what these files say to Python and to compilers (`normal_form`): comments, docstrings and messages do
not count. `exclusions` lists the files, functions and classes that are left out, each with its reason.
"""

import ast
import functools
import hashlib
import importlib.util
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from gpupc_impl.backends.base import PACKAGE_ROOT
from gpupc_impl.backends.sources import file_stamp, includes_of
from gpupc_impl.core.family import get_family
from gpupc_impl.core.registry import Method
from gpupc_impl.measurement.exclusions import (
    DOCSTRINGS_COUNT,
    EXCLUDED,
    EXCLUDED_OF_BACKENDS,
    EXCLUDED_OF_METHODS,
    EXCLUDED_OF_SCRIPTS,
    excluded_definitions,
    excludes_file,
)
from gpupc_impl.measurement.normal_form import CPP_SUFFIXES, cpp_form, python_form, python_tree

ROOT = PACKAGE_ROOT.parent
PACKAGES = ("gpupc_impl", "baselines", "datasets", "workflow")
"""The project's packages. The closure follows these, and the package of a root that lies outside (a plug-in's)."""


@functools.cache
def digest(*roots: str, named: bool = True) -> str:
    """sha256 over the normal forms of `sources`, as they are at this process's first call."""
    return _digest(sources(*roots, named=named, without=EXCLUDED_OF_SCRIPTS), EXCLUDED_OF_SCRIPTS)


def code_version(method: Method, backend: str) -> str:
    """sha256 over the normal forms of `code_sources`: samples of a method are reused while it stays the same."""
    return _digest(code_sources(method, backend), _excluded_of_method(backend))


def is_current_version(method: Method, backend: str, version: str) -> bool:
    """Whether a code version, from a record of this method, is that of the code as it is now.

    True as well where the code includes a library that the user built and this machine does not have it, since then
    there is nothing to compare.
    """
    spec = importlib.util.find_spec(method.module)
    for variable in _parse_file(Path(str(spec and spec.origin))).variables:
        if not Path(os.environ.get(variable, "")).is_file():
            return True
    return code_version(method, backend) == version


def code_sources(method: Method, backend: str) -> dict[str, Path]:
    """What a measurement of a method depends on: its module, its problem's, the backend's, and the measuring process's.

    Modules that strings name do not count: a method imports what it uses, and of the families, which the process finds
    by name, it needs only the method's.

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
    return sources(*roots, named=False, without=_excluded_of_method(backend))


def _excluded_of_method(backend: str) -> Iterable[str]:
    return EXCLUDED_OF_METHODS | EXCLUDED_OF_BACKENDS[backend]


def sources(*roots: str, named: bool = True, without: Iterable[str] = ()) -> dict[str, Path]:
    """The sources of some scripts and modules, by names that do not depend on where the project lies.

    Args:
        roots: modules (``"datasets.generate"``), or paths from the project's folder
            (``"workflow/scripts/measure.py"``).
        named: whether modules that strings name count.
        without: patterns, as in `exclusions`, of what does not count, nor what only it leads to.

    Raises:
        ValueError: a root cannot be found.
    """
    homes = dict.fromkeys(PACKAGES, ROOT)
    pending = []
    for root in roots:
        top = root.partition(".")[0]
        if not root.endswith(".py") and top not in homes and (home := _home(top)):
            homes[top] = home
        start = ROOT / root if root.endswith(".py") else _module_file(root, homes)
        if start is None or not start.is_file():
            raise ValueError(f"{root} is no module and no script of the project")
        pending.append(start)
    excluded = (*EXCLUDED, *without)
    files: dict[str, Path] = {}
    libraries: list[Path] = []
    while pending:
        path = pending.pop()
        name = next((path.relative_to(h).as_posix() for h in homes.values() if path.is_relative_to(h)), str(path))
        if path in libraries:  # which lie wherever the user put them
            name = path.name
        if name in files or excludes_file(name, excluded):
            continue
        files[name] = path
        if path.suffix == ".py":
            mentions = _parse_file(path, name, excluded)
            pending += _linked_files(path, mentions, name, tuple(homes.items()), named)
            user_files = [Path(os.environ.get(variable, "")) for variable in mentions.variables]
            libraries += [file.resolve() for file in user_files if file.is_file()]
            pending += libraries
        elif path.suffix in CPP_SUFFIXES:
            pending += includes_of(path)
    return dict(sorted(files.items()))


def _digest(files: dict[str, Path], without: Iterable[str]) -> str:
    total = hashlib.sha256()
    for name, path in files.items():
        if path.suffix == ".py":
            content = _parse_file(path, name, (*EXCLUDED, *without)).form_sha256
        elif path.suffix in CPP_SUFFIXES:
            content = _cpp_sha256(path, *file_stamp(path))
        else:
            content = hashlib.sha256(path.read_bytes()).digest()
        total.update(f"{name}\n".encode() + content)
    return total.hexdigest()


def _home(top: str) -> Path | None:
    """The folder of a top-level package or module that is not ours."""
    spec = importlib.util.find_spec(top)
    places = spec and (spec.submodule_search_locations or [str(spec.origin)])
    return Path(places[0]).resolve().parent if places else None


def _module_file(module: str, homes: dict[str, Path]) -> Path | None:
    """Where the source of a module of these packages lies; None for any other name."""
    home = homes.get(module.partition(".")[0])
    if home is None:
        return None
    path = home.joinpath(*module.split("."))
    return next((file for file in (path.with_name(path.name + ".py"), path / "__init__.py") if file.is_file()), None)


class _Python(NamedTuple):
    """What the text of a Python file says.

    Attributes:
        form_sha256: the digest of its normal form.
        imports: modules, as written, each with the names imported from it.
        strings: strings that may be the names of files or modules.
        patterns: the same of f-strings, with ``*`` for what is filled in.
        variables: names of environment variables.
    """

    form_sha256: bytes
    imports: tuple[tuple[str, tuple[str, ...]], ...]
    strings: tuple[str, ...]
    patterns: tuple[str, ...]
    variables: tuple[str, ...]


def _parse_file(path: Path, name: str = "", excluded: tuple[str, ...] = ()) -> _Python:
    """A Python file without its definitions that are excluded; parsed again when somebody has written to it."""
    docstrings = excludes_file(name, DOCSTRINGS_COUNT)
    return _parse_file_as_of(path, *file_stamp(path), excluded_definitions(name, excluded), docstrings)


@functools.cache
def _parse_file_as_of(path: Path, modified: int, size: int, excluded: tuple[str, ...], docstrings: bool) -> _Python:
    tree = python_tree(path.read_bytes(), excluded, docstrings)
    imports: list[tuple[str, tuple[str, ...]]] = []
    texts: list[str] = []
    patterns: list[str] = []
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        children: Iterable[ast.AST] = ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            imports += [(alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports.append(("." * node.level + (node.module or ""), tuple(alias.name for alias in node.names)))
        elif isinstance(node, ast.JoinedStr):
            patterns.append("".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values))
            children = [part for part in node.values if not isinstance(part, ast.Constant)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append(node.value)
        pending += children
    return _Python(
        hashlib.sha256(python_form(tree)).digest(),
        tuple(imports),
        tuple(text for text in texts if re.fullmatch(r"[\w-][\w./-]*\.\w+", text)),
        tuple(pattern for pattern in patterns if re.fullmatch(r"[\w./*-]*\.[\w./*-]*", pattern)),
        tuple(text for text in texts if re.fullmatch("GPUPC_[A-Z_]+", text)),
    )


@functools.cache
def _cpp_sha256(path: Path, modified: int, size: int) -> bytes:
    return hashlib.sha256(cpp_form(path.read_text())).digest()


@functools.cache  # the closures of scripts and methods share most of their files
def _linked_files(
    path: Path, content: _Python, name: str, homes: tuple[tuple[str, Path], ...], named: bool
) -> tuple[Path, ...]:
    """The files that a Python file imports, those that it names, and those of the modules that it names."""
    return tuple(dict.fromkeys(_follow(path, content, name, dict(homes), named)))


def _follow(path: Path, content: _Python, name: str, homes: dict[str, Path], named: bool) -> Iterator[Path]:
    """`_linked_files`, with repetitions."""
    module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for base, attributes in content.imports:
        base = importlib.util.resolve_name(base, package) if base.startswith(".") else base
        submodules = [f"{base}.{attribute}" for attribute in attributes]
        yield from _with_packages(submodules or [base], homes)
        if not all(_module_file(submodule, homes) for submodule in submodules):
            yield from _with_packages([base], homes)
    for text in content.strings:
        for file in (path.parent / text, PACKAGE_ROOT / text):
            if file.suffix != ".py" and file.is_file():
                yield file.resolve()
        if named:
            yield from _with_packages([text], homes)
    for pattern in content.patterns:
        if pattern.endswith(CPP_SUFFIXES):
            yield from path.parent.rglob(pattern.rpartition("/")[2])
        elif named and (home := homes.get(pattern.partition(".")[0])):
            yield from home.glob(pattern.replace(".", "/") + ".py")


def _with_packages(modules: Iterable[str], homes: dict[str, Path]) -> Iterator[Path]:
    """The files of those names that are modules, and of the packages that they lie in, top-level packages excepted."""
    for module in modules:
        if (path := _module_file(module, homes)) is None:
            continue
        yield path
        package = module.rpartition(".")[0]
        while "." in package:
            if (path := _module_file(package, homes)) is not None:
                yield path
            package = package.rpartition(".")[0]
