"""Times single CI tests of methods whose test is a separate computation (GPU-CMIknn, section 5.2).

Such a method is registered with a function ``open_test(problem, backend, params)`` that returns a function ``(i, j, S)
-> p-value``, S ascending. The measured time is that of one call of the latter, from the problem's data in host memory
to the p-value in host memory, transfers included.

A *cell* is one implementation (a `Setting`) on one case: a cold run of the first test, then all tests. The cells of a
group take turns test by test, and all perform the same tests. Samples are taken, stored and limited as those of
skeletons (`samples`), but the time limit is for all runs of a cell together.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpupc_impl.core.family import load_problem
from gpupc_impl.measurement.bench import Bench, ProblemFile, Runner, Setting, check_settings
from gpupc_impl.measurement.digest import code_version
from gpupc_impl.measurement.isolate import Outcome
from gpupc_impl.measurement.record import SCHEMA_VERSION
from gpupc_impl.measurement.samples import Job, take_turns

Test = tuple[int, int, tuple[int, ...]]  # the first (or permuted) variable, the other one, and the set, ascending


@dataclasses.dataclass(frozen=True)
class Case:
    """The file of a problem, its tests in order, facts for tables, and the implementations that are not timed on it.
    Without a problem, ``why_not`` is a sentence with the reason."""

    problem_path: Path | None
    tests: Sequence[Test]
    facts: Mapping[str, Any]
    why_not: str | None = None
    left_out: Collection[str] = ()


def draw_tests(n_variables: int, set_size: int, count: int, seed: int) -> list[Test]:
    """Random tests of distinct variables."""
    rng = np.random.Generator(np.random.PCG64(seed))
    tests = []
    for _ in range(count):
        i, j, *members = rng.permutation(n_variables)[: set_size + 2].tolist()
        tests.append((i, j, tuple(sorted(members))))
    return tests


def measure_tests(
    groups: Sequence[Sequence[Case]],
    implementations: Sequence[Setting],
    bench: Bench,
    *,
    store: Path,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Time every implementation on every case; returns the content for `record.save_tests` without the ``source`` of
    the data. ValueError is raised if an implementation is invalid, or its method has no `open_test`.

    Args:
        groups: the cases in groups whose cells take turns.
        implementations: the settings; ``limits.time_s`` of each bounds all runs of a cell together, with the cold one.
        store: the folder of samples, from which a measurement that was killed resumes.
        progress: called with a line for each finished cell.
    """
    check_settings(implementations)
    for each in implementations:
        if each.registered.open_test is None:
            raise ValueError(f"{each.name}: method {each.method!r} has no single test to time")
    cells = []
    with bench.open(), contextlib.ExitStack() as stack:
        places = bench.places(implementations)
        opened = (Runner(bench, each, places[each.name], single_test=True) for each in implementations)
        runners = [stack.enter_context(contextlib.closing(runner)) for runner in opened]
        for group in groups:
            turn = []
            for case in group:
                path = case.problem_path
                problem = None if path is None else ProblemFile(path, load_problem(path).facts())
                turn += [_begin(case, runner, problem, store, progress) for runner in runners]
            take_turns([cell for cell in turn if isinstance(cell, Cell)])
            cells += [cell.content() if isinstance(cell, Cell) else cell for cell in turn]
            for runner in runners:
                runner.forget()
    return {
        "schema_version": SCHEMA_VERSION,
        "environments": {place.backend: place.environment for place in places.values()},
        "cells": cells,
    }


class Cell(Job):
    """The job that times one implementation on one case."""

    def __init__(self, case: Case, runner: Runner, problem: ProblemFile, store: Path, progress: Callable[[str], None]):
        super().__init__(runner, problem, store, tests=case.tests)
        self.case, self.progress = case, progress
        self.limit_s = runner.setting.limits.time_s
        self.samples.take_over(lambda sample: sample["seconds"] <= self._left_s())

    def _left_s(self) -> float:
        """Return the seconds that are left of the limit for all runs."""
        used: float = sum(sample["seconds"] for sample in self.samples.taken)
        return math.inf if self.limit_s is None else self.limit_s - used

    @property
    def n_samples(self) -> int:
        return 1 + len(self.case.tests)

    def run(self, number: int, warm_up: bool) -> Outcome:
        test = self.case.tests[0 if warm_up else max(number - 1, 0)]
        message = {"do": "run_test", "problem": str(self.problem.path), "test": test}
        left = None if self.limit_s is None else max(self._left_s(), 0.001)
        outcome = self.runner.request(message, left)
        if outcome.status == "timeout":
            made = f"{max(number - 1, 0)} of {len(self.case.tests)} tests were made"
            return Outcome("timeout", f"over the time limit of {self.limit_s:g} s for a cell: {made}")
        return outcome

    def finish(self, outcome: Outcome) -> None:
        super().finish(outcome)
        what = ", ".join(f"{name} {value}" for name, value in self.case.facts.items())
        seconds = [sample["seconds"] for sample in self.samples.taken[1:]]
        median = f": median {np.median(seconds):.4g} s" if seconds else ""
        why = f" ({outcome.why})" if outcome.why else ""
        self.progress(f"{self.runner.setting.name}, {what}: {outcome.status}{median}{why}")

    def content(self) -> dict[str, Any]:
        return _content(self.case, self.runner, self.outcome, self.samples.taken)


def _begin(
    case: Case, runner: Runner, problem: ProblemFile | None, store: Path, progress: Callable[[str], None]
) -> Cell | dict[str, Any]:
    """Return the job of a cell, or the content of a cell that cannot be measured."""
    if problem is None:
        obstacle = Outcome("skipped", case.why_not)
    elif runner.setting.name in case.left_out:
        obstacle = Outcome("skipped", "the config times this implementation on other cells")
    elif runner.place.obstacle is not None:
        obstacle = runner.place.obstacle
    else:
        return Cell(case, runner, problem, store, progress)
    return _content(case, runner, obstacle, [])


def _content(case: Case, runner: Runner, outcome: Outcome, taken: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    setting, method = runner.setting, runner.setting.registered
    return {
        **case.facts,
        "implementation": setting.name,
        "method": method.name,
        "params": setting.all_params,
        "backend": runner.place.backend,
        "code": code_version(method, runner.place.backend),
        "random": method.random,
        "status": outcome.status,
        "why": outcome.why,
        "limit_s": setting.limits.time_s,
        "cold_s": taken[0]["seconds"] if taken else None,
        "seconds": [sample["seconds"] for sample in taken[1:]],
        "p_values": [sample["p_value"] for sample in taken[1:]],
    }
