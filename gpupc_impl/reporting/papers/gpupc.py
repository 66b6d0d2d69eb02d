"""Tables 1 to 3 of the gpuPC paper, from facts of problems, records and saved skeletons only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from gpupc_impl.reporting.catalogue import CsvRows, Sweeps, table
from gpupc_impl.reporting.cells import (
    INFINITY,
    Speedup,
    count,
    csv_row,
    grouped,
    hardware,
    label,
    mark,
    number,
    places,
    remarks,
    speedup,
    stated,
    time_cell,
)
from gpupc_impl.reporting.runs import (
    Runs,
    VerifiedRecord,
    by_backend,
    datasets_of,
    device_backends,
    of_method,
    on_backend,
)
from gpupc_impl.reporting.tables import Table
from gpupc_impl.verification.accuracy import dag_of_edges, skeleton_differences

PAPER = "gpuPC"
CITED = "Paper: gpuPC (doi:10.1137/1.9781611976700.5)"
GPUPC, BASELINE, PARALLEL = "gpupc", "disc-cupc", "discrete-parallel"

CHOICES = {
    "paper": {"counting": "samples", "tables": "global"},
    "best": {"counting": "bit-planes", "tables": "shared"},
}
"""Two choices of the parameters of both methods: as in the paper, and the fastest that we know."""


def chosen_runs(runs: Iterable[VerifiedRecord]) -> dict[str, dict[str, list[VerifiedRecord]]]:
    """Return the runs by choice (a key of `CHOICES`) and method; "best" omits runs that are among those of "paper"."""
    runs = list(runs)
    found = {
        choice: {method: of_method(runs, method, **params) for method in (BASELINE, GPUPC)}
        for choice, params in CHOICES.items()
    }
    taken = {id(run) for its in found["paper"].values() for run in its}
    for method, its in found["best"].items():
        found["best"][method] = [run for run in its if id(run) not in taken]
    return found if any(found["best"].values()) else {"paper": found["paper"]}


def named(method: str, choice: str) -> str:
    return ("best " if choice == "best" else "") + label(method)


@table("gpupc_table1", "Table 1: data sets", paper=PAPER, family="discrete")
def gpupc_table1(problems: Sequence[Mapping[str, Any]], reported: CsvRows) -> Table:
    """The table compares the shapes of the discrete data sets with those in gpuPC's Table 1. The data are drawn with
    seeds from benchmark Bayesian networks, whose true edges are known.
    """
    paper = {row["dataset"]: row for row in reported}
    columns = {"n_variables": "variables", "n_samples": "samples", "max_categories": "max_categories"}
    rows, plain, reasons = [], [], []
    for facts in problems:
        theirs = paper.get(facts["name"], {})
        ours = facts if facts["available"] else {}
        edges = None if facts.get("true_edges") is None else len(facts["true_edges"])
        shape = [cell for key, name in columns.items() for cell in (count(ours.get(key)), count(theirs.get(name)))]
        source = facts.get("source") or facts.get("url") or "–"
        counts = count(ours.get("constant_variables")), count(edges)
        rows.append([facts["name"], *shape, _declared(ours), *counts, source])
        own = {name: ours.get(key) for key, name in columns.items()}
        plain.append(
            {"dataset": facts["name"], "available": facts["available"], **own}
            | {f"{name}_reported": theirs.get(name) for name in columns.values()}
            | {key: ours.get(key) for key in ("categories_declared", "categories_observed", "constant_variables")}
            | {"true_edges": edges, "alpha": facts["alpha"]}
            | {key: facts.get(key) for key in ("source", "licence", "citation", "note", "sha256")}
            | {"why_not": facts["why"]}
        )
        if facts["why"]:
            reasons.append(facts["why"])
    header = ["data set", "N", "N (paper)", "n", "n (paper)", "max |V|", "max |V| (paper)", "categories"]
    header += ["constant variables", "true edges", "source"]
    notes = [
        "N: variables; n: samples; max |V|: largest number of categories of a variable. Categories are those that the "
        "source declares, or else those that occur. Of a constant variable only one category occurs.",
        "True edges are those of the network from which the samples were drawn.",
        *reasons,
        f"{CITED}, Table 1. The paper does not state seeds, so its samples differ from ours.",
    ]
    return Table("Data sets (gpuPC, Table 1)", header, rows, notes, plain, left=(0, 7, 10))


def _declared(facts: Mapping[str, Any]) -> str:
    """Return whether the numbers of categories are declared by the source or observed."""
    counts = [(facts.get(f"categories_{how}"), how) for how in ("declared", "observed")]
    found = [(count, how) for count, how in counts if count]
    if len(found) == 2:
        return ", ".join(f"{count} {how}" for count, how in found)
    return found[0][1] if found else "–"


DIMENSIONS = {
    "p": ("N", "number of variables"),
    "categories": ("max |V|", "categories of each variable"),
    "n": ("n", "number of samples"),
    "tests_per_edge": ("T", "tests for each edge and level"),
    "decay": ("d", "share of the edges that a level removes"),
}
"""The parameters that sweeps vary, each with the paper's symbol and its meaning."""

NO_RATIO = {"speedup": None, "bound": None}


@table("gpupc_table2", "Table 2: gpuPC over disc-cuPC", paper=PAPER, experiments=("gpupc_table2",))
def gpupc_table2(runs: Runs, reported: CsvRows, sweeps: Sweeps) -> Table:
    """The table shows the speedup of gpuPC over disc-cuPC on a workload of fixed size, in five dimensions, as gpuPC's
    Table 2: ours above the paper's (V100, 32 GB). ∞ means that disc-cuPC, which gives every thread its own contingency
    table and does not manage memory, exhausted the device memory that is stated below the table.
    """
    backends = sorted({run.backend for run in runs})
    chosen = {
        choice: {method: by_backend(its) for method, its in of_choice.items()}
        for choice, of_choice in chosen_runs(runs).items()
    }
    lengths = Counter(row["parameter"] for row in reported).values()
    width = max(*(len(set(values.values())) for values in sweeps.values()), *lengths)
    rows, plain = [], []

    def add(symbol: str, what: str, cells: Sequence[str]) -> None:
        if not set(cells) <= {"–", "not run"}:
            rows.append([symbol, what, *cells, *[""] * (width - len(cells))])

    for parameter, graphs in sweeps.items():
        symbol, _ = DIMENSIONS[parameter]
        ordered = sorted(graphs.items(), key=lambda item: item[1], reverse=parameter == "decay")
        for backend in backends:
            where = f" ({backend})" if len(backends) > 1 else ""
            add(symbol, f"ours{where}: {symbol}", [f"{value:,}" for _, value in ordered])
            for choice, found in chosen.items():
                pairs = [[its.get(backend, {}).get(graph) for its in found.values()] for graph, _ in ordered]
                ratios = [speedup_or_infinity(*pair) for pair in pairs]
                add("", f"{named(BASELINE, choice)}, s", [time_cell(slow) for slow, _ in pairs])
                add("", f"{named(GPUPC, choice)}, s", [time_cell(fast) for _, fast in pairs])
                add("", "speedup", [str(ratio) + mark(*pair) for ratio, pair in zip(ratios, pairs, strict=True)])
                for (graph, value), pair, ratio in zip(ordered, pairs, ratios, strict=True):
                    infinite = "inf" if ratio.why == INFINITY else ratio.value
                    plain += [
                        {"parameter": parameter, "value": value, "source": "ours", "choice": choice}
                        | csv_row(run, "method backend machine")
                        | {"graph": graph}
                        | csv_row(run, "median_s low_s high_s")
                        | ({"speedup": infinite, "bound": ratio.bound} if run.method == GPUPC else NO_RATIO)
                        | csv_row(
                            run, "tests_per_level edges_per_level device_bytes device_limit_bytes status verification"
                        )
                        for run in pair
                        if run is not None
                    ]
        printed = [row for row in reported if row["parameter"] == parameter]
        if printed:
            add("", f"paper: {symbol}", [f"{Decimal(row['setting']):,}" for row in printed])
            add("", "speedup", [INFINITY if row["value"] == "inf" else f"{row['value']}×" for row in printed])
        plain += [
            {"parameter": parameter, "value": row["setting"], "source": "paper", "choice": None, "method": GPUPC}
            | {"machine": row["hardware"], "speedup": row["value"]}
            for row in printed
        ]
    notes = [
        "; ".join(f"{symbol}: {meaning}" for symbol, meaning in DIMENSIONS.values()) + ". "
        f"{_fixed(runs, sweeps)} Paper: N = 1,000, max |V| = 4, n = 10,000, T = 32, d = 0.9.",
        "A workload replaces the search, as in the paper's section 4.1: every remaining edge has T tests per level, "
        "whatever their results, and each level removes the share d of the edges, evenly distributed.",
        f"{INFINITY}: {label(BASELINE)} ran out of device memory where {label(GPUPC)} finished.",
        *_choice_notes(chosen),
        *_memory_notes(runs),
        *places(runs),
        *remarks(run for run in runs if run.status != "oom"),
        f"{CITED}, Table 2: {reported[0]['hardware']}, medians of 10 runs.",
    ]
    header = ["parameter", "value, time or speedup", *(f"value {place}" for place in range(1, width + 1))]
    return Table("Speedup of gpuPC over disc-cuPC (gpuPC, Table 2)", header, rows, notes, plain)


def speedup_or_infinity(slow: VerifiedRecord | None, fast: VerifiedRecord | None) -> Speedup:
    """Return the speedup, or infinity if only the slow run exhausted memory, as in the paper."""
    if slow is not None and fast is not None and slow.status == "oom" and fast.median is not None:
        return Speedup(None, why=INFINITY)
    return speedup(slow, fast)


def _fixed(runs: Runs, sweeps: Sweeps) -> str:
    """Return the values that each dimension has when another one varies."""
    problems = {run.dataset: run.problem for run in runs if run.problem}
    names = {"p": "n_variables", "categories": "max_categories", "n": "n_samples"}
    found = {
        symbol: dict.fromkeys(
            problems[graph][names.get(parameter, parameter)]
            for varied, graphs in sweeps.items()
            if varied != parameter
            for graph in graphs
            if graph in problems
        )
        for parameter, (symbol, _) in DIMENSIONS.items()
    }
    return f"Ours, where not varied: {stated(found.items())}." if any(found.values()) else ""


def _choice_notes(choices: Iterable[str]) -> list[str]:
    if "best" not in choices:
        return []
    return [
        f"{label(BASELINE)} and {label(GPUPC)} count as in the paper, sample by sample into tables in device "
        f"memory ({label(GPUPC)}'s level 0: in shared memory). Best: both count by bit planes, into tables in shared "
        "memory if these fit."
    ]


def _memory_notes(runs: Iterable[VerifiedRecord]) -> list[str]:
    """Return notes on how much device memory each setting was allowed."""

    def allowed(run: VerifiedRecord) -> str:
        limit, device = run.limits.device_memory_bytes, (run.environment["device"] or {}).get("memory_bytes")
        if limit is None and device is None:
            return "no limit of its own"
        return f"{number((limit or device) / 1e6)} MB" + (" (all of the device)" if limit is None else "")

    words = grouped((f"{allowed(run)}, backend {run.backend}", label(run.method)) for run in runs)
    return [f"Device memory of {' and '.join(names)}: {limit}." for limit, names in words.items()]


REPORTED_COLUMNS = {"parallelPC": "parallelPC", "bnlearn": "bnlearn", "disc-cupc": BASELINE, "gpuPC": GPUPC}
"""The paper's methods, and the columns in which their times stand."""


@table("gpupc_table3", "Table 3: execution times", paper=PAPER, family="discrete")
def gpupc_table3(runs: Runs, problems: Sequence[Mapping[str, Any]], reported: CsvRows) -> Table:
    """The table shows execution times on discrete data, as gpuPC's Table 3: ours (median of the warm runs, 20–80 %
    band) above the paper's (V100; 40 CPU cores), and the structural Hamming distance of the skeleton from that of the
    true network. ∞ means that device memory was exhausted; † marks a bound from a time limit; ≈ marks a skeleton that
    differs for an explained reason, such as another rule for degrees of freedom.
    """
    chosen = chosen_runs(runs)
    columns = {
        run.setting: method if choice == "paper" else f"best {method}"
        for choice, of_choice in chosen.items()
        for method, its in of_choice.items()
        for run in its
    }
    parallel = {run.dataset: run for run in of_method(runs, PARALLEL)}
    distances = _distances(runs, problems)
    paper: dict[str, dict[str, float]] = {}
    for row in reported:
        paper.setdefault(row["dataset"], {})[REPORTED_COLUMNS[row["method"]]] = float(row["value"])
    others = dict.fromkeys(run.setting for run in runs if run.setting not in columns)
    shown = [name for name in REPORTED_COLUMNS.values() if name not in (GPUPC, BASELINE)]
    shown += [*others, BASELINE, GPUPC, *dict.fromkeys(name for name in columns.values() if name.startswith("best "))]
    rows, plain = [], []
    for dataset in dict.fromkeys([*datasets_of(runs), *paper]):
        here = [run for run in runs if run.dataset == dataset]
        for backend in device_backends(here) or ["cpu"] * bool(here):
            group = {columns.get(run.setting, run.setting): run for run in on_backend(here, backend)}
            slow, fast = group.get(BASELINE), group.get(GPUPC)
            ratios = [(slow, fast)]
            if "best" in chosen:
                ratios.append((group.get(f"best {BASELINE}", slow), group.get(f"best {GPUPC}", fast)))
            compared = [distances.get((dataset, run.setting)) for run in (fast, *group.values()) if run]
            distance = next(filter(None, compared), None)
            cells = [time_cell(group.get(name), oom=INFINITY) for name in shown]
            cells += [str(speedup_or_infinity(*pair)) + mark(*pair) for pair in ratios]
            cells.append(str(speedup(parallel.get(dataset), fast)) + mark(parallel.get(dataset), fast))
            cells.append(f"{sum(distance)} (−{distance[0]} +{distance[1]})" if distance else "–")
            rows.append([dataset, f"ours: {backend}", *cells])
            plain += [_table3_row(run, distances.get((dataset, run.setting))) for run in group.values()]
        if dataset in paper:
            best = ["–"] * ("best" in chosen)
            rows.append([dataset if not here else "", "paper", *_reported_times(paper[dataset], shown, best)])
    plain += [
        {"dataset": row["dataset"], "source": "paper", "setting": row["method"], "machine": row["hardware"]}
        | {"median_s": row["value"]}
        for row in reported
    ]
    names = [named(name.removeprefix("best "), "best") if name.startswith("best ") else label(name) for name in shown]
    header = ["data set", "seconds", *names, f"{label(GPUPC)} over {label(BASELINE)}"]
    header += ["best over best"] * ("best" in chosen)
    header += [f"{label(GPUPC)} over the parallel CPU version", "SHD of the skeleton"]
    notes = [
        "Ours: median of the warm runs, with their 20–80 % band where there are several; from the coded data in host "
        "memory to the skeleton and its separating sets in host memory. The parallel CPU version is ours "
        f"({PARALLEL}), in the paper bnlearn's. The paper's hardware is not ours: compare ratios, not times.",
        "SHD of the skeleton: the edges of the true network's skeleton that are missing (−) and the additional edges "
        f"(+) in {label(GPUPC)}'s. The CSV has the other settings.",
        f"{INFINITY}: device memory exhausted.",
        *_choice_notes(chosen),
        *_memory_notes(run for run in runs if run.backend != "cpu"),
        *places(runs),
        *remarks(runs),
        *(f"{CITED}, Table 3, {line}." for line in hardware(reported)),
    ]
    return Table("Execution times (gpuPC, Table 3)", header, rows, notes, plain)


def _distances(
    runs: Iterable[VerifiedRecord], problems: Iterable[Mapping[str, Any]]
) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the numbers of missing and additional edges by data set and setting, if the truth is known."""
    truths = {facts["name"]: facts.get("true_edges") for facts in problems}
    return {
        (run.dataset, run.setting): skeleton_differences(answer, dag_of_edges(truths[run.dataset], len(answer.names)))
        for run in runs
        if truths.get(run.dataset) is not None and (answer := run.skeleton) is not None
    }


def _table3_row(run: VerifiedRecord, distance: tuple[int, int] | None) -> dict[str, Any]:
    """Return the row of a run in the CSV of Table 3."""
    missing, extra = distance or (None, None)
    return (
        {"dataset": run.dataset, "source": "ours"}
        | csv_row(run, "setting backend machine median_s low_s high_s status verification edges tests")
        | {"missing_edges": missing, "extra_edges": extra, "skeleton_shd": sum(distance) if distance else None}
    )


def _reported_times(times: Mapping[str, float], shown: Iterable[str], best: Sequence[str]) -> list[str]:
    """Return the paper's cells: the times in the columns `shown`, the speedup over disc-cuPC, the cells `best`, the
    speedup over the parallel CPU version, and a dash."""
    cells = [f"{Decimal(str(times[name])):,}" if name in times else "–" for name in shown]
    over_baseline, over_parallel = (f"{number(times[name] / times[GPUPC])}×" for name in (BASELINE, "bnlearn"))
    return [*cells, over_baseline, *best, over_parallel, "–"]
