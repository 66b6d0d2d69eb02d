"""The quantitative sentences of cuPC's section 5, each beside what our records say and whether that bears it out.

results/reported/cupc_claims.csv holds the sentences and what they state; `QUANTITIES` says how the same number comes
out of records. Configurations are found by method and parameters, generated data by their stated source.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gpupc_impl.reporting import sharing as shared_sets
from gpupc_impl.reporting.catalogue import table
from gpupc_impl.reporting.cells import geometric_mean, grouped, label, number, status_word
from gpupc_impl.reporting.papers.cupc import CUPC, PAPER, PARALLEL, SELECTED, SERIAL
from gpupc_impl.reporting.runs import VerifiedRecord, device_backends, on_backend
from gpupc_impl.reporting.tables import Table

ABOUT = 0.25
"""A number that the paper states as a single value is borne out by one within a quarter of it."""

GENERATED = re.compile(r"generated: cuPC section 5\.6, p=(\d+), m=(\d+), density=([\d.e+-]+), seed=\d+")

AXES = ("n", "m", "d")
"""What a generated data set is described by, in the order of `GENERATED`."""

PAPER_SIZE = (1000, 10000, 0.1)
"""n, m and d of the graphs on which section 5.6 gives numbers."""

CLAIMED_BOUND = 8500
"""How many times faster than PC-stable cuPC-E is at least on those graphs."""


# --- evidence --------------------------------------------------------------------------------------------------------


class Missing(Exception):
    """Why there is no number, in a few words."""


def seconds_of(run: VerifiedRecord) -> float:
    """The median.

    Raises:
        Missing: it did not finish, or its skeleton is not verified.
    """
    if not run.counts:
        raise Missing(f"{run.setting} {'not verified' if run.status == 'ok' else status_word(run.status)}")
    return run.median


def description(run: VerifiedRecord) -> tuple[float, ...] | None:
    """n, m and d of a generated data set (section 5.6)."""
    found = GENERATED.fullmatch(run.dataset_facts.get("source") or "")
    return found and (int(found[1]), int(found[2]), float(found[3]))


class Evidence:
    """What one backend measured, with the CPU references beside it.

    A configuration that was measured by the paper's rule for separating sets counts with that, and not with ours.
    """

    def __init__(self, runs: Iterable[VerifiedRecord], backend: str, shared: Iterable[shared_sets.Sharing]):
        runs = [run for run in on_backend(runs, backend) if run.params.get("inverse") != "pseudo"]
        as_published = [self._configuration(run) for run in runs if run.separating_sets == "first-come"]
        self.runs = [
            run for run in runs if run.separating_sets == "first-come" or self._configuration(run) not in as_published
        ]
        self.shared = {found.dataset: found for found in shared}
        self.datasets = {run.dataset for run in self.runs}

    @staticmethod
    def _configuration(run: VerifiedRecord) -> tuple[str, str, Mapping[str, Any]]:
        return run.dataset, run.method, run.params

    def run(self, dataset: str, method: str, **params: Any) -> VerifiedRecord:
        """The first run of a method with these parameters; the paper's selected ones when none are named."""
        params = params or SELECTED.get(method, {})
        for run in self.of(dataset, method):
            if params.items() <= run.params.items():
                return run
        what = "-".join([label(method), *map(str, params.values())])
        raise Missing(f"{what} not measured" if dataset in self.datasets else "not in this run")

    def of(self, dataset: str, method: str) -> list[VerifiedRecord]:
        return [run for run in self.runs if run.dataset == dataset and run.method == method]

    def generated(self) -> dict[str, tuple[float, ...]]:
        """The generated data sets, with n, m and d of each."""
        found = {run.dataset: description(run) for run in self.runs}
        return {dataset: size for dataset, size in found.items() if size}


@dataclasses.dataclass(frozen=True)
class Found:
    """Our numbers for one claim: by what they are of; and what is missing, with the reason."""

    values: Mapping[str, Sequence[float]]
    missing: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def all(self) -> list[float]:
        return [value for values in self.values.values() for value in values]


Quantity = Callable[[Evidence, Sequence[str]], Found]
"""From the evidence and the data sets that a claim speaks of to our numbers."""


def over_datasets(compute: Callable[[Evidence, str], Mapping[str, Sequence[float]] | float]) -> Quantity:
    """A quantity that every data set has on its own."""

    def quantity(evidence: Evidence, datasets: Sequence[str]) -> Found:
        values, missing = {}, {}
        for dataset in datasets:
            try:
                found = compute(evidence, dataset)
            except Missing as reason:
                missing[dataset] = str(reason)
            else:
                values |= found if isinstance(found, Mapping) else {dataset: [found]}
        return Found(values, missing)

    return quantity


# --- sections 5.2 and 5.3 --------------------------------------------------------------------------------------------


def differing_edges(evidence: Evidence, dataset: str) -> Mapping[str, Sequence[float]]:
    runs = [evidence.run(dataset, method) for method in CUPC]
    if not all(run.differing_edges for run in runs):
        raise Missing("no skeleton to compare")
    return {dataset: [int(run.differing_edges) for run in runs]}


def not_run_here(what: str) -> Quantity:
    return lambda evidence, datasets: Found({}, {what: "not among our references"})


def seconds(method: str) -> Quantity:
    return over_datasets(lambda evidence, dataset: seconds_of(evidence.run(dataset, method)))


def ratio(slow: str, fast: str) -> Callable[[Evidence, str], float]:
    return lambda evidence, dataset: seconds_of(evidence.run(dataset, slow)) / seconds_of(evidence.run(dataset, fast))


def times_faster(fast: str, slow: str) -> Quantity:
    return over_datasets(ratio(slow, fast))


def mean_times_faster(fast: str, slow: str) -> Quantity:
    """Geometric mean over the data sets that both finished."""

    def quantity(evidence: Evidence, datasets: Sequence[str]) -> Found:
        found = over_datasets(ratio(slow, fast))(evidence, datasets)
        mean = geometric_mean(found.all)
        return Found({} if mean is None else {f"mean of {', '.join(found.values)}": [mean]}, found.missing)

    return quantity


def level_share(methods: Sequence[str], first: int, last: int) -> Quantity:
    """Percent of the runtime that levels take, median of the warm runs."""

    def percent(run: VerifiedRecord) -> float:
        samples = zip(run.time_s.levels, run.time_s.warm, strict=True)
        return float(np.median([100 * sum(levels[first : last + 1]) / total for levels, total in samples]))

    def shares(evidence: Evidence, dataset: str) -> Mapping[str, Sequence[float]]:
        runs = [evidence.run(dataset, method) for method in methods]
        return {dataset: [percent(run) for run in runs if seconds_of(run)]}  # raises where there is no time

    return over_datasets(shares)


# --- sections 5.4 and 5.5 --------------------------------------------------------------------------------------------


def configurations(evidence: Evidence, dataset: str, method: str) -> list[float]:
    """Performance of every measured configuration relative to the selected one."""
    selected = seconds_of(evidence.run(dataset, method))
    times = {}
    for run in evidence.of(dataset, method):
        if run.counts:
            times.setdefault(tuple(sorted(run.params.items())), run.median)
    if len(times) < 2:
        raise Missing(f"no other configuration of {label(method)} measured")
    return [selected / time for time in times.values()]


def heatmap(method: str) -> Quantity:
    def performance(evidence: Evidence, dataset: str) -> Mapping[str, Sequence[float]]:
        values = configurations(evidence, dataset, method)
        return {f"{dataset} ({len(values)} configurations)": values}

    return over_datasets(performance)


def spread_ratio(evidence: Evidence, dataset: str) -> float:
    e, s = (configurations(evidence, dataset, method) for method in CUPC)
    return (max(s) / min(s)) / (max(e) / min(e))


def change(ours: tuple[int, int], theirs: tuple[int, int]) -> Quantity:
    """Percent by which the performance of one configuration of cuPC-E (beta, gamma) is higher than another's."""

    def percent(evidence: Evidence, dataset: str) -> float:
        fast, slow = (evidence.run(dataset, "cupc-e", beta=beta, gamma=gamma) for beta, gamma in (ours, theirs))
        return 100 * (seconds_of(slow) / seconds_of(fast) - 1)

    return over_datasets(percent)


def shared_by(rows: int) -> Quantity:
    def percent(evidence: Evidence, dataset: str) -> float:
        if dataset not in evidence.shared:
            raise Missing("no verified skeleton" if dataset in evidence.datasets else "not in this run")
        return evidence.shared[dataset].percent_within(2, rows)

    return over_datasets(percent)


# --- section 5.6 -----------------------------------------------------------------------------------------------------


def series(evidence: Evidence, method: str, axis: str) -> tuple[str, list[float], list[float]]:
    """The longest series of generated data in which only one thing varies: its name, its values, the median times."""
    at = AXES.index(axis)
    groups: dict[tuple[float, ...], dict[float, list[float]]] = {}
    for dataset, size in evidence.generated().items():
        try:
            time = seconds_of(evidence.run(dataset, method))
        except Missing:
            continue
        fixed = size[:at] + size[at + 1 :]
        groups.setdefault(fixed, {}).setdefault(size[at], []).append(time)
    fixed, times = max(groups.items(), key=lambda group: len(group[1]), default=((), {}))
    if len(times) < 2:
        raise Missing(f"no generated sets that differ in {axis} only")
    others = [name for name in AXES if name != axis]
    where = ", ".join(f"{name} = {value:g}" for name, value in zip(others, fixed, strict=True))
    values = sorted(times)
    name = f"{label(method)}, {axis} = {', '.join(f'{value:g}' for value in values)} ({where})"
    return name, values, [float(np.median(times[value])) for value in values]


def along(axis: str, compute: Callable[[list[float], list[float]], float]) -> Quantity:
    """A number of the series over one axis, for cuPC-E and cuPC-S."""

    def quantity(evidence: Evidence, _: Sequence[str]) -> Found:
        values, missing = {}, {}
        for method in CUPC:
            try:
                name, places, times = series(evidence, method, axis)
                values[name] = [compute(places, times)]
            except Missing as reason:
                missing[label(method)] = str(reason)
        return Found(values, missing)

    return quantity


def smallest_step(_: list[float], times: list[float]) -> float:
    return min(after / before for before, after in itertools.pairwise(times))


def straightness(places: list[float], times: list[float]) -> float:
    """R^2 of a straight line; negative when it falls."""
    if len(places) < 3:
        raise Missing("a line needs three values")
    correlation = float(np.corrcoef(places, times)[0, 1])
    return correlation * abs(correlation)


def generated_ratio(evidence: Evidence, _: Sequence[str]) -> Found:
    found = times_faster("cupc-s", "cupc-e")(evidence, list(evidence.generated()))
    if not found.values:
        return Found({}, {"generated data": "none measured"})
    return Found({f"{len(found.values)} generated sets": found.all})


def at_paper_size(compute: Callable[[Evidence, str], float]) -> Quantity:
    """Median over the graphs of the size that section 5.6 gives numbers for."""

    def quantity(evidence: Evidence, _: Sequence[str]) -> Found:
        chosen = [dataset for dataset, size in evidence.generated().items() if size == PAPER_SIZE]
        found = over_datasets(compute)(evidence, chosen)
        if not found.values:
            return Found({}, found.missing or {"n = 1000, m = 10000, d = 0.1": "not in this run"})
        return Found({f"median of {len(found.values)} graphs": [float(np.median(found.all))]}, found.missing)

    return quantity


def bounded_ratio(evidence: Evidence, dataset: str) -> float:
    """cuPC-E over the serial reference; where that hit its time limit, the bound, if it is high enough to tell."""
    fast, slow = evidence.run(dataset, "cupc-e"), evidence.run(dataset, SERIAL)
    if slow.status != "timeout":
        return seconds_of(slow) / seconds_of(fast)
    bound = slow.limits.time_s / seconds_of(fast)
    if bound < CLAIMED_BOUND:
        raise Missing(f"{SERIAL} timeout: all we know is more than {number(bound)}×")
    return bound


QUANTITIES: dict[str, Quantity] = {
    "same-skeleton": over_datasets(differing_edges),
    "stable-seconds": not_run_here("pcalg's R program"),
    "parallel-pc-dream5": times_faster(PARALLEL, SERIAL),
    "parallel-pc-mean": mean_times_faster(PARALLEL, SERIAL),
    "stable-fast-seconds": seconds(SERIAL),
    "cupc-e-seconds": seconds("cupc-e"),
    "cupc-s-seconds": seconds("cupc-s"),
    "cupc-e-mean": mean_times_faster("cupc-e", SERIAL),
    "cupc-s-mean": mean_times_faster("cupc-s", SERIAL),
    "cupc-e-over-baseline-1": times_faster("cupc-e", "baseline-1"),
    "cupc-e-over-baseline-2": times_faster("cupc-e", "baseline-2"),
    "cupc-s-over-cupc-e": times_faster("cupc-s", "cupc-e"),
    "cupc-s-over-baseline-1": times_faster("cupc-s", "baseline-1"),
    "cupc-s-over-baseline-2": times_faster("cupc-s", "baseline-2"),
    "level-1-first-five": level_share(CUPC, 1, 1),
    "level-1-dream5": level_share(CUPC, 1, 1),
    "levels-2-5-cupc-e": level_share(["cupc-e"], 2, 5),
    "levels-2-5-cupc-s": level_share(["cupc-s"], 2, 5),
    "fig7-range": heatmap("cupc-e"),
    "cupc-e-4-64": change((4, 64), (4, 8)),
    "cupc-e-1-256": change((1, 256), (1, 128)),
    "cupc-e-2-128": change((2, 128), (2, 16)),
    "fig8-range": heatmap("cupc-s"),
    "less-variation": over_datasets(spread_ratio),
    "shared-by-40-rows": shared_by(40),
    "runtime-over-n": along("n", smallest_step),
    "cupc-s-always-faster": generated_ratio,
    "cupc-e-n-1000": at_paper_size(lambda evidence, dataset: seconds_of(evidence.run(dataset, "cupc-e"))),
    "cupc-e-over-stable-fast": at_paper_size(bounded_ratio),
    "linear-in-m": along("m", straightness),
    "linear-in-d": along("d", lambda places, times: straightness(places[1:], times[1:])),
    "fast-at-d-0.1": along("d", lambda places, times: times[0] / times[1]),
}
"""By the id in results/reported/cupc_claims.csv."""


# --- the table -------------------------------------------------------------------------------------------------------


def verdict(claim: Mapping[str, str], values: Sequence[float]) -> str:
    """Whether our numbers bear a claim out; for a range, they are rounded as its ends are."""
    if not values:
        return "not measured"
    if claim["check"] == "none":
        return "not comparable"
    low, high = (float(claim[end]) if claim[end] else None for end in ("low", "high"))
    if claim["check"] == "about":
        return "yes" if all(abs(value - low) <= ABOUT * abs(low) for value in values) else "no"
    if claim["check"] == "range":
        digits = max(len(claim[end].partition(".")[2]) for end in ("low", "high"))
        values = [round(value, digits) for value in values]
    return "yes" if (low is None or min(values) >= low) and (high is None or max(values) <= high) else "no"


UNITS = {"x": "×", "%": " %", "s": " s", "edges": " edges", "": ""}


def reported_value(claim: Mapping[str, str]) -> str:
    words = {"about": "about ", "at least": "≥ ", "at most": "≤ "}
    ends = list(dict.fromkeys(f"{float(claim[end]):,g}" for end in ("low", "high") if claim[end]))
    return words.get(claim["check"], "") + _span(ends) + UNITS[claim["unit"]]


def our_value(values: Sequence[float], unit: str) -> str:
    if not values:
        return "–"
    return _span(list(dict.fromkeys(map(number, (min(values), max(values)))))) + UNITS[unit]


def _span(ends: Sequence[str]) -> str:
    return (" to " if any(end.startswith("-") for end in ends) else "–").join(ends)


@table(
    "cupc_claims",
    "Section 5: claims",
    paper=PAPER,
    family="gaussian",
    experiments=("cupc_fig7", "cupc_fig8", "cupc_fig10"),
)
def cupc_claims(
    runs: Sequence[VerifiedRecord], sharing: Sequence[Mapping[str, str]], reported: Sequence[Mapping[str, str]]
) -> Table:
    """What section 5 of the cuPC paper states in numbers, beside the same quantities from our records at
    alpha = {{ config["alpha"] }} and whether these bear it out, on the data sets named in the last column. The paper's
    numbers are of an Nvidia GTX 1080; runtimes of the backend ``host`` are those of the kernels on CPU cores.
    """
    histograms = shared_sets.load(sharing)
    rows, plain, verdicts = [], [], {}
    for backend in device_backends(runs) or ["cpu"]:
        evidence = Evidence(runs, backend, histograms)
        verdicts[backend] = Counter()
        for claim in reported:
            found = QUANTITIES[claim["id"]](evidence, claim["datasets"].split())
            holds = verdict(claim, found.all)
            verdicts[backend][holds] += 1
            on, lacking = "; ".join(found.values), _listed(found.missing)
            rows.append(
                [
                    claim["section"],
                    claim["quote"],
                    claim["quantity"],
                    reported_value(claim),
                    our_value(found.all, claim["unit"]),
                    backend,
                    holds,
                    "; ".join(filter(None, [on, lacking and f"missing: {lacking}"])),
                ]
            )
            plain.append(
                {name: claim[name] for name in ("id", "section", "quote", "quantity", "datasets", "check")}
                | {"reported_low": claim["low"], "reported_high": claim["high"], "unit": claim["unit"]}
                | {"basis": claim["basis"], "backend": backend}
                | {"ours_low": min(found.all, default=None), "ours_high": max(found.all, default=None)}
                | {"holds": holds, "measured_on": on, "missing": lacking, "citation": claim["citation"]}
            )
    header = ["§", "the paper's sentence", "what is compared", "paper", "ours", "backend", "holds", "measured on"]
    notes = [
        *(
            f"Backend {backend}: " + ", ".join(f"{count} {word}" for word, count in counts.items()) + "."
            for backend, counts in verdicts.items()
        ),
        "Paper: Nvidia GTX 1080, Intel Xeon at 2.5 GHz. Runtimes in seconds are not comparable with other hardware. "
        "Backend host runs the kernels on CPU cores: a ratio of its times that differs from the paper's does not "
        "refute the paper.",
        "Holds: every one of our numbers, rounded as the paper's, is in the range, keeps the bound, or is within "
        f"{100 * ABOUT:g} % of a number that stands alone. Where the paper gives words instead of a number, the bound "
        "is our reading; the column `basis` of the CSV says so.",
        "Judged on what the last column names, not on what is missing there. Table 1 says why a data set is missing, "
        "the table of every setting why a setting has no time.",
        "Our references stand for the paper's programs: stable-serial for Stable and Stable.fast, stable-parallel for "
        "Parallel-PC. They are much faster than those, so speedups over them are smaller.",
    ]
    title = "Claims of cuPC, section 5, beside our records"
    return Table(title, header, rows, notes, plain, left=(0, 1, 2, 5, 6, 7))


def _listed(missing: Mapping[str, str]) -> str:
    """The missing numbers, by reason."""
    reasons = grouped((why, what) for what, why in missing.items())
    return "; ".join(f"{', '.join(names)} ({why})" for why, names in reasons.items())
