"""Trials of a method: up to three small problems, on which its answer and its time are compared with a reference's."""

import dataclasses
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import gpupc_impl.examples as examples
from gpupc_impl.core.family import Family, families, get_family
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.registry import Method, UnknownMethod, get_method, methods
from gpupc_impl.core.result import Skeleton
from gpupc_impl.core.solve import open_method_backend, solve, unavailable

SHAPES = ((4, 80), (6, 150), (40, 1000))  # variables and samples of the problems
QUICK = 0.02  # another problem follows if both methods took fewer seconds than this for the one before
ALPHA = 0.01
ROUNDS, LONG = 3, 2.0  # timed searches of a method after one that compiles, none after one of so many seconds


@dataclasses.dataclass(frozen=True)
class Trial:
    """A method and a reference on one problem.

    Attributes:
        difference: what differs between the answers, as a sentence; empty if they are equal.
        seconds, reference_seconds: the median time of all levels, without compiling.
    """

    method: str
    reference: str
    variables: int
    samples: int
    difference: str
    seconds: float
    reference_seconds: float


def methods_of(path: Path) -> list[str]:
    """Import a Python file, unless that was done, and return the methods that it registers, or raise UnknownMethod."""
    found = _registered(path)
    if not found:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if not path.is_file():
            raise UnknownMethod(f"there is no file {path}")
        if spec is None or spec.loader is None:
            raise UnknownMethod(f"{path} is not a Python file: its name must end with .py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        found = _registered(path)
    if not found:
        raise UnknownMethod(
            f"{path} registers no method of a known family ({', '.join(families())}); decorate one with "
            "gpupc_impl.core.registry.method"
        )
    return found


def _registered(path: Path) -> list[str]:
    files = {name: getattr(sys.modules.get(each.module), "__file__", None) for name, each in methods().items()}
    return [name for name, file in files.items() if file is not None and path.exists() and path.samefile(file)]


def trials(name: str, backend: str = "auto") -> Iterator[Trial]:
    """Yield the trials of a method against `reference_of` it."""
    method = get_method(name)
    family, reference, slowest = get_family(method.family), reference_of(method), 0.0
    for variables, samples in SHAPES:
        if slowest > QUICK:
            return
        problem = _problem(family, variables, samples)
        found, seconds = _timed(problem, method, backend)
        expected, reference_seconds = _timed(problem, reference, "auto")
        slowest = max(seconds, reference_seconds)
        if difference := found.difference(expected, sets=method.canonical and reference.canonical):
            difference += f" (the first is {name}, the second {reference.name})"
        yield Trial(name, reference.name, variables, samples, difference, seconds, reference_seconds)


def reference_of(method: Method) -> Method:
    """Return what a trial compares with: the family's fastest reference, another one, or its kernels on cores."""
    known, auto = methods(method.family), get_family(method.family).auto
    references = [name for name, other in known.items() if other.reference and other.canonical]
    for name in (auto.get("cpu"), *references, auto.get("host")):
        if name in known and name != method.name and unavailable(known[name]) is None:
            return known[name]
    raise UnknownMethod(f"family {method.family!r} has no other method here to compare {method.name!r} with")


def _problem(family: Family, variables: int, samples: int) -> Problem:
    import pandas

    values: Any = examples.chain(variables, samples)
    labels = np.digitize(values, (-0.5, 0.5)).astype(np.uint8)
    if family.data == "labels":
        values = labels
    if family.data == "both":
        values = pandas.DataFrame(values, columns=[f"V{k}" for k in range(variables)])
        values["V0"] = labels[:, 0].astype(str)
    return family.problem.from_data(values, alpha=ALPHA)


def _timed(problem: Problem, method: Method, backend: str) -> tuple[Skeleton, float]:
    opened = open_method_backend(method, "auto" if method.backends == ("cpu",) else backend)
    solve(problem, method, opened)
    seconds: list[float] = []
    while len(seconds) < ROUNDS and max(seconds, default=0) < LONG:
        found = solve(problem, method, opened)
        seconds.append(sum(found.seconds_per_level))
    if opened is not None:
        opened.release_memory()
    return found, float(np.median(seconds))
