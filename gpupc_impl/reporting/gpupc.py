"""The gpuPC paper's Tables 1 to 3, from facts of problems, records and saved skeletons only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from gpupc_impl.core.result import Skeleton
from gpupc_impl.reporting.experiments import Run
from gpupc_impl.reporting.measured import Measured, Speedup, datasets_of, label, number, speedup
from gpupc_impl.reporting.tables import Table, mark, places, remarks, time_cell
from gpupc_impl.verification.accuracy import dag_of_edges, skeleton_differences

GPUPC, BASELINE = "gpupc", "disc-cupc"
PAPER = "Paper: gpuPC (doi:10.1137/1.9781611976700.5)"
INFINITY = "∞"

# --- Table 1 ---------------------------------------------------------------------------------------------------------


def gpupc_table1(problems: Iterable[Mapping[str, Any]], reported: Iterable[Mapping[str, str]]) -> Table:
    """The data sets: shapes as the paper states them beside ours, and what is known of their true graphs.

    Args:
        problems: the facts of each data set's problem.
        reported: rows of results/reported/gpupc_table1.csv.
    """
    paper = {row["dataset"]: row for row in reported}
    columns = {"n_variables": "variables", "n_samples": "samples", "max_categories": "max_categories"}
    rows, plain, reasons = [], [], []
    for facts in problems:
        theirs = paper.get(facts["name"], {})
        ours = facts if facts["available"] else {}
        edges = None if facts.get("true_edges") is None else len(facts["true_edges"])
        shape = [cell for key, name in columns.items() for cell in (_count(ours.get(key)), _count(theirs.get(name)))]
        rows.append(
            [
                facts["name"],
                *shape,
                _declared(ours),
                _count(ours.get("constant_variables")),
                _count(edges),
                facts.get("source") or facts.get("url") or "–",
            ]
        )
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
        "source declares, whether they occur or not, else those that occur. A constant variable shows one of them.",
        "True edges: of the network that the samples were drawn from.",
        *reasons,
        f"{PAPER}, Table 1. It does not state seeds: its samples are others than ours.",
    ]
    return Table("Data sets (gpuPC, Table 1)", header, rows, notes, plain, left=(0, 7, 10))


def _count(value: Any) -> str:
    return "–" if value in (None, "") else f"{int(value):,}"


def _declared(facts: Mapping[str, Any]) -> str:
    """Where the numbers of categories are from."""
    counts = [(facts.get(f"categories_{how}"), how) for how in ("declared", "observed")]
    found = [(count, how) for count, how in counts if count]
    if len(found) == 2:
        return ", ".join(f"{count} {how}" for count, how in found)
    return found[0][1] if found else "–"


# --- Table 2 ---------------------------------------------------------------------------------------------------------

DIMENSIONS = {
    "p": ("N", "number of variables"),
    "categories": ("max |V|", "categories of each variable"),
    "n": ("n", "number of samples"),
    "tests_per_edge": ("T", "tests for each edge and level"),
    "decay": ("d", "share of the edges that a level removes"),
}
"""What a sweep varies, by parameter: the paper's symbol and its meaning."""


def gpupc_table2(
    runs: Sequence[Run], reported: Sequence[Mapping[str, str]], sweeps: Mapping[str, Mapping[str, float]]
) -> Table:
    """Speedup of gpuPC over disc-cuPC in five dimensions; infinite where disc-cuPC runs out of memory.

    Args:
        reported: rows of results/reported/gpupc_table2.csv.
        sweeps: by the parameter that varies (`DIMENSIONS`), its value by graph.
    """
    measured = [run.measured for run in runs]
    backends = sorted({m.backend for m in measured})
    width = max(max(len(set(values.values())) for values in sweeps.values()), *_reported_widths(reported))
    rows, plain = [], []

    def add(symbol: str, what: str, cells: Sequence[str]) -> None:
        rows.append([symbol, what, *cells, *[""] * (width - len(cells))])

    for parameter, graphs in sweeps.items():
        symbol, _ = DIMENSIONS[parameter]
        ordered = sorted(graphs.items(), key=lambda item: item[1], reverse=parameter == "decay")
        for backend in backends:
            pairs = [[_find(measured, graph, method, backend) for method in (BASELINE, GPUPC)] for graph, _ in ordered]
            ratios = [speedup_or_infinity(*pair) for pair in pairs]
            where = f" ({backend})" if len(backends) > 1 else ""
            add(symbol, f"ours{where}", [f"{value:,}" for _, value in ordered])
            add("", f"{label(BASELINE)}, s", [time_cell(slow) for slow, _ in pairs])
            add("", f"{label(GPUPC)}, s", [time_cell(fast) for _, fast in pairs])
            add("", "speedup", [str(ratio) + mark(*pair) for ratio, pair in zip(ratios, pairs, strict=True)])
            for (graph, value), pair, ratio in zip(ordered, pairs, ratios, strict=True):
                plain += [
                    _table2_row(runs, parameter, value, graph, m, ratio if m.method == GPUPC else None)
                    for m in pair
                    if m is not None
                ]
        printed = [row for row in reported if row["parameter"] == parameter]
        if printed:
            add("", "paper", [f"{Decimal(row['setting']):,}" for row in printed])
            add("", "speedup", [INFINITY if row["value"] == "inf" else f"{row['value']}×" for row in printed])
        plain += [
            {"parameter": parameter, "value": row["setting"], "source": "paper", "method": GPUPC}
            | {"machine": row["hardware"], "speedup": row["value"]}
            for row in printed
        ]
    notes = [
        "; ".join(f"{symbol}: {meaning}" for symbol, meaning in DIMENSIONS.values()) + ". "
        f"{_fixed(runs, sweeps)} Paper: N = 1,000, max |V| = 4, n = 10,000, T = 32, d = 0.9.",
        "A workload in the place of a search, as in the paper's section 4.1: every remaining edge gets T tests a "
        "level, whatever they say, and each level removes the share d of the edges, equally distributed.",
        f"{INFINITY}: {label(BASELINE)} ran out of device memory where {label(GPUPC)} finished.",
        *_memory_notes(runs),
        *places(measured),
        *remarks([m for m in measured if m.status != "oom"], {m.setting for m in measured}),
        f"{PAPER}, Table 2: {reported[0]['hardware']}, medians of 10 runs.",
    ]
    columns = list(dict.fromkeys(name for row in plain for name in row))
    plain = [{name: row.get(name) for name in columns} for row in plain]
    header = ["", "parameter, time, speedup", *[""] * width]
    return Table("Speedup of gpuPC over disc-cuPC (gpuPC, Table 2)", header, rows, notes, plain)


def speedup_or_infinity(slow: Measured | None, fast: Measured | None) -> Speedup:
    """As `speedup`, but infinite where the slow one ran out of memory and the fast one did not, as in the paper."""
    if slow is not None and fast is not None and slow.status == "oom" and fast.median is not None:
        return Speedup(None, why=INFINITY)
    return speedup(slow, fast)


def _find(measured: Iterable[Measured], dataset: str, method: str, backend: str) -> Measured | None:
    wanted = (dataset, method, backend)
    return next((m for m in measured if (m.dataset, m.method, m.backend) == wanted), None)


def _reported_widths(reported: Iterable[Mapping[str, str]]) -> list[int]:
    names = [row["parameter"] for row in reported]
    return [names.count(name) for name in set(names)]


def _table2_row(
    runs: Sequence[Run], parameter: str, value: float, graph: str, m: Measured, ratio: Speedup | None
) -> dict[str, Any]:
    record = next(run.record for run in runs if run.measured is m)
    result = record["result"] or {}
    return {
        "parameter": parameter,
        "value": value,
        "source": "ours",
        "method": m.method,
        "backend": m.backend,
        "machine": m.machine,
        "graph": graph,
        "median_s": m.median,
        "low_s": m.low,
        "high_s": m.high,
        "speedup": None if ratio is None else "inf" if ratio.why == INFINITY else ratio.value,
        "bound": None if ratio is None else ratio.bound,
        "tests_per_level": " ".join(map(str, result.get("tests_per_level", []))),
        "edges_per_level": " ".join(map(str, result.get("edges_per_level", []))),
        "device_bytes": record["peak_bytes"]["device"],
        "device_limit_bytes": record["limits"]["device_memory_bytes"],
        "status": m.status,
        "verification": m.verification,
    }


def _fixed(runs: Sequence[Run], sweeps: Mapping[str, Mapping[str, float]]) -> str:
    """The values that a dimension has where another one varies."""
    problems = {run.measured.dataset: run.record["problem"] for run in runs if run.record["problem"]}
    names = {"p": "n_variables", "categories": "max_categories", "n": "n_samples"}
    found: dict[str, dict[Any, None]] = {}
    for parameter in DIMENSIONS:
        for varied, graphs in sweeps.items():
            for graph in graphs if varied != parameter else ():
                if graph in problems:
                    found.setdefault(parameter, {})[problems[graph][names.get(parameter, parameter)]] = None
    stated = ", ".join(
        f"{DIMENSIONS[parameter][0]} = {' or '.join(f'{value:,}' for value in values)}"
        for parameter, values in found.items()
    )
    return f"Ours, where not varied: {stated}." if stated else ""


def _memory_notes(runs: Iterable[Run]) -> list[str]:
    """How much device memory each setting was allowed."""
    allowed: dict[str, dict[str, None]] = {}
    for run in runs:
        limit = run.record["limits"]["device_memory_bytes"]
        device = (run.record["environment"]["device"] or {}).get("memory_bytes")
        if limit is None and device is None:
            words = "no limit of its own"
        else:
            words = f"{number((limit or device) / 1e6)} MB" + (" (all of the device)" if limit is None else "")
        allowed.setdefault(f"{words}, backend {run.measured.backend}", {})[label(run.measured.method)] = None
    return [f"Device memory of {' and '.join(names)}: {words}." for words, names in allowed.items()]


# --- Table 3 ---------------------------------------------------------------------------------------------------------

REPORTED_COLUMNS = {"parallelPC": "parallelPC", "bnlearn": "bnlearn", "disc-cupc": BASELINE, "gpuPC": GPUPC}
"""The paper's methods, and the columns that they stand in."""


def gpupc_table3(
    runs: Sequence[Run],
    reported: Sequence[Mapping[str, str]],
    truths: Mapping[str, Sequence[Sequence[int]]],
    skeletons: Mapping[tuple[str, str], Skeleton],
) -> Table:
    """Execution times of every setting beside the reported ones, and how far the skeletons are from the true ones.

    Args:
        reported: rows of results/reported/gpupc_table3.csv.
        truths: by data set, the edges of its true DAG, where known.
        skeletons: by data set and setting, of those that finished.
    """
    measured = [run.measured for run in runs]
    settings = list(dict.fromkeys(m.setting for m in measured))
    cpu = [name for name in settings if name not in (GPUPC, BASELINE)]
    reported_only = [name for name in REPORTED_COLUMNS.values() if name not in (GPUPC, BASELINE)]
    columns = [*reported_only, *cpu, BASELINE, GPUPC]
    parallel = "discrete-parallel"
    distances = {
        key: skeleton_differences(skeleton, dag_of_edges(truths[key[0]], len(skeleton.names)))
        for key, skeleton in skeletons.items()
        if truths.get(key[0]) is not None
    }
    paper: dict[str, dict[str, float]] = {}
    for row in reported:
        paper.setdefault(row["dataset"], {})[REPORTED_COLUMNS[row["method"]]] = float(row["value"])
    rows, plain = [], []
    for dataset in [*datasets_of(measured), *(name for name in paper if name not in datasets_of(measured))]:
        here = [m for m in measured if m.dataset == dataset]
        for backend in sorted({m.backend for m in here} - {"cpu"}) or ["cpu"] * bool(here):
            group = {m.setting: m for m in here if m.backend in (backend, "cpu")}
            slow, fast = group.get(BASELINE), group.get(GPUPC)
            rows.append(
                [
                    dataset,
                    f"ours: {backend}",
                    *(_oom_as_infinity(group.get(name)) for name in columns),
                    str(speedup_or_infinity(slow, fast)) + mark(slow, fast),
                    str(speedup(group.get(parallel), fast)) + mark(group.get(parallel), fast),
                    _distance_cell(dataset, group, distances),
                ]
            )
            plain += [_table3_row(m, distances) for m in group.values()]
        if dataset in paper:
            times = paper[dataset]
            rows.append(
                [
                    dataset if not here else "",
                    "paper",
                    *(f"{Decimal(str(times[name])):,}" if name in times else "–" for name in columns),
                    f"{number(times[BASELINE] / times[GPUPC])}×",
                    f"{number(times['bnlearn'] / times[GPUPC])}×",
                    "–",
                ]
            )
    plain += [
        {"dataset": row["dataset"], "source": "paper", "setting": row["method"], "machine": row["hardware"]}
        | {"median_s": row["value"]}
        for row in reported
    ]
    names = list(dict.fromkeys(name for row in plain for name in row))
    plain = [{name: row.get(name) for name in names} for row in plain]
    header = ["data set", "seconds", *map(label, columns), f"{label(GPUPC)} over {label(BASELINE)}"]
    header += [f"{label(GPUPC)} over the parallel CPU version", "SHD of the skeleton"]
    notes = [
        "Ours: median of the warm runs, with their 20–80 % band where there are several; from the coded data in host "
        "memory to the skeleton and its separating sets in host memory. The parallel CPU version is ours "
        f"({parallel}), in the paper bnlearn's. The paper's hardware is not ours: compare ratios, not times.",
        "SHD of the skeleton: edges of the true network's skeleton, which is its CPDAG's, that are missing (−) or too "
        f"many (+) in {label(GPUPC)}'s. Other settings: in the CSV.",
        f"{INFINITY}: device memory exhausted.",
        *_memory_notes(run for run in runs if run.measured.backend != "cpu"),
        *places(measured),
        *remarks(measured, set(settings)),
        *(f"{PAPER}, Table 3, {line}." for line in _hardware(reported)),
    ]
    return Table("Execution times (gpuPC, Table 3)", header, rows, notes, plain)


def _oom_as_infinity(m: Measured | None) -> str:
    return INFINITY if m is not None and m.status == "oom" else time_cell(m)


def _distance_cell(
    dataset: str, group: Mapping[str, Measured], distances: Mapping[tuple[str, str], tuple[int, int]]
) -> str:
    """Of gpuPC's skeleton, or the first there is."""
    found = [distances[dataset, name] for name in (GPUPC, *group) if (dataset, name) in distances]
    return f"{sum(found[0])} (−{found[0][0]} +{found[0][1]})" if found else "–"


def _table3_row(m: Measured, distances: Mapping[tuple[str, str], tuple[int, int]]) -> dict[str, Any]:
    missing, extra = distances.get((m.dataset, m.setting), (None, None))
    return {
        "dataset": m.dataset,
        "source": "ours",
        "setting": m.setting,
        "backend": m.backend,
        "machine": m.machine,
        "median_s": m.median,
        "low_s": m.low,
        "high_s": m.high,
        "status": m.status,
        "verification": m.verification,
        "edges": m.edges,
        "tests": m.tests,
        "missing_edges": missing,
        "extra_edges": extra,
        "skeleton_shd": None if missing is None else missing + extra,
    }


def _hardware(reported: Iterable[Mapping[str, str]]) -> list[str]:
    places: dict[str, dict[str, None]] = {}
    for row in reported:
        places.setdefault(row["hardware"], {})[row["method"]] = None
    return [f"{', '.join(names)}: {where}" for where, names in places.items()]
