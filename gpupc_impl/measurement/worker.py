"""The process in which settings are measured: `bench` starts it as ``python -m gpupc_impl.measurement.worker``.

A setting's backend (library, device context) is open before the setting's first run. This run is the cold one: it
compiles kernels or numba functions that are not cached on disk, and warms up the process for the next runs.
"""

import contextlib
import copy
import re
import resource
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpupc_impl.backends import DeviceMemoryError, open_backend, resolve_backend
from gpupc_impl.core.family import load_problem
from gpupc_impl.core.invariants import check_skeleton, excerpt, is_time
from gpupc_impl.core.pc_stable import Progress
from gpupc_impl.core.problem import InvalidProblem, Problem
from gpupc_impl.core.registry import get_method
from gpupc_impl.core.result import SeparatingSets, Skeleton
from gpupc_impl.core.solve import unavailable
from gpupc_impl.measurement.clock import OpenSetting
from gpupc_impl.measurement.environment import environment, gpu_process_list, pin_cores
from gpupc_impl.measurement.isolate import Refused, serve

REPORTED = "levels_run", "stopped_because", "edges_per_level", "tests_per_level", "undefined_tests", "pseudo_inverses"
"""Attributes of a skeleton that are reported as they are."""


class Session:
    """The open settings, and the open problems, which all settings of a process share."""

    skeleton: Skeleton | None = None

    def __init__(self) -> None:
        self.settings: dict[str, OpenSetting] = {}
        self.problems: dict[str, Problem] = {}
        self.fingerprints: dict[str, str] = {}
        self.placed: set[str] = set()
        self.valid: set[tuple[str, ...]] = set()  # setting, problem and digests of answers that were checked
        self.tests: dict[tuple[str, str], Callable[..., Any]] = {}  # by setting and problem

    def answer(self, message: dict[str, Any]) -> Any:
        """Call the method that a request names under ``do``, with the rest of the request as arguments."""
        return getattr(self, message.pop("do"))(**message)

    @staticmethod
    def probe(backend: str | None, cores: int, threads: int, methods: list[str]) -> dict[str, Any]:
        """Return what can run here: the backend's name, the environment, and for each method why it cannot run, None if
        it can. Without a backend only CPU references are probed."""
        gpu_processes = gpu_process_list()
        name = None if backend is None else resolve_backend(backend)
        reasons = {method: unavailable(get_method(method), name or "auto") for method in methods}
        opened = open_backend(name) if name is not None and None in reasons.values() else None
        return {
            "backend": name,
            "environment": environment(cores, threads, opened, gpu_processes),
            "unavailable": reasons,
        }

    def open(self, setting: str, problem: str, fingerprint: str, single_test: bool, **given: Any) -> None:
        """Open a setting of a new name, and load a problem with this fingerprint."""
        if problem not in self.problems:
            loaded = load_problem(problem)
            if loaded.fingerprint != fingerprint:
                raise InvalidProblem(f"{Path(problem).name} is not the problem that the measurement began with")
            self.problems[problem], self.fingerprints[problem] = loaded, fingerprint
        if setting not in self.settings:
            self.settings[setting] = OpenSetting.open(**given)
        if single_test:
            self.tests[setting, problem] = self.settings[setting].open_test(self.problems[problem])

    def run(self, setting: str, problem: str, show_levels: bool) -> dict[str, Any]:
        """Perform one timed run."""
        self.skeleton = None
        chosen = self.settings[setting]
        if chosen.backend is not None and problem not in self.placed:
            self.problems[problem] = chosen.place(self.problems[problem])
            self.placed.add(problem)
        reset_peak()
        try:
            timed = chosen.search(self.problems[problem], _print_level if show_levels else None)
        except DeviceMemoryError as error:
            # Without a budget of the setting, a parameter of the method may set one below the device's memory.
            backend, budget = chosen.backend, chosen.device_memory_limit
            if backend is None or (budget is None and error.limit >= backend.memory_limit):
                raise
            raise Refused(str(error)) from error
        skeleton, digests = timed.value, digests_of(timed.value)
        # Checking all sets takes longer than many searches, so those that a later run finds again are not checked.
        check_answer(skeleton, self.problems[problem], whole=(setting, problem, *digests) not in self.valid)
        self.valid.add((setting, problem, *digests))
        self._check_problem(problem)
        self.skeleton = skeleton
        return {
            # Another author's program returns its own format; the translation into ours is subtracted from the time.
            "seconds": timed.seconds - skeleton.facts.get("translation_s", 0.0),
            "compile_seconds": timed.compile_seconds,
            "levels": list(skeleton.seconds_per_level),
            # The problem as the method solved it: a reference may support only one of the problem's conventions.
            "problem": self.problems[problem].facts() | (skeleton.facts.get("problem") or {}),
            "result": {
                "edges": skeleton.n_edges,
                **{name: getattr(skeleton, name) for name in REPORTED},
                **dict(zip(("skeleton_sha256", "sepsets_sha256"), digests, strict=True)),
            },
            "peak_process_bytes": peak_process_bytes(),
            # Another author's program allocates memory by itself; 0 means that its use is unknown.
            "peak_device_bytes": None if chosen.backend is None else chosen.backend.memory_peak or None,
        }

    def run_test(self, setting: str, problem: str, test: tuple[int, int, list[int]]) -> dict[str, float]:
        """Perform one timed test (i, j, S)."""
        i, j, members = test
        timed = self.tests[setting, problem](i, j, tuple(members))
        if not 0 <= timed.value <= 1:
            raise InvalidAnswer(f"the p-value of test ({i}, {j}, {members}) is {timed.value}; it must lie in [0, 1]")
        self._check_problem(problem)
        return {"seconds": timed.seconds, "p_value": timed.value}

    def forget(self, setting: str) -> None:
        """Close a setting, and with the last one all problems, to free their memory."""
        del self.settings[setting]
        self.tests = {key: test for key, test in self.tests.items() if key[0] != setting}
        if not self.settings:
            self.problems.clear()
            self.placed.clear()

    def save(self, path: str) -> None:
        """Write the last run's skeleton."""
        assert self.skeleton is not None
        self.skeleton.save(path)

    def _check_problem(self, problem: str) -> None:
        """Raise `InvalidAnswer` if a method changed its problem. A mapped problem is read-only and cannot change."""
        now = copy.copy(self.problems[problem])
        if now.mapped_arrays:
            return
        now.__dict__.pop("fingerprint", None)  # The fingerprint is a cached property.
        if now.fingerprint != self.fingerprints[problem]:
            raise InvalidAnswer("it changed the arrays of the problem that it was given")


class InvalidAnswer(ValueError):
    """A method returned no valid skeleton of its problem; the message says why."""


def digests_of(answer: Any) -> tuple[str, str]:
    """Return the digests of an answer's edges and of its separating sets; both are empty if it is no skeleton."""
    try:
        return answer.sha256, answer.sepsets.sha256
    except Exception:  # What a method returns may raise anything.
        return "", ""


def check_answer(answer: Any, problem: Problem, whole: bool = True) -> Skeleton:
    """Return the answer after checks that it is a skeleton of this problem and, if `whole`, that the skeleton itself is
    valid, or raise InvalidAnswer. Verification checks whether it is the right one."""
    if not isinstance(answer, Skeleton):
        raise InvalidAnswer(f"it returned a {type(answer).__name__}, not a Skeleton")
    if answer.names != problem.names:
        raise InvalidAnswer("the names of its skeleton are not those of the problem's variables, in their order")
    if not isinstance(answer.sepsets, SeparatingSets):
        raise InvalidAnswer(f"sepsets is a {type(answer.sepsets).__name__}, not SeparatingSets")
    if whole:
        try:
            check_skeleton(answer)
        except ValueError as error:
            raise InvalidAnswer(str(error)) from error
    _check_facts(answer.facts, problem)
    return answer


def _check_facts(facts: Any, problem: Problem) -> None:
    """Check the facts about the problem, of which a reference may state another convention that it supports."""
    if not is_time(facts.get("translation_s", 0.0)):
        raise InvalidAnswer(f"facts['translation_s'] is {excerpt(facts['translation_s'])}; it must be seconds")
    ours, given = problem.facts(), facts.get("problem") or {}
    merged = ours | dict(given) if isinstance(given, Mapping) else {}
    fits = (
        merged.keys() == ours.keys()
        and (not given or given.keys() | {"fingerprint"} == ours.keys())
        and all(merged[name] == ours[name] for name in ("alpha", "n_variables"))
        and all(type(merged[name]) in (type(ours[name]), int, type(None)) for name in ours)
        and re.fullmatch("[0-9a-f]{64}", str(merged["fingerprint"]))
    )
    if not fits:
        raise InvalidAnswer(f"facts['problem'] is {excerpt(given)}; it must be the problem's facts()")


def reset_peak() -> None:
    """Reset the peak that `peak_process_bytes` returns, where the system supports that."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_process_bytes() -> int:
    """Return the largest resident memory of this process since `reset_peak`, in bytes."""
    # ru_maxrss starts at the size of the process that started this one, so it counts only where VmHWM is not reported.
    peaks = re.findall(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    return 1024 * (int(peaks[0]) if peaks else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _print_level(progress: Progress) -> None:
    print(
        f"level {progress.level}: {progress.edges:,} edges left, {progress.tests:,} tests, {progress.seconds:.3g} s",
        flush=True,
    )


if __name__ == "__main__":
    pin_cores(int(sys.argv[1]))
    serve(Session().answer)
