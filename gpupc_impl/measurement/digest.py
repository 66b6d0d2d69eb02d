"""Computes a digest of the sources that an output depends on; an output is stale if its digest has changed since.

All rules of the workflow and all measured methods use the same closure. The closure starts at a script or a module and
follows

- imports, inside functions as well. Imports under ``if TYPE_CHECKING:`` are never executed and are not followed. A
  package's ``__init__`` counts with its modules, but that of a top-level package (which offers the public names) only
  where something is imported from it;
- files that a module names in a string and that lie beside the module or are named from the package ``gpupc_impl``
  (kernels, C++ sources, a schema, a style), and files that C++ and CUDA sources include by quotes;
- files that an environment variable of ours names, if a module names the variable (a library that the user built);
- modules of the project that a string names, unless ``named=False``; for ``f"datasets.{name}"`` all modules that match.

The digest covers only what Python and compilers act on (`normal_form`): comments, docstrings and messages do not count.
`exclusions` lists the files, functions and classes that are left out, each with its reason.
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
"""The project's packages, which the closure follows together with the package of a root that lies outside (a
plug-in's)."""


@functools.cache
def digest(*roots: str, named: bool = True) -> str:
    """Return the sha256 of the normal forms of `sources`, as they are at the first call in this process."""
    return _digest(sources(*roots, named=named, without=EXCLUDED_OF_SCRIPTS), EXCLUDED_OF_SCRIPTS)


def code_version(method: Method, backend: str) -> str:
    """Return the sha256 of the normal forms of `code_sources`; a method's samples are reused while this value stays the
    same."""
    return _digest(code_sources(method, backend), _excluded_of_method(backend))


def is_current_version(method: Method, backend: str, version: str) -> bool:
    """Return whether a code version from a record of this method equals that of the present code.

    The result is also True if the code includes a library that the user built and that this machine lacks, since then
    there is nothing to compare.
    """
    spec = importlib.util.find_spec(method.module)
    for variable in _parse_file(Path(str(spec and spec.origin))).variables:
        if not Path(os.environ.get(variable, "")).is_file():
            return True
    return code_version(method, backend) == version


def code_sources(method: Method, backend: str) -> dict[str, Path]:
    """Return the sources that a measurement of a method depends on: the method's module and those of its problem, the
    backend and the measuring process.

    Modules that strings name do not count: a method imports what it uses, and of the families, which are imported by
    name, it needs only its own.

    Args:
        backend: ``"cuda"``, ``"host"`` or ``"cpu"``.
    """
    roots = [method.module, get_family(method.family).problem.__module__, "gpupc_impl.measurement.worker"]
    if backend != "cpu":
        roots.append(f"gpupc_impl.backends.{backend}")
    spec = importlib.util.find_spec(method.module)
    home = Path(str(spec and spec.origin))
    if method.name not in home.read_text():  # Another module beside it registered the method.
        package = method.module.rpartition(".")[0]
        modules = [path.stem for path in home.parent.glob("*.py") if path.stem != "__init__"]
        roots += [f"{package}.{module}" for module in modules] + [package] if package else modules
    return sources(*roots, named=False, without=_excluded_of_method(backend))


def _excluded_of_method(backend: str) -> Iterable[str]:
    return EXCLUDED_OF_METHODS | EXCLUDED_OF_BACKENDS[backend]


def sources(*roots: str, named: bool = True, without: Iterable[str] = ()) -> dict[str, Path]:
    """Return the sources of some scripts and modules, by names that do not depend on the project's location.

    Args:
        roots: modules (``"datasets.generate"``), or paths relative to the project's folder
            (``"workflow/scripts/measure.py"``).
        named: whether modules that strings name count.
        without: patterns, as in `exclusions`, of files, functions and classes to leave out, along with everything that
            only they lead to.

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
        if path in libraries:  # These libraries lie wherever the user built them.
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
    """Return the folder of a top-level package or module that is not part of the project."""
    spec = importlib.util.find_spec(top)
    places = spec and (spec.submodule_search_locations or [str(spec.origin)])
    return Path(places[0]).resolve().parent if places else None


def _module_file(module: str, homes: dict[str, Path]) -> Path | None:
    """Return the path of the source of a module of these packages; None for any other name."""
    home = homes.get(module.partition(".")[0])
    if home is None:
        return None
    path = home.joinpath(*module.split("."))
    return next((file for file in (path.with_name(path.name + ".py"), path / "__init__.py") if file.is_file()), None)


class _Python(NamedTuple):
    """The content of a Python file, as far as it acts on the output.

    Attributes:
        form_sha256: the digest of the file's normal form.
        imports: modules, as written, each with the names imported from it.
        strings: the strings that may be names of files or modules.
        patterns: the same for f-strings, with ``*`` in place of each expression.
        variables: the names of environment variables.
    """

    form_sha256: bytes
    imports: tuple[tuple[str, tuple[str, ...]], ...]
    strings: tuple[str, ...]
    patterns: tuple[str, ...]
    variables: tuple[str, ...]


def _parse_file(path: Path, name: str = "", excluded: tuple[str, ...] = ()) -> _Python:
    """Parse a Python file without its excluded definitions; the file is parsed again only after it has changed."""
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


@functools.cache  # The result is cached, because the closures of scripts and methods share most of their files.
def _linked_files(
    path: Path, content: _Python, name: str, homes: tuple[tuple[str, Path], ...], named: bool
) -> tuple[Path, ...]:
    """Return the files that a Python file imports, the files that it names, and those of the modules that it names."""
    return tuple(dict.fromkeys(_follow(path, content, name, dict(homes), named)))


def _follow(path: Path, content: _Python, name: str, homes: dict[str, Path], named: bool) -> Iterator[Path]:
    """Yield what `_linked_files` returns, with repetitions."""
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
    """Yield the files of those names that are modules, and of the packages that contain them, except top-level
    packages."""
    for module in modules:
        if (path := _module_file(module, homes)) is None:
            continue
        yield path
        package = module.rpartition(".")[0]
        while "." in package:
            if (path := _module_file(package, homes)) is not None:
                yield path
            package = package.rpartition(".")[0]
