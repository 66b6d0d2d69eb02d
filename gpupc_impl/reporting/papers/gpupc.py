"""The gpuPC paper: Tables 1 to 3, and its claims (results/reported/gpupc_claims.csv)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from gpupc_impl.reporting import cells as c
from gpupc_impl.reporting import quantities as q
from gpupc_impl.reporting.catalogue import CsvRows, Facts, Sweeps
from gpupc_impl.reporting.claims import table_of
from gpupc_impl.reporting.runs import Runs, VerifiedRecord, by_key, datasets_of, grouped, kernels_of, of_method
from gpupc_impl.reporting.tables import Table
from gpupc_impl.verification.accuracy import dag_of_edges, skeleton_differences

CITED = "Paper: gpuPC (doi:10.1137/1.9781611976700.5)"
GPUPC, BASELINE, PARALLEL = "gpupc", "disc-cupc", "discrete-parallel"

CHOICES = {
    "paper": {
        BASELINE: {"counting": "samples", "tables": "in-kernel", "multiprocessors": 80},
        GPUPC: {"counting": "samples", "tables": "global"},
    },
    "whole": {BASELINE: {"counting": "samples", "tables": "in-kernel", "multiprocessors": 0}},
    "once": {BASELINE: {"counting": "samples", "tables": "global"}},
    "planes": {method: {"counting": "bit-planes", "tables": "shared"} for method in (BASELINE, GPUPC)},
}
"""Choices of the methods' parameters: as in the paper, whose disc-cuPC allocates a table in each thread of the kernel
(section 4.1) on 80 multiprocessors; the same on all of this GPU; tables that are allocated once per search; and bit
planes in place of a count of each sample."""


def chosen_runs(runs: Runs) -> dict[str, dict[str, list[VerifiedRecord]]]:
    """Return the runs by choice (a key of `CHOICES`) and method; a choice omits the runs of those before it."""
    found: dict[str, dict[str, list[VerifiedRecord]]] = {choice: {} for choice in CHOICES}
    shown: list[list[VerifiedRecord]] = []
    for choice, methods in CHOICES.items():
        for method, params in methods.items():
            its = of_method(runs, method, **params)
            found[choice][method] = [] if its in shown else its
            shown.append(its)
    return {choice: its for choice, its in found.items() if choice == "paper" or any(its.values())}


def named(method: str, choice: str) -> str:
    words = {"paper": "{}", "whole": "{}, whole GPU", "once": "{}, tables allocated once", "planes": "{}, bit planes"}
    return words[choice].format(c.label(method))


def gpupc_table1(problems: Facts, reported: CsvRows, notes: Sequence[str]) -> Table:
    shape = {"n_variables": ("N", "variables"), "n_samples": ("n", "samples")}
    shape["max_categories"] = ("max |V|", "max_categories")
    own = {
        "categories": _categories,
        "constant variables": lambda facts: c.count(facts.get("constant_variables")),
        "true edges": lambda facts: c.count(None if facts.get("true_edges") is None else len(facts["true_edges"])),
    }
    return c.datasets_table("Data sets (gpuPC, Table 1)", problems, reported, shape, own, notes)


def _categories(facts: Mapping[str, Any]) -> str:
    """Return the numbers of categories that the source declares and that occur; if both are known, with these words."""
    counts = {how: facts.get(f"categories_{how}") for how in ("declared", "observed")}
    found = {how: text for how, text in counts.items() if text}
    return ", ".join(f"{text} {how}" if len(found) == 2 else f"{text}" for how, text in found.items()) or "–"


DIMENSIONS = {
    "p": ("N", "n_variables", "number of variables"),
    "categories": ("max |V|", "max_categories", "categories of each variable"),
    "n": ("n", "n_samples", "number of samples"),
    "tests_per_edge": ("T", "tests_per_edge", "tests for each edge and level"),
    "decay": ("d", "decay", "share of the edges that a level removes"),
}
"""The parameters that sweeps vary, each with the paper's symbol, the fact of a problem that it is, and its meaning."""


def speedup_or_infinity(slow: VerifiedRecord | None, fast: VerifiedRecord | None) -> c.Speedup:
    """Return the speedup, or infinity if only the slow run exhausted memory, as in the paper."""
    if slow is not None and fast is not None and slow.out_of_memory and fast.median is not None:
        return c.Speedup(None, why=c.INFINITY)
    return c.speedup(slow, fast)


def gpupc_table2(runs: Runs, reported: CsvRows, sweeps: Sweeps, notes: Sequence[str]) -> Table:
    chosen = chosen_runs(runs)
    printed_rows = by_key(reported, lambda row: row["parameter"])
    width = max(len(its) for its in [*(set(graphs.values()) for graphs in sweeps.values()), *printed_rows.values()])
    lines: list[c.Line] = []
    for parameter, graphs in sweeps.items():
        symbol, *_ = DIMENSIONS[parameter]
        ordered = sorted(graphs.items(), key=lambda item: item[1], reverse=parameter == "decay")
        place = {graph: position for position, (graph, _) in enumerate(ordered)}
        values = {place[graph]: c.Cell(f"{value:,}") for graph, value in ordered}
        lines.append(c.Line([symbol, f"ours: {symbol}"], values))
        for choice, found in chosen.items():
            facts = {"parameter": parameter, "value": lambda run, graphs=graphs: graphs[run.dataset], "choice": choice}
            here = {method: {run.dataset: run for run in its} for method, its in (chosen["paper"] | found).items()}
            pairs = {place[graph]: (here[BASELINE].get(graph), here[GPUPC].get(graph)) for graph in place}
            at = {"at": lambda run, place=place: place[run.dataset], **facts}
            for method in found:
                cells = c.times(map(here[method].get, place), **at)
                cells = cells if method == BASELINE else c.without_rows(cells)
                lines.append(c.Line(["", f"{named(method, choice)}, s"], cells))
            lines.append(c.Line(["", "speedup"], c.ratios(pairs, speedup_or_infinity, **facts)))
        if theirs := [{**row, "place": column} for column, row in enumerate(printed_rows.get(parameter, []))]:
            settings = {row["place"]: c.Cell(f"{Decimal(row['setting']):,}") for row in theirs}
            lines.append(c.Line(["", f"paper: {symbol}"], settings))
            times = c.printed(theirs, lambda row: row["place"], lambda row: f"{row['value']}×".replace("inf×", "∞"))
            lines.append(c.Line(["", "speedup"], times))
    notes = [
        "; ".join(f"{symbol}: {meaning}" for symbol, _, meaning in DIMENSIONS.values()) + ". "
        f"{_fixed(runs, sweeps)} Paper: N = 1,000, max |V| = 4, n = 10,000, T = 32, d = 0.9.",
        *notes,
        *_choice_notes(chosen),
        *_memory_notes(runs),
        f"{CITED}, Table 2: {reported[0]['hardware']}, medians of 10 runs.",
    ]
    within = [run for run in runs if not run.out_of_memory]
    title, columns = "Speedup of gpuPC over disc-cuPC (gpuPC, Table 2)", {k: f"value {k + 1}" for k in range(width)}
    return c.of_lines(title, ["parameter", "value, time or speedup"], columns, lines, notes, within, missing="")


def _fixed(runs: Runs, sweeps: Sweeps) -> str:
    """Return the values that each dimension has when another one varies."""
    problems = {run.dataset: run.problem for run in runs if run.problem}
    found: dict[str, dict[Any, None]] = {}
    for parameter, (symbol, fact, _) in DIMENSIONS.items():
        others = [graph for varied, graphs in sweeps.items() if varied != parameter for graph in graphs]
        found[symbol] = {problems[graph][fact]: None for graph in others if graph in problems}
    return f"Ours, where not varied: {c.stated(found.items())}." if any(found.values()) else ""


def _choice_notes(choices: Iterable[str]) -> list[str]:
    slow, fast = c.label(BASELINE), c.label(GPUPC)
    words = {
        "paper": f"{slow} and {fast} count as in the paper, sample by sample into tables in device memory ({fast}'s "
        "level 0: in shared memory).",
        "whole": f"Whole GPU: {slow} has the threads of all multiprocessors, not of the 80 of the paper's GPU.",
        "once": f"{slow} allocates a table in each thread of the kernel, as in the paper's section 4.1; "
        '"tables allocated once": before the first level.',
        "planes": "Bit planes: both count by them, into tables in shared memory if these fit.",
    }
    return [" ".join(words[choice] for choice in words if choice in choices)] if len(list(choices)) > 1 else []


def _memory_notes(runs: Iterable[VerifiedRecord]) -> list[str]:
    """Return notes on how much device memory each setting was allowed."""

    def allowed(run: VerifiedRecord) -> str:
        limit, device = run.limits.device_memory_bytes, (run.environment["device"] or {}).get("memory_bytes")
        if limit is None and device is None:
            return "no limit of its own"
        return f"{c.number((limit or device) / 1e6)} MB" + (" (all of the device)" if limit is None else "")

    words = grouped((f"{allowed(run)}, backend {run.backend}", c.label(run.setting)) for run in runs)
    return [f"Device memory of {' / '.join(names)}: {limit}." for limit, names in words.items()]


OVER_BASELINE, PLANES, OVER_PARALLEL, SHD = "over baseline", "with bit planes", "over parallel", "shd"
"""The columns of Table 3 after the times."""


def gpupc_table3(runs: Runs, problems: Facts, reported: CsvRows, notes: Sequence[str]) -> Table:
    chosen = chosen_runs(runs)
    column, headings = {}, {}
    for choice, of_choice in chosen.items():
        for method, its in of_choice.items():
            name = method if choice == "paper" else f"{choice} {method}"
            column |= {run.setting: name for run in its}
            headings |= {name: named(method, choice)} if its else {}
    others = [run.setting for run in runs if run.setting not in column]
    columns = {name: c.label(name) for name in ("parallelPC", "bnlearn", *others, BASELINE, GPUPC)} | headings
    columns[OVER_BASELINE] = f"{c.label(GPUPC)} over {c.label(BASELINE)}"
    columns |= {PLANES: PLANES} if f"planes {GPUPC}" in headings else {}
    columns[OVER_PARALLEL] = f"{c.label(GPUPC)} over the parallel CPU version"
    columns[SHD] = "SHD of the skeleton"
    parallel = {run.dataset: run for run in of_method(runs, PARALLEL)}
    truths = {facts["name"]: facts.get("true_edges") for facts in problems}
    printed_rows = by_key(reported, lambda row: row["dataset"])
    lines = []
    for dataset in dict.fromkeys([*datasets_of(runs), *printed_rows]):
        here = [run for run in runs if run.dataset == dataset]
        if here:
            group = {column.get(run.setting, run.setting): run for run in here}
            distances = {name: _distance(run, truths.get(dataset)) for name, run in group.items()}
            cells = {}
            for name, run in group.items():
                missing, extra = distances[name] or (None, None)
                row = {"source": "ours", "missing_edges": missing, "extra_edges": extra, **c.csv_row(run)}
                cells[name] = c.Cell(c.time_cell(run, oom=c.INFINITY), row)
            slow, fast = group.get(BASELINE), group.get(GPUPC)
            pairs = {OVER_BASELINE: (slow, fast), OVER_PARALLEL: (parallel.get(dataset), fast)}
            pairs[PLANES] = group.get(f"planes {BASELINE}", slow), group.get(f"planes {GPUPC}", fast)
            cells |= c.without_rows(c.ratios(pairs, speedup_or_infinity))
            if distance := distances.get(GPUPC) or next(filter(None, distances.values()), None):
                cells[SHD] = c.Cell(f"{sum(distance)} (−{distance[0]} +{distance[1]})")
            lines.append(c.Line([dataset, f"ours: {kernels_of(here)}"], cells))
        if theirs := printed_rows.get(dataset):
            cells = c.printed(theirs, lambda row: {"gpuPC": GPUPC}.get(row["method"], row["method"]))
            seconds = {row["method"]: float(row["value"]) for row in theirs}
            for name, slow in ((OVER_BASELINE, "disc-cupc"), (OVER_PARALLEL, "bnlearn")):
                cells[name] = c.Cell(f"{c.number(seconds[slow] / seconds['gpuPC'])}×")
            lines.append(c.Line(["" if here else dataset, "paper"], cells))
    notes = [*notes, *_choice_notes(chosen), *_memory_notes(run for run in runs if run.backend != "cpu")]
    notes += [f"{CITED}, Table 3, {line}." for line in c.hardware(reported)]
    return c.of_lines("Execution times (gpuPC, Table 3)", ["data set", "seconds"], columns, lines, notes, runs)


def _distance(run: VerifiedRecord, true_edges: Any) -> tuple[int, int] | None:
    """Return the numbers of missing and of additional edges of a run's skeleton, if the true network is known."""
    if true_edges is None or (answer := run.skeleton) is None:
        return None
    return skeleton_differences(answer, dag_of_edges(true_edges, len(answer.names)))


# --- claims ----------------------------------------------------------------------------------------------------------
GAIN = q.over(GPUPC, BASELINE)


def workload(run: VerifiedRecord) -> q.Size | None:
    """Return the dimensions of section 4.2; None for a search."""
    facts = run.problem or {}
    if facts.get("tests_per_edge") is None:
        return None
    return {symbol: facts[fact] for symbol, fact, _ in DIMENSIONS.values()}


def speedup_over(axis: str, compute: q.Compute) -> q.Quantity:
    return q.along(axis, {f"{c.label(GPUPC)} over {c.label(BASELINE)}": (workload, GAIN)}, compute)


def runtime_over(axis: str, compute: q.Compute) -> q.Quantity:
    return q.along(axis, {c.label(GPUPC): (workload, q.seconds(GPUPC))}, compute)


def steps_to_500k(places: list[float], found: list[float]) -> list[float]:
    """Return the ratios of successive numbers up to the value 500,000, divided by those of the values."""
    pairs = itertools.pairwise(zip(places, found, strict=True))
    steps = [(b / a) / (y / x) for (x, a), (y, b) in pairs if y <= 500_000]
    if not steps:
        raise q.Missing("no two values up to 500000")
    return steps


def out_of_memory(chosen: q.Chosen) -> q.Quantity:
    """Return the percentage of the workloads on which disc-cuPC exhausts device memory and gpuPC finishes."""

    def outcome(evidence: q.Evidence, dataset: str) -> float:
        slow, fast = evidence.run(dataset, BASELINE), evidence.run(dataset, GPUPC)
        if not (slow.ok or slow.out_of_memory):
            q.seconds_of(slow)  # raises `Missing`
        return 100.0 * (slow.out_of_memory and fast.counts)

    def quantity(evidence: q.Evidence, _: Sequence[str]) -> q.Numbers:
        datasets = [dataset for dataset, size in q.described(evidence, workload).items() if chosen(size)]
        found = q.over_datasets(outcome)(evidence, datasets)
        return found if datasets else q.Numbers({}, {"such workloads": "not in this run"})

    return quantity


def over_bnlearn(fast: str, reduce: q.Reduce | None = None) -> q.Quantity:
    return q.chained(q.over_datasets(q.over(fast, PARALLEL), reduce), "bnlearn", PARALLEL, fast, reduce)


def spread(low: float, high: float) -> q.Compute:
    """Return how many times the smallest number at values in a range the largest is."""
    return lambda places, found: max(inside := q.within(low, high)(places, found)) / min(inside)


LARGEST_OVER_N = speedup_over("n", lambda _, found: max(found))

QUANTITIES: dict[str, q.Quantity] = {
    "up-to-45.6": q.by_size(workload, GAIN, reduce=max),
    "up-to-62.1": over_bnlearn(GPUPC, max),
    "steady-over-N": speedup_over("N", spread(0, math.inf)),
    "quadruple": runtime_over("N", q.per_doubling(0, math.inf)),
    "similar-over-categories": speedup_over("max |V|", spread(4, 10)),
    "two-categories": speedup_over("max |V|", q.growth(4, 2)),
    "memory-of-categories": out_of_memory(lambda size: size["max |V|"] > 10),
    "largest-gap-over-n": q.quotient(LARGEST_OVER_N, q.by_size(workload, GAIN, lambda size: size["n"] == 10_000, max)),
    "500k-samples": speedup_over("n", q.within(500_000, math.inf, max)),
    "10k-samples": speedup_over("n", q.within(10_000, 10_000)),
    "order-of-magnitude": LARGEST_OVER_N,
    "linear-in-n": runtime_over("n", q.per_doubling(500_000, math.inf)),
    "sublinear-in-n": runtime_over("n", steps_to_500k),
    "constant-over-T": speedup_over("T", q.growth(32, 128)),
    "higher-below-32": speedup_over("T", q.growth(32, 1)),
    "memory-of-levels": out_of_memory(lambda size: size["d"] <= 0.5),
    "gap-over-d": speedup_over("d", q.growth(0.9, 0.75)),
    "always-faster": q.by_size(workload, GAIN, each="workloads"),
    "disc-cupc-over-cpu": over_bnlearn(BASELINE),
    "gpupc-over-cpu": over_bnlearn(GPUPC),
    "up-to-6.5": q.over_datasets(GAIN, max),
}


def gpupc_claims(runs: Runs, factors: CsvRows, reported: CsvRows, notes: Sequence[str]) -> Table:
    selected = {method: [CHOICES["paper"][method]] for method in (BASELINE, GPUPC)}
    return table_of("gpuPC", reported, QUANTITIES, q.Evidence(runs, selected, q.factors_of(factors)), notes)
