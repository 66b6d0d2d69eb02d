"""Measures settings side by side on one problem; each setting leaves a record and its skeleton.

``python -m gpupc_impl.measurement PROBLEM.npz --method cupc-s --method stable-serial`` prints a small table.
"""

import contextlib
import dataclasses
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.backends import resolve_backend
from gpupc_impl.core.family import load_problem
from gpupc_impl.core.files import write_whole
from gpupc_impl.core.solve import unavailable
from gpupc_impl.measurement.bench import Bench, Place, ProblemFile, Runner, Setting, check_settings
from gpupc_impl.measurement.digest import code_version
from gpupc_impl.measurement.environment import environment
from gpupc_impl.measurement.isolate import Outcome
from gpupc_impl.measurement.record import Peaks, Record, Result, Times
from gpupc_impl.measurement.samples import Job, take_turns


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasurementRequest:
    """The settings to measure on one problem, which take turns in their order. ValueError is raised if a number is out
    of range or a setting is invalid.

    Attributes:
        problem_path: an ``.npz`` written by a problem's ``save``; None if there is no problem.
        dataset: the facts of the data set that records repeat, at least its ``name``.
        skipped: for each setting that is not measured, a sentence with the reason; without a problem, all settings are
            skipped.
        out_dir: the folder of the records and skeletons, ``<setting>.json`` and ``<setting>.npz``.
        repeats: the number of warm samples of a setting.
        long_run_s: seconds; a setting whose runs take longer is repeated only once.
        side_by_side: the largest number of settings that take turns with each other, each of which has a copy of the
            problem in its process; None for no limit.
        store: a folder that keeps samples for later measurements.
    """

    problem_path: Path | None
    dataset: Mapping[str, Any]
    settings: Sequence[Setting]
    skipped: Mapping[str, str] = dataclasses.field(default_factory=dict)
    out_dir: Path
    store: Path
    repeats: int = 3
    long_run_s: float = 60
    side_by_side: int | None = None

    def __post_init__(self) -> None:
        for name in ("repeats", "side_by_side"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        check_settings(self.settings)
        if self.problem_path is None and (left := [s.name for s in self.settings if s.name not in self.skipped]):
            raise ValueError(f"there is no problem to measure {', '.join(left)} on")


def measure_side_by_side(
    request: MeasurementRequest, bench: Bench, *, progress: Callable[[str], None]
) -> dict[str, Record]:
    """Measure the settings of a request; returns their records by name. `progress` is called with a line for each
    finished stage of a setting: ``cold``, ``warm-up`` if it was resumed, ``repeat 2 of 5`` and so on, and ``done``.

    Each leaves a record and, if the status is ok, its skeleton. A method that fails leaves a record that says why, and
    the others are measured all the same.
    """
    if request.problem_path is None:
        return {setting.name: _skip(request, setting, None, bench) for setting in request.settings}
    problem = load_problem(request.problem_path)
    facts = problem.facts()
    chosen = [setting for setting in request.settings if setting.name not in request.skipped]
    misfits = [setting.registered for setting in chosen if setting.registered.family != problem.family]
    refusals = {method.name: str(unavailable(method, problem=problem)) for method in misfits}
    skipped = [setting for setting in request.settings if setting.name in request.skipped]
    records = {setting.name: _skip(request, setting, facts, bench) for setting in skipped}
    with bench.open(), contextlib.ExitStack() as stack:
        places = bench.places(chosen, refusals)
        runners = [stack.enter_context(contextlib.closing(Runner(bench, each, places[each.name]))) for each in chosen]
        problem_file = ProblemFile(request.problem_path, facts)
        del problem  # The workers have copies of their own.
        jobs = [SkeletonJob(runner, problem_file, request, progress) for runner in runners]
        group = request.side_by_side or max(len(jobs), 1)
        for start in range(0, len(jobs), group):
            take_turns(jobs[start : start + group])
    records |= {job.runner.setting.name: job.record for job in jobs}
    return {setting.name: records[setting.name] for setting in request.settings}


def _skip(request: MeasurementRequest, setting: Setting, facts: Mapping[str, Any] | None, bench: Bench) -> Record:
    """Write the record of a setting that is not measured, which tables would otherwise omit without a reason."""
    outcome = Outcome("skipped", request.skipped[setting.name])
    backend = resolve_backend(bench.backend) if setting.has_kernels else "cpu"
    place = Place(backend, environment(bench.cores, bench.threads), outcome)
    return _write(request, setting, place, facts, outcome)


def _write(
    request: MeasurementRequest,
    setting: Setting,
    place: Place,
    problem: Mapping[str, Any] | None,
    outcome: Outcome,
    answer: Path | None = None,
    **measured: Any,
) -> Record:
    """Write and return a record, whose fields that ``measured`` does not give have the values of an unmeasured setting,
    and beside it a copy of the skeleton's file `answer`; without one, that of an earlier run is removed."""
    method, skeleton = setting.registered, request.out_dir / f"{setting.name}.npz"
    record = Record(
        setting=setting.name,
        method=method.name,
        family=method.family,
        reference=method.reference,
        canonical=setting.canonical,
        random=method.random,
        backend=place.backend,
        params=setting.all_params,
        separating_sets=setting.separating_sets,
        dataset=request.dataset["name"],
        dataset_facts={name: fact for name, fact in request.dataset.items() if name != "name"},
        problem=problem,
        status=outcome.status,
        why=outcome.why,
        limits=setting.limits,
        code=code_version(method, place.backend),
        environment=place.environment,
        **measured,
    )
    if answer is None:
        skeleton.unlink(missing_ok=True)
    else:
        with write_whole(skeleton) as file, open(answer, "rb") as source:
            shutil.copyfileobj(source, file)
    record.save(skeleton.with_suffix(".json"))
    return record


class SkeletonJob(Job):
    """The job that measures one setting and writes its record."""

    record: Record

    def __init__(
        self, runner: Runner, problem: ProblemFile, request: MeasurementRequest, progress: Callable[[str], None]
    ):
        super().__init__(runner, problem, request.store)
        self.request, self.progress = request, progress
        self.skeleton_path = self.samples.folder / "skeleton.npz"
        if self.skeleton_path.exists():
            self.samples.take_over(self._within_limits)
        if runner.place.obstacle is not None:
            self.finish(runner.place.obstacle)

    def _within_limits(self, sample: Mapping[str, Any]) -> bool:
        """Return whether a stored sample is within the current limits."""
        limits = self.runner.setting.limits
        usage = ((sample["seconds"], limits.time_s), (sample["peak_process_bytes"], limits.memory_bytes))
        return all(limit is None or value <= limit for value, limit in usage)

    @property
    def n_samples(self) -> int:
        taken = self.samples.taken
        long_run = bool(taken) and min(sample["seconds"] for sample in taken) > self.request.long_run_s
        return 2 if long_run else 1 + self.request.repeats

    def run(self, number: int, warm_up: bool) -> Outcome:
        stage = "warm-up" if warm_up else "cold" if number == 0 else f"repeat {number} of {self.n_samples - 1}"
        message = {"do": "run", "problem": str(self.problem.path), "show_levels": stage == "cold"}
        outcome = self.runner.request(message, self.runner.setting.limits.time_s)
        self._tell(stage, f"{outcome.value['seconds']:.4g} s" if outcome.ok else outcome.status, outcome.why)
        return outcome

    def _tell(self, stage: str, text: str, why: str | None) -> None:
        self.progress(f"{self.runner.setting.name}: {stage}: {text}" + (f" ({why})" if why else ""))

    def keep_answer(self) -> Outcome:
        return self.runner.save(self.skeleton_path)

    def objection(self) -> str | None:
        setting = self.runner.setting
        if setting.registered.random:
            return None
        compared = {"skeletons": "skeleton_sha256"}
        if setting.canonical:
            compared["separating sets"] = "sepsets_sha256"
        first, *others = (sample["result"] for sample in self.samples.taken)
        for number, result in enumerate(others, 1):
            for what, digest in compared.items():
                if result[digest] != first[digest]:
                    both = f"the cold run ({first['edges']} edges) and of repeat {number} ({result['edges']} edges)"
                    return f"two runs gave different answers: the {what} of {both} differ"
        return None

    def finish(self, outcome: Outcome) -> None:
        """Leave the process, and write the record and, if the status is ok, the skeleton beside it."""
        super().finish(outcome)
        self.runner.close()
        samples, setting = self.samples, self.runner.setting
        if outcome.ok:
            del samples.taken[self.n_samples :]
            samples.reused = min(samples.reused, self.n_samples)
        cold, warm = samples.taken[:1], samples.taken[1:]
        process = [sample["peak_process_bytes"] for sample in samples.taken] + [self.runner.memory_peak]
        device = [sample["peak_device_bytes"] for sample in samples.taken]
        self.record = _write(
            self.request,
            setting,
            self.runner.place,
            samples.taken[-1]["problem"] if samples.taken else self.problem.facts,
            outcome,
            self.skeleton_path if outcome.ok else None,
            time_s=Times(
                cold=cold[0]["seconds"] if cold else None,
                compile=cold[0]["compile_seconds"] if cold else None,
                warm=[sample["seconds"] for sample in warm],
                levels=[sample["levels"] for sample in warm],
            ),
            result=Result(**cold[0]["result"]) if outcome.ok else None,
            peak_bytes=Peaks(_largest(process), _largest(device)),
            reused_samples=samples.reused,
        )
        reused = f"{samples.reused} stored samples reused" if samples.reused else None
        self._tell("done", outcome.status, outcome.why or reused)


def _largest(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
