"""Stores samples as soon as they are taken.

A measurement that was killed resumes from its samples, and one with an additional setting measures only that one.
Beside the samples, ``origin.json`` names what they belong to: the problem, the setting, the code
(`digest.code_version`), the machine and its software. If any of these changes, new samples are taken.

A cluster's scheduler may end a whole job: at the job's time limit, when its memory is exhausted, or with its node. The
job is then started again, as the next attempt, and resumes from the samples. If the job ended in `LOST_ATTEMPTS`
attempts while the same setting ran, that setting is not run any more: its status is ``killed``, and the other settings
are measured.
"""

import contextlib
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpupc_impl.core.files import read_json, save_json
from gpupc_impl.measurement.bench import Place, Setting
from gpupc_impl.measurement.digest import code_version
from gpupc_impl.measurement.environment import scheduler_job
from gpupc_impl.measurement.isolate import Outcome
from gpupc_impl.measurement.record import Limits

LOST_ATTEMPTS = 2
"""The upper bound on the attempts that a setting may cost. One attempt may have been lost for a reason other than the
setting, such as a failing node."""

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
    """The samples of one setting on one problem, in a folder whose name is the digest of their origin.

    Args:
        store: the folder of all samples.
        origin: what these samples belong to, as JSON can represent it.
        limits: the limits under which samples are taken.
        fresh: whether to delete stored samples.
        attempt: see `Bench`; the first attempt deletes the notes about runs in which earlier jobs ended.

    Attributes:
        taken: the samples of the cold run and of the repeats, in the order in which they were taken.
        reused: the number of these that an earlier measurement stored.
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
        # The next attempt may run on another node, whose samples have another origin.
        machine = {name: fact for name, fact in origin.get("environment", {}).items() if name != "node"}
        self._attempt, self._runs = attempt, store / f"runs-{_digest({**origin, 'environment': machine})[:32]}"
        if attempt == 1:
            shutil.rmtree(self._runs, ignore_errors=True)

    def begin(self) -> None:
        """Write a note that a run has begun. If the job ends in this run, the note remains for later attempts."""
        self._runs.mkdir(exist_ok=True)
        self._note(self._attempt).write_text(scheduler_job() or "a job", encoding="utf-8")

    def ended(self, outcome: Outcome) -> None:
        """Delete the note, unless a signal ended the run. Then the whole job may end as well, since Slurm ends a job
        one of whose processes exhausted the job's memory."""
        if outcome.status != "killed":
            self._note(self._attempt).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # The folder contains notes of other attempts.
                self._runs.rmdir()

    def _note(self, attempt: int) -> Path:
        return self._runs / str(attempt)

    def take_over(self, accept: Callable[[Mapping[str, Any]], bool]) -> None:
        """Reuse the stored samples in order, up to the first one that is missing, damaged or not accepted."""
        while (sample := self._stored(f"sample-{len(self.taken)}.json")) is not None and accept(sample):
            self.taken.append(sample)
        self.reused = len(self.taken)

    def add(self, sample: dict[str, Any]) -> None:
        self._store(sample, f"sample-{len(self.taken)}.json")
        self.taken.append(sample)

    def keep_failure(self, outcome: Outcome) -> None:
        """Store a failure that would happen again, namely an exceeded limit. After other failures the run is tried
        again."""
        if outcome.status in ("timeout", "oom"):
            failure = {"status": outcome.status, "why": outcome.why, "limits": self.limits, "sample": len(self.taken)}
            self._store(failure, "failure.json")

    def failure_before(self) -> Outcome | None:
        """Return the failure of this run in an earlier measurement under the same limits: a timeout, exhausted memory,
        or the lost jobs of earlier attempts."""
        notes = [note for note in map(self._note, range(1, self._attempt)) if note.is_file()]
        if len(notes) >= LOST_ATTEMPTS:
            last = notes[-1].read_text(encoding="utf-8")
            why = f"the job that measured it was ended in {len(notes)} attempts while it ran, the last time {last}"
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
