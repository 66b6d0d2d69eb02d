"""Compiles what the measurements of a family run before the first of them, on all cores: kernels, and references in
numba.

Every method solves a tiny problem, which fills the caches on disk. A measurement then compiles only what depends on its
own data, such as the kernels of deep levels. ``python -m workflow.lib.ahead`` is the worker in which that happens.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import numpy as np

from gpupc_impl.backends import Backend, compilations
from gpupc_impl.core.family import get_family, plugins
from gpupc_impl.core.problem import Problem
from gpupc_impl.core.registry import Method, get_method
from gpupc_impl.core.solve import open_method_backend, solve, unavailable
from gpupc_impl.measurement.isolate import Worker, serve
from workflow.lib.searches import Search


def compile_ahead(searches: Sequence[Search], backend: str, limit_s: float, log: TextIO) -> str | None:
    """Compile what searches run, and write to the log how long that took; return a sentence on what was not compiled
    within the limit, if anything. A method that cannot run here, is not ours, or fails is left to its measurement,
    whose record says why."""
    started = time.monotonic()
    ours = [search for search in searches if _is_compiled(get_method(search.method), backend)]
    requests = [("the kernels", {"do": "prefetch", "searches": ours, "backend": backend})]
    requests += [(search.method, {"do": "run", "number": number}) for number, search in enumerate(ours)]
    with Worker([sys.executable, "-m", "workflow.lib.ahead"], log=log) as worker:
        for name, message in requests:
            outcome = worker.request(message, max(0.0, started + limit_s - time.monotonic()))
            if not worker.alive:
                why = f"took longer than {limit_s:g} s" if outcome.status == "timeout" else f"ended: {outcome.why}"
                return f"compiling {name} ahead {why}, so it is left to the measurements"
            if not outcome.ok:
                print(f"{name}: {outcome.why}", file=log)
    print(f"{time.monotonic() - started:.1f} s", file=log)
    return None


def _is_compiled(method: Method, backend: str) -> bool:
    """Return whether a method can run here and is part of this project, and not of other authors or a plug-in."""
    foreign = any(method.module == name or method.module.startswith(f"{name}.") for name in plugins())
    return method.canonical and not foreign and unavailable(method, backend) is None


class Compiler:
    """Answers the requests of `compile_ahead`."""

    def __init__(self) -> None:
        self.searches: list[tuple[Search, Method, Backend | None]] = []

    def prefetch(self, searches: Sequence[Sequence[Any]], backend: str) -> None:
        """Open the searches' backends, and begin to compile their kernels."""
        compilations.observers.clear()  # The time limit is here for compiling.
        for search in (Search(*each) for each in searches):
            method = get_method(search.method)
            own = open_method_backend(method, backend if len(method.backends) > 1 else "cpu")
            if own is not None:
                own.waits_for_best = True
                params = method.parse_params(search.params)
                own.prefetch(method.kernels(own, params, False, search.problem["max_level"]))
            self.searches.append((search, method, own))

    def run(self, number: int) -> None:
        """Perform a search and, if the method has one, a single test."""
        search, method, own = self.searches[number]
        if own is not None:
            own.finish_prefetched()  # Otherwise the end of the search would drop kernels that are not compiled yet.
        problem = tiny_problem(search.family, search.problem)
        solve(problem, method, own, search.params)
        if method.open_test is not None:
            method.open_test(problem, own, method.parse_params(search.params))(0, 1, (2,))
        if own is not None:
            own.finish_prefetched()


def tiny_problem(family: str, parameters: Mapping[str, Any]) -> Problem:
    """Return a problem in which every variable depends on the one before, so that a search reaches several levels."""
    values = np.cumsum(np.random.Generator(np.random.PCG64(0)).normal(size=(60, 6)), axis=1)
    if family == "discrete":
        values = np.digitize(values, (-1.0, 1.0))
    return get_family(family).problem.from_data(values, **parameters)


if __name__ == "__main__":
    compiler = Compiler()
    serve(lambda message: getattr(compiler, message.pop("do"))(**message))
