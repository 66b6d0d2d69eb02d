"""Compiles what a config's measurements run before the first of them, on all cores: kernels, and references in numba.

Every method solves a tiny problem, which fills the caches on disk. A measurement then compiles only what depends on its
own data, such as the kernels of deep levels.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gpupc_impl.backends import Backend
from gpupc_impl.core.family import get_family, plugins
from gpupc_impl.core.files import read_json, save_json
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.registry import Method, get_method
from gpupc_impl.core.solve import open_method_backend, solve, unavailable
from gpupc_impl.measurement.single_tests import has_single_test
from workflow.lib.orphans import end_with_parent
from workflow.lib.plan import Plan

KERNELS = "kernels"
PARTS = KERNELS, "references"
"""The parts of the code that are compiled separately, since measurements on a GPU need not wait for references."""

SAMPLES, VARIABLES = 60, 6
"""The numbers of samples and of variables of the tiny problems."""


class Search(NamedTuple):
    """A method with parameters, and the parameters of the problem that it is to solve."""

    family: str
    method: str
    params: Mapping[str, Any]
    problem: Mapping[str, Any]


def write_searches(plan: Plan, jobs: Iterable[Any], path: Path) -> None:
    """Write the searches that Snakemake's measuring jobs need to a file, each search once.

    A search consists of a method with its parameters, and of the parameters of its family's problems.
    """
    measured = [(job.params.family, job.params.settings) for job in jobs if job.rule.name.startswith("measure_")]
    tests = plan.config["ci_tests"]
    if any(job.rule.name == "time_tests" for job in jobs):
        measured.append((tests["spec"]["family"], tests["implementations"]))
    found = [
        Search(family, choice.get("method", name), choice.get("params", {}), plan.problem_parameters(family, {}))
        for family, settings in measured
        for name, choice in settings.items()
    ]
    save_json([search for number, search in enumerate(found) if search not in found[:number]], path)


def compile_ahead(path: Path, backend: str, part: str) -> None:
    """Compile what the searches in a file run.

    A method that cannot run here, is not ours, or fails is left to its measurement, whose record says why.

    Args:
        part: one of `PARTS`: kernels, in one process, or references, those of each family in a process.
    """
    found = dict.fromkeys(filter(None, (group_of(search, backend) for search in read_searches(path))))
    groups = [group for group in found if (group == KERNELS) == (part == KERNELS)]
    processes = [
        subprocess.Popen([sys.executable, "-m", "workflow.lib.ahead", str(path), backend, group]) for group in groups
    ]
    for group, process in zip(groups, processes, strict=True):
        if process.wait():
            print(f"{group}: the process ended with status {process.returncode}", flush=True)


def read_searches(path: Path) -> list[Search]:
    return [Search(*search) for search in read_json(path)]


def group_of(search: Search, backend: str) -> str | None:
    """Return the name of the process that performs a search: ``"kernels"``, or the family of a reference; None if the
    method is left to its measurement."""
    method = get_method(search.method)
    if not is_ours(method) or unavailable(method, backend) is not None:
        return None
    return KERNELS if len(method.backends) > 1 else search.family


def is_ours(method: Method) -> bool:
    """Return whether a method is part of this project and no program of other authors. A plug-in's method may do
    anything, so it only runs in a worker with limits."""
    foreign = any(method.module == name or method.module.startswith(f"{name}.") for name in plugins())
    return method.canonical and not foreign


def run_all(group: list[Search], backend: str) -> None:
    """Perform searches one after another."""
    opened = [_open(search, backend) for search in group]
    for search, (method, own) in zip(group, opened, strict=True):
        if own is not None:
            own.prefetch(method.kernels(own, method.parse_params(search.params), False, search.problem["max_level"]))
    for search, (method, own) in zip(group, opened, strict=True):
        if own is not None:
            own.finish_prefetched()  # Otherwise the end of the search would drop kernels that are not compiled yet.
        try:
            _run(search, method, own)
        except Exception as error:  # The record of the method's measurement will state why it failed.
            print(f"{search.method}: {type(error).__name__}: {error}", flush=True)


def _open(search: Search, backend: str) -> tuple[Method, Backend | None]:
    method = get_method(search.method)
    own = open_method_backend(method, backend if len(method.backends) > 1 else "cpu")
    if own is not None:
        own.waits_for_best = True
    return method, own


def _run(search: Search, method: Method, backend: Backend | None) -> None:
    """Perform a search and, if the method has one, a single test."""
    problem = tiny_problem(search.family, search.problem)
    solve(problem, method, backend, search.params)
    if has_single_test(method):
        module = sys.modules[method.module]
        module.open_test(problem, backend, method.parse_params(search.params))(0, 1, (2,))
    if backend is not None:
        backend.finish_prefetched()


def tiny_problem(family: str, parameters: Mapping[str, Any]) -> Problem:
    """Return a problem in which every variable depends on the one before, so that a search reaches several levels."""
    noise = np.random.Generator(np.random.PCG64(0)).normal(size=(SAMPLES, VARIABLES))
    values = np.cumsum(noise, axis=1)
    if family == "discrete":
        values = np.digitize(values, (-1.0, 1.0))
    problem: Problem = get_family(family).problem.from_data(values, **parameters)
    return problem


def main() -> None:
    """Perform those searches in a file that belong to one group, and print how long that took."""
    end_with_parent()
    started = time.perf_counter()
    path, backend, group = sys.argv[1:]
    run_all([search for search in read_searches(Path(path)) if group_of(search, backend) == group], backend)
    print(f"{group}: {time.perf_counter() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
