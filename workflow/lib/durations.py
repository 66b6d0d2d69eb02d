"""Estimates from recorded runs how long the measurements of a config take.

``python -m workflow.lib.durations --config config/gpu.yaml`` (or ``make record PLAN=1``) prints the missing
measurements and the estimated minutes. A workflow with a deadline (`workflow.lib.deadline`) writes the same estimates
into a file, and its jobs measure what there is time for. With ``--recorded FOLDER`` the table has what a folder of
published runs lacks.

The estimate of a run comes, in this order, from

- the record of the same method and parameters on the same data set;
- the record of the method whose problem is nearest in size, with its time scaled by `POWERS`;
- the time limit. Such an estimate is an upper bound, and is printed with ``≤``.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.backends import resolve_backend
from gpupc_impl.core.files import save_json
from gpupc_impl.measurement.bench import Setting
from gpupc_impl.measurement.published import open_published
from gpupc_impl.measurement.record import Record, load_records, load_tests
from gpupc_impl.reporting.tables import markdown
from workflow.lib.config import InvalidConfig, complete, read_config
from workflow.lib.plan import CONFIG, RECORDED, ROOT, Measurement, Plan
from workflow.lib.searches import is_requested, setting_of
from workflow.lib.single_tests import DIMENSIONS, cases, is_timed

POWERS = {
    "gaussian": {"p": 3},
    "discrete": {"p": 2, "n": 1, "tests_per_edge": 1},
    "nonlinear": {"p": 2, "n": 1, "permutations": 1},
    "mixed": {"p": 2, "n": 1, "permutations": 1},
}
"""For each family, the powers of a problem's sizes to which its time is proportional. In a dense Gaussian problem level
1 makes most tests, in number proportional to p^3; the time for a contingency table or a nearest neighbour is
proportional to the samples."""

START_S = 2.0
"""The seconds for starting a process and loading the problem, for each setting."""


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A duration in seconds, and whether it is an upper bound because a time limit is part of it."""

    seconds: float
    bound: bool = False

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.seconds + other.seconds, self.bound or other.bound)

    def __str__(self) -> str:
        return f"{'≤ ' if self.bound else ''}{self.seconds / 60:.1f}"


class Durations:
    """Estimates the durations of all measurements of a config.

    Args:
        records: the records of searches; of equally near ones the first is used.
        cells: the cells of tables of single tests, as `load_tests` returns them.
    """

    def __init__(self, plan: Plan, records: Iterable[Record], cells: Iterable[Mapping[str, Any]]):
        self.plan, self.records, self.cells = plan, list(records), list(cells)

    @classmethod
    def recorded(cls, plan: Plan) -> Durations:
        """Make estimates from this machine's results and the project's published runs, as far as these ran on the
        config's backend or are CPU references."""
        results, published = Path(plan.folder), sorted(path.parent for path in (ROOT / RECORDED).glob(f"*/{CONFIG}"))
        records = load_records(sorted(results.glob("records/*/*.json")))
        records += [record for folder in published for record in open_published(folder).records()]
        tables = [path for folder in (results, *published) for path in sorted(folder.glob("tests/*.json"))]
        cells = [cell for path in tables for cell in load_tests(path)["cells"]]
        backends = (plan.config["backend"], "cpu")
        return cls(
            plan,
            [record for record in records if record.backend in backends],
            [cell for cell in cells if cell["backend"] in backends],
        )

    def all(self) -> dict[str, dict[str, dict[str, Estimate]]]:
        """Return the estimate of each setting, by family, experiment or table of single tests, and by data set.

        A table of single tests has one data set, which has the table's name.
        """
        return {
            name: {
                dataset: {setting: self.search(measurement, dataset, setting) for setting in measurement.settings}
                for dataset in measurement.datasets
            }
            for name, measurement in self.plan.measurements().items()
        } | {
            name: {name: {setting: self.single_tests(table, setting) for setting in ci_tests["implementations"]}}
            for ci_tests in [self.plan.config["ci_tests"]]
            for name, table in ci_tests["tables"].items()
        }

    def search(self, measurement: Measurement, dataset: str, name: str) -> Estimate:
        """Return the duration of all runs of a setting: one repeat of a long run, none of one over its limit."""
        choice, config = measurement.settings[name], self.plan.config
        if not is_requested(choice, dataset):
            return Estimate(0)
        setting = setting_of(name, choice, config["timing"], config["limits"])
        limit = setting.limits.time_s or math.inf
        of_method = [record for record in self.records if record.method == setting.method]
        same = [
            record
            for record in of_method
            if _is_of(record.method, record.params, setting) and record.separating_sets == setting.separating_sets
        ]
        own = next((record for record in same if record.dataset == dataset), None)
        if own is not None and not own.ok:
            return Estimate(START_S + (limit if own.status == "timeout" else 0))
        size = sizes(self.plan, measurement, dataset)
        nearest = (own, 1.0) if own else _nearest(same, size) or _nearest(of_method, size)
        if nearest is None:
            return Estimate(START_S + limit, bound=True)
        record, scale = nearest
        seconds = (record.median or 0) * scale
        if seconds >= limit:
            return Estimate(START_S + limit)
        cold = min(seconds + max((record.time_s.cold or 0) - (record.median or 0), 0), limit)
        return Estimate(
            START_S + cold + seconds * (1 if seconds > config["timing"]["long_run_s"] else measurement.repeats)
        )

    def single_tests(self, table: Mapping[str, Any], name: str) -> Estimate:
        """Return the duration of all cells of an implementation in a table of single tests."""
        choice, config = self.plan.config["ci_tests"]["implementations"][name], self.plan.config
        setting = setting_of(name, choice, config["timing"], config["limits"])
        limit = choice.get("time_limit_s", config["ci_tests"]["time_limit_s"])
        timed = (case for case in cases(table) if is_timed(choice, case))
        return sum((self._cell(setting, case, limit) for case in timed), Estimate(START_S))

    def _cell(self, setting: Setting, case: Mapping[str, Any], limit: float) -> Estimate:
        ci_tests = self.plan.config["ci_tests"]
        sizes_of_case = {**case, "k_cmi": case["k_cmi"] if case["k_cmi"] >= 1 else case["k_cmi"] * case["samples"]}
        cells = [cell for cell in self.cells if _is_of(cell["method"], cell["params"], setting)]
        if not cells:
            return Estimate(limit, bound=True)
        distances = [
            sum(abs(math.log((sizes_of_case[key] or 0.5) / (cell[key] or 0.5))) for key in DIMENSIONS) for cell in cells
        ]
        distance = min(distances)
        cell = cells[distances.index(distance)]
        if cell["status"] != "ok":
            return Estimate(limit if cell["status"] == "timeout" else 0, bound=distance > 0)
        scale = math.prod(sizes_of_case[key] / cell[key] for key in ("samples", "permutations"))
        mean = sum(cell["seconds"]) / len(cell["seconds"]) * scale
        return Estimate(min((cell["cold_s"] or 0) + mean * ci_tests["tests"], limit))


def _is_of(method: str, params: Mapping[str, Any], setting: Setting) -> bool:
    """Return whether a recorded run has this setting, ignoring parameters that were added later."""
    return method == setting.method and params.items() <= setting.all_params.items()


def sizes(plan: Plan, measurement: Measurement, dataset: str) -> dict[str, Any]:
    """Return what is known of a problem before it is prepared: its test's parameters, and p and n if the registry or
    the generator's parameters state them."""
    entry, parameters = plan.source_of(measurement.name, dataset)
    generator = entry.get("parameters", {})
    p = entry.get("variables", generator.get("p", entry.get("true_network", {}).get("variables")))
    n = entry.get("samples", generator.get("n", generator.get("m")))
    return {**parameters, "p": p, "n": n}


def _nearest(records: Iterable[Record], size: Mapping[str, Any]) -> tuple[Record, float] | None:
    """Return the record whose problem is nearest in size, and the factor by which its time is scaled; records with the
    same alpha and largest level are preferred."""
    candidates = []
    for record in records:
        facts = record.problem
        if not record.ok or facts is None:
            continue
        known = {**facts, "p": facts["n_variables"], "n": facts.get("n_samples")}
        powers = POWERS.get(record.family, {})
        if any((size.get(key) is None) != (known.get(key) is None) for key in powers):
            continue
        scale = math.prod((size[key] / known[key]) ** power for key, power in powers.items() if size.get(key))
        differing = sum(size.get(key) != facts.get(key) for key in ("max_level", "alpha"))
        candidates.append((differing, abs(math.log(scale)), len(candidates), record, scale))
    return min(candidates)[-2:] if candidates else None


def write_estimates(plan: Plan, path: Path) -> None:
    """Write the seconds of each setting on each data set, as `workflow.lib.deadline.TimeLeft` reads them."""
    seconds = {
        name: {dataset: {setting: each.seconds for setting, each in of_dataset.items()} for dataset, of_dataset in part}
        for name, part in ((name, datasets.items()) for name, datasets in Durations.recorded(plan).all().items())
    }
    save_json(seconds, path)


def published_runs(folder: Path) -> set[tuple[str, str]]:
    """Return the data set and the setting of each published run that was tried; for single tests, the table's name and
    the implementation."""
    tried = {
        (record.dataset, record.setting) for record in open_published(folder).records() if record.status != "skipped"
    }
    tables = {path.stem: load_tests(path)["cells"] for path in folder.glob("tests/*.json")}
    return tried | {(name, cell["implementation"]) for name, cells in tables.items() for cell in cells}


def show(plan: Plan, durations: Durations, names: Collection[str], published: Path | None = None) -> str:
    """Return a Markdown table of the missing runs, in the order in which a workflow with a deadline makes them.

    Args:
        names: families, experiments and tables of single tests, or tables and figures that show them; empty for all.
        published: a folder of published runs; only what it lacks is shown. By default, what the results lack.
    """
    tried = published_runs(published) if published else set()

    def is_there(name: str, dataset: str, setting: str) -> bool:
        return (dataset, setting) in tried if published else Path(plan.output_of(name, dataset, setting)).is_file()

    estimates, rows, total = durations.all(), [], Estimate(0)
    for name in plan.order:
        if names and not names & {name, *plan.shown_by(name)}:
            continue
        missing = [
            estimate
            for dataset, of_dataset in estimates[name].items()
            for setting, estimate in of_dataset.items()
            if estimate.seconds > 0 and not is_there(name, dataset, setting)  # zero: the config excludes the run
        ]
        if published and not missing:
            continue
        minutes = sum(missing, Estimate(0))
        total += minutes
        rows.append([name, str(len(estimates[name])), str(len(missing)), str(minutes)])
    return markdown(["", "data sets", "runs to measure", "minutes"], [*rows, ["all", "", "", str(total)]], range(1, 4))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what a config requests and the results lack; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m workflow.lib.durations", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="family, experiment, table or figure (default: all)")
    parser.add_argument("--config", type=Path, default=ROOT / "config" / "gpu.yaml")
    parser.add_argument(
        "--backend", choices=("auto", "cuda", "host"), help="whose records count (default: the config's)"
    )
    parser.add_argument("--recorded", type=Path, help="a folder of published runs, instead of this machine's results")
    options = parser.parse_args(arguments)
    if options.recorded and not (options.recorded / CONFIG).is_file():
        parser.error(f"--recorded {options.recorded}: no folder of published runs, which has a file {CONFIG}")
    try:
        config = read_config(options.config)
        complete(config)
    except (OSError, InvalidConfig) as error:
        parser.error(str(error))
    config["backend"] = resolve_backend(options.backend or config["backend"])
    plan = Plan(config)
    known = {each for name in plan.order for each in (name, *plan.shown_by(name))}
    if unknown := set(options.names) - known:
        parser.error(f"the config measures nothing for {', '.join(sorted(unknown))}; known: {', '.join(sorted(known))}")
    print(show(plan, Durations.recorded(plan), set(options.names), options.recorded))
    return 0


if __name__ == "__main__":
    sys.exit(main())
