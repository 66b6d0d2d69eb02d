"""What a config measures, as units in the order of their weight, estimated from recorded rates and cut into slices.

A *unit* is what is measured in one go: the GPU methods, or the references, of one data set; those of a table of single
tests; a timeline. A data set's GPU methods come first and its references follow. Families come first, then what tables
show, then what figures alone show; within, as in the config.

A run is estimated, in this order, from

- the record of the same method and parameters on the same data set;
- the nearest record of the method, scaled by the problem's size (`POWERS`);
- the time limit, as an upper bound, which is marked.

To the runs come the start of processes, verification and, where a problem has to be made, its making: rough constants,
see below.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpupc_impl.measurement.record import Record
from gpupc_impl.measurement.sampler import Setting
from workflow.lib.experiments import combinations
from workflow.lib.plan import Plan
from workflow.lib.searches import setting_of
from workflow.lib.single_tests import DIMENSIONS

POWERS = {
    "gaussian": {"p": 3},
    "discrete": {"p": 2, "n": 1, "tests_per_edge": 1},
    "nonlinear": {"p": 2, "n": 1, "permutations": 1},
    "mixed": {"p": 2, "n": 1, "permutations": 1},
    "kernel": {"p": 2, "n": 1},
}
"""Time goes with these powers of a problem's sizes, by family: nearly all tests of a dense graph are level 1's, p^3; a
table of categories or a nearest neighbour takes time in proportion to the samples."""

START_S, EACH_S = 3.0, 1.0
"""Seconds that starting and loading take, for a unit and for each of its settings."""

CORRELATIONS_A_SECOND, BYTES_A_SECOND = 1e11, 5e8
"""Rates at which a correlation matrix is made (multiplications) and written."""

CERTIFICATES_A_SECOND = 8e5
"""Pairs of variables that verification tests again in a second, on one core."""

VERIFYING_AT_MOST_S = 30
"""Seconds of verification that are reckoned with: where more are needed and there is no time, digests are compared."""


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Seconds, and whether a time limit is among them, so that they are an upper bound."""

    seconds: float
    bound: bool = False

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.seconds + other.seconds, self.bound or other.bound)

    def __str__(self) -> str:
        return f"{'≤ ' if self.bound else ''}{self.seconds / 60:.1f} min"


@dataclasses.dataclass(frozen=True)
class Unit:
    """What is measured in one go.

    Attributes:
        kind: ``"search"``, ``"tests"`` or ``"timeline"``.
        target: the family, experiment or table of single tests.
        dataset: its name; of single tests the table's.
        settings: by name, as in the config.
        references: whether these are the references.
    """

    kind: str
    target: str
    family: str
    dataset: str
    settings: Mapping[str, Mapping[str, Any]]
    references: bool
    repeats: int = 1

    def __str__(self) -> str:
        what = self.dataset if self.dataset == self.target else f"{self.target}, {self.dataset}"
        kind = ", timeline" if self.kind == "timeline" else ""
        return f"{what}{kind}: {', '.join(self.settings)}"


def units(plan: Plan) -> list[Unit]:
    """All units of a config, in order."""
    shown = plan.outputs().values()
    in_tables = {name for entry in shown if not entry.figure for name in (*entry.experiments, entry.tests)}
    tests, timelines = plan.config["ci_tests"], plan.timelines()
    found: dict[int, list[Unit]] = {0: [], 1: [], 2: [], 3: []}
    for name in tests["tables"]:
        for references, some in _parted(tests["implementations"], plan):
            unit = Unit("tests", name, tests["spec"]["family"], name, some, references)
            found[3 if references else 1].append(unit)
    for name, measurement in plan.measurements().items():
        weight = 0 if name in plan.families else 1 if name in in_tables else 2
        for dataset in measurement.datasets:
            for references, settings in _parted(measurement.settings, plan):
                unit = Unit(
                    "search", name, measurement.family, dataset, settings, references, repeats=measurement.repeats
                )
                found[3 if references and weight else weight].append(unit)
            if name in plan.experiments and (timeline := timelines.get(dataset)):
                found[2].append(Unit("timeline", name, measurement.family, dataset, timeline, references=False))
    return [unit for its in found.values() for unit in its]


def _parted(
    settings: Mapping[str, Mapping[str, Any]], plan: Plan
) -> Iterator[tuple[bool, dict[str, Mapping[str, Any]]]]:
    """The settings in two: methods that are no reference, and references."""
    for references in (False, True):
        some = {
            name: choice
            for name, choice in settings.items()
            if as_setting(name, choice, plan).registered.reference == references
        }
        if some:
            yield references, some


def as_setting(name: str, choice: Mapping[str, Any], plan: Plan) -> Setting:
    return setting_of(name, choice, plan.config["timing"], plan.config["limits"])


def sizes(plan: Plan, unit: Unit) -> dict[str, Any]:
    """What is known of a unit's problem before it is made: p and n where the registry or the generator says them, and
    the parameters of its test."""
    experiment = plan.experiments.get(unit.target)
    if experiment and experiment.graphs:
        entry, own = experiment.graphs[unit.dataset], experiment.problems[unit.dataset]
        parameters = plan.problem_parameters(unit.family, own)
    else:
        entry, parameters = plan.entries[unit.dataset], plan.parameters_of(unit.dataset)
    given = entry.get("parameters", {})
    p, n = entry.get("variables", given.get("p")), entry.get("samples", given.get("n", given.get("m")))
    return parameters | {"p": p, "n": n}


class Rates:
    """What was recorded: records of searches, and cells of single tests."""

    def __init__(self, records: Iterable[Record], cells: Iterable[Mapping[str, Any]]):
        self.records = list(records)
        self.cells = list(cells)

    def search(self, plan: Plan, unit: Unit, settings: Iterable[str], prepared: bool) -> Estimate:
        """Some settings of a unit.

        Args:
            prepared: whether the problem is there already.
        """
        size = sizes(plan, unit)
        total = Estimate(START_S + (0 if prepared else _making(size)) + min(verifying(plan, unit), VERIFYING_AT_MOST_S))
        for name in settings:
            choice = unit.settings[name]
            if unit.dataset in choice.get("only", [unit.dataset]):
                total += Estimate(EACH_S) + self._runs(plan, unit, as_setting(name, choice, plan), size)
        return total

    def _runs(self, plan: Plan, unit: Unit, setting: Setting, size: Mapping[str, Any]) -> Estimate:
        """All runs of one setting: the cold one and its repeats, a single one of a long run, none over the limit."""
        limit, long = setting.limits.time_s or math.inf, plan.config["timing"]["long_run_s"]
        alike = [record for record in self.records if record.method == setting.method]
        same = [record for record in alike if _same(record, setting)]
        here = next((record for record in same if record.dataset == unit.dataset), None)
        if here is not None and not here.ok:
            return Estimate(limit if here.status == "timeout" else 0)
        found = (here, 1.0) if here else _nearest(same, size) or _nearest(alike, size)
        if found is None:
            return Estimate(limit, bound=True)
        record, scale = found
        seconds = (record.median or 0) * scale
        if seconds >= limit:
            return Estimate(limit)
        cold = min(seconds + max((record.time_s.cold or 0) - (record.median or 0), 0), limit)
        return Estimate(cold + seconds * (1 if seconds > long else unit.repeats))

    def tests(self, plan: Plan, unit: Unit, implementations: Iterable[str]) -> Estimate:
        """Some implementations of a table of single tests."""
        asked = plan.config["ci_tests"]
        table = asked["tables"][unit.target]
        total = Estimate(START_S)
        for name in implementations:
            setting = as_setting(name, unit.settings[name], plan)
            total += Estimate(EACH_S)
            for case in cases(table):
                total += self._cell(setting, case, asked)
        return total

    def _cell(self, setting: Setting, case: Mapping[str, Any], asked: Mapping[str, Any]) -> Estimate:
        limit, best = asked["time_limit_s"], None
        k = case["k_cmi"] if case["k_cmi"] >= 1 else case["k_cmi"] * case["samples"]
        wanted = {**case, "k_cmi": k}
        for cell in self.cells:
            if cell["method"] == setting.method and cell["params"] == setting.all_params:
                away = sum(abs(math.log((wanted[key] or 0.5) / (cell[key] or 0.5))) for key in DIMENSIONS)
                if best is None or away < best[0]:
                    best = away, cell
        if best is None:
            return Estimate(limit, bound=True)
        away, cell = best
        if cell["status"] != "ok":
            return Estimate(limit if cell["status"] == "timeout" else 0, bound=away > 0)
        scale = math.prod(wanted[key] / cell[key] for key in ("samples", "permutations"))
        mean = sum(cell["seconds"]) / len(cell["seconds"]) * scale
        return Estimate(min((cell["cold_s"] or 0) + mean * asked["tests"], limit))

    def of(self, plan: Plan, unit: Unit, settings: Iterable[str], prepared: bool) -> Estimate:
        """Some settings of any unit."""
        if unit.kind == "tests":
            return self.tests(plan, unit, settings)
        one_repeat = dataclasses.replace(unit, repeats=1) if unit.kind == "timeline" else unit
        return self.search(plan, one_repeat, settings, prepared)


def cases(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The cases of a table of single tests, as values of its dimensions."""
    return list(combinations({key: table[key] for key in DIMENSIONS}))


def _same(record: Record, setting: Setting) -> bool:
    return record.params == setting.all_params and record.separating_sets == setting.separating_sets


def _nearest(records: Iterable[Record], size: Mapping[str, Any]) -> tuple[Record, float] | None:
    """The record of the problem that is nearest in size, and by what factor its time is scaled: among those with the
    same level and alpha, where there are any."""
    found = []
    for record in records:
        facts = record.problem
        if not record.ok or facts is None:
            continue
        known = {**facts, "p": facts["n_variables"], "n": facts.get("n_samples")}
        powers = POWERS.get(record.family, {})
        if any((size.get(key) is None) != (known.get(key) is None) for key in powers):
            continue
        factors = [(size[key] / known[key]) ** power for key, power in powers.items() if size.get(key)]
        scale = math.prod(factors)
        other = sum(size.get(key) != facts.get(key) for key in ("max_level", "alpha"))
        found.append((other, abs(math.log(scale)), len(found), record, scale))
    return min(found)[-2:] if found else None


def _making(size: Mapping[str, Any]) -> float:
    """Seconds that making and writing a problem take, of which correlations are the most."""
    p, n = size["p"] or 0, size["n"] or 0
    return n * p**2 / CORRELATIONS_A_SECOND + 8 * p**2 / BYTES_A_SECOND


def verifying(plan: Plan, unit: Unit) -> float:
    """Seconds that verifying a data set takes where all methods found the same, and most edges are gone."""
    return float(math.comb(sizes(plan, unit)["p"] or 0, 2) / CERTIFICATES_A_SECOND)


def cut(estimates: Sequence[Estimate], seconds: float) -> list[list[int]]:
    """The places of units, slice by slice: in order, each slice within that many seconds unless one unit is longer."""
    found: list[list[int]] = []
    used = math.inf
    for place, estimate in enumerate(estimates):
        if used + estimate.seconds > seconds:
            found.append([])
            used = 0.0
        found[-1].append(place)
        used += estimate.seconds
    return found
