# ruff: noqa: E402 (packages that are missing are named before the first of them is imported)
"""Records a config's experiments on a GPU machine: in slices of some minutes, resumable, without Snakemake.

``python -m workflow.lib.gpu_records --into results/recorded/DEVICE`` (or ``make gpu-records``) measures what is not
recorded there yet, in the order of `workflow.lib.slices`. The folder is a results tree as the workflow writes it:

    config.yaml                     the complete config
    records/DATASET/SETTING.json    and small skeletons (.npz) where the true graph is known
    problems/DATASET.json           facts
    verification/NAME.csv, verification.csv, sharing.csv
    tests/TABLE.json, timelines/DATASET.csv

What is large lies in a store: problems, skeletons and samples. Without it, skeletons of earlier calls are compared by
their digests, which the records have.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.util
import itertools
import json
import multiprocessing
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

NEEDED = {
    "numpy": "numpy",
    "scipy": "scipy",
    "pandas": "pandas",
    "matplotlib": "matplotlib",
    "psutil": "psutil",
    "jsonschema": "jsonschema",
    "yaml": "PyYAML",
}
"""What this needs, by module. Methods and data sets may need more, and only they are skipped where it is missing."""

if missing := [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]:
    sys.exit(f"error: recording needs packages that are not installed here: {', '.join(missing)} (docs/gpu.md)")

import yaml

from gpupc_impl.backends import resolve_backend
from gpupc_impl.core.files import read_csv, read_json, save_json, write_csv, write_whole
from gpupc_impl.measurement.bench import Bench, Setting
from gpupc_impl.measurement.digest import code_version, digest
from gpupc_impl.measurement.record import InvalidRecord, Record, load_tests, save_tests
from gpupc_impl.measurement.skeletons import Event
from gpupc_impl.reporting import sharing
from gpupc_impl.verification.single_tests import verify_test_files
from gpupc_impl.verification.verify import complaints, verify_files
from workflow.lib import gpu_shares, slices
from workflow.lib.config import complete, read_config
from workflow.lib.plan import ROOT, Plan
from workflow.lib.problems import makers, write_problem
from workflow.lib.searches import measure_dataset
from workflow.lib.single_tests import time_table
from workflow.lib.slices import Estimate, Rates, Unit
from workflow.lib.sources import get
from workflow.lib.timelines import record_timeline

RECORDED = ROOT / "results" / "recorded"

KEPT_SKELETON_BYTES = 1 << 18
"""Skeletons of graphs whose truth is known are kept beside their records up to this size: tables count their errors."""

KEPT_PROBLEM_BYTES = 1 << 31
"""Problems larger than this are removed from the store as soon as they are measured and verified."""

AGAIN = ("error", "killed")
"""Records with these statuses are measured again by the next call."""


@dataclasses.dataclass(frozen=True)
class Left:
    """What is left to do of a unit.

    Attributes:
        settings: those to be measured.
        stale: recorded by other code, or under another config.
    """

    unit: Unit
    settings: tuple[str, ...]
    stale: tuple[str, ...]
    estimate: Estimate

    def __str__(self) -> str:
        return str(dataclasses.replace(self.unit, settings={name: self.unit.settings[name] for name in self.settings}))


class Folder:
    """A folder of records, as the workflow's ``results``, and the store beside it.

    Args:
        lock: held while tables are changed that other processes may change as well.
    """

    def __init__(self, plan: Plan, into: Path, store: Path, lock: Any = None):
        self.plan, self.into, self.store = plan, into, store
        self.lock = lock or contextlib.nullcontext()
        self.backend = resolve_backend(plan.config["backend"])
        self._missing: set[str] = set()  # data sets that this call could not get

    # --- what is there -----------------------------------------------------------------------------------------------

    def record_path(self, dataset: str, setting: str) -> Path:
        return self.into / "records" / dataset / f"{setting}.json"

    def tests_path(self, table: str) -> Path:
        return self.into / "tests" / f"{table}.json"

    def timeline_path(self, dataset: str) -> Path:
        return self.into / "timelines" / f"{dataset}.csv"

    def problem_path(self, dataset: str) -> Path:
        return self.store / "problems" / f"{dataset}.npz"

    def states(self, unit: Unit) -> dict[str, str]:
        """For each setting of a unit: ``"missing"``, ``"stale"`` or ``"recorded"``."""
        if unit.kind == "timeline":
            here = self.timeline_path(unit.dataset).is_file()
            return dict.fromkeys(unit.settings, "recorded" if here else "missing")
        if unit.kind == "tests":
            path = self.tests_path(unit.target)
            cells = load_tests(path)["cells"] if path.is_file() else []
            return {name: self._state_of_tests(unit, name, cells) for name in unit.settings}
        return {name: self._state(unit, name) for name in unit.settings}

    def _state(self, unit: Unit, name: str) -> str:
        try:
            record = Record.load(self.record_path(unit.dataset, name))
        except (FileNotFoundError, InvalidRecord):
            return "missing"
        if record.status in AGAIN:
            return "missing"
        setting = slices.as_setting(name, unit.settings[name], self.plan)
        return "recorded" if record.code == self.code(setting) and asked_for(record, setting) else "stale"

    def _state_of_tests(self, unit: Unit, name: str, cells: Iterable[Mapping[str, Any]]) -> str:
        """The same for an implementation of single tests; old cells do not say by which code they were timed."""
        asked = self.plan.config["ci_tests"]
        cases = slices.cases(asked["tables"][unit.target])
        timed = [cell for cell in cells if cell["implementation"] == name]
        failed = any(cell["status"] in AGAIN for cell in timed)
        tests = {len(cell["seconds"]) for cell in timed if cell["status"] == "ok"}
        if len(timed) != len(cases) or failed or tests - {asked["tests"]}:
            return "missing"
        setting = slices.as_setting(name, unit.settings[name], self.plan)
        now = {"params": setting.all_params, "code": self.code(setting)}
        same = (all(cell.get(key, value) == value for key, value in now.items()) for cell in timed)
        return "recorded" if all(same) else "stale"

    def code(self, setting: Setting) -> str:
        """The version of the code that a record of a setting would have now."""
        return code_version(setting.registered, self.backend if setting.has_kernels else "cpu")

    def left(self, rates: Rates, measure_stale: bool, longest: float) -> list[Left]:
        """What is left of each unit, unless nothing is left and nothing is stale.

        Args:
            longest: a unit that takes more seconds is taken apart, setting by setting.
        """
        found = []
        for unit in slices.units(self.plan):
            states = self.states(unit)
            stale = tuple(name for name, state in states.items() if state == "stale")
            todo = tuple(n for n, state in states.items() if state == "missing" or (measure_stale and n in stale))
            if todo or stale:
                prepared = unit.kind == "tests" or self._made(unit) == self._making(unit)
                estimate = rates.of(self.plan, unit, todo, prepared) if todo else Estimate(0)
                if estimate.seconds <= longest or len(todo) == 1:
                    found.append(Left(unit, todo, stale, estimate))
                    continue
                for name in todo:
                    its = tuple(each for each in stale if each == name)
                    found.append(Left(unit, (name,), its, rates.of(self.plan, unit, (name,), prepared)))
        return found

    # --- problems ----------------------------------------------------------------------------------------------------

    def _source(self, unit: Unit) -> tuple[Mapping[str, Any], dict[str, Any]]:
        """The registry's entry of a unit's data set, and the parameters of its problem."""
        experiment = self.plan.experiments.get(unit.target)
        if experiment and experiment.graphs:
            own = experiment.problems[unit.dataset]
            return experiment.graphs[unit.dataset], self.plan.problem_parameters(unit.family, own)
        return self.plan.entries[unit.dataset], self.plan.parameters_of(unit.dataset)

    def _making(self, unit: Unit) -> dict[str, Any]:
        """What a unit's problem is made of: it is made again when this changes."""
        entry, parameters = self._source(unit)
        scripts = ("workflow/lib/problems.py", "workflow/lib/sources.py")
        code = digest(*scripts, *makers([entry], unit.family), named=False)
        return json.loads(json.dumps({"entry": entry, "parameters": parameters, "code": code}))

    def _made(self, unit: Unit) -> Any:
        path = self.problem_path(unit.dataset).with_suffix(".made.json")
        return read_json(path) if path.is_file() else None

    def prepare(self, unit: Unit) -> dict[str, Any]:
        """The facts of a unit's problem, which is in the store then; those of a missing data set say why."""
        problem, making = self.problem_path(unit.dataset), self._making(unit)
        facts = problem.with_suffix(".json")
        if self._made(unit) != making and unit.dataset not in self._missing:
            entry, parameters = self._source(unit)
            problem.parent.mkdir(parents=True, exist_ok=True)
            where = {**self.plan.where(), "cache_dir": self.store / "datasets"}
            write_problem(unit.dataset, get(unit.dataset, entry, **where), parameters, str(problem), str(facts))
            if read_json(facts)["available"]:
                save_json(making, problem.with_suffix(".made.json"))
            else:  # the next call tries again
                self._missing.add(unit.dataset)
        kept = self.into / "problems" / facts.name
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(facts, kept)
        found: dict[str, Any] = read_json(facts)
        return found

    def drop_large(self, dataset: str) -> None:
        """Remove a problem that is too large to be kept; its facts stay in the folder."""
        base = self.problem_path(dataset)
        matrix = base.with_suffix(".npy")
        if matrix.is_file() and matrix.stat().st_size > KEPT_PROBLEM_BYTES:
            for suffix in (".made.json", ".npz", ".npy"):
                base.with_suffix(suffix).unlink(missing_ok=True)

    # --- measuring ---------------------------------------------------------------------------------------------------

    def measure(self, unit: Unit, settings: Sequence[str], bench: Bench, tell: Callable[[str], None]) -> list[str]:
        """Measure some settings of a unit; each record is in the folder as soon as it is made.

        Returns:
            Sentences about single tests whose p-values differ; searches are verified apart.
        """
        chosen = {name: unit.settings[name] for name in settings}
        if unit.kind == "tests":
            return self._measure_tests(unit, chosen, bench, tell)
        facts = self.prepare(unit)
        problem, config = self.problem_path(unit.dataset), self.plan.config
        if unit.kind == "timeline":
            path = self.timeline_path(unit.dataset)
            # A process of its own: a GPU that this one had open would be "used by others" in later records.
            with write_whole(path) as out, ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                why = pool.submit(record_timeline, problem, facts, chosen, config["limits"], self.backend, out).result()
            if why is not None:
                tell(f"{unit.dataset}: no timeline: {why}")
            return []
        made = self.store / "records" / unit.dataset

        def progress(event: Event) -> None:
            tell(f"{unit.dataset}: {event}")
            if event.stage == "done":
                self._keep(made / f"{event.setting}.json", facts)

        timing = config["timing"] | {"repeats": unit.repeats}
        store = self.store / "samples"
        measure_dataset(
            problem, facts, chosen, timing, config["limits"], bench, out_dir=made, store=store, progress=progress
        )
        for name in settings:  # those that were not measured told nothing
            self._keep(made / f"{name}.json", facts)
        return []

    def _keep(self, record: Path, facts: Mapping[str, Any]) -> None:
        """Take a record from the store into the folder, with its skeleton where tables need that and it is small."""
        target = self.record_path(record.parent.name, record.stem)
        with write_whole(target) as temporary:
            shutil.copyfile(record, temporary)
        skeleton, kept = record.with_suffix(".npz"), target.with_suffix(".npz")
        kept.unlink(missing_ok=True)
        if "true_edges" in facts and skeleton.is_file() and skeleton.stat().st_size <= KEPT_SKELETON_BYTES:
            shutil.copyfile(skeleton, kept)

    def _measure_tests(
        self, unit: Unit, chosen: Mapping[str, Mapping[str, Any]], bench: Bench, tell: Callable[[str], None]
    ) -> list[str]:
        """Time single tests, and compare all p-values; the cells of implementations that were timed before stay."""
        asked = self.plan.config["ci_tests"]
        timed = time_table(
            asked["tables"][unit.target],
            asked,
            chosen,
            self.plan.problem_parameters(unit.family, {}),
            self.plan.config["limits"],
            bench,
            store=self.store / "samples",
            progress=lambda line: tell(f"{unit.target}: {line}"),
        )
        path = self.tests_path(unit.target)
        with self.lock:
            if path.is_file():
                earlier = load_tests(path)
                order = list(asked["implementations"])
                kept = set(order) - chosen.keys()
                others = [cell for cell in earlier["cells"] if cell["implementation"] in kept]
                timed["cells"] = sorted(others + timed["cells"], key=lambda cell: order.index(cell["implementation"]))
                timed["environments"] = earlier["environments"] | timed["environments"]
            save_tests(timed, path)
            tables = map(self.tests_path, asked["tables"])
            verified = verify_test_files(each for each in tables if each.is_file())
            write(self.into / "verification" / "ci_tests.csv", verified)
        return complaints(verified)

    # --- verification ------------------------------------------------------------------------------------------------

    def verify(self, unit: Unit, digests: bool) -> list[str]:
        """Verify the records of a unit's data set under its target; what is wrong with them, as sentences.

        Args:
            digests: compare by digests alone, which takes no time; so it is, too, without the problem in the store.
        """
        if unit.target in self.plan.families:
            wanted, name = self.plan.records_of([unit.dataset]), unit.dataset
        else:
            found = self.plan.references_of_experiment(unit.target) + self.plan.records_of_experiment(unit.target)
            wanted, name = [path for path in found if Path(path).parent.name == unit.dataset], unit.target
        problem = self.problem_path(unit.dataset)
        known = None if digests or not problem.is_file() else problem
        paths = [self._with_skeleton(unit.dataset, Path(path).stem) for path in wanted]
        paths = [path for path in paths if path.is_file()]
        table = self.into / "verification" / f"{name}.csv"
        rows = verify_files(known, paths, [row for row in read_rows(table) if row["dataset"] == unit.dataset])
        with self.lock:
            others = [row for row in read_rows(table) if row["dataset"] != unit.dataset]
            write(table, in_order([*others, *rows], self._datasets(unit.target)))
            if unit.target in self.plan.families:
                self._collect(unit, paths, rows)
        return complaints(rows)

    def _datasets(self, target: str) -> list[str]:
        experiment = self.plan.experiments.get(target)
        return experiment.datasets if experiment else self.plan.families[target]

    def _with_skeleton(self, dataset: str, setting: str) -> Path:
        """A record's path: in the store, where its skeleton is, if it is the very record that the folder has."""
        kept, made = self.record_path(dataset, setting), self.store / "records" / dataset / f"{setting}.json"
        same = kept.is_file() and made.is_file() and kept.read_bytes() == made.read_bytes()
        return made if same else kept

    def _collect(self, unit: Unit, paths: Sequence[Path], rows: Sequence[Mapping[str, Any]]) -> None:
        """The tables of all data sets: verification.csv and, for Gaussian data, sharing.csv."""
        tables = [self.into / "verification" / f"{name}.csv" for name in self.plan.measured]
        write(self.into / "verification.csv", [row for path in tables if path.is_file() for row in read_csv(path)])
        if unit.family != "gaussian":
            return
        with_skeleton = [path for path in paths if path.with_suffix(".npz").is_file()]
        counted = sharing.count_sharing(with_skeleton, rows, self.plan.entries[unit.dataset]["kind"])
        path = self.into / "sharing.csv"
        others = [row for row in read_rows(path) if row["dataset"] != unit.dataset]
        if counted:
            write(path, in_order([*others, *counted], self.plan.measured), sharing.COLUMNS)


def asked_for(record: Record, setting: Setting) -> bool:
    """Whether a record is of what the config asks for now."""
    limit = setting.limits.device_memory_bytes
    return (record.method, record.params, record.separating_sets, record.limits.device_memory_bytes) == (
        setting.method,
        setting.all_params,
        setting.separating_sets,
        limit,
    )


def in_order(rows: Sequence[Mapping[str, Any]], datasets: Sequence[str]) -> list[Mapping[str, Any]]:
    """Rows in the order of their data sets; of data sets that the config does not have any more, none."""
    return [row for name in datasets for row in rows if row["dataset"] == name]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a table; none where it is not there."""
    return read_csv(path) if path.is_file() else []


def write(path: Path, rows: Sequence[Mapping[str, Any]], columns: Iterable[str] = ()) -> None:
    with write_whole(path) as temporary:
        write_csv(temporary, rows, columns)


# --- the command -----------------------------------------------------------------------------------------------------


def read_rates(folders: Iterable[Path], backend: str) -> Rates:
    """What was recorded on this backend and on CPUs, in some folders."""
    records, cells = [], []
    for folder in folders:
        found = [Record.load(path) for path in sorted(folder.glob("records/*/*.json"))]
        records += [record for record in found if record.backend in (backend, "cpu")]
        for path in sorted(folder.glob("tests/*.json")):
            cells += [cell for cell in load_tests(path)["cells"] if cell["backend"] in (backend, "cpu")]
    return Rates(records, cells)


def choose(left: Sequence[Left], parts: Sequence[Sequence[int]], chosen: Sequence[str]) -> list[Left]:
    """The units of some slices.

    Args:
        parts: the slices, as places in `left`.
        chosen: numbers of slices from 1, names of targets (families, experiments, tables of single tests) or of data
            sets; none for everything.

    Raises:
        ValueError: there is no such slice.
    """
    if not chosen:
        return list(left)
    places: dict[int, None] = {}
    for name in chosen:
        if name.isdigit():
            if not 1 <= int(name) <= len(parts):
                raise ValueError(f"there is no slice {name}: {len(parts)} are left")
            places |= dict.fromkeys(parts[int(name) - 1])
            continue
        named = [place for place, each in enumerate(left) if name in (each.unit.target, each.unit.dataset)]
        if not named:
            known = dict.fromkeys(each.unit.target for each in left)
            raise ValueError(f"nothing called {name!r} is left to measure; there are: {', '.join(known)}")
        places |= dict.fromkeys(named)
    return [left[place] for place in sorted(places)]


def show(todo: Sequence[Left], parts: Sequence[Sequence[int]], left: Sequence[Left]) -> None:
    """Print slices, their contents and estimated minutes, and what is stale."""
    for number, places in enumerate(parts, 1):
        print(f"slice {number}: {sum((todo[place].estimate for place in places), Estimate(0))}")
        for place in places:
            print(f"  {todo[place].estimate}: {todo[place]}")
    total = sum((each.estimate for each in todo), Estimate(0))
    print(f"{len(parts)} slices, {total} in all; ≤: time limits are among it, where nothing comparable was recorded")
    for each in left:
        if each.stale:
            kept = "measured again" if set(each.stale) <= set(each.settings) else "kept; --stale measures again"
            print(f"stale, by other code or another config ({kept}): {each.unit.dataset}: {', '.join(each.stale)}")


def run(
    folder: Folder, chosen: Sequence[Left], minutes: float | None, digests: bool, log: Path, prefix: str = ""
) -> list[str]:
    """Measure and verify units, one after another, as long as there is time: what went wrong, as sentences.

    Args:
        digests: see `Folder.verify`; so it is, too, where there is no time for more.
        prefix: put before each line of progress.
    """
    end = None if minutes is None else time.monotonic() + 60 * minutes
    problems = []
    not_started = []
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", buffering=1, encoding="utf-8") as out:

        def tell(line: str) -> None:
            for stream in (sys.stderr, out):
                print(f"{prefix}{line}", file=stream, flush=True)

        bench = Bench(folder.backend, log=out)
        for (_, dataset), group in itertools.groupby(chosen, lambda each: (each.unit.target, each.unit.dataset)):
            measured = None
            for each in group:
                needed = 0 if each.estimate.bound else each.estimate.seconds
                if end is not None and time.monotonic() + needed > end:
                    not_started.append(each)
                    continue
                start = time.monotonic()
                try:
                    problems += folder.measure(each.unit, each.settings, bench, tell)
                except Exception as error:
                    out.write(traceback.format_exc())
                    problems.append(f"{each}: {type(error).__name__}: {error}")
                    tell(problems[-1])
                measured = each.unit if each.unit.kind == "search" else measured
                tell(f"{each.unit.dataset}: {(time.monotonic() - start) / 60:.1f} min, estimated {each.estimate}")
            if measured is not None:
                try:
                    needed = slices.verifying(folder.plan, measured)
                    late = end is not None and time.monotonic() + needed > end
                    problems += folder.verify(measured, digests or late)
                except Exception as error:
                    out.write(traceback.format_exc())
                    problems.append(f"verifying {dataset}: {type(error).__name__}: {error}")
                    tell(problems[-1])
            folder.drop_large(dataset)
    if not_started:
        print(f"{prefix}no time was left for:\n" + "\n".join(f"  {each}" for each in not_started))
    return problems


def verify_all(folder: Folder) -> list[str]:
    """Verify what is recorded, with the problems and skeletons that are in the store: what is wrong, as sentences."""
    problems = []
    searched = (unit for unit in slices.units(folder.plan) if unit.kind == "search")
    for unit in {(unit.target, unit.dataset): unit for unit in searched}.values():
        if (folder.into / "records" / unit.dataset).is_dir():
            problems += folder.verify(unit, digests=False)
    return problems


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m workflow.lib.gpu_records", description=__doc__.splitlines()[0])
    parser.add_argument("slices", nargs="*", metavar="SLICE", help="number, target or data set (default: everything)")
    parser.add_argument("--config", type=Path, default=Path("config/gpu.yaml"))
    parser.add_argument("--into", type=Path, required=True, help="results/recorded/DEVICE")
    parser.add_argument(
        "--store", type=Path, default=Path("resources/gpu-records"), help="problems, skeletons and samples"
    )
    parser.add_argument("--minutes", type=float, help="start no data set that would end later than this")
    parser.add_argument("--slice-minutes", type=float, default=8, help="length of a slice (default: 8)")
    parser.add_argument("--plan", action="store_true", help="print slices and estimated minutes, and measure nothing")
    parser.add_argument("--prepare", action="store_true", help="put the problems into the store, and measure nothing")
    parser.add_argument("--digests", action="store_true", help="verify by digests: test no removed edge again")
    parser.add_argument(
        "--gpus", type=numbers, metavar="N,M", help="record on these GPUs side by side (default: on the one chosen)"
    )
    parser.add_argument("--verify", action="store_true", help="verify what is recorded, and measure nothing")
    parser.add_argument("--stale", action="store_true", help="measure again what other code or another config recorded")
    options = parser.parse_args(argv)
    config = read_config(options.config)
    try:
        complete(config)
    except ValueError as error:
        parser.error(f"config: {error}")
    folder = Folder(Plan(config), options.into, options.store)
    if options.verify:
        return report(verify_all(folder))
    folders = [options.into, *sorted(RECORDED.iterdir())]  # those of this device first
    rates = read_rates(dict.fromkeys(each.resolve() for each in folders), folder.backend)
    left = folder.left(rates, options.stale, 60 * options.slice_minutes)
    todo = [each for each in left if each.settings]
    parts = slices.cut([each.estimate for each in todo], 60 * options.slice_minutes)
    if options.plan:
        show(todo, parts, left)
        return 0
    try:
        chosen = choose(todo, parts, options.slices)
    except ValueError as error:
        parser.error(str(error))
    if options.prepare:
        for each in chosen:
            if each.unit.kind != "tests":
                facts = folder.prepare(each.unit)
                print(f"{each.unit.dataset}: {facts['why'] or 'prepared'}", flush=True)
        return 0
    numbered = options.slices and all(name.isdigit() for name in options.slices)
    minutes = options.slice_minutes * len(options.slices) if numbered and options.minutes is None else options.minutes
    options.into.mkdir(parents=True, exist_ok=True)
    (options.into / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    if options.gpus is None:
        return report(run(folder, chosen, minutes, options.digests, options.store / "log.txt"))
    end = None if minutes is None else time.monotonic() + 60 * minutes
    where = {"config": config, "into": options.into, "store": options.store}
    return report(gpu_shares.record(options.gpus, chosen, **where, end=end, digests=options.digests))


def numbers(text: str) -> list[int]:
    """``"0,1"`` as numbers."""
    parts = text.split(",")
    if not all(part.isdecimal() for part in parts) or len(set(parts)) != len(parts):
        raise argparse.ArgumentTypeError(f"{text!r} does not name GPUs by numbers from 0 on, each once, as 0,1 does")
    return [int(part) for part in parts]


def report(problems: Sequence[str]) -> int:
    """Print what went wrong; returns the exit status."""
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
