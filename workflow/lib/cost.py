"""What cuPC's part of a configuration costs to measure, estimated from recorded rates and numbers of tests.

A setting's time on a data set that has not been measured is taken to be tests / rate:

- *tests* are those of the serial reference: as recorded where it has run on the data set; else estimated from the
  runtime of pcalg's Stable.fast in the paper's Table 2, by the tests that it must have made a second on the data sets
  where both are known; else (generated graphs) unknown above level 0, whose p (p - 1) / 2 tests are a lower bound.
- *rate* is how many of those tests the method gets done a second, from the slowest to the fastest of the recorded data
  sets with at least `LEAST_TESTS` tests. It is one rate a method: a grid's configurations get that of their method.

So an estimate is a range. ``python -m workflow.lib.cost --config config/paper.yaml --records results/records``
prints it, and how well the same rule predicts each measured data set from the others.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpupc_impl.core.files import read_csv
from gpupc_impl.measurement.record import Record, load_records
from gpupc_impl.reporting.catalogue import entries
from gpupc_impl.reporting.cells import number
from gpupc_impl.reporting.papers.cupc import PAPER, SELECTED, SERIAL
from gpupc_impl.reporting.tables import markdown
from workflow.lib.config import complete, read_config
from workflow.lib.plan import Plan

LEAST_TESTS = 10**7
MAIN = "cupc_table2, cupc_fig5, cupc_fig6, cupc_fig9"
"""The outputs that come of one measurement: every setting on every data set."""


@dataclasses.dataclass(frozen=True)
class Range:
    """From a lowest to a highest value; the highest is infinite where nothing bounds it."""

    low: float
    high: float

    def __mul__(self, factor: float) -> Range:
        return Range(self.low * factor, self.high * factor)

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def __truediv__(self, rate: Range) -> Range:
        return Range(self.low / rate.high, self.high / rate.low)

    @classmethod
    def of(cls, values: Iterable[float]) -> Range | None:
        values = list(values)
        return cls(min(values), max(values)) if values else None


class Rates:
    """What was recorded, as tests and seconds.

    Attributes:
        tests: of the serial reference, by data set.
        runs: the records that finished, with canonical separating sets.
    """

    def __init__(self, records: Iterable[Record], stable_fast: Mapping[str, float]):
        self.stable_fast = stable_fast
        self.runs = [record for record in records if record.ok and record.separating_sets == "canonical"]
        self.tests = {run.dataset: run.tests for run in self.runs if run.method == SERIAL}

    def seconds(self, method: str, params: Mapping[str, Any]) -> dict[str, float]:
        """Times of a method by data set, in the paper's configuration as far as parameters do not say otherwise."""
        wanted = {**SELECTED.get(method, {}), **params}
        return {
            run.dataset: run.median
            for run in reversed(self.runs)
            if run.method == method and wanted.items() <= run.params.items()
        }

    def rate(self, times: Mapping[str, float], without: str) -> Range | None:
        """Tests of the serial reference that were done a second, on the other data sets."""
        return Range.of(
            self.tests[dataset] / time
            for dataset, time in times.items()
            if self.tests.get(dataset, 0) >= LEAST_TESTS and dataset != without
        )

    def tests_like_paper(self, dataset: str) -> Range | None:
        """Tests estimated from the runtime of Stable.fast in the paper, at its rate on the other data sets."""
        pace = Range.of(
            self.tests[other] / seconds
            for other, seconds in self.stable_fast.items()
            if other in self.tests and other != dataset
        )
        return pace * self.stable_fast[dataset] if pace and dataset in self.stable_fast else None

    def tests_on(self, dataset: str, variables: int | None) -> Range:
        """Tests on a data set: recorded, else estimated, else those of level 0 as a lower bound."""
        if dataset in self.tests:
            return Range(self.tests[dataset], self.tests[dataset])
        return self.tests_like_paper(dataset) or Range(math.comb(variables or 0, 2), math.inf)

    def estimate(self, job: Job) -> Range:
        """Seconds of one run: measured, or else tests / rate."""
        times = self.seconds(job.method, job.params)
        if job.dataset in times:
            return Range(times[job.dataset], times[job.dataset])
        rate = self.rate(times, without=job.dataset)
        return self.tests_on(job.dataset, job.variables) / rate if rate else Range(0, math.inf)


# --- a configuration -------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Job:
    """A setting on one data set, and the target it is for."""

    target: str
    dataset: str
    method: str
    params: Mapping[str, Any]
    repeats: int
    variables: int | None


def jobs(plan: Plan, variables: Mapping[str, int]) -> Iterator[Job]:
    """What is measured for cuPC: all settings on the paper's data sets, its grids, and its generated graphs.

    Args:
        variables: numbers of variables of the paper's data sets, by name.
    """
    of_paper = {name for entry in entries().values() if entry.paper == PAPER for name in entry.experiments}
    for name, measurement in plan.measurements().items():
        if name != "gaussian" and name not in of_paper:
            continue
        experiment, target = plan.experiments.get(name), MAIN if name == "gaussian" else name
        graphs = experiment.graphs if experiment else {}
        is_grid = experiment is not None and not graphs
        for dataset in measurement.datasets:
            if dataset not in variables and dataset not in graphs:
                continue
            p = graphs[dataset]["parameters"]["p"] if dataset in graphs else variables[dataset]
            for setting, choice in measurement.settings.items():
                if dataset in choice.get("only", [dataset]):
                    params = {} if is_grid else choice.get("params", {})
                    yield Job(target, dataset, choice.get("method", setting), params, measurement.repeats, p)


def measuring_time(run: Range, timing: Mapping[str, Any], repeats: int) -> Range:
    """All runs of a setting: the cold one and its repeats; a single repeat of a long run; none over the time limit."""
    limit, long = timing["time_limit_s"], timing["long_run_s"]

    def total(seconds: float) -> float:
        return limit if seconds >= limit else seconds * (2 if seconds > long else 1 + repeats)

    found = [total(run.low), total(run.high)]
    # On either side of these times the number of runs differs.
    if run.low < long < run.high:
        found += [(1 + repeats) * long, 2 * long]
    if run.low < limit < run.high:
        found += [2 * limit, limit]
    return Range(min(found), max(found))


def cost(plan: Plan, rates: Rates, variables: Mapping[str, int]) -> list[list[str]]:
    """A row a target: how many data sets and settings are measured for it, and how long that takes."""
    rows: dict[str, list[Any]] = {}
    for job in jobs(plan, variables):
        row = rows.setdefault(job.target, [set(), 0, Range(0, 0)])
        row[0].add(job.dataset)
        row[1] += 1
        row[2] += measuring_time(rates.estimate(job), plan.config["timing"], job.repeats)
    return [[target, str(len(sets)), str(n), hours(time)] for target, (sets, n, time) in rows.items()]


def hours(time: Range) -> str:
    low, high = (number(seconds / 3600, 2) for seconds in (time.low, time.high))
    return low if low == high else f"{low}–{high}"


def check(rates: Rates) -> list[list[str]]:
    """Measured data sets, each predicted from the others: with its own number of tests, and with that from Table 2."""
    rows = []
    for run in rates.runs:
        rate = rates.rate(rates.seconds(run.method, run.params), without=run.dataset)
        if rates.tests.get(run.dataset, 0) < LEAST_TESTS or rate is None:
            continue
        tests = (rates.tests_on(run.dataset, None), rates.tests_like_paper(run.dataset))
        cells = [(span(n / rate), number(off(n / rate, run.median), 2)) if n else ("–", "–") for n in tests]
        rows.append([run.dataset, run.setting, number(run.median), *cells[0], *cells[1]])
    return rows


def off(predicted: Range, seconds: float) -> float:
    """By what factor a time lies outside its prediction; 1 inside."""
    return max(predicted.low / seconds, seconds / predicted.high, 1)


def span(seconds: Range) -> str:
    return "–".join(dict.fromkeys(map(number, (seconds.low, seconds.high))))


def main(argv: Sequence[str] | None = None) -> int:
    """Print both tables as Markdown; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m workflow.lib.cost", description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, required=True, help="the configuration whose cost is asked")
    parser.add_argument("--records", type=Path, required=True, action="append", help="folder of records; repeatable")
    parser.add_argument("--reported", type=Path, default=Path("results/reported"), help="the papers' own numbers")
    parser.add_argument("--backend", default="host", help="whose records (default: host); CPU references always count")
    options = parser.parse_args(argv)
    config = read_config(options.config)
    complete(config)
    paths = [path for folder in options.records for path in sorted(folder.glob("*/*.json"))]
    records = [record for record in load_records(paths) if record.backend in (options.backend, "cpu")]
    stable_fast = {
        row["dataset"]: float(row["value"])
        for row in read_csv(options.reported / "cupc_table2.csv")
        if row["symbol"] == "T3" and row["dataset"] != "geometric mean"
    }
    variables = {row["dataset"]: int(row["variables"]) for row in read_csv(options.reported / "cupc_table1.csv")}
    rates = Rates([record for record in records if record.family == "gaussian"], stable_fast)
    header = ["target", "data sets", "settings × data sets", "hours"]
    print(markdown(header, cost(Plan(config), rates, variables)))
    print()
    header = ["data set", "setting", "measured, s", "from its tests, s", "off by", "from Table 2, s", "off by"]
    print(markdown(header, check(rates)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
