"""Timing single CI tests, for methods whose test is a computation of its own (GPU-CMIknn, section 5.2).

The module of such a method has a function ``open_test(problem, backend, params)`` that returns a function
``(i, j, S) -> p-value``, S ascending. Inside the clock is one call of the latter: from the problem's data in host
memory to the p-value in host memory, transfers included.

A *cell* is one implementation on one problem: a cold run, then a number of tests. The cells of a group take turns test
by test, all with the same tests, so that a machine that slows down for a while slows all of them. As in `measure`, an
implementation has a process of its own, one works at any moment, whatever happens becomes a status, and samples are
kept as soon as they are taken.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core.family import load_problem
from gpupc_impl.core.files import save_json
from gpupc_impl.core.registry import Method, get_method
from gpupc_impl.measurement.digest import code_version
from gpupc_impl.measurement.isolate import Outcome, Worker, serve
from gpupc_impl.measurement.sampler import START_LIMIT_S, THREAD_VARIABLES

SCHEMA_VERSION = 1

NAMED_AT_MOST = 5
"""Differing tests named in a row of `verify_tests`."""

Test = tuple[int, int, tuple[int, ...]]
"""The permuted or first variable, the other one, and the conditioning set, ascending."""


@dataclasses.dataclass(frozen=True)
class Implementation:
    """A method whose test is timed, with its parameters, under a name of its own."""

    name: str
    method: str
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Case:
    """One problem and the tests to be made on it.

    Attributes:
        problem_path: an ``.npz`` written by a problem's ``save``; None where there is no problem.
        tests: the tests, in order.
        facts: what a table needs to know of it.
        why_not: why there is no problem, as a sentence.
    """

    problem_path: Path | None
    tests: Sequence[Test]
    facts: Mapping[str, Any]
    why_not: str | None = None


def draw_tests(n_variables: int, set_size: int, count: int, seed: int) -> list[Test]:
    """Random tests of variables that all differ, from a seed."""
    rng = np.random.Generator(np.random.PCG64(seed))
    tests = []
    for _ in range(count):
        i, j, *members = rng.permutation(n_variables)[: set_size + 2].tolist()
        tests.append((i, j, tuple(sorted(members))))
    return tests


def has_single_test(method: Method) -> bool:
    """Whether the method's test can be timed alone."""
    return hasattr(importlib.import_module(method.module), "open_test")


def measure_tests(
    groups: Sequence[Sequence[Case]],
    implementations: Sequence[Implementation],
    *,
    backend: str,
    time_limit_s: float,
    store: str | Path,
    memory_limit_bytes: int | None = None,
    threads: int | None = None,
    log: TextIO | None = None,
    progress: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
) -> dict[str, Any]:
    """Time every implementation on every case.

    Args:
        groups: cases whose cells take turns, group by group.
        backend: ``"auto"``, ``"cuda"`` or ``"host"``, for the methods made of kernels.
        time_limit_s: seconds that a cell's runs may take together, the cold one included.
        store: a folder that keeps samples; a measurement that was killed goes on where it was.
        memory_limit_bytes: resident memory that an implementation's process group may have; None for no limit.
        threads: CPU threads of a process; None for all available cores.
        log: where the processes' output goes; None for stderr.
        progress: called with a line for each finished cell.

    Returns:
        ``environments`` by backend, and ``cells``: the case's facts with ``implementation``, ``method``, ``params``,
        ``backend``, ``random``, ``status``, ``why``, ``limit_s``, ``cold_s``, and ``seconds`` and ``p_values`` of
        each test.

    Raises:
        ValueError: an unknown method or parameter, or a method without `open_test`.
    """
    cores = available_cores()
    threads = cores if threads is None else threads
    lanes = [_Lane(each, threads, memory_limit_bytes, log) for each in implementations]
    cells: list[_Cell] = []
    with contextlib.ExitStack() as stack:
        for lane in lanes:
            stack.callback(lane.close)
        environments = {}
        for lane in lanes:
            found = lane.probe(backend, cores)
            environments.setdefault(found["backend"], found["environment"])
        for group in groups:
            turn = [_Cell(lane, case, time_limit_s, Path(store)) for case in group for lane in lanes]
            cells += turn
            for _ in range(max((len(case.tests) for case in group), default=0) + 1):
                for cell in turn:
                    if not cell.finished and cell.step():
                        progress(str(cell))
            for lane in lanes:
                lane.forget()
    return {
        "schema_version": SCHEMA_VERSION,
        "environments": environments,
        "cells": [cell.content() for cell in cells],
    }


class _Lane:
    """An implementation and its process, which is started again when it was killed."""

    def __init__(
        self, implementation: Implementation, threads: int, memory_limit_bytes: int | None, log: TextIO | None
    ):
        self.implementation = implementation
        self.method = get_method(implementation.method)
        if not has_single_test(self.method):
            raise ValueError(f"{implementation.name}: method {self.method.name!r} has no single test to time")
        self.params = self.method.parse_params(implementation.params)
        self.threads, self.memory_limit_bytes, self.log = threads, memory_limit_bytes, log
        self._worker: Worker | None = None
        self._open: set[str] = set()

    def probe(self, backend: str, cores: int) -> dict[str, Any]:
        """Find out what can run here: the backend, the environment, and why the method cannot be used, if so."""
        kernels = self.method.backends != ("cpu",)
        outcome = self._request(
            {
                "do": "probe",
                "backend": backend if kernels else None,
                "cores": cores,
                "threads": self.threads,
                "methods": [self.method.name],
            },
            START_LIMIT_S,
        )
        if not outcome.ok:
            raise RuntimeError(f"{self.implementation.name}: finding out what can run here failed: {outcome.why}")
        found = outcome.value
        self.backend = found["backend"] or "cpu"
        self.environment = found["environment"]
        self.unavailable = found["unavailable"][self.method.name]
        self.code = code_version(self.method, self.backend)
        return {"backend": self.backend, "environment": self.environment}

    def open(self, problem_path: Path) -> Outcome:
        """Make the process ready for a problem; it may have several open."""
        if self._worker is not None and self._worker.alive and str(problem_path) in self._open:
            return Outcome("ok", None, False)
        message = {
            "do": "open",
            "problem": str(problem_path),
            "method": self.method.name,
            "backend": self.backend,
            "params": self.params,
        }
        outcome = self._request(message, START_LIMIT_S)
        if outcome.ok:
            self._open.add(str(problem_path))
            return Outcome("ok", None, True)
        return outcome

    def run(self, problem_path: Path, test: Test, time_limit_s: float) -> Outcome:
        return self._request({"do": "run", "problem": str(problem_path), "test": test}, time_limit_s)

    def forget(self) -> None:
        """Close what is open, so that memory is free for other problems."""
        if self._open and self._worker is not None and self._worker.alive:
            self._request({"do": "forget"}, START_LIMIT_S)
        self._open.clear()

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()

    def _request(self, message: dict[str, Any], time_limit_s: float) -> Outcome:
        if self._worker is None or not self._worker.alive:
            self.close()
            self._open.clear()
            variables = {
                **dict.fromkeys(THREAD_VARIABLES, str(self.threads)),
                "PYTHONPATH": os.pathsep.join(os.path.abspath(folder) for folder in sys.path),
                "PYTHONUNBUFFERED": "1",
            }
            self._worker = Worker(
                [sys.executable, "-X", "faulthandler", "-m", "gpupc_impl.measurement.single_tests", str(self.threads)],
                env={**os.environ, **variables},
                memory_limit_bytes=self.memory_limit_bytes,
                log=self.log,
                prefix=f"[{self.implementation.name}] ",
            )
        return self._worker.request(message, time_limit_s)


class _Cell:
    """One implementation on one case, on its way to its samples."""

    def __init__(self, lane: _Lane, case: Case, time_limit_s: float, store: Path):
        self.lane, self.case, self.time_limit_s = lane, case, time_limit_s
        self.cold_s: float | None = None
        self.seconds: list[float] = []
        self.p_values: list[float] = []
        self.status: str | None = None
        self.why: str | None = None
        if case.problem_path is None or lane.unavailable is not None:
            self.status, self.why = "skipped", case.why_not or lane.unavailable
            return
        key = {
            "problem": load_problem(case.problem_path).fingerprint,
            "tests": case.tests,
            "method": lane.method.name,
            "params": lane.params,
            "backend": lane.backend,
            "code": lane.code,
            "environment": {
                name: lane.environment[name]
                for name in ("platform", "cpu", "cores", "threads", "python", "packages", "blas", "device")
            },
        }
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
        self._path = store / f"tests-{digest}.json"
        self._take_over()

    def _take_over(self) -> None:
        """What an earlier measurement left here."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            stored = json.loads(self._path.read_text())
            if stored["status"] in (None, "ok") or stored["limit_s"] == self.time_limit_s:
                self.cold_s, self.seconds, self.p_values = stored["cold_s"], stored["seconds"], stored["p_values"]
                self.status, self.why = stored["status"], stored["why"]

    @property
    def finished(self) -> bool:
        return self.status is not None

    def step(self) -> bool:
        """One more run: the cold one, or the next test. Returns whether that was the last."""
        opened = self.lane.open(self.case.problem_path)
        if not opened.ok:
            return self._end(opened.status, opened.why)
        if self.cold_s is None or opened.value:  # opened again: a run to warm up, which nobody counts
            outcome = self._run(0)
            if not outcome.ok:
                return self._end(outcome.status, outcome.why)
            if self.cold_s is None:
                self.cold_s = outcome.value["seconds"]
                self._save()
                return False
        outcome = self._run(len(self.seconds))
        if not outcome.ok:
            return self._end(outcome.status, outcome.why)
        self.seconds.append(outcome.value["seconds"])
        self.p_values.append(outcome.value["p_value"])
        if len(self.seconds) == len(self.case.tests):
            return self._end("ok", None)
        self._save()
        return False

    def _run(self, number: int) -> Outcome:
        left = self.time_limit_s - sum(self.seconds) - (self.cold_s or 0)
        outcome = self.lane.run(self.case.problem_path, self.case.tests[number], max(left, 0.001))
        if outcome.status == "timeout":
            made = f"{len(self.seconds)} of {len(self.case.tests)} tests were made"
            return Outcome("timeout", f"over the time limit of {self.time_limit_s:g} s for a cell: {made}")
        return outcome

    def _end(self, status: str, why: str | None) -> bool:
        self.status, self.why = status, why
        if status in ("ok", "timeout", "oom"):  # other failures may be the machine's, and are tried again
            self._save()
        return True

    def _save(self) -> None:
        save_json(
            {name: getattr(self, name) for name in ("cold_s", "seconds", "p_values", "status", "why")}
            | {"limit_s": self.time_limit_s},
            self._path,
        )

    def content(self) -> dict[str, Any]:
        lane = self.lane
        return {
            **self.case.facts,
            "implementation": lane.implementation.name,
            "method": lane.method.name,
            "params": lane.params,
            "backend": lane.backend,
            "random": lane.method.random,
            "status": self.status,
            "why": self.why,
            "limit_s": self.time_limit_s,
            "cold_s": self.cold_s,
            "seconds": self.seconds,
            "p_values": self.p_values,
        }

    def __str__(self) -> str:
        what = ", ".join(f"{name} {value}" for name, value in self.case.facts.items())
        median = f": median {np.median(self.seconds):.4g} s" if self.seconds else ""
        why = f" ({self.why})" if self.why else ""
        return f"{self.lane.implementation.name}, {what}: {self.status}{median}{why}"


# --- are the answers the same? ---------------------------------------------------------------------------------------

MEASURED = ("implementation", "method", "params", "backend", "random", "status", "why", "limit_s")
SAMPLES = ("cold_s", "seconds", "p_values")
"""What a cell holds beside the facts of its case."""


def verify_tests(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each cell: whether its p-values are those of the first reference that finished.

    They must be equal, but for methods whose tests draw random numbers of their own.
    """
    cases: dict[str, list[Mapping[str, Any]]] = {}
    for cell in cells:
        facts = {name: value for name, value in cell.items() if name not in (*MEASURED, *SAMPLES)}
        cases.setdefault(", ".join(f"{name}={value}" for name, value in facts.items()), []).append(cell)
    return [_compared(case, cell, same) for case, same in cases.items() for cell in same]


def _compared(case: str, cell: Mapping[str, Any], same: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    row = {
        "dataset": case,
        "setting": cell["implementation"],
        "method": cell["method"],
        "backend": cell["backend"],
        "compared_with": "",
        "status": "not-run",
        "tests": len(cell["p_values"]),
        "differing_tests": "",
        "detail": cell["why"] or "",
    }
    finished = [other for other in same if other["status"] == "ok" and not other["random"]]
    reference = min(finished, key=lambda other: not get_method(other["method"]).reference, default=None)
    if cell["status"] != "ok" or reference is None:
        return row
    pairs = list(zip(cell["p_values"], reference["p_values"], strict=True))
    differing = [f"test {k}: p = {p:g} and {q:g}" for k, (p, q) in enumerate(pairs) if p != q]
    status = "equal" if not differing else "random" if cell["random"] else "unexplained"
    return row | {
        "compared_with": reference["implementation"],
        "status": status,
        "differing_tests": len(differing),
        "detail": "; ".join(differing[:NAMED_AT_MOST]),
    }


# --- the other side --------------------------------------------------------------------------------------------------


class Session:
    """One implementation, at the other end of a `_Lane`."""

    def __init__(self) -> None:
        self._tests: dict[str, Callable[[int, int, tuple[int, ...]], float]] = {}
        self._backend = None

    def answer(self, message: dict[str, Any]) -> Any:
        from gpupc_impl.measurement.worker import probe

        requests = {"probe": probe, "open": self.open, "run": self.run, "forget": self.forget}
        return requests[message.pop("do")](**message)

    def open(self, problem: str, method: str, backend: str, params: dict[str, Any]) -> None:
        from gpupc_impl.core.solve import open_method_backend

        found = get_method(method)
        if self._backend is None:
            self._backend = open_method_backend(found, backend)
        self._tests[problem] = importlib.import_module(found.module).open_test(
            load_problem(problem), self._backend, params
        )

    def run(self, problem: str, test: list[Any]) -> dict[str, float]:
        from gpupc_impl.measurement.clock import timed

        i, j, members = test
        synchronize = (lambda: None) if self._backend is None else self._backend.synchronize
        p_value, seconds = timed(lambda: self._tests[problem](i, j, tuple(members)), synchronize)
        return {"seconds": seconds, "p_value": float(p_value)}

    def forget(self) -> None:
        self._tests.clear()


if __name__ == "__main__":
    from gpupc_impl.measurement.environment import pin_cores

    pin_cores(int(sys.argv[1]))
    serve(Session().answer)
