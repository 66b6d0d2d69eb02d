"""Families: a family is a kind of data with its CI test, and `Family` lists everything that differs between families.
It is one folder with a file `family.py`, which defines ``FAMILY = Family(...)``, in `gpupc_impl` or as the package of a
plug-in. Methods never import that file, so changing how a family is verified or prepared makes no measurement stale."""

import copy
import dataclasses
import functools
import importlib
import os
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from gpupc_impl.backends import BackendUnavailable
from gpupc_impl.core.files import open_arrays
from gpupc_impl.core.independence import IndependenceTests
from gpupc_impl.core.problem import InvalidProblem, Problem
from gpupc_impl.ownership import open_regular

AnyProblem = TypeVar("AnyProblem", bound=Problem)
PLUGIN_GROUP = "gpupc_impl.plugins"  # the entry points that name modules with further methods or a family


class Retest(Protocol):
    """A family's CI test for verification, which computes every test from scratch and shares no code with the methods.
    `affordable` is the number of removed edges that are tested again if testing all takes too long; None: all."""

    affordable: int | None

    def ratios(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Statistics divided by critical values for (k, 2) pairs given (k, l) sets, and relative tolerances; (k,) each.
        A ratio of at most 1 separates the pair; it is infinite if the test never separates, and near the threshold if
        within its tolerance of 1. If the test is not symmetric, sets are of the first variable's neighbours."""


@dataclasses.dataclass(frozen=True)
class Family:
    """Everything that differs between families, so that one folder can define a new family.

    Attributes:
        name: the family's name in commands, configs and records.
        retest: ``(problem) -> Retest``: the test from scratch that verification uses.
        auto: the method that ``method="auto"`` selects for each backend: the fastest on ``"cuda"``, on ``"host"``, and
            among the references (``"cpu"``). Without a backend it is the first of these that can run here.
        packages: the packages that hold the family's methods; packages that are not installed are skipped.
        call: the call of the library that makes its searches. Families of other calls than ``"skeleton"`` exist so that
            those calls are measured and verified as methods are; neither `skeleton` nor the command line takes them.
        data: the kind of cells in the family's tables: ``"numbers"``, ``"labels"`` (of categories), or ``"both"``.
        default: whether a table of such cells belongs to this family if the user names no family.
        tests: ``(problem, backend) -> IndependenceTests``, where `backend` is a name; None if the family has only the
            test from scratch, which then decides the votes about v-structures and reports no strengths.
        v_structures: the rule by which `pc` finds v-structures by default (`core.colliders`): ``"majority"``, or
            ``"standard"`` if tests are slow, or random, as random answers depend on the order of the variables anyway.
        treatments: the class of problems that a treatment of missing values makes, ``"pairwise"`` or ``"imputed"``
            (`intake.MISSING`), with the `Method` that solves such problems.
        prepare_large: as `prepare`, for problems that need files beside them; None if `from_data` suffices.
    """

    name: str
    problem: type[Problem]
    retest: Callable[[Any], Retest]
    auto: Mapping[str, str]
    packages: tuple[str, ...] = ()
    call: str = "skeleton"
    data: str = "numbers"
    default: bool = False
    tests: Callable[[Any, str], IndependenceTests] | None = None
    v_structures: str = "majority"
    treatments: Mapping[str, tuple[type[Problem], Any]] = dataclasses.field(default_factory=dict)
    prepare_large: Callable[..., Problem | None] = lambda data, path, **options: None

    def prepare(
        self, data: Any, path: Path, *, progress: Callable[[int, int], None] | None = None, **parameters: Any
    ) -> Problem:
        """Make the problem of (samples, variables) data, to be saved at `path`, beside which large parts may lie;
        `progress` is called with the numbers of finished and of all steps, and parameters are those of `from_data`."""
        large = self.prepare_large(data, path, progress=progress, **parameters)
        return self.problem.from_data(data, **parameters) if large is None else large


def plugins() -> list[str]:
    """Return the modules that entry points of `PLUGIN_GROUP` and ``GPUPC_PLUGINS`` (comma separated) name."""
    from importlib import metadata  # takes as long to import as a search of a few variables

    named = [point.value for point in metadata.entry_points(group=PLUGIN_GROUP)]
    return [*named, *filter(None, map(str.strip, os.environ.get("GPUPC_PLUGINS", "").split(",")))]


@functools.cache
def _own_modules() -> tuple[str, ...]:
    own = (path for path in Path(__file__).parents[1].glob("*/family.py") if path != Path(__file__))
    return tuple(f"gpupc_impl.{path.parent.name}.family" for path in sorted(own))


@functools.cache
def families(call: str | None = "skeleton") -> dict[str, Family]:
    """All families of a call of the library, or of every call, by name: this project's, then those of plug-ins."""
    modules = [*_own_modules()]
    for plugin in plugins():
        folders = getattr(importlib.import_module(plugin), "__path__", ())
        if "family" in (module.name for module in pkgutil.iter_modules(folders)):
            modules.append(f"{plugin}.family")
    known: dict[str, Family] = {}
    homes: dict[str, str] = {}
    for module in modules:
        family = importlib.import_module(module).FAMILY
        if homes.setdefault(family.name, module) != module:
            raise ValueError(f"family {family.name!r} is defined twice: in {homes[family.name]} and in {module}")
        known[family.name] = family
    return {name: family for name, family in known.items() if call in (None, family.call)}


def default_family(kind: str) -> Family | None:
    """Return the family of a table of such cells if the user names no family; None if there is none. This project's
    families are imported one by one until it is found, since all take as long as the search of a few variables."""
    own = (importlib.import_module(module).FAMILY for module in _own_modules())
    found = next((each for each in own if each.default and each.data == kind), None)
    return found or next((each for each in families().values() if each.default and each.data == kind), None)


def get_family(name: str) -> Family:
    if (module := f"gpupc_impl.{name}.family") in _own_modules():
        family: Family = importlib.import_module(module).FAMILY
        return family
    known = families(None)
    if not isinstance(name, str) or name not in known:
        raise InvalidProblem(f"family {name!r} is not known; choose one of: {', '.join(families())}")
    return known[name]


class _TestsFromScratch(IndependenceTests):
    """The decisions of a family's retest. `fault` says why there is nothing better, and no p-value."""

    def __init__(self, problem: Problem, retest: Retest, fault: Exception):
        self._problem, self._retest, self._fault = problem, retest, fault

    def separates(self, pairs: np.ndarray, sets: np.ndarray) -> np.ndarray:
        if self._problem.obstacle(sets.shape[1]) is not None:
            return np.zeros(len(pairs), bool)
        return self._retest.ratios(pairs, sets)[0] <= 1

    def strengths(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        raise self._fault


def open_tests(problem: Problem, backend: str = "auto") -> IndependenceTests:
    """Return the CI tests of a problem for any pairs and sets, with the decisions of a search (see
    `IndependenceTests`), by a backend if the family's tests use one. If ``"auto"`` finds none here, the slow test from
    scratch decides, and there are no p-values; BackendUnavailable is raised if a named backend cannot be used."""
    family = get_family(problem.family)
    if family.tests is None:
        fault = ValueError(f"family {problem.family!r} does not say how strong an edge is (Family.tests)")
        return _TestsFromScratch(problem, family.retest(problem), fault)
    try:
        return family.tests(problem, backend)
    except BackendUnavailable as error:
        if backend != "auto":
            raise
        return _TestsFromScratch(problem, family.retest(problem), error)


def with_fields(problem: AnyProblem, **fields: Any) -> AnyProblem:
    """Return a copy of a problem with other values of some fields, and without what is cached, such as the fingerprint.
    Unlike `dataclasses.replace` it does not read the other fields: a device may be to compute the correlations."""
    changed = copy.copy(problem)
    attributes = vars(changed)
    for cached in attributes.keys() - {field.name for field in dataclasses.fields(problem)}:
        del attributes[cached]
    attributes.update(fields)
    return changed


def load_problem(path: str | Path) -> Problem:
    """Read a problem of any family that its ``save`` wrote; InvalidProblem for other content or an unknown family."""
    with open_regular(path) as file:
        try:
            with open_arrays(file) as stored:
                family = str(stored["family"])
        except Exception as error:  # A damaged file can raise almost any exception.
            raise _unreadable(path, error) from error
    if family not in families(None):
        raise InvalidProblem(
            f"{Path(path).name} holds a problem of family {family!r}, which is not among {', '.join(families())}; "
            "name the plug-in that has it in GPUPC_PLUGINS"
        )
    try:
        return families(None)[family].problem.load(path)
    except (InvalidProblem, MemoryError):
        raise
    except Exception as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str | Path, error: Exception) -> InvalidProblem:
    cause = f"{type(error).__name__}: {error}"
    return InvalidProblem(f"{Path(path).name} is no problem's file, or is damaged ({cause}); make it again")
