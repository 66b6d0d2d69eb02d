"""Taking samples: what skeleton runs (`skeletons`) and single tests (`single_tests`) share.

Every setting has a worker process of its own (`isolate`, `worker`), started again when it was killed. Samples are taken
in rounds: first the cold run of every setting, then every setting's first repeat, and so on, so that a machine that
slows down for a while slows all of them. One worker runs at any moment; the others wait at their pipes. They start
and load the problem together, before the first run: that is mostly imports, and no part of a sample.

Samples are kept in a store as soon as they are taken. A measurement that was killed goes on where it was, and one that
gets another setting measures that one only. What stored samples belong to stands beside them in ``origin.json``: the
problem, the setting, the code (`digest.code_version`), the machine and its software. A change in any of these asks for
new samples.

A scheduler of a cluster may end a whole job: at its time limit, out of memory, with its node. The job is then tried
again, as the next attempt, and goes on with the samples. A setting during whose runs the job ended in `LOST_ATTEMPTS`
attempts is not run any more: it is ``killed``, and costs the others nothing.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, ClassVar, TextIO

from gpupc_impl.backends import BACKENDS
from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core.files import save_json
from gpupc_impl.core.registry import SEPARATING_SETS, Method, get_method
from gpupc_impl.measurement.digest import code_version
from gpupc_impl.measurement.environment import environment, scheduler_job
from gpupc_impl.measurement.isolate import Outcome, Worker
from gpupc_impl.measurement.problem_file import ProblemFile
from gpupc_impl.measurement.record import Limits

START_LIMIT_S = 600
"""Seconds that starting a worker, loading the problem or saving the skeleton may take; not part of any sample."""

LOST_ATTEMPTS = 2
"""Attempts that a setting may cost; the first may have ended for another reason, such as a node that went down."""

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
    "GPUPC_HOST_THREADS",
)

OF_THE_MACHINE = ("node", "platform", "cpu", "cores", "threads", "python", "packages", "blas", "device")
"""The facts of the environment that samples depend on, as far as they are known."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """A method with its parameters, under a name of its own.

    Attributes:
        name: names its files; letters, digits and ``._=+-``, starting with a letter or digit.
        method: a registered method.
        params: its parameters; the defaults of the others are filled in.
        separating_sets: ``"canonical"`` or ``"first-come"``.
        limits: of each run's time and memory.
    """

    name: str
    method: str
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    separating_sets: str = "canonical"
    limits: Limits = dataclasses.field(default_factory=Limits)

    def check(self) -> None:
        """Raise for a setting that makes no sense.

        Raises:
            ValueError: the name or the separating sets, an unknown method (`UnknownMethod`) or parameter
                (`InvalidParameter`).
        """
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._=+-]*", self.name):
            raise ValueError(f"setting {self.name!r} cannot name a file: use letters, digits and ._=+-")
        if self.separating_sets not in SEPARATING_SETS:
            raise ValueError(
                f"setting {self.name!r}: separating_sets is {self.separating_sets!r}; choose one of: "
                f"{', '.join(SEPARATING_SETS)}"
            )
        _ = self.all_params

    @functools.cached_property
    def registered(self) -> Method:
        return get_method(self.method)

    @functools.cached_property
    def all_params(self) -> dict[str, Any]:
        """The defaults of parameters that are not given included."""
        return self.registered.parse_params(self.params)

    @property
    def canonical(self) -> bool:
        """Whether its separating sets are the canonical ones."""
        return self.registered.canonical and self.separating_sets == "canonical"

    @property
    def has_kernels(self) -> bool:
        return self.registered.backends != ("cpu",)


def check_settings(settings: Sequence[Setting]) -> None:
    """Raise for settings that make no sense, and for two of one name.

    Raises:
        ValueError: see `Setting.check`.
    """
    for setting in settings:
        setting.check()
    names = [setting.name for setting in settings]
    if len(set(names)) != len(names):
        raise ValueError(f"settings must have different names; got {', '.join(names)}")


@dataclasses.dataclass(frozen=True)
class Place:
    """What was found out about a setting on this machine.

    Attributes:
        backend: ``"cuda"``, ``"host"`` or ``"cpu"``.
        environment: see `measurement.environment`.
        obstacle: why it cannot be measured, as the outcome of its measurement; None when it can.
    """

    backend: str
    environment: Mapping[str, Any]
    obstacle: Outcome | None


class Bench:
    """Where settings are measured: the backend for kernels, the CPU threads of a worker and the log of its output.

    What can run here is found out once: plans that share a bench share the answer.

    Args:
        backend: ``"auto"``, ``"cuda"`` or ``"host"``, for the methods made of kernels.
        threads: CPU threads of a worker (OpenMP, BLAS, numba, host backend; its cores as well, where fewer than there
            are); None for all available cores.
        log: where the workers' output goes, a prefix before each line; None for stderr.
        attempt: which one this is to measure the same, from 1 upward; see above.

    Raises:
        ValueError: the machine has not that many threads to give.
    """

    def __init__(self, backend: str, threads: int | None = None, log: TextIO | None = None, attempt: int = 1):
        self.backend, self.log, self.attempt = backend, log or sys.stderr, attempt
        self.cores = available_cores()
        self.threads = self.cores if threads is None else threads
        if not 1 <= self.threads <= self.cores:
            raise ValueError(f"threads is {self.threads}; this machine has 1 to {self.cores} to give")
        self._probed: dict[tuple[bool, tuple[str, ...]], Outcome] = {}

    def start_worker(self, name: str, memory_limit_bytes: int | None = None) -> Worker:
        """A worker that imports what we import, with its threads pinned."""
        variables = {
            **dict.fromkeys(THREAD_VARIABLES, str(self.threads)),
            "PYTHONPATH": os.pathsep.join(os.path.abspath(folder) for folder in sys.path),
            "PYTHONUNBUFFERED": "1",
        }
        return Worker(
            [sys.executable, "-X", "faulthandler", "-m", "gpupc_impl.measurement.worker", str(self.threads)],
            env={**os.environ, **variables},
            memory_limit_bytes=memory_limit_bytes,
            log=self.log,
            prefix=f"[{name}] ",
        )

    def places(self, settings: Iterable[Setting], refused: Mapping[str, str] | None = None) -> dict[str, Place]:
        """Find out, in processes of their own, what can be measured here: places by the settings' names.

        Args:
            refused: why some methods are out of the question, by name; nothing is asked about them.
        """
        refused = refused or {}
        groups: dict[bool, list[Setting]] = {}
        for setting in settings:
            groups.setdefault(setting.has_kernels, []).append(setting)
        asked = {kernels: {each.method for each in group} - refused.keys() for kernels, group in groups.items()}
        outcomes = self._probe(asked)
        found = {}
        for kernels, group in groups.items():
            outcome = outcomes[kernels]
            answer = outcome.value or {
                "backend": self.backend if self.backend in BACKENDS else "host",
                "environment": environment(self.cores, self.threads),
                "unavailable": {},
            }
            for setting in group:
                obstacle = None
                if why := refused.get(setting.method) or answer["unavailable"].get(setting.method):
                    obstacle = Outcome("skipped", why)
                elif not outcome.ok:
                    why = f"finding out what can run here failed: {outcome.why}"
                    obstacle = Outcome(outcome.status, why)
                backend = answer["backend"] if kernels else "cpu"
                found[setting.name] = Place(backend, answer["environment"], obstacle)
        return found

    def _probe(self, methods: Mapping[bool, Set[str]]) -> dict[bool, Outcome]:
        """What `worker.probe` says of methods with kernels (True), and of references; the two are asked at once."""
        asked = {kernels: (kernels, tuple(sorted(names))) for kernels, names in methods.items()}
        with contextlib.ExitStack() as stack:
            waiting = {}
            for question in asked.values():
                if question not in self._probed:
                    kernels, names = question
                    worker = stack.enter_context(self.start_worker("probe"))
                    message = {
                        "do": "probe",
                        "backend": self.backend if kernels else None,
                        "cores": self.cores,
                        "threads": self.threads,
                        "methods": names,
                    }
                    waiting[question] = worker, worker.send(message)
            for question, (worker, token) in waiting.items():
                self._probed[question] = worker.wait(token, START_LIMIT_S)
        return {kernels: self._probed[question] for kernels, question in asked.items()}


class Runner:
    """A setting's process: started when it is needed, and again when it was killed."""

    def __init__(self, bench: Bench, setting: Setting, place: Place):
        self.bench, self.setting, self.place = bench, setting, place
        self.memory_peak: int | None = None
        """Largest resident memory of the process and its descendants seen so far, in bytes."""
        self._worker: Worker | None = None
        self._open: set[Path] = set()
        self._asked: tuple[Path, str] | None = None  # which problem it was asked to open, and the token of the request

    def start(self) -> Worker:
        """The process, started if there is none."""
        worker = self._worker
        if worker is None or not worker.alive:
            self.close()
            worker = self._worker = self.bench.start_worker(self.setting.name, self.setting.limits.memory_bytes)
        return worker

    def begin(self, problem: ProblemFile, single_test: bool) -> None:
        """Start the process and ask it to get ready for a problem: `open` waits for that. One problem at a time."""
        if self._asked is None and not (self._alive and problem.path in self._open):
            self._asked = problem.path, self.start().send(self._opening(problem, single_test))

    def open(self, problem: ProblemFile, single_test: bool) -> Outcome:
        """Make the process ready for a problem; it may have several open."""
        if self._alive and problem.path in self._open:
            return Outcome("ok")
        self.begin(problem, single_test)
        assert self._worker is not None
        assert self._asked is not None
        (path, token), self._asked = self._asked, None
        assert path == problem.path, "problems are opened in the order in which they were asked for"
        outcome = self._noted(self._worker.wait(token, START_LIMIT_S))
        if outcome.ok:
            self._open.add(path)
        return outcome

    def _opening(self, problem: ProblemFile, single_test: bool) -> dict[str, Any]:
        """The request to get ready for a problem."""
        return {
            "do": "open",
            "problem": str(problem.path),
            "fingerprint": problem.fingerprint,
            "method": self.setting.method,
            "backend": self.place.backend,
            "params": self.setting.all_params,
            "separating_sets": self.setting.separating_sets,
            "device_memory_limit": self.setting.limits.device_memory_bytes,
            "single_test": single_test,
        }

    def request(self, message: Mapping[str, Any], time_limit_s: float | None) -> Outcome:
        return self._noted(self.start().request(message, time_limit_s))

    def _noted(self, outcome: Outcome) -> Outcome:
        """The outcome, with the memory that was seen meanwhile taken down."""
        assert self._worker is not None
        self.memory_peak = max(self._worker.memory_peak, self.memory_peak or 0)
        return outcome

    def forget(self) -> None:
        """Close the problems that are open, so that memory is free for others."""
        if self._open and self._alive:
            self.request({"do": "forget"}, START_LIMIT_S)
        self._open.clear()

    def close(self) -> None:
        """End the process, if there is one."""
        self._open.clear()
        self._asked = None
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    @property
    def _alive(self) -> bool:
        return self._worker is not None and self._worker.alive


def sample_origin(setting: Setting, place: Place, fingerprint: str) -> dict[str, Any]:
    """What samples belong to: a problem, by its fingerprint, the setting, its code, the machine and its software."""
    gpu = place.environment["gpu"]
    return {
        "problem": fingerprint,
        "method": setting.method,
        "params": setting.all_params,
        "separating_sets": setting.separating_sets,
        "backend": place.backend,
        "device_memory_limit": setting.limits.device_memory_bytes,
        "code": code_version(setting.registered, place.backend),
        "environment": {name: place.environment[name] for name in OF_THE_MACHINE if name in place.environment},
        "driver": gpu and gpu["driver"],
    }


class Samples:
    """The samples of one setting on one problem, in a folder that is named by what they belong to.

    Args:
        store: where the folders of all samples are.
        origin: what these belong to; anything that JSON can hold.
        limits: under which they are taken.
        fresh: drop what is stored.
        attempt: see `Bench`; the first forgets what runs the attempts of earlier calls lost.

    Attributes:
        taken: the cold run's and the repeats', in the order they were taken.
        reused: how many of them were stored.
    """

    def __init__(self, store: Path, origin: Mapping[str, Any], limits: Limits, fresh: bool = False, attempt: int = 1):
        self.taken: list[dict[str, Any]] = []
        self.reused = 0
        self.limits = dataclasses.asdict(limits)
        self.folder = store / _digest(origin)[:32]
        if fresh:
            shutil.rmtree(self.folder, ignore_errors=True)
        for unfinished in self.folder.glob(".*"):
            unfinished.unlink()
        save_json(origin, self.folder / "origin.json")
        # The next attempt may be on another node of the cluster, where samples are others.
        machine = {name: fact for name, fact in origin.get("environment", {}).items() if name != "node"}
        self._attempt, self._runs = attempt, store / f"runs-{_digest({**origin, 'environment': machine})[:32]}"
        if attempt == 1:
            shutil.rmtree(self._runs, ignore_errors=True)

    def begin(self) -> None:
        """Note that a run begins; where `ended` is never called, the note says so to later attempts."""
        self._runs.mkdir(exist_ok=True)
        self._note(self._attempt).write_text(scheduler_job() or "a job", encoding="utf-8")

    def ended(self, outcome: Outcome) -> None:
        """Take the note back, unless what ended the run may end the job as well: Slurm does not forgive a process that
        ran out of the job's memory."""
        if outcome.status != "killed":
            self._note(self._attempt).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # there are those of other attempts
                self._runs.rmdir()

    def _note(self, attempt: int) -> Path:
        return self._runs / str(attempt)

    def take_over(self, accept: Callable[[Mapping[str, Any]], bool]) -> None:
        """Take the stored samples in order, up to the first that is missing, damaged or not accepted."""
        while (sample := self._stored(f"sample-{len(self.taken)}.json")) is not None and accept(sample):
            self.taken.append(sample)
        self.reused = len(self.taken)

    def add(self, sample: dict[str, Any]) -> None:
        self._store(sample, f"sample-{len(self.taken)}.json")
        self.taken.append(sample)

    def keep_failure(self, outcome: Outcome) -> None:
        """Keep a failure that would happen again: a limit that was hit. Other failures are tried again."""
        if outcome.status in ("timeout", "oom"):
            failure = {"status": outcome.status, "why": outcome.why, "limits": self.limits, "sample": len(self.taken)}
            self._store(failure, "failure.json")

    def failure_before(self) -> Outcome | None:
        """The timeout or exhausted memory that an earlier measurement met here under the same limits, or the end of the
        jobs of earlier attempts."""
        lost = [note for note in map(self._note, range(1, self._attempt)) if note.is_file()]
        if len(lost) >= LOST_ATTEMPTS:
            last = lost[-1].read_text(encoding="utf-8")
            why = f"the job that measured it was ended in {len(lost)} attempts while it ran, the last time {last}"
            return Outcome("killed", f"{why}; the scheduler's records say why")
        failure = self._stored("failure.json")
        if failure is None or (failure.get("limits"), failure.get("sample")) != (self.limits, len(self.taken)):
            return None
        return Outcome(failure["status"], failure["why"])

    def _store(self, content: Mapping[str, Any], name: str) -> None:
        save_json({"content": content, "sha256": _digest(content)}, self.folder / name)

    def _stored(self, name: str) -> dict[str, Any] | None:
        """The content of a stored file; None when there is none, or it is damaged."""
        try:
            stored = json.loads((self.folder / name).read_text())
            content: dict[str, Any] = stored["content"]
            whole = stored["sha256"] == _digest(content)
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return content if whole else None


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Job(abc.ABC):
    """Takes all samples of one setting on one problem.

    Attributes:
        single_tests: whether single tests are sampled, not searches.
        outcome: how it ended; there when it is `done`.
    """

    single_tests: ClassVar[bool] = False
    outcome: Outcome

    def __init__(self, runner: Runner, problem: ProblemFile, samples: Samples):
        self.runner, self.problem, self.samples = runner, problem, samples
        self.done = False
        self._warm: Worker | None = None  # the process that ran it last

    @property
    @abc.abstractmethod
    def wanted(self) -> int:
        """How many samples are wanted, the cold one included."""

    @abc.abstractmethod
    def run(self, number: int, warm_up: bool) -> Outcome:
        """Make the run of that sample, which is the outcome's value; or one before it to warm up, which is not kept."""

    @abc.abstractmethod
    def end(self, outcome: Outcome) -> None:
        """Called once, when there is nothing left to do."""

    def keep_answer(self) -> Outcome:
        """Called after the cold run, before its sample is kept."""
        return Outcome("ok")

    def objection(self) -> str | None:
        """What is wrong with the samples, as a sentence."""
        return None

    @property
    def needs_process(self) -> bool:
        """Whether its next step is a run."""
        return not self.done and len(self.samples.taken) < self.wanted and self.samples.failure_before() is None

    def open(self) -> None:
        """Make the process ready for the problem; end when that fails."""
        outcome = self.runner.open(self.problem, self.single_tests)
        if not outcome.ok:
            self.finish(outcome)

    def step(self) -> None:
        """Take one more sample, if one is missing; end when it was the last."""
        if len(self.samples.taken) < self.wanted:
            outcome = self.samples.failure_before()
            if outcome is None:
                self.samples.begin()
                outcome = self._take()
                self.samples.ended(outcome)
                if (changed := self.problem.put_back()) is not None:
                    outcome = Outcome("error", changed)
                if outcome.ok:
                    self.samples.add(outcome.value)
            else:
                self.samples.reused += 1
            if not outcome.ok:
                self.finish(outcome)
                return
        objection = self.objection()
        if objection is not None:
            self.finish(Outcome("error", objection))
        elif len(self.samples.taken) >= self.wanted:
            self.finish(Outcome("ok"))

    def finish(self, outcome: Outcome) -> None:
        self.done, self.outcome = True, outcome
        self.end(outcome)

    def _take(self) -> Outcome:
        """The next sample, as the outcome's value."""
        number = len(self.samples.taken)
        ready = self.runner.open(self.problem, self.single_tests)
        worker = self.runner.start()
        if ready.ok and number > 0 and worker is not self._warm:
            ready = self.run(number, warm_up=True)
        if not ready.ok:
            return ready
        self._warm = worker
        outcome = self.run(number, warm_up=False)
        if not outcome.ok:
            self.samples.keep_failure(outcome)
            return outcome
        kept = self.keep_answer() if number == 0 else outcome
        return outcome if kept.ok else kept


def take_turns(jobs: Sequence[Job]) -> None:
    """Make a step of each job, round after round, until all are done; before, their processes get ready together."""
    starting = [job for job in jobs if job.needs_process]
    for job in starting:
        job.runner.begin(job.problem, job.single_tests)
    for job in starting:
        job.open()
    while waiting := [job for job in jobs if not job.done]:
        for job in waiting:
            job.step()


@contextlib.contextmanager
def closing(runners: Iterable[Runner]) -> Iterator[None]:
    """Ends the runners' processes at the end of the block."""
    with contextlib.ExitStack() as stack:
        for runner in runners:
            stack.callback(runner.close)
        yield
