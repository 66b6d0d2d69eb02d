"""The registry of methods. Adding a method takes one new file: a function decorated with `method`, in a module of a
package that its family names (`Family.packages`), or of a plug-in (`family.plugins`)."""

import contextlib
import dataclasses
import difflib
import functools
import importlib
import importlib.util
import math
import pkgutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gpupc_impl.backends import Backend, KernelSource
from gpupc_impl.core.family import families, get_family, plugins
from gpupc_impl.core.files import checked_path
from gpupc_impl.core.pc_stable import Progress
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.result import Skeleton

SEPARATING_SETS = ("canonical", "first-come")


class UnknownMethod(ValueError):
    """No method has that name; the message names those with a similar one."""


class InvalidParameter(ValueError):
    """A method parameter is unknown or out of range; the message names the parameter, its value and its limit."""


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter of a method, which changes its speed but not its answer; an exception states in the result's facts
    which problem it solves instead."""

    default: Any  # the value if the user sets none; its type is the parameter's type
    description: str  # one line, with the symbol that the paper uses
    minimum: int | None = None  # of a number; `maximum` is inclusive as well
    maximum: int | None = None
    choices: tuple[Any, ...] | None = None  # the allowed values, instead of a range

    def parse(self, name: str, value: Any) -> Any:
        """Convert a value, perhaps text from a command line, to the parameter's type, or raise InvalidParameter."""
        kind = type(self.default)
        if isinstance(value, np.generic):
            value = value.item()
        if kind is bool and isinstance(value, str):
            value = {"true": True, "false": False}.get(value.lower(), value)
        elif isinstance(value, str) or (kind is float and isinstance(value, int)):
            with contextlib.suppress(ValueError):
                value = kind(value)
        if type(value) is not kind:
            raise InvalidParameter(f"parameter {name} is {value!r}; it must be of type {kind.__name__}")
        if kind is str:  # It may be a path.
            try:
                checked_path(value)
            except OSError as error:
                raise InvalidParameter(f"parameter {name} is {value!r}; {error.strerror}") from error
        if self.choices is not None and value not in self.choices:
            raise InvalidParameter(f"parameter {name} is {value!r}; choose one of: {', '.join(map(str, self.choices))}")
        if self.minimum is not None and not value >= self.minimum:
            raise InvalidParameter(f"parameter {name} is {value!r}; it must be at least {self.minimum}")
        if self.maximum is not None and not value <= self.maximum:
            raise InvalidParameter(f"parameter {name} is {value!r}; it must be at most {self.maximum}")
        return value


@dataclasses.dataclass(frozen=True)
class Run:
    """The options of one search; only `separating_sets` changes the answer. `progress` is called after each level."""

    backend: Backend | None  # where kernels run; None for a CPU reference, which has no kernels
    params: Mapping[str, Any]  # all parameters of the method, checked
    # ``"canonical"`` (the set that a serial PC-stable finds, see "One answer" in docs/architecture.md) or
    # ``"first-come"`` (the papers' rule: the first set that any thread finds, so that sets vary from run to run).
    separating_sets: str = "canonical"
    pmax: bool = False  # whether to record the largest p-value of every pair
    progress: Callable[[Progress], None] | None = None
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # facts about the run, added to the result


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method:
    """A registered method.

    Attributes:
        backends: ``("cuda", "host")`` for methods with kernels of ours, ``("cuda",)`` for other authors' programs that
            need a GPU, ``("cpu",)`` for references, ``("cuda", "cpu")`` for array code by CuPy or NumPy.
        source: the paper, section and algorithm, or the library.
        reference: whether the method is a CPU reference, relative to which speedups are computed.
        canonical: whether its separating sets are canonical; if not, verification compares only its adjacency.
        random: whether its tests use their own random numbers, so that its adjacency may differ from other methods'.
        knowledge: whether it supports `Problem.fixed`, the required and forbidden edges.
        tiers: whether it supports `Problem.tiers`, which limit separating sets.
        cluster: whether it runs on a cluster, with parameters about machines and memory, and without largest p-values.
        problem_defaults: parameters of `from_data` that its problems have unless the user sets others.
        unavailable: ``() -> str | None``, for a missing library.
        kernels: ``(backend, params, pmax, max_level) -> kernels``: those that a search probably needs, in order. Equal
            arguments give the same object, as `Backend.prefetch` takes it. None: they are compiled as needed.
        open_test: ``(problem, backend, params) -> (i, j, S) -> p-value``: for `measurement.single_tests`, or None.
        check: ``(params) -> str | None``: why a combination of parameters is invalid, as a sentence.
        code: the modules that perform it, if `module` registers methods of several families; an edit of these and of
            what they import makes recorded times stale.
    """

    name: str
    family: str
    backends: tuple[str, ...] = ("cuda", "host")
    source: str
    summary: str
    solve: Callable[[Problem, Run], Skeleton]
    params: Mapping[str, Parameter] = dataclasses.field(default_factory=dict)
    reference: bool = False
    canonical: bool = True
    random: bool = False
    knowledge: bool = True
    tiers: bool = False
    cluster: bool = False
    problem_defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    open_test: Callable[[Any, Any, Mapping[str, Any]], Callable[..., float]] | None = None
    unavailable: Callable[[], str | None] = lambda: None
    check: Callable[[Mapping[str, Any]], str | None] = lambda params: None
    kernels: Callable[[Backend, Mapping[str, Any], bool, int | None], Sequence[KernelSource]] = (
        lambda backend, params, pmax, max_level: ()
    )
    module: str = ""
    code: tuple[str, ...] = ()

    def parse_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """All parameters: those passed, checked, and the defaults of the others."""
        unknown = sorted(set(params) - set(self.params))
        if unknown:
            known = ", ".join(self.params) or "none"
            raise InvalidParameter(f"method {self.name!r} has no parameter {unknown[0]!r}; it has: {known}")
        parsed = {
            name: parameter.parse(name, params.get(name, parameter.default)) for name, parameter in self.params.items()
        }
        problem = self.check(parsed)
        if problem is not None:
            raise InvalidParameter(f"method {self.name!r}: {problem}")
        return parsed


_METHODS: dict[str, Method] = {}
Solve = Callable[[Problem, Run], Skeleton]


def method(name: str, **attributes: Any) -> Callable[[Solve], Solve]:
    """Register a function ``(problem, run) -> Skeleton`` as a method with further attributes of `Method`."""
    canonical = attributes.pop("canonical", True) and not attributes.get("random", False)

    def register(solve: Solve) -> Solve:
        known = _METHODS.get(name)
        if known is not None and known.module != solve.__module__:
            raise ValueError(f"method {name!r} is defined twice: in {known.module} and in {solve.__module__}")
        own: dict[str, Any] = {"name": name, "canonical": canonical, "solve": solve, "module": solve.__module__}
        _METHODS[name] = Method(**own, **attributes)
        return solve

    return register


def needs_package(module: str, package: str) -> Callable[[], str | None]:
    """Return an ``unavailable`` function for a method that needs a module of a package."""

    def unavailable() -> str | None:
        try:
            spec = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            spec = None
        return None if spec else f"the package {package} is not installed; pip install {package}"

    return unavailable


def at_most_threads(most: int, *names: str) -> Callable[[Mapping[str, Any]], str | None]:
    """The ``check`` of a method whose blocks have as many threads as the product of these; 0 counts as 1."""

    def check(params: Mapping[str, Any]) -> str | None:
        threads = math.prod(max(params[name], 1) for name in names)
        return f"{' * '.join(names)} is {threads}; a block holds at most {most} threads" if threads > most else None

    return check


def methods(family: str | None = None) -> dict[str, Method]:
    """Return all methods that find a skeleton by name, or those of one family."""
    _discover()
    named = families() if family is None else (family,)
    return {name: each for name, each in _METHODS.items() if each.family in named}


def method_of(family: str, name: str) -> Method | None:
    """Return a method of a family, None if it has none of that name. Only the method's own modules are imported if one
    of them is named as it is. To import all takes as long as a search of a few hundred variables."""
    for package in get_family(family).packages if name not in _METHODS else ():
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(f"{package}.{name.replace('-', '_')}")
            break
    known = _METHODS.get(name) or methods().get(name)
    return known if known is not None and known.family == family else None


def get_method(name: str) -> Method:
    _discover()
    if not isinstance(name, str) or name not in _METHODS:
        near = difflib.get_close_matches(str(name), methods(), n=3)
        choice = f"did you mean {' or '.join(near)}? All are" if near else "all are"
        raise UnknownMethod(f"method {name!r} is not known; {choice} listed by gpupc_impl.methods() (gpupc methods)")
    return _METHODS[name]


def method_packages() -> list[str]:
    """Return the installed packages with methods: those that families name, then plug-ins."""
    named = dict.fromkeys(package for family in families(None).values() for package in family.packages)
    return [package for package in named if importlib.util.find_spec(package)] + plugins()


def listed_kernels(packages: Iterable[str], max_level: int) -> list[KernelSource]:
    """Every kernel up to a level that public modules of these packages list by a function `all_kernels`."""
    _discover()
    wanted = set(packages)
    modules = [module for name, module in list(sys.modules.items()) if name.rpartition(".")[0] in wanted]
    lists = dict.fromkeys(module.all_kernels for module in modules if hasattr(module, "all_kernels"))
    listed = [kernel for all_kernels in lists for kernel in all_kernels(max_level)]
    return list({(kernel.source, kernel.expression): kernel for kernel in listed}.values())


@functools.cache
def _discover() -> None:
    modules = [module for name in method_packages() for module in _import_modules(name)]
    # A method that a search has taken before (`method_of`) is listed among the others all the same.
    found = sorted(
        _METHODS.items(), key=lambda item: modules.index(item[1].module) if item[1].module in modules else -1
    )
    _METHODS.clear()
    _METHODS.update(found)


def _import_modules(name: str) -> list[str]:
    package = importlib.import_module(name)
    inner = [each.name for each in pkgutil.iter_modules(getattr(package, "__path__", ()))]
    names = [f"{name}.{each}" for each in inner if not each.startswith("_")]
    for each in names:
        importlib.import_module(each)
    return [name, *names]
