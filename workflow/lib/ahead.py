"""Compiles what the measurements of a family run before the first of them, on all cores: kernels, and references in
numba.

Every method solves a tiny problem, which fills the caches on disk. A measurement then compiles only what depends on its
own data, such as the kernels of deep levels.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import psutil

from gpupc_impl.backends import Backend
from gpupc_impl.core.family import get_family, plugins
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.registry import Method, get_method
from gpupc_impl.core.solve import open_method_backend, solve, unavailable
from gpupc_impl.measurement.single_tests import has_single_test
from workflow.lib.searches import Search

SAMPLES, VARIABLES = 60, 6  # the numbers of samples and of variables of the tiny problems


def compile_ahead(
    searches: Sequence[Search], backend: str, limit_s: float, give_up: Callable[[str], object] = print
) -> None:
    """Compile what searches run, and print how long that took. A method that cannot run here, is not ours, or fails is
    left to its measurement, whose record says why.

    After `limit_s` seconds this process ends with its children, whatever hangs in it; `give_up` is called before that
    with a sentence that names the method that is being compiled.
    """
    started = time.perf_counter()
    current = ["nothing"]

    def end() -> None:
        give_up(f"compiling {current[0]} ahead took longer than {limit_s:g} s, so it is left to the measurements")
        _end_with_children(0)

    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    timer.start()
    signal.signal(signal.SIGINT, lambda number, frame: _end_with_children(1))
    _compile([search for search in searches if _is_compiled(get_method(search.method), backend)], backend, current)
    timer.cancel()
    print(f"{time.perf_counter() - started:.1f} s", flush=True)


def _compile(searches: Sequence[Search], backend: str, current: list[str]) -> None:
    """Perform searches; `current` holds the method of the one that is performed."""
    opened = [_open(search, backend) for search in searches]
    for search, (method, own) in zip(searches, opened, strict=True):
        if own is not None:
            own.prefetch(method.kernels(own, method.parse_params(search.params), False, search.problem["max_level"]))
    for search, (method, own) in zip(searches, opened, strict=True):
        current[0] = search.method
        try:
            if own is not None:
                own.finish_prefetched()  # Otherwise the end of the search would drop kernels that are not compiled yet.
            _run(search, method, own)
        except Exception as error:  # The record of the method's measurement will state why it failed.
            print(f"{search.method}: {type(error).__name__}: {error}", flush=True)


def _end_with_children(status: int) -> NoReturn:
    """End this process at once, without waiting for threads in which a compiler may hang."""
    for child in psutil.Process().children(recursive=True):
        child.kill()
    os._exit(status)


def _is_compiled(method: Method, backend: str) -> bool:
    """Return whether a method can run here and is part of this project. Programs of other authors and the methods of
    plug-ins may do anything, so they only run in a worker with limits."""
    foreign = any(method.module == name or method.module.startswith(f"{name}.") for name in plugins())
    return method.canonical and not foreign and unavailable(method, backend) is None


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
        method.open_test(problem, backend, method.parse_params(search.params))(0, 1, (2,))
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
