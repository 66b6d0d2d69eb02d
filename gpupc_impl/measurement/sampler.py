"""Measuring methods side by side on one problem.

Every setting has a worker process of its own (`isolate`, `worker`). Samples are taken in rounds: first the cold run of
every setting, then every setting's first repeat, and so on, so that a machine that slows down for a while slows all of
them. One worker runs at any moment; the others wait at their pipes, and end when they have all their samples.

Samples are kept in a store as soon as they are taken. A measurement that was killed goes on where it was, and one that
gets another setting measures that one only. What a stored sample belongs to is written beside it in ``key.json``: the
problem, the setting, the code (`digest.code_version`), the machine and its software. A change in any of these asks
for new samples.

``python -m gpupc_impl.measurement.sampler PROBLEM.npz --method cupc-s --method stable-serial`` prints a small table.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from gpupc_impl.backends import BACKENDS
from gpupc_impl.backends.machine import available_cores
from gpupc_impl.core.family import load_problem
from gpupc_impl.core.files import save_json, write_whole
from gpupc_impl.core.registry import SEPARATING_SETS, Method, get_method
from gpupc_impl.core.solve import unavailable
from gpupc_impl.measurement.digest import code_version
from gpupc_impl.measurement.environment import environment
from gpupc_impl.measurement.isolate import Outcome, Worker
from gpupc_impl.measurement.record import Limits, Peaks, Record, Result, Times, band

START_LIMIT_S = 600
"""Seconds that starting a worker, loading the problem or saving the skeleton may take; not part of any sample."""

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
    "GPUPC_HOST_THREADS",
)


@dataclasses.dataclass(frozen=True)
class Setting:
    """A method with its parameters, under a name of its own.

    Attributes:
        name: names its files; letters, digits and ``._=+-``, starting with a letter or digit.
        method: a registered method.
        params: its parameters; the defaults of the others are filled in.
        separating_sets: ``"canonical"`` or ``"first-come"``.
        time_limit_s, memory_limit_bytes, device_memory_limit: its own limits, where they differ from the others'.
    """

    name: str
    method: str
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    separating_sets: str = "canonical"
    time_limit_s: float | None = None
    memory_limit_bytes: int | None = None
    device_memory_limit: int | None = None


@dataclasses.dataclass(frozen=True)
class Event:
    """Something happened to a setting: what a progress line shows.

    Attributes:
        setting: its name.
        stage: ``"cold"``, ``"warm-up"`` (of a resumed measurement), ``"repeat 2 of 5"``, or ``"done"``.
        status: of this stage.
        seconds: of a sample; None where there is none.
        why: the sentence that goes with the status, if any.
    """

    setting: str
    stage: str
    status: str
    seconds: float | None = None
    why: str | None = None

    def __str__(self) -> str:
        text = self.status if self.seconds is None else f"{self.seconds:.4g} s"
        return f"{self.setting}: {self.stage}: {text}" + (f" ({self.why})" if self.why else "")


def show(event: Event) -> None:
    """Print an event to stderr."""
    print(event, file=sys.stderr, flush=True)


def measure_side_by_side(
    problem_path: str | Path,
    settings: Sequence[Setting],
    *,
    backend: str,
    dataset: Mapping[str, Any],
    out_dir: str | Path,
    time_limit_s: float | None,
    memory_limit_bytes: int | None,
    long_run_s: float,
    repeats: int = 3,
    device_memory_limit: int | None = None,
    threads: int | None = None,
    interleave: bool = True,
    store: str | Path | None = None,
    fresh: bool = False,
    log: TextIO | None = None,
    progress: Callable[[Event], None] = show,
) -> dict[str, Record]:
    """Measure all settings of one problem; ``<name>.json`` (and ``<name>.npz`` when ok) of each is in ``out_dir`` then.

    Whatever a method does, its record says so and the others are measured.

    Args:
        problem_path: an ``.npz`` written by a problem's ``save``.
        settings: what to measure; names must differ.
        backend: ``"auto"``, ``"cuda"`` or ``"host"``, for the methods made of kernels.
        dataset: the record's ``dataset``: at least its ``name``.
        out_dir: where records and skeletons go.
        time_limit_s: wall-clock seconds one run may take, the cold one included; None for no limit.
        memory_limit_bytes: resident memory a worker's process group may have; None for no limit.
        long_run_s: a setting whose runs are longer than this gets one repeat only.
        repeats: warm samples of the others.
        device_memory_limit: bytes of device memory to use at most; None for what the device has.
        threads: CPU threads of a worker (OpenMP, BLAS, numba, host backend; its cores as well, where fewer than there
            are); None for all available cores.
        interleave: False finishes a setting before the next one starts, for problems of which the machine or the GPU
            cannot hold one copy a setting.
        store: a folder that keeps samples for later measurements; None keeps none.
        fresh: drop what the store has for these settings and measure anew.
        log: where the workers' output goes, a prefix before each line; None for stderr.
        progress: called with an `Event` after each step.

    Returns:
        The records by setting name.

    Raises:
        ValueError: a setting that cannot mean anything: two of one name, an unknown method (`UnknownMethod`) or
            parameter (`InvalidParameter`). Nothing has been measured then.
        InvalidProblem: the file holds no problem of a known family.
    """
    if repeats < 1:
        raise ValueError(f"repeats is {repeats}; it must be at least 1")
    cores = available_cores()
    threads = cores if threads is None else threads
    if not 1 <= threads <= cores:
        raise ValueError(f"threads is {threads}; this machine has 1 to {cores} to give")
    problem = load_problem(problem_path)
    common = _Common(
        problem_path=Path(problem_path),
        family=problem.family,
        facts=problem.facts(),
        dataset=dict(dataset),
        out_dir=Path(out_dir),
        repeats=repeats,
        long_run_s=long_run_s,
        threads=threads,
        cores=cores,
        log=log or sys.stderr,
        progress=progress,
    )
    defaults = {
        "time_limit_s": time_limit_s,
        "memory_limit_bytes": memory_limit_bytes,
        "device_memory_limit": device_memory_limit,
    }
    jobs = [_Job(common, setting, defaults) for setting in settings]
    names = [job.setting.name for job in jobs]
    if len(set(names)) != len(names):
        raise ValueError(f"settings must have different names; got {', '.join(names)}")
    refused = {job.method.name: unavailable(job.method, problem=problem) for job in jobs if job.other_family}
    del problem  # the workers have their own copies

    with contextlib.ExitStack() as stack:
        for job in jobs:
            stack.callback(job.close)
        if store is None:
            store = stack.enter_context(tempfile.TemporaryDirectory())
        _prepare(common, jobs, backend, refused, Path(store), fresh)
        order = [(job,) for job in jobs] if not interleave else [jobs]
        for group in order:
            for _ in range(1 + repeats):
                for job in group:
                    job.step()
    return {job.setting.name: job.record for job in jobs}


@dataclasses.dataclass(frozen=True)
class _Common:
    """What all settings of a measurement share."""

    problem_path: Path
    family: str
    facts: dict[str, Any]
    dataset: dict[str, Any]
    out_dir: Path
    repeats: int
    long_run_s: float
    threads: int
    cores: int
    log: TextIO
    progress: Callable[[Event], None]

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


def _prepare(
    common: _Common, jobs: list[_Job], backend: str, refused: dict[str, str], store: Path, fresh: bool
) -> None:
    """Find out in a process of its own what can run here, and give every job its place in the store."""
    for backends in ({"cpu"}, set(BACKENDS)):
        group = [job for job in jobs if backends & set(job.method.backends)]
        if not group:
            continue
        kernels = backends != {"cpu"}
        with common.start_worker("probe") as worker:
            outcome = worker.request(
                {
                    "do": "probe",
                    "backend": backend if kernels else None,
                    "cores": common.cores,
                    "threads": common.threads,
                    "methods": [job.method.name for job in group if job.method.name not in refused],
                },
                START_LIMIT_S,
            )
        found = outcome.value or {
            "backend": backend if backend in BACKENDS else "host",
            "environment": environment(common.cores, common.threads),
            "unavailable": {},
        }
        for job in group:
            job.prepare(found["backend"] if kernels else "cpu", found["environment"], store, fresh)
            why = refused.get(job.method.name) or found["unavailable"].get(job.method.name)
            if why is not None:
                job.finish(Outcome("skipped", why))
            elif not outcome.ok:
                job.finish(Outcome(outcome.status, f"finding out what can run here failed: {outcome.why}"))


class _Job:
    """One setting on its way to a record."""

    def __init__(self, common: _Common, setting: Setting, defaults: Mapping[str, Any]):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._=+-]*", setting.name):
            raise ValueError(f"setting {setting.name!r} cannot name a file: use letters, digits and ._=+-")
        if setting.separating_sets not in SEPARATING_SETS:
            raise ValueError(
                f"setting {setting.name!r}: separating_sets is {setting.separating_sets!r}; choose one of: "
                f"{', '.join(SEPARATING_SETS)}"
            )
        own = {name: getattr(setting, name) for name in defaults}
        self.common = common
        self.setting = dataclasses.replace(
            setting, **{name: value if own[name] is None else own[name] for name, value in defaults.items()}
        )
        self.method: Method = get_method(setting.method)
        self.params = self.method.parse_params(setting.params)
        self.canonical = self.method.canonical and setting.separating_sets == "canonical"
        self.samples: list[dict[str, Any]] = []
        """The cold run and the repeats, in the order they were taken."""
        self.reused = 0
        self.group_peak: int | None = None
        self.worker: Worker | None = None
        self.record: Record | None = None

    @property
    def other_family(self) -> bool:
        return self.method.family != self.common.family

    # --- the store ---------------------------------------------------------------------------------------------

    def prepare(self, backend: str, environment: dict[str, Any], store: Path, fresh: bool) -> None:
        """Take over the samples that the store has."""
        self.backend, self.environment = backend, environment
        self.code = code_version(self.method, backend)
        key = {
            "problem": self.common.facts["fingerprint"],
            "method": self.method.name,
            "params": self.params,
            "separating_sets": self.setting.separating_sets,
            "backend": backend,
            "device_memory_limit": self.setting.device_memory_limit,
            "code": self.code,
            "environment": {
                name: environment[name]
                for name in ("platform", "cpu", "cores", "threads", "python", "packages", "blas", "device")
            },
            "driver": environment["gpu"] and environment["gpu"]["driver"],
        }
        self.folder = store / hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
        if fresh:
            shutil.rmtree(self.folder, ignore_errors=True)
        for unfinished in self.folder.glob(".*"):
            unfinished.unlink()
        save_json(key, self.folder / "key.json")
        if not self._skeleton_path.exists():
            return
        while (sample := self._stored(f"sample-{len(self.samples)}.json")) is not None:
            if not self._within_limits(sample):
                break
            self.samples.append(sample)
        self.reused = len(self.samples)

    @property
    def _skeleton_path(self) -> Path:
        return self.folder / "skeleton.npz"

    def _stored(self, name: str) -> dict[str, Any] | None:
        """What a file of the store holds; None when there is none, or it is damaged."""
        try:
            return json.loads((self.folder / name).read_text())
        except (FileNotFoundError, ValueError):
            return None

    def _within_limits(self, sample: dict[str, Any]) -> bool:
        """Whether a run like that would end well under the limits of today."""
        limits = (
            (sample["seconds"], self.setting.time_limit_s),
            (sample["peak_process_bytes"], self.setting.memory_limit_bytes),
        )
        return all(limit is None or value <= limit for value, limit in limits)

    @property
    def _limits(self) -> dict[str, Any]:
        return {
            "time_s": self.setting.time_limit_s,
            "memory_bytes": self.setting.memory_limit_bytes,
            "device_memory_bytes": self.setting.device_memory_limit,
        }

    # --- measuring ---------------------------------------------------------------------------------------------

    @property
    def wanted(self) -> int:
        """How many samples make a whole, the cold one included."""
        long_run = bool(self.samples) and min(s["seconds"] for s in self.samples) > self.common.long_run_s
        return 2 if long_run else 1 + self.common.repeats

    def step(self) -> None:
        """Take one more sample, if one is missing; write the record when it was the last."""
        if self.record is not None:
            return
        if len(self.samples) < self.wanted:
            outcome = self._failure_before() or self._take()
            if not outcome.ok:
                self.finish(outcome)
                return
        differing = self._differing()
        if differing is not None:
            self.finish(Outcome("error", differing))
        elif len(self.samples) >= self.wanted:
            del self.samples[self.wanted :]
            self.reused = min(self.reused, self.wanted)
            self.finish(Outcome("ok"))

    def _take(self) -> Outcome:
        """One run in the worker, which is started (and warmed up) when it is not there."""
        number = len(self.samples)
        if self.worker is None:
            self.worker = self.common.start_worker(self.setting.name, self.setting.memory_limit_bytes)
            outcome = self.worker.request(
                {
                    "do": "open",
                    "problem": str(self.common.problem_path),
                    "method": self.method.name,
                    "backend": self.backend,
                    "params": self.params,
                    "separating_sets": self.setting.separating_sets,
                    "device_memory_limit": self.setting.device_memory_limit,
                },
                START_LIMIT_S,
            )
            if outcome.ok and number > 0:
                outcome = self._run("warm-up")
            if not outcome.ok:
                return outcome
        outcome = self._run("cold" if number == 0 else f"repeat {number} of {self.wanted - 1}")
        if outcome.ok and number == 0:
            saved = self.worker.request({"do": "save", "path": str(self._skeleton_path)}, START_LIMIT_S)
            if not saved.ok:
                return saved
        if outcome.ok:
            save_json(outcome.value, self.folder / f"sample-{number}.json")
            self.samples.append(outcome.value)
        elif outcome.status in ("timeout", "oom"):
            # Limits that were hit once are hit again; other failures may be the machine's, and are tried again.
            failure = {"status": outcome.status, "why": outcome.why, "limits": self._limits, "sample": number}
            save_json(failure, self.folder / "failure.json")
        return outcome

    def _run(self, stage: str) -> Outcome:
        """One run; progress is told."""
        outcome = self.worker.request({"do": "run", "show_levels": stage == "cold"}, self.setting.time_limit_s)
        self.group_peak = max(self.worker.memory_peak, self.group_peak or 0)
        seconds = outcome.value["seconds"] if outcome.ok else None
        self.common.progress(Event(self.setting.name, stage, outcome.status, seconds, outcome.why))
        return outcome

    def _failure_before(self) -> Outcome | None:
        """The timeout or exhausted memory that an earlier measurement met here, under the limits of today."""
        failure = self._stored("failure.json")
        if failure is None or failure["limits"] != self._limits or failure["sample"] != len(self.samples):
            return None
        self.reused += 1
        return Outcome(failure["status"], failure["why"])

    def _differing(self) -> str | None:
        """Whether two runs gave different answers, as a sentence."""
        if self.method.random:
            return None
        digests = ["skeleton_sha256"] + ["sepsets_sha256"] * self.canonical
        first = self.samples[0]["result"]
        for number, sample in enumerate(self.samples[1:], 1):
            for digest in digests:
                if sample["result"][digest] != first[digest]:
                    what = "skeletons" if digest == "skeleton_sha256" else "separating sets"
                    return (
                        f"two runs gave different answers: the {what} of the cold run ({first['edges']} edges) and of "
                        f"repeat {number} ({sample['result']['edges']} edges) differ"
                    )
        return None

    def finish(self, outcome: Outcome) -> None:
        """End the worker and write the record, and the skeleton beside it when all went well."""
        self.close()
        cold, warm = self.samples[:1], self.samples[1:]
        device_peaks = [s["peak_device_bytes"] for s in self.samples if s["peak_device_bytes"] is not None]
        process_peaks = [s["peak_process_bytes"] for s in self.samples]
        if self.group_peak is not None:
            process_peaks.append(self.group_peak)
        self.record = _record(
            self.setting,
            self.backend,
            self.common.dataset,
            self.samples[-1]["problem"] if self.samples else self.common.facts,
            self.environment,
            status=outcome.status,
            why=outcome.why,
            time_s=Times(
                cold=cold[0]["seconds"] if cold else None,
                compile=cold[0]["compile_seconds"] if cold else None,
                warm=[sample["seconds"] for sample in warm],
                levels=[sample["levels"] for sample in warm],
            ),
            result=Result(**cold[0]["result"]) if outcome.ok else None,
            peak_bytes=Peaks(max(process_peaks, default=None), max(device_peaks, default=None)),
            reused_samples=self.reused,
        )
        skeleton = self.common.out_dir / f"{self.setting.name}.npz"
        if outcome.ok:
            with write_whole(skeleton) as temporary:
                shutil.copyfile(self._skeleton_path, temporary)
        else:
            skeleton.unlink(missing_ok=True)
        self.record.save(self.common.out_dir / f"{self.setting.name}.json")
        why = outcome.why or (f"{self.reused} stored samples reused" if self.reused else None)
        self.common.progress(Event(self.setting.name, "done", outcome.status, why=why))

    def close(self) -> None:
        """End the worker, if there is one."""
        if self.worker is not None:
            self.worker.close()
            self.worker = None


def write_skipped(
    setting: Setting,
    why: str,
    *,
    backend: str,
    dataset: Mapping[str, Any],
    problem: Mapping[str, Any] | None,
    out_dir: str | Path,
    threads: int,
) -> None:
    """The record of a setting that is not measured, so that it is not silently absent.

    Args:
        why: the reason, as a sentence.
        backend: where its kernels would have run.
        problem: the problem's facts; None when its data cannot be reached.
    """
    method = get_method(setting.method)
    (Path(out_dir) / f"{setting.name}.npz").unlink(missing_ok=True)
    _record(
        setting,
        "cpu" if method.backends == ("cpu",) else backend,
        dataset,
        problem,
        environment(available_cores(), threads),
        status="skipped",
        why=why,
    ).save(Path(out_dir) / f"{setting.name}.json")


def _record(
    setting: Setting,
    backend: str,
    dataset: Mapping[str, Any],
    problem: Mapping[str, Any] | None,
    environment: Mapping[str, Any],
    **outcome: Any,
) -> Record:
    """The record of a setting; ``outcome`` is what came of it, nothing measured where that is left out."""
    method = get_method(setting.method)
    return Record(
        setting=setting.name,
        method=method.name,
        family=method.family,
        reference=method.reference,
        canonical=method.canonical and setting.separating_sets == "canonical",
        random=method.random,
        backend=backend,
        params=method.parse_params(setting.params),
        separating_sets=setting.separating_sets,
        dataset=dataset["name"],
        dataset_facts={name: fact for name, fact in dataset.items() if name != "name"},
        problem=problem,
        limits=Limits(setting.time_limit_s, setting.memory_limit_bytes, setting.device_memory_limit),
        code=code_version(method, backend),
        environment=environment,
        **outcome,
    )


# --- command line ----------------------------------------------------------------------------------------------------


def table(records: Sequence[Record]) -> str:
    """A small table: median and 20-80 % band of the repeats, and how many times faster than the first setting."""
    rows = [("setting", "status", "cold", "compile", "median", "20 %", "80 %", "speedup", "edges")]
    base = records[0].median
    for record in records:
        low, middle, high = band(record.time_s.warm)
        numbers = (record.time_s.cold, record.time_s.compile, middle, low, high)
        speedup = f"{base / record.median:.3g}x" if base and record.median else "-"
        cells = ["-" if number is None else f"{number:.4g} s" for number in numbers]
        edges = "-" if record.edges is None else str(record.edges)
        rows.append((record.setting, record.status, *cells, speedup, edges))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines + [f"{record.setting}: {record.status}: {record.why}" for record in records if record.why])


def parse_setting(text: str) -> Setting:
    """``cupc-s``, ``cupc-s:theta=128,delta=4`` or ``cupc-s:separating_sets=first-come`` as a setting."""
    method, _, given = text.partition(":")
    params = dict(pair.partition("=")[::2] for pair in given.split(",") if pair)
    sets = params.pop("separating_sets", "canonical")
    words = [method, *(f"{name}{value}" for name, value in params.items()), *[sets] * (sets != "canonical")]
    return Setting("_".join(words), method, params, sets)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure from the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m gpupc_impl.measurement.sampler", description="Measure methods.")
    parser.add_argument("problem", type=Path, help="an .npz written by a problem's save()")
    parser.add_argument(
        "--method",
        dest="settings",
        action="append",
        required=True,
        type=parse_setting,
        metavar="NAME[:PARAM=VALUE,...]",
        help="a method to measure, with its parameters and separating_sets; may be given several times, the first is "
        "what speedups are taken over",
    )
    parser.add_argument("--backend", default="auto", choices=["auto", *BACKENDS])
    parser.add_argument("--repeats", type=int, default=5, help="warm samples of each (default: 5)")
    parser.add_argument("--time-limit", type=float, default=600, help="seconds one run may take (default: 600)")
    parser.add_argument("--memory-limit", type=int, help="bytes of memory a worker may use (default: no limit)")
    parser.add_argument("--device-memory-limit", type=int, help="bytes of device memory to use at most")
    parser.add_argument("--long-run", type=float, default=60, help="one repeat only above this (default: 60 s)")
    parser.add_argument("--threads", type=int, help="CPU threads (default: every available core)")
    parser.add_argument("--out", type=Path, help="keep records, skeletons and samples in this folder")
    parser.add_argument("--fresh", action="store_true", help="measure anew what the folder already holds")
    options = parser.parse_args(argv)
    with contextlib.ExitStack() as stack:
        out = options.out or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            records = measure_side_by_side(
                options.problem,
                options.settings,
                backend=options.backend,
                dataset={"name": options.problem.stem},
                out_dir=out,
                repeats=options.repeats,
                time_limit_s=options.time_limit,
                memory_limit_bytes=options.memory_limit,
                device_memory_limit=options.device_memory_limit,
                long_run_s=options.long_run,
                threads=options.threads,
                store=out / "samples",
                fresh=options.fresh,
            )
        except (ValueError, FileNotFoundError) as error:  # bad input; the methods' own failures are in the records
            parser.error(str(error))
    print(table(list(records.values())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
