"""Takes samples in rounds, of skeletons (`skeletons`) and of single tests (`single_tests`), and stores them at once.

First comes the cold run of every setting, then every setting's first repeat, and so on, so that a machine that slows
down for a while slows all of them. Only one worker runs at any moment. Workers start and load the problem concurrently
before the first run, because this takes time mostly for imports and is no part of a sample.

A measurement that was killed resumes from its samples, and one with an additional setting measures only that one.
Beside the samples, ``origin.json`` names what they belong to: the problem, the setting, the code
(`digest.code_version`), the machine and its software. If any of these changes, new samples are taken.

A cluster's scheduler may end a whole job, which is then started again as the next attempt. If the job ended in
`LOST_ATTEMPTS` attempts while the same setting ran, that setting is not run any more: its status is ``killed``.
"""

import abc
import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.core.files import read_json, save_json
from gpupc_impl.measurement.bench import Place, ProblemFile, Runner, Setting
from gpupc_impl.measurement.digest import code_version
from gpupc_impl.measurement.environment import scheduler_job
from gpupc_impl.measurement.isolate import Outcome, Worker
from gpupc_impl.measurement.record import Limits

LOST_ATTEMPTS = 2  # the attempts that a setting may cost; one may have been lost because of a failing node

MACHINE_FACTS = ("node", "platform", "cpu", "cores", "threads", "python", "packages", "blas", "device")
"""The facts of the environment on which samples depend, as far as they are known."""


def sample_origin(setting: Setting, place: Place, fingerprint: str) -> dict[str, Any]:
    """Return what samples belong to: the problem's fingerprint, the setting, its code, the machine and its software."""
    gpu = place.environment["gpu"]
    return {
        "problem": fingerprint,
        "method": setting.method,
        "params": setting.all_params,
        "separating_sets": setting.separating_sets,
        "backend": place.backend,
        "device_memory_limit": setting.limits.device_memory_bytes,
        "code": code_version(setting.registered, place.backend),
        "environment": {name: place.environment[name] for name in MACHINE_FACTS if name in place.environment},
        "driver": gpu and gpu["driver"],
    }


class Samples:
    """The samples of one setting on one problem, in a folder of the store whose name is the digest of their origin.

    Attributes:
        taken: the samples of the cold run and of the repeats, in the order in which they were taken.
        reused: the number of these that an earlier measurement stored.
    """

    def __init__(self, store: Path, origin: Mapping[str, Any], limits: Limits, attempt: int = 1):
        self.taken: list[dict[str, Any]] = []
        self.reused = 0
        self.limits = dataclasses.asdict(limits)
        self.folder = store / _digest(origin)[:32]
        for unfinished in self.folder.glob(".*"):
            unfinished.unlink()
        save_json(origin, self.folder / "origin.json")
        # The next attempt may run on another node, whose samples have another origin.
        machine = {name: fact for name, fact in origin.get("environment", {}).items() if name != "node"}
        self._lost = store / f"lost-{_digest({**origin, 'environment': machine})[:32]}.txt"
        if attempt == 1:
            self._lost.unlink(missing_ok=True)

    def begin(self) -> None:
        """Note the job in which a run has begun. If the job ends in this run, the note remains for later attempts."""
        with self._lost.open("a", encoding="utf-8") as file:
            file.write(f"{scheduler_job() or 'a job'}\n")

    def ended(self, outcome: Outcome) -> None:
        """Delete the notes, unless a signal ended the run. Then the whole job may end as well, since Slurm ends a job
        one of whose processes exhausted the job's memory."""
        if outcome.status != "killed":
            self._lost.unlink(missing_ok=True)

    def take_over(self, accept: Callable[[Mapping[str, Any]], bool]) -> None:
        """Reuse the stored samples in order, up to the first one that is missing, damaged or not accepted."""
        while (sample := self._stored(f"sample-{len(self.taken)}.json")) is not None and accept(sample):
            self.taken.append(sample)
        self.reused = len(self.taken)

    def add(self, sample: dict[str, Any]) -> None:
        self._store(sample, f"sample-{len(self.taken)}.json")
        self.taken.append(sample)

    def keep_failure(self, outcome: Outcome) -> None:
        """Store a failure that would happen again: an exceeded limit. Others are tried again."""
        if outcome.status in ("timeout", "oom", "refused"):
            failure = {"status": outcome.status, "why": outcome.why, "limits": self.limits, "sample": len(self.taken)}
            self._store(failure, "failure.json")

    def failure_before(self) -> Outcome | None:
        """Return the failure of this run in an earlier measurement under the same limits: a timeout, exhausted memory,
        or the lost jobs of earlier attempts."""
        lost = self._lost.read_text(encoding="utf-8").splitlines() if self._lost.is_file() else []
        if len(lost) >= LOST_ATTEMPTS:
            why = f"the job that measured it was ended in {len(lost)} attempts while it ran, the last time {lost[-1]}"
            return Outcome("killed", f"{why}; the scheduler's records say why")
        failure = self._stored("failure.json")
        if failure is None or (failure.get("limits"), failure.get("sample")) != (self.limits, len(self.taken)):
            return None
        return Outcome(failure["status"], failure["why"])

    def _store(self, content: Mapping[str, Any], name: str) -> None:
        save_json({"content": content, "sha256": _digest(content)}, self.folder / name)

    def _stored(self, name: str) -> dict[str, Any] | None:
        """Return the content of a stored file; None if the file is missing or damaged."""
        try:
            stored = read_json(self.folder / name)
            content: dict[str, Any] = stored["content"]
            undamaged = stored["sha256"] == _digest(content)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return content if undamaged else None


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Job(abc.ABC):
    """Takes all samples of one setting on one problem. The final `outcome` is set when the job is `done`."""

    outcome: Outcome

    def __init__(self, runner: Runner, problem: ProblemFile, store: Path, **origin: Any):
        origin |= sample_origin(runner.setting, runner.place, problem.facts["fingerprint"])
        self.runner, self.problem = runner, problem
        self.samples = Samples(store, origin, runner.setting.limits, runner.bench.attempt)
        self.done = False
        self._warm: Worker | None = None  # the process of the job's last run

    @property
    @abc.abstractmethod
    def n_samples(self) -> int:
        """Return the number of samples to take, the cold one included."""

    @abc.abstractmethod
    def run(self, number: int, warm_up: bool) -> Outcome:
        """Run once to take the sample of this number, which is the outcome's value, or to warm up the process."""

    def keep_answer(self) -> Outcome:
        """Handle the cold run's outcome before its sample is kept."""
        return Outcome("ok")

    def objection(self) -> str | None:
        """Return why the samples are invalid, as a sentence; None if they are valid."""
        return None

    @property
    def needs_process(self) -> bool:
        """Whether the job's next step is a run."""
        return not self.done and len(self.samples.taken) < self.n_samples and self.samples.failure_before() is None

    def step(self) -> None:
        """Take one more sample if one is missing; the job is done after the last one."""
        if len(self.samples.taken) < self.n_samples:
            outcome = self.samples.failure_before()
            if outcome is None:
                self.samples.begin()
                outcome = self._take()
                self.samples.ended(outcome)
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
        elif len(self.samples.taken) >= self.n_samples:
            self.finish(Outcome("ok"))

    def finish(self, outcome: Outcome) -> None:
        """Finish the job; called once, when it is done."""
        self.done, self.outcome = True, outcome

    def _take(self) -> Outcome:
        """Take the next sample, which is the outcome's value."""
        number = len(self.samples.taken)
        ready = self.runner.open(self.problem)
        worker = self.runner.start()
        if ready.ok and number > 0 and worker is not self._warm:
            ready = self.run(number, warm_up=True)
        if not ready.ok:
            return ready
        self._warm = worker
        outcome = self.run(number, warm_up=False)
        if not outcome.ok:
            self.samples.keep_failure(outcome)
        elif number == 0 and not (kept := self.keep_answer()).ok:
            return kept
        return outcome


def take_turns(jobs: Sequence[Job]) -> None:
    """Open the problems of all jobs concurrently, then step through the jobs in rounds until all are done."""
    starting = [job for job in jobs if job.needs_process]
    for job in starting:
        job.runner.begin(job.problem)
    for job in starting:
        if not (opened := job.runner.open(job.problem)).ok:
            job.finish(opened)
    while waiting := [job for job in jobs if not job.done]:
        for job in waiting:
            job.step()
