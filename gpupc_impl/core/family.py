"""Families: kinds of data with their CI tests, and everything that differs between families.

A family is one folder. Its `family.py` holds ``FAMILY = Family(...)`` and is found because the folder lies in
`gpupc_impl`, or because a plug-in is a package with such a file. Methods never import it, so changing how a family is
verified or prepared makes no measurement stale.
"""

import dataclasses
import functools
import importlib
import importlib.metadata
import os
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gpupc_impl.core.files import open_arrays
from gpupc_impl.core.problem import InvalidProblem, Problem
from gpupc_impl.ownership import open_regular

PLUGIN_GROUP = "gpupc_impl.plugins"
"""The group of entry points that name modules or packages with more methods or a family (see `plugins`)."""


class Retest(Protocol):
    """A family's CI test from scratch, for verification, in code that shares nothing with the methods.

    Attributes:
        affordable: how many removed edges of an answer are tested again if testing all takes too long; None: all.
    """

    affordable: int | None

    def ratios(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Statistics over critical values of (k, 2) pairs given (k, l) sets, and relative tolerances, (k,) each.

        A pair with a ratio of at most 1 is separated; the ratio of a test that never separates is infinite. A ratio
        that differs from 1 by less than its tolerance is near the threshold. In a test that is not symmetric, the set
        is drawn from the neighbours of a pair's first variable.
        """


class Strength(Protocol):
    """Single tests of a problem with effect sizes, for reports alone; `effect` names the effect's column."""

    effect: str

    def __call__(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """p-values and effect sizes of (k, 2) pairs given (k, l) sets, (k,) each; NaN where a test is undefined.

        The set is drawn from the neighbours of a pair's first variable.
        """


@dataclasses.dataclass(frozen=True)
class Family:
    """Everything that differs between families.

    Attributes:
        name: its name in commands, configs and records.
        problem: the class of its problems.
        retest: ``(problem) -> Retest``: the test from scratch that verification uses.
        auto: the method for ``method="auto"``, by backend: the fastest on ``"cuda"``, on ``"host"``, and among the
            references (``"cpu"``). If no backend is given, the first of them that can run here is used, in this order.
        packages: the packages of its methods; those that are not installed are skipped.
        data: the cells of its tables: ``"numbers"``, ``"labels"`` of categories, or ``"both"``, by column.
        default: whether a table of such cells belongs to this family if no family is given.
        strength: ``(problem, backend) -> Strength``, on the backend of that name if the tests need one; None if the
            family has none.
        v_structures: the rule by which `pc` finds v-structures by default (`core.colliders`): ``"majority"``, or
            ``"standard"`` for tests that take long or have random numbers, which depend on the variables' order anyway.
        pairwise: the class of problems whose pairs of variables have sample sizes of their own, which its `from_data`
            makes of numbers with NaN among them, and the `Method` that solves them; None if there is no such test.
        prepare_large: ``(data, path, *, progress, **parameters)``: as `prepare`, or None if `from_data` is enough.
    """

    name: str
    problem: type[Problem]
    retest: Callable[[Any], Retest]
    auto: Mapping[str, str]
    packages: tuple[str, ...] = ()
    data: str = "numbers"
    default: bool = False
    strength: Callable[[Any, str], Strength] | None = None
    v_structures: str = "majority"
    pairwise: tuple[type[Problem], Any] | None = None
    prepare_large: Callable[..., Problem | None] = lambda data, path, **options: None

    def prepare(
        self, data: Any, path: Path, *, progress: Callable[[int, int], None] | None = None, **parameters: Any
    ) -> Problem:
        """The problem of (samples, variables) data, to be saved at a path, beside which its large parts may lie.

        Args:
            progress: called with the number of finished steps and of all steps, if preparing takes long.
            parameters: parameters of the problem class's `from_data`.

        Raises:
            InvalidProblem: the data or a parameter is invalid.
        """
        large = self.prepare_large(data, path, progress=progress, **parameters)
        return self.problem.from_data(data, **parameters) if large is None else large


def plugins() -> list[str]:
    """Modules and packages named by the entry points of `PLUGIN_GROUP` and by ``GPUPC_PLUGINS`` (comma separated).

    The processes that measure methods inherit this environment variable.
    """
    named = [point.value for point in importlib.metadata.entry_points(group=PLUGIN_GROUP)]
    return [*named, *filter(None, map(str.strip, os.environ.get("GPUPC_PLUGINS", "").split(",")))]


@functools.cache
def families() -> dict[str, Family]:
    """All families by name: this project's, then those of plug-ins; raises ValueError if two have the same name."""
    own = (path for path in Path(__file__).parents[1].glob("*/family.py") if path != Path(__file__))
    modules = [f"gpupc_impl.{path.parent.name}.family" for path in sorted(own)]
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
    return known


def get_family(name: str) -> Family:
    """The family of that name; raises InvalidProblem if there is none."""
    known = families()
    if name not in known:
        raise InvalidProblem(f"family {name!r} is not known; choose one of: {', '.join(known)}")
    return known[name]


def load_problem(path: str | Path) -> Problem:
    """Read a problem of any family that was written by its ``save``.

    Raises:
        InvalidProblem: the file holds none, or one of a family that is not known here.
        OSError: it cannot be opened.
    """
    with open_regular(path) as file:
        try:
            with open_arrays(file) as stored:
                family = str(stored["family"])
        except Exception as error:  # a damaged file raises nearly anything
            raise _unreadable(path, error) from error
    if family not in families():
        raise InvalidProblem(
            f"{Path(path).name} holds a problem of family {family!r}, which is not among {', '.join(families())}; "
            "name the plug-in that has it in GPUPC_PLUGINS"
        )
    try:
        return families()[family].problem.load(path)
    except (InvalidProblem, MemoryError):
        raise
    except Exception as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str | Path, error: Exception) -> InvalidProblem:
    cause = f"{type(error).__name__}: {error}"
    return InvalidProblem(f"{Path(path).name} is no problem's file, or is damaged ({cause}); make it again")
