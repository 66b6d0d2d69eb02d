"""Takes samples, both of skeletons (`skeletons`) and of single tests (`single_tests`).

Samples are taken in rounds: first the cold run of every setting, then every setting's first repeat, and so on, so that
a machine that slows down for a while slows all of them. Only one worker runs at any moment; the others wait for a
message. Workers start and load the problem concurrently before the first run, because this takes time mostly for
imports and is no part of a sample.
"""

import abc
from collections.abc import Sequence
from typing import ClassVar

from gpupc_impl.measurement.bench import Runner
from gpupc_impl.measurement.isolate import Outcome, Worker
from gpupc_impl.measurement.problem_file import ProblemFile
from gpupc_impl.measurement.samples import Samples


class Job(abc.ABC):
    """Takes all samples of one setting on one problem.

    Attributes:
        single_tests: whether single tests are sampled instead of searches.
        outcome: the final outcome, which is set when the job is `done`.
    """

    single_tests: ClassVar[bool] = False
    outcome: Outcome

    def __init__(self, runner: Runner, problem: ProblemFile, samples: Samples):
        self.runner, self.problem, self.samples = runner, problem, samples
        self.done = False
        self._warm: Worker | None = None  # the process of the job's last run

    @property
    @abc.abstractmethod
    def n_samples(self) -> int:
        """Return the number of samples to take, the cold one included."""

    @abc.abstractmethod
    def run(self, number: int, warm_up: bool) -> Outcome:
        """Run once to take the sample of this number, which is the outcome's value, or to warm up the process."""

    @abc.abstractmethod
    def end(self, outcome: Outcome) -> None:
        """Finish the job; called once, when it is done."""

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

    def open(self) -> None:
        """Open the problem in the process; the job is done if that fails."""
        outcome = self.runner.open(self.problem, self.single_tests)
        if not outcome.ok:
            self.finish(outcome)

    def step(self) -> None:
        """Take one more sample if one is missing; the job is done after the last one."""
        if len(self.samples.taken) < self.n_samples:
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
        elif len(self.samples.taken) >= self.n_samples:
            self.finish(Outcome("ok"))

    def finish(self, outcome: Outcome) -> None:
        self.done, self.outcome = True, outcome
        self.end(outcome)

    def _take(self) -> Outcome:
        """Take the next sample, which is the outcome's value."""
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
    """Open the problems of all jobs concurrently, then step through the jobs in rounds until all are done."""
    starting = [job for job in jobs if job.needs_process]
    for job in starting:
        job.runner.begin(job.problem, job.single_tests)
    for job in starting:
        job.open()
    while waiting := [job for job in jobs if not job.done]:
        for job in waiting:
            job.step()
