"""Families: a kind of data with its CI test, and everything that only a family knows.

A family is one folder. Its `family.py` holds ``FAMILY = Family(...)`` and is found because the folder lies in
`gpupc_impl`, or because a plug-in is a package with such a file. Methods never import it, so that a change in how a
family is verified or prepared leaves what was measured alone.
"""

from __future__ import annotations

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

PLUGIN_GROUP = "gpupc_impl.plugins"
"""Entry points of this group name modules or packages with more methods or a family, as ``GPUPC_PLUGINS`` does."""


class Retest(Protocol):
    """A family's CI test from scratch, for verification, in code that shares nothing with the methods.

    Attributes:
        affordable: how many removed edges of one answer are tested again where testing all would take too long.
    """

    affordable: int | None

    def ratios(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Statistics over critical values of (k, 2) pairs given (k, l) sets, and relative tolerances, (k,) each.

        A ratio up to 1 separates, an infinite one stands for a test that never does; one that differs from 1 by less
        than its tolerance is near the threshold. Where a test is not symmetric, a pair's first variable is the one
        whose neighbours the set is drawn from.
        """


class Strength(Protocol):
    """Single tests of a problem with their effects: for reports, never for decisions.

    Attributes:
        effect: what the effects are, as a column's name.
    """

    effect: str

    def __call__(self, pairs: np.ndarray, sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """p-values and effects of (k, 2) pairs given (k, l) sets, (k,) each; where a test is not defined, NaN.

        A pair's first variable is the one whose neighbours the set is drawn from.
        """


@dataclasses.dataclass(frozen=True)
class Family:
    """What only a family knows.

    Attributes:
        name: its name everywhere: command line, config, records.
        problem: the class of its problems.
        retest: makes the test from scratch that verification uses, of a problem.
        auto: what ``method="auto"`` means, by backend: the method that is fastest on ``"cuda"`` and on ``"host"``, and,
            as ``"cpu"``, among the references. Where no backend is asked for, the first that can be used here is taken,
            in this order.
        packages: the packages that hold its methods; one that is not installed is passed over.
        data: what cells of a table are: ``"numbers"``, ``"labels"`` of categories, or ``"both"``, by column.
        default: whether such data are of this family where nothing else is said.
        strength: ``(problem, backend)``: the family's tests with their effects, on a backend of that name where they
            need one; None where it has none.
        pairwise: the class of problems whose pairs of variables have a sample size each, made by its `from_data` of
            numbers with NaN among them, and the `Method` that solves them; None where there is no such test.
        prepare_large: ``(data, path, *, progress, **parameters)``: as `prepare`, or None where `from_data` will do.
    """

    name: str
    problem: type[Problem]
    retest: Callable[[Any], Retest]
    auto: Mapping[str, str]
    packages: tuple[str, ...] = ()
    data: str = "numbers"
    default: bool = False
    strength: Callable[[Any, str], Strength] | None = None
    pairwise: tuple[type[Problem], Any] | None = None
    prepare_large: Callable[..., Problem | None] = lambda data, path, **options: None

    def prepare(
        self, data: Any, path: Path, *, progress: Callable[[int, int], None] | None = None, **parameters: Any
    ) -> Problem:
        """The problem of (samples, variables) data that will be saved at `path`; its large parts may lie in files
        beside that one.

        Args:
            progress: called with the number of steps done and of all, where it takes long.
            parameters: what `from_data` of the problem class takes.

        Raises:
            InvalidProblem: the data or a parameter cannot be used.
        """
        large = self.prepare_large(data, path, progress=progress, **parameters)
        return self.problem.from_data(data, **parameters) if large is None else large


def plugins() -> list[str]:
    """Modules and packages named by the entry points of `PLUGIN_GROUP` and by ``GPUPC_PLUGINS`` (comma separated),
    which the processes that measure methods inherit."""
    named = [point.value for point in importlib.metadata.entry_points(group=PLUGIN_GROUP)]
    return [*named, *filter(None, map(str.strip, os.environ.get("GPUPC_PLUGINS", "").split(",")))]


@functools.cache
def families() -> dict[str, Family]:
    """All families by name: those of this project, then those of plug-ins.

    Raises:
        ValueError: two have the same name.
    """
    own = (path for path in Path(__file__).parents[1].glob("*/family.py") if path != Path(__file__))
    modules = [f"gpupc_impl.{path.parent.name}.family" for path in sorted(own)]
    for plugin in plugins():
        folders = getattr(importlib.import_module(plugin), "__path__", ())
        if "family" in (found.name for found in pkgutil.iter_modules(folders)):
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
    """The family of that name.

    Raises:
        InvalidProblem: there is none.
    """
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
    with open(path, "rb") as file:
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
    said = f"{type(error).__name__}: {error}"
    return InvalidProblem(f"{Path(path).name} is no problem's file, or is damaged ({said}); make it again")
