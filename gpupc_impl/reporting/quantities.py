"""Computes our numbers for a paper's claims from records, for data sets and series of generated data.

A paper's module combines these functions to a `Quantity` for each claim, which `claims.table_of` judges.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gpupc_impl.reporting.cells import AtLeast, geometric_mean, label, median, number, stated, status_word
from gpupc_impl.reporting.runs import VerifiedRecord, on_backend

Params = Mapping[str, Any]


class Missing(Exception):
    """Raised if there is no number; the message is the reason in a few words."""


def seconds_of(run: VerifiedRecord) -> float:
    """Return the median runtime of a run.

    Raises:
        Missing: the run did not finish, or its skeleton is not verified.
    """
    if not run.counts:
        raise Missing(f"{run.setting} {'not verified' if run.status == 'ok' else status_word(run.status)}")
    return run.median


def levels_of(run: VerifiedRecord) -> float:
    """Return the median time of all levels of a run together, in seconds.

    Raises:
        Missing: the run has no time, its skeleton is not verified, or its program does not time levels.
    """
    seconds_of(run)
    if run.levels_median is None:
        raise Missing(f"{run.setting} does not time its levels")
    return run.levels_median


STAND_INS = {"dream5-insilico": "dream5-like"}
"""Data sets that are not available everywhere, and the simulated ones on which their claims are judged instead."""


class Evidence:
    """The runs of one backend, together with those of the CPU references.

    If a configuration was measured with the papers' rule for separating sets, its runs with our rule are left out.

    Args:
        selected: for each method, the parameters that stand for the paper's, the preferred ones first.
        factors: how many times longer other programs take than our references (see `reporting.chains`).
    """

    def __init__(
        self,
        runs: Iterable[VerifiedRecord],
        backend: str,
        selected: Mapping[str, Sequence[Params]],
        factors: Mapping[tuple[str, str], Any] = types.MappingProxyType({}),
    ):
        self.factors = factors
        here = on_backend(runs, backend)
        published = [_configuration(run) for run in here if run.separating_sets == "first-come"]
        self.runs = [run for run in here if run.separating_sets == "first-come" or _configuration(run) not in published]
        self.datasets = list(dict.fromkeys(run.dataset for run in self.runs))
        self._selected = selected

    def measured(self, dataset: str) -> str:
        """Return the data set, or its stand-in if only that was measured."""
        finished = {run.dataset for run in self.runs if run.ok}
        stand_in = STAND_INS.get(dataset)
        return dataset if dataset in finished or stand_in not in finished else stand_in

    def run(self, dataset: str, method: str, **params: Any) -> VerifiedRecord:
        """Return the first run of a method with these parameters, or with the selected parameters if none are passed.

        Raises:
            Missing: there is no such run.
        """
        choices = [params] if params else self._selected.get(method, [{}])
        for choice in choices:
            for run in self.of(dataset, method):
                if choice.items() <= run.params.items():
                    return run
        what = "-".join([label(method), *map(str, choices[0].values())])
        raise Missing(f"{what} not measured" if dataset in self.datasets else "not in this run")

    def of_setting(self, method: str, setting: str) -> Evidence:
        """Return the same evidence with only one setting of a method."""
        alone = copy.copy(self)
        alone.runs = [run for run in self.runs if run.method != method or run.setting == setting]
        return alone

    def of(self, dataset: str, method: str) -> list[VerifiedRecord]:
        return [run for run in self.runs if run.dataset == dataset and run.method == method]


def _configuration(run: VerifiedRecord) -> tuple[str, str, Params]:
    return run.dataset, run.method, run.params


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Our numbers for one claim, by a description of each, and the reasons for missing numbers.

    Attributes:
        modelled: whether the numbers are those of a model instead of runs; the verdict then says so.
        chained: whether they are products of factors that two machines measured (see `reporting.chains`).
    """

    values: Mapping[str, Sequence[float]]
    missing: Mapping[str, str] = dataclasses.field(default_factory=dict)
    modelled: bool = False
    chained: bool = False

    @property
    def all(self) -> list[float]:
        return [value for values in self.values.values() for value in values]


Quantity = Callable[[Any, Sequence[str]], Numbers]
"""A function from a paper's evidence and the data sets of a claim to our numbers."""

Measure = Callable[[Any, str], float]
"""A function from a paper's evidence and a data set to a number; raises `Missing`."""


# --- numbers of a data set -------------------------------------------------------------------------------------------


def seconds(method: str, **params: Any) -> Measure:
    return lambda evidence, dataset: seconds_of(evidence.run(dataset, method, **params))


def level_seconds(method: str, **params: Any) -> Measure:
    return lambda evidence, dataset: levels_of(evidence.run(dataset, method, **params))


def ratio(slow: Measure, fast: Measure) -> Measure:
    """Return the measure of how many times longer `slow` takes than `fast`."""
    return lambda evidence, dataset: slow(evidence, dataset) / fast(evidence, dataset)


def over(fast: str, slow: str, clock: Callable[[str], Measure] = seconds) -> Measure:
    """Return the measure of how many times faster one method is than another, by whole calls (`seconds`) or by the
    levels alone (`level_seconds`)."""
    return ratio(clock(slow), clock(fast))


def reaching(claimed: float, fast: str, slow: str, **params: Any) -> Measure:
    """Return the measure `over` for a claim of at least this speedup. If the slow method (with `params`) hit its time
    limit, the resulting bound is used if it exceeds the claimed speedup."""

    def measure(evidence: Evidence, dataset: str) -> float:
        least, most = seconds_of(evidence.run(dataset, fast)), evidence.run(dataset, slow, **params)
        if most.status != "timeout":
            return seconds_of(most) / least
        if most.limits.time_s < claimed * least:
            raise Missing(f"{most.setting} timeout: all we know is more than {number(most.limits.time_s / least)}×")
        return AtLeast(most.limits.time_s / least)

    return measure


# --- quantities ------------------------------------------------------------------------------------------------------


def not_run(reason: str) -> Quantity:
    """Return a quantity that we cannot measure, for this reason."""
    return lambda evidence, datasets: Numbers({}, {"all": reason})


def over_datasets(compute: Callable[[Any, str], Mapping[str, Sequence[float]] | float]) -> Quantity:
    """Return a quantity that has one or more numbers for every data set."""

    def quantity(evidence: Any, datasets: Sequence[str]) -> Numbers:
        values: dict[str, Sequence[float]] = {}
        missing = {}
        for dataset in datasets:
            try:
                numbers = compute(evidence, dataset)
            except Missing as reason:
                missing[dataset] = str(reason)
            else:
                values |= numbers if isinstance(numbers, Mapping) else {dataset: [numbers]}
        return Numbers(values, missing)

    return quantity


def summary(compute: Measure, name: str, of: Callable[[Sequence[float]], float]) -> Quantity:
    """Return a quantity with one number for all data sets, which `of` computes from theirs; `name` describes it."""

    def quantity(evidence: Any, datasets: Sequence[str]) -> Numbers:
        numbers = over_datasets(compute)(evidence, datasets)
        values = {f"{name} of {', '.join(numbers.values)}": [of(numbers.all)]} if numbers.values else {}
        return Numbers(values, numbers.missing)

    return quantity


def mean_of(compute: Measure) -> Quantity:
    """Return the geometric mean over the data sets that have the number."""
    return summary(compute, "mean", lambda values: float(geometric_mean(values) or 0))


def largest_of(compute: Measure) -> Quantity:
    """Return the largest number of the data sets, for a claim with "up to"."""
    return summary(compute, "largest", max)


def together(*quantities: Quantity) -> Quantity:
    """Return the numbers of several quantities as one quantity."""

    def combined(evidence: Any, datasets: Sequence[str]) -> Numbers:
        parts = [quantity(evidence, datasets) for quantity in quantities]
        values = {name: numbers for part in parts for name, numbers in part.values.items()}
        return Numbers(values, {name: reason for part in parts for name, reason in part.missing.items()})

    return combined


# --- generated data, described by few numbers ------------------------------------------------------------------------

Describe = Callable[[Any], Mapping[str, float] | None]
"""A function that returns numbers that describe a run's data, by symbol; None for data of another kind."""

Compute = Callable[[list[float], list[float]], Sequence[float] | float]
"""A function from ascending values and our numbers at these to what a claim states; raises `Missing`."""


def described(evidence: Any, describe: Describe) -> dict[str, Mapping[str, float]]:
    """Return the generated data sets, each with the numbers that describe it."""
    sizes = {run.dataset: describe(run) for run in evidence.runs}
    return {dataset: size for dataset, size in sizes.items() if size}


def along(describe: Describe, axis: str, measures: Mapping[str, Measure], compute: Compute) -> Quantity:
    """Return a quantity of the longest series of generated data in which only `axis` varies, by measure.

    If several data sets have the same size, their median counts.
    """

    def quantity(evidence: Any, _: Sequence[str]) -> Numbers:
        values: dict[str, Sequence[float]] = {}
        missing = {}
        for name, measure in measures.items():
            try:
                where, places, numbers = _series(evidence, describe, axis, measure)
                computed = compute(places, numbers)
                shown = f"{name}, {axis} = {', '.join(f'{place:g}' for place in places)}"
                numbers = [computed] if isinstance(computed, float) else computed
                values[f"{shown} ({where})" if where else shown] = numbers
            except Missing as reason:
                missing[name] = str(reason)
        return Numbers(values, missing)

    return quantity


def _series(evidence: Any, describe: Describe, axis: str, measure: Measure) -> tuple[str, list[float], list[float]]:
    """Return a text about the numbers that do not vary, the values of the one that does, and the measured numbers."""
    groups: dict[tuple[tuple[str, float], ...], dict[float, list[float]]] = {}
    for dataset, size in described(evidence, describe).items():
        try:
            value = measure(evidence, dataset)
        except Missing:
            continue
        fixed = tuple((name, number) for name, number in size.items() if name != axis)
        groups.setdefault(fixed, {}).setdefault(size[axis], []).append(value)
    fixed, numbers = max(groups.items(), key=lambda group: len(group[1]), default=((), {}))
    if len(numbers) < 2:
        raise Missing(f"nothing that differs in {axis} only")
    places = sorted(numbers)
    where = ", ".join(f"{name} = {value:g}" for name, value in fixed)
    return where, places, [median(numbers[place]) for place in places]


def everywhere(describe: Describe, measure: Measure, name: str = "generated sets") -> Quantity:
    """Return a quantity with the number of every generated data set."""

    def quantity(evidence: Any, _: Sequence[str]) -> Numbers:
        numbers = over_datasets(measure)(evidence, list(described(evidence, describe)))
        if not numbers.values:
            return Numbers({}, {"generated data": "none measured"})
        return Numbers({f"{len(numbers.values)} {name}": numbers.all})

    return quantity


def by_size(
    describe: Describe,
    measure: Measure,
    chosen: Callable[[Mapping[str, float]], bool] = lambda size: True,
    of: Callable[[Sequence[float]], float] | None = None,
) -> Quantity:
    """Return the medians over the generated data of each chosen size; with `of`, one number computed from them."""

    def quantity(evidence: Any, _: Sequence[str]) -> Numbers:
        sizes = {dataset: size for dataset, size in described(evidence, describe).items() if chosen(size)}
        numbers = over_datasets(measure)(evidence, list(sizes))
        if not numbers.values:
            return Numbers({}, numbers.missing or {"such data": "not in this run"})
        groups: dict[tuple[tuple[str, float], ...], list[float]] = {}
        for dataset, values in numbers.values.items():
            groups.setdefault(tuple(sizes[dataset].items()), []).extend(values)
        medians = [median(values) for values in groups.values()]
        symbols = {symbol for size in groups for symbol, _ in size}
        where = stated((symbol, sorted({dict(size)[symbol] for size in groups})) for symbol in sorted(symbols))
        return Numbers({where: [of(medians)] if of else medians}, numbers.missing)

    return quantity


def at_size(describe: Describe, size: Mapping[str, float], measure: Measure) -> Quantity:
    """Return the median over the generated data of one size, which need not contain all numbers."""

    def quantity(evidence: Any, _: Sequence[str]) -> Numbers:
        chosen = [dataset for dataset, its in described(evidence, describe).items() if size.items() <= its.items()]
        numbers = over_datasets(measure)(evidence, chosen)
        where = ", ".join(f"{name} = {value:g}" for name, value in size.items())
        if not numbers.values:
            return Numbers({}, numbers.missing or {where: "not in this run"})
        named = f"median of {len(numbers.values)} graphs" if len(numbers.values) > 1 else where
        return Numbers({named: [median(numbers.all)]}, numbers.missing)

    return quantity


# --- what a series says ----------------------------------------------------------------------------------------------


def smallest_step(_: list[float], numbers: list[float]) -> float:
    """Return the smallest ratio of a number to its predecessor."""
    return min(after / before for before, after in itertools.pairwise(numbers))


def straightness(places: list[float], numbers: list[float]) -> float:
    """Return R^2 of a straight line, with a negative sign if the line falls."""
    if len(places) < 3:
        raise Missing("a line needs three values")
    correlation = float(np.corrcoef(places, numbers)[0, 1])
    return correlation * abs(correlation)


def within(low: float, high: float, of: Callable[[list[float]], float] | None = None) -> Compute:
    """Return the numbers at values in a range; with `of`, one number computed from them."""

    def compute(places: list[float], numbers: list[float]) -> Sequence[float] | float:
        inside = [value for place, value in zip(places, numbers, strict=True) if low <= place <= high]
        if not inside:
            raise Missing(f"none from {low:,g}" + (" on" if math.isinf(high) else f" to {high:,g}"))
        return of(inside) if of else inside

    return compute


def growth(first: float, last: float) -> Callable[[list[float], list[float]], float]:
    """Return the ratio of the number at one value to that at another."""

    def compute(places: list[float], numbers: list[float]) -> float:
        at = dict(zip(places, numbers, strict=True))
        if lacking := [f"{place:g}" for place in (first, last) if place not in at]:
            raise Missing(f"none at {' and '.join(lacking)}")
        return at[last] / at[first]

    return compute


def percent_growth(first: float, last: float) -> Compute:
    """Return `growth` in percent."""
    return lambda places, numbers: 100 * (growth(first, last)(places, numbers) - 1)


def per_doubling(low: float, high: float) -> Compute:
    """Return the ratios of numbers at two values of which one is twice the other."""

    def compute(places: list[float], numbers: list[float]) -> list[float]:
        at = dict(zip(places, numbers, strict=True))
        ratios = [
            at[2 * place] / at[place] for place in places if low <= place and 2 * place <= high and 2 * place in at
        ]
        if not ratios:
            raise Missing("no two values, one of them twice the other")
        return ratios

    return compute
