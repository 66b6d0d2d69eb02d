"""Computes our numbers for a paper's claims from records, for data sets and series of generated data.

A paper's module combines these functions to a `Quantity` for each claim, which `claims.table_of` judges.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gpupc_impl.reporting.cells import AtLeast, label, median, number, stated, status_word
from gpupc_impl.reporting.runs import VerifiedRecord, by_key, datasets_of


class Missing(Exception):
    """Raised if there is no number; the message is the reason in a few words."""


STAND_INS = {"dream5-insilico": "dream5-like", "tcga": "tcga-like"}
"""Data sets that are not available everywhere, and the simulated ones that stand in for them. Numbers of a stand-in are
shown beside a claim and do not count."""


@dataclasses.dataclass
class Evidence:
    """What the claims of a paper are judged by: the runs of one machine.

    If a configuration was measured with the papers' rule for separating sets, its runs with our rule are left out.

    Attributes:
        selected: for each method, the parameters that stand for the paper's, the preferred ones first.
        factors: see `factors_of`.
        sharing: the histograms of shared conditioning sets, by data set.
        tests: the single tests.
        algorithm_7: the runs with cuPC's Algorithm 7 for every set, which belong to another test than the others.
        changes: how the SHD of each graph of GPU-CMIknn's Fig. 1 changes, by k_CMI.
        elsewhere: the seconds of tigramite on one core of another machine, by data set; only their ratios count.
    """

    runs: Sequence[VerifiedRecord]
    selected: Mapping[str, Sequence[Mapping[str, Any]]] = dataclasses.field(default_factory=dict)
    factors: Mapping[tuple[str, str], tuple[float, str]] = dataclasses.field(default_factory=dict)
    sharing: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tests: Any = None
    algorithm_7: Evidence | None = None
    changes: Mapping[int, Sequence[float]] = dataclasses.field(default_factory=dict)
    elsewhere: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        published = [(run.dataset, run.method, run.params) for run in self.runs if run.separating_sets == "first-come"]
        self.runs = [
            run
            for run in self.runs
            if run.separating_sets == "first-come" or (run.dataset, run.method, run.params) not in published
        ]
        self.datasets = datasets_of(self.runs)

    def measured(self, dataset: str) -> str:
        """Return the data set, or its stand-in if only that was measured."""
        finished = {run.dataset for run in self.runs if run.ok}
        stand_in = STAND_INS.get(dataset)
        return dataset if dataset in finished or stand_in not in finished else stand_in

    def run(self, dataset: str, method: str, **params: Any) -> VerifiedRecord:
        """Return the first run of a method with these parameters, or the selected ones; raises `Missing`."""
        choices = [params] if params else self.selected.get(method, [{}])
        for choice in choices:
            for run in self.runs:
                if (run.dataset, run.method) == (dataset, method) and choice.items() <= run.params.items():
                    return run
        what = "-".join([label(method), *map(str, choices[0].values())])
        raise self.lacking(f"{what} not measured", dataset)

    def lacking(self, why: str, dataset: str) -> Missing:
        """Return the reason why a data set has no number: that it was not measured at all, or else `why`."""
        return Missing(why if dataset in self.datasets else "not in this run")


class Numbers(NamedTuple):
    """Our numbers for one claim, by a description of each, and the reasons for missing numbers."""

    values: Mapping[str, Sequence[float]]
    missing: Mapping[str, str] = types.MappingProxyType({})

    @property
    def all(self) -> list[float]:
        return [value for values in self.values.values() for value in values]


Quantity = Callable[[Any, Sequence[str]], Numbers]
"""A function from a paper's evidence and the data sets of a claim to our numbers."""

Measure = Callable[[Any, str], float]  # a function from a paper's evidence and a data set to a number; raises `Missing`

Reduce = Callable[[Sequence[float]], float]


# --- numbers of a data set -------------------------------------------------------------------------------------------
def seconds_of(run: VerifiedRecord) -> float:
    """Return the median runtime of a run; raises `Missing` if it did not finish or its skeleton is not verified."""
    if not run.counts:
        raise Missing(f"{run.setting} {'not verified' if run.status == 'ok' else status_word(run.status)}")
    return run.median


def of_run(method: str, get: Callable[[VerifiedRecord], float | None], lacking: str = "", **params: Any) -> Measure:
    """Return the measure of a number of a run that counts; `lacking` follows the setting if `get` returns None."""

    def measure(evidence: Evidence, dataset: str) -> float:
        run = evidence.run(dataset, method, **params)
        seconds_of(run)  # This raises `Missing` if the run does not count.
        value = get(run)
        if value is None:
            raise Missing(f"{run.setting} {lacking}")
        return value

    return measure


def seconds(method: str, **params: Any) -> Measure:
    return of_run(method, lambda run: run.median, **params)


def level_seconds(method: str) -> Measure:
    return of_run(method, lambda run: run.levels_median, "does not time its levels")


def ratio(slow: Measure, fast: Measure) -> Measure:
    """Return the measure of how many times longer `slow` takes than `fast`."""
    return lambda evidence, dataset: slow(evidence, dataset) / fast(evidence, dataset)


def over(fast: str, slow: str, clock: Callable[[str], Measure] = seconds) -> Measure:
    """Return the measure of how many times faster a method is, by whole calls or by the levels (`level_seconds`)."""
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


def over_datasets(
    compute: Callable[[Any, str], Mapping[str, Sequence[float]] | float], reduce: Reduce | None = None
) -> Quantity:
    """Return a quantity that has one or more numbers for every data set; with `reduce`, one for all of them together:
    their `geometric_mean`, or the largest (``max``) for a claim with "up to"."""

    def quantity(evidence: Any, datasets: Sequence[str]) -> Numbers:
        values: dict[str, Sequence[float]] = {}
        missing = {}
        for dataset in datasets:
            try:
                found = compute(evidence, dataset)
                values |= found if isinstance(found, Mapping) else {dataset: [found]}
            except Missing as reason:
                missing[dataset] = str(reason)
        numbers = Numbers(values, missing)
        if reduce is None or not values:
            return numbers
        name = {max: "largest"}.get(reduce, "mean")
        return Numbers({f"{name} of {', '.join(values)}": [reduce(numbers.all)]}, missing)

    return quantity


# --- speedups over programs that are not on the GPU's machine --------------------------------------------------------
def factors_of(rows: Iterable[Mapping[str, str]]) -> dict[tuple[str, str], tuple[float, str]]:
    """Return, by program and data set, the ratio of the CPU times of the program and our serial reference on one core,
    and a text with their names, from lines of cpu_factors.csv whose skeletons are the same. A line without edges is of
    a program that had not ended, so its ratio is a lower bound."""
    factors = {}
    for row in rows:
        if row["differing_edges"] == "0" or not row["edges"]:
            kind, more = (float, "") if row["edges"] else (AtLeast, "more than ")
            ratio = kind(row["peer_cpu_s"]) / float(row["reference_cpu_s"])
            what = f"{row['peer']} over {row['reference']}, one core of {row['machine']}"
            factors[row["peer"], row["dataset"]] = ratio, f"{more}{number(ratio)} ({what})"
    return factors


def chained(direct: Quantity, peer: str, slow: str, fast: str, reduce: Reduce | None = None) -> Quantity:
    """Return the speedup of a method over a program: its speedup over our reference `slow` on the GPU's machine, times
    the program's factor; a parallel reference is taken to gain as much from its cores as the program. Without a
    factor it is `direct`. `reduce` makes one number from those of all data sets.
    """

    def product(evidence: Evidence, dataset: str) -> Mapping[str, Sequence[float]]:
        if (peer, dataset) not in evidence.factors:
            raise Missing(f"no run of {peer} with this skeleton")
        factor, text = evidence.factors[peer, dataset]
        ours = over(fast, slow)(evidence, dataset)
        pair = [label(evidence.run(dataset, name).setting).replace(",", "") for name in (fast, slow)]
        what = f"{' over '.join(pair)}, {evidence.run(dataset, slow).machine}"
        return {f"{dataset}: {text} × {number(ours)} ({what})": [type(factor)(factor * ours)]}

    def quantity(evidence: Evidence, datasets: Sequence[str]) -> Numbers:
        found = over_datasets(product)(evidence, datasets)
        if not found.values:
            return direct(evidence, datasets)
        return found._replace(values={"; ".join(found.values): [reduce(found.all)]}) if reduce else found

    return quantity


# --- generated data, described by few numbers ------------------------------------------------------------------------
Size = Mapping[str, float]  # numbers that describe generated data, by symbol

Chosen = Callable[[Size], bool]  # whether data of a size count

Describe = Callable[[Any], Size | None]  # returns the size of a run's data; None for data of another kind

Compute = Callable[[list[float], list[float]], Sequence[float] | float]
"""A function from ascending values and our numbers at these to what a claim states; raises `Missing`."""


def described(evidence: Any, describe: Describe) -> dict[str, Size]:
    """Return the generated data sets, each with the numbers that describe it."""
    sizes = {run.dataset: describe(run) for run in evidence.runs}
    return {dataset: size for dataset, size in sizes.items() if size}


def along(axis: str, series: Mapping[str, tuple[Describe, Measure]], compute: Compute) -> Quantity:
    """Return what `compute` makes of some series by name, each the longest one of the described data in which only
    `axis` varies; medians of data sets of the same size."""

    def computed(evidence: Any, name: str) -> Mapping[str, Sequence[float]]:
        describe, measure = series[name]
        sizes = described(evidence, describe)
        groups: dict[tuple[tuple[str, float], ...], dict[float, list[float]]] = {}
        for dataset, values in over_datasets(measure)(evidence, list(sizes)).values.items():
            fixed = tuple((symbol, number) for symbol, number in sizes[dataset].items() if symbol != axis)
            groups.setdefault(fixed, {}).setdefault(sizes[dataset][axis], []).extend(values)
        fixed, numbers = max(groups.items(), key=lambda group: len(group[1]), default=((), {}))
        if len(numbers) < 2:
            raise Missing(f"nothing that differs in {axis} only")
        places = sorted(numbers)
        found = compute(places, [median(numbers[place]) for place in places])
        where = f" ({', '.join(f'{symbol} = {value:g}' for symbol, value in fixed)})" if fixed else ""
        shown = f"{name}, {axis} = {', '.join(f'{place:g}' for place in places)}{where}"
        return {shown: [found] if isinstance(found, float) else found}

    return lambda evidence, _: over_datasets(computed)(evidence, list(series))  # by name


def by_size(
    describe: Describe, measure: Measure, chosen: Chosen = bool, reduce: Reduce | None = None, each: str = ""
) -> Quantity:
    """Return the medians over data of each chosen size (by default of every size), one number `reduce` made of them, or
    `each` data set's own."""

    def quantity(evidence: Any, _: Sequence[str]) -> Numbers:
        sizes = {dataset: size for dataset, size in described(evidence, describe).items() if chosen(size)}
        numbers = over_datasets(measure)(evidence, list(sizes))
        if not numbers.values:
            return Numbers({}, numbers.missing or {"such data": "not in this run"})
        if each:
            return Numbers({f"{len(numbers.values)} {each}": numbers.all}, numbers.missing)
        groups = by_key(numbers.values, lambda dataset: tuple(sizes[dataset].items()))
        medians = [median([value for name in its for value in numbers.values[name]]) for its in groups.values()]
        symbols = {symbol for size in groups for symbol, _ in size}
        where = stated((symbol, sorted({dict(size)[symbol] for size in groups})) for symbol in sorted(symbols))
        graphs = f" ({len(numbers.values)} graphs)" if len(numbers.values) > len(groups) else ""
        return Numbers({where + graphs: [reduce(medians)] if reduce else medians}, numbers.missing)

    return quantity


def quotient(one: Quantity, other: Quantity) -> Quantity:
    """Return the ratio of the means of the numbers of two quantities."""

    def quantity(evidence: Any, datasets: Sequence[str]) -> Numbers:
        above, below = one(evidence, datasets), other(evidence, datasets)
        if not (above.values and below.values):
            return Numbers({}, {**below.missing, **above.missing})
        return Numbers({"; ".join([*below.values, *above.values]): [float(np.mean(above.all) / np.mean(below.all))]})

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


def within(low: float, high: float, reduce: Reduce | None = None) -> Compute:
    """Return the numbers at values in a range; with `reduce`, one number made from them."""

    def compute(places: list[float], numbers: list[float]) -> Sequence[float] | float:
        inside = [value for place, value in zip(places, numbers, strict=True) if low <= place <= high]
        if not inside:
            raise Missing(f"none from {low:,g}" + (" on" if math.isinf(high) else f" to {high:,g}"))
        return reduce(inside) if reduce else inside

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
    return lambda places, numbers: 100 * (growth(first, last)(places, numbers) - 1)


def per_doubling(low: float, high: float) -> Compute:
    """Return the ratios of numbers at two values of which one is twice the other."""

    def compute(places: list[float], numbers: list[float]) -> list[float]:
        at = dict(zip(places, numbers, strict=True))
        inside = [place for place in places if low <= place and 2 * place <= high and 2 * place in at]
        if not inside:
            raise Missing("no two values, one of them twice the other")
        return [at[2 * place] / at[place] for place in inside]

    return compute
