"""The GPU-CMIknn paper's Tables 1 to 10 and Fig. 1, from timed tests, records and saved skeletons only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D

from gpupc_impl.core.orientation import orient
from gpupc_impl.core.result import Skeleton
from gpupc_impl.reporting import style
from gpupc_impl.reporting.experiments import Drawing, Run
from gpupc_impl.reporting.figures import NUMBERS, footer
from gpupc_impl.reporting.measured import Measured, Speedup, label, number, speedup
from gpupc_impl.reporting.tables import Table, mark, places, remarks, time_cell
from gpupc_impl.verification.accuracy import dag_of_edges, structural_hamming_distance

PAPER = "Paper: GPU-CMIknn (PMLR 185:30-60, 2022)"
REFERENCE = "tigramite"
"""The paper's CPU version, CMIknn, and the method that it is in ours."""

# --- Tables 1 to 4, and 6 to 9: single tests --------------------------------------------------------------------------

DIMENSIONS = {
    "k_cmi": "k_CMI",
    "permutations": "perm",
    "set_size": "|S|",
    "samples": "n",
}
"""What describes a cell, by its name in the files of timed tests, and the paper's symbol."""

REPORTED = {"k_cmi": "k_cmi", "permutations": "permutations", "set_size": "separation_set", "samples": "samples"}
"""The same, by its column in the reported tables."""

MEDIAN = (0.5,)
PERCENTILES = (0.05, 0.5, 0.95)


def single_tests(
    title: str,
    timed: Mapping[str, Any],
    varies: str,
    reported: Sequence[Mapping[str, str]],
    percentiles: Sequence[float] = MEDIAN,
) -> Table:
    """Seconds of single CI tests: a column a value of what varies, a row an implementation and k.

    Args:
        timed: what `measure_tests` returned.
        varies: which of `DIMENSIONS` the columns are.
        reported: rows of results/reported/cmiknn_table<n>.csv.
        percentiles: which rows each implementation has.
    """
    cells = timed["cells"]
    columns = _ascending({_value(cell, varies) for cell in cells} | {_reported_value(row, varies) for row in reported})
    rows, plain = [], []

    def add(k: str, who: str, percentile: float, found: Mapping[str, str]) -> None:
        which = [f"{percentile:g}"] if len(percentiles) > 1 else []
        rows.append([who, *([k] if varies != "k_cmi" else []), *which, *(found.get(column, "–") for column in columns)])

    ours = _by_row(cells, varies)
    for (name, backend, k), found in ours.items():
        who = f"ours: {label(name)}" + (f" ({backend})" if backend != "cpu" else "")
        for percentile in percentiles:
            add(k, who, percentile, {value: _cell(cell, percentile) for value, cell in found.items()})
    if len(percentiles) == 1:
        for (name, backend, k), found in ours.items():
            slow = ours.get((REFERENCE, "cpu", k), {})
            if name != REFERENCE and slow:
                ratios = {value: _ratio(slow.get(value), cell) for value, cell in found.items()}
                where = f" ({backend})" if backend != "cpu" else ""
                add(k, f"{label(name)}{where} over {REFERENCE}", 0.5, ratios)
    printed: dict[tuple[str, str, float], dict[str, str]] = {}
    for row in reported:
        key = (row["method"], "" if varies == "k_cmi" else _reported_k(row), float(row["percentile"]))
        printed.setdefault(key, {})[_reported_value(row, varies)] = row["value"]
    for (name, k, percentile), found in printed.items():
        if percentile in percentiles:
            add(k, f"paper: {name}", percentile, found)
    for cell in cells:
        plain += [_single_row(cell, percentile) for percentile in percentiles]
    plain += [
        {"source": "paper", "implementation": row["method"], "k_rule": row["k_rule"], "machine": row["hardware"]}
        | {name: row[column] for name, column in REPORTED.items()}
        | {"percentile": row["percentile"], "seconds": row["value"]}
        for row in reported
        if float(row["percentile"]) in percentiles
    ]
    names = list(dict.fromkeys(name for row in plain for name in row))
    plain = [{name: row.get(name) for name in names} for row in plain]
    header = ["seconds", *(["k_CMI"] if varies != "k_cmi" else []), *(["percentile"] if len(percentiles) > 1 else [])]
    header += [f"{DIMENSIONS[varies]} = {value}" for value in columns]
    notes = [
        f"Ours: {_fixed(cells, varies)}; {'medians' if len(percentiles) == 1 else 'percentiles'} of {_tests(cells)}, "
        "the same random tests of one generated data set for all, taken in turns after a cold run each. "
        f"Paper: {_fixed_reported(reported, varies)}; 20 tests.",
        "Inside the clock: from the samples in host memory to the p-value in host memory.",
        *(["adaptive: k_CMI = 0.2 n."] if any(cell["k_rule"] == "adaptive" for cell in cells) else []),
        *_agreement(cells),
        *_places(timed),
        *_single_remarks(cells),
        *(f"{PAPER}, {names}: {where}." for where, names in _hardware(reported).items()),
        "The paper's hardware is not ours: compare ratios, not times.",
    ]
    return Table(title, header, rows, notes, plain, left=(0,))


def _value(cell: Mapping[str, Any], dimension: str) -> str:
    if dimension == "k_cmi" and cell["k_rule"] == "adaptive":
        return "adaptive"
    return f"{cell[dimension]}"


def _reported_value(row: Mapping[str, str], dimension: str) -> str:
    return _reported_k(row) if dimension == "k_cmi" else row[REPORTED[dimension]]


def _reported_k(row: Mapping[str, str]) -> str:
    return row["k_cmi"] if row["k_rule"] == "fixed" else "adaptive"


def _ascending(values: Iterable[str]) -> list[str]:
    return sorted(values, key=lambda value: math.inf if value == "adaptive" else float(value))


def _by_row(
    cells: Sequence[Mapping[str, Any]], varies: str
) -> dict[tuple[str, str, str], dict[str, Mapping[str, Any]]]:
    """The cells of each row, by implementation, backend and (where the columns are not k) k."""
    found: dict[tuple[str, str, str], dict[str, Mapping[str, Any]]] = {}
    for cell in cells:
        k = "" if varies == "k_cmi" else _value(cell, "k_cmi")
        found.setdefault((cell["implementation"], cell["backend"], k), {})[_value(cell, varies)] = cell
    names = list(dict.fromkeys(name for name, _, _ in found))
    order = _ascending({k for _, _, k in found} - {""}) or [""]
    return {key: found[key] for key in sorted(found, key=lambda key: (names.index(key[0]), order.index(key[2])))}


def _cell(cell: Mapping[str, Any], percentile: float) -> str:
    """A percentile of a cell's seconds, or what became of it."""
    if cell["status"] == "timeout":
        return f"DNF (> {number(cell['limit_s'])})"
    if cell["status"] != "ok":
        return {"skipped": "not run"}.get(cell["status"], cell["status"])
    return number(float(np.quantile(cell["seconds"], percentile)))


def _ratio(slow: Mapping[str, Any] | None, fast: Mapping[str, Any]) -> str:
    """How many times faster a cell is than the reference's; its limit holds for all tests together, so no bound."""
    if slow is None or slow["status"] != "ok" or fast["status"] != "ok":
        return "–"
    return f"{number(float(np.median(slow['seconds']) / np.median(fast['seconds'])))}×"


def _single_row(cell: Mapping[str, Any], percentile: float) -> dict[str, Any]:
    ok = cell["status"] == "ok"
    return {
        "source": "ours",
        "implementation": cell["implementation"],
        "method": cell["method"],
        "backend": cell["backend"],
        "k_rule": cell["k_rule"],
        **{name: cell[name] for name in DIMENSIONS},
        "percentile": percentile,
        "seconds": float(np.quantile(cell["seconds"], percentile)) if ok else None,
        "cold_s": cell["cold_s"],
        "tests": len(cell["seconds"]),
        "limit_s": cell["limit_s"],
        "status": cell["status"],
    }


def _fixed(cells: Sequence[Mapping[str, Any]], varies: str) -> str:
    """What our cells have in common beside k."""
    stated = []
    for name, symbol in DIMENSIONS.items():
        values = {cell[name] for cell in cells}
        if name not in (varies, "k_cmi") and values:
            stated.append(f"{symbol} = {' or '.join(f'{value:,}' for value in sorted(values))}")
    return ", ".join(stated)


def _fixed_reported(reported: Sequence[Mapping[str, str]], varies: str) -> str:
    stated = []
    for name, symbol in DIMENSIONS.items():
        values = {int(row[REPORTED[name]]) for row in reported} if name not in (varies, "k_cmi") else set()
        if values:
            stated.append(f"{symbol} = {' or '.join(f'{value:,}' for value in sorted(values))}")
    return ", ".join(stated)


def _tests(cells: Sequence[Mapping[str, Any]]) -> str:
    counts = sorted({len(cell["seconds"]) for cell in cells if cell["status"] == "ok"})
    return " or ".join(map(str, counts)) + " tests" if counts else "no tests"


def _agreement(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Whether all implementations with our random numbers found the same p-values."""
    answers: dict[tuple[Any, ...], list[tuple[float, ...]]] = {}
    for cell in cells:
        if cell["status"] == "ok" and not cell["random"]:
            answers.setdefault(tuple(cell[name] for name in DIMENSIONS), []).append(tuple(cell["p_values"]))
    compared = [found for found in answers.values() if len(found) > 1]
    if not compared:
        return []
    same = sum(len(set(found)) == 1 for found in compared)
    if same == len(compared):
        return [f"All implementations but {REFERENCE}, whose random numbers are its own, found the same p-values."]
    return [f"✗ Implementations differ in their p-values in {len(compared) - same} of {len(compared)} problems."]


def _places(timed: Mapping[str, Any]) -> list[str]:
    """What ran where, and with how many threads."""
    notes = []
    for backend, facts in timed["environments"].items():
        names = dict.fromkeys(
            label(cell["implementation"])
            for cell in timed["cells"]
            if cell["backend"] == backend and cell["status"] == "ok"
        )
        if backend == "cuda" and facts["device"]:
            machine = facts["device"]["device"]
        else:
            threads = f"{facts['threads']} thread{'s' if facts['threads'] > 1 else ''}"
            machine = f"{facts['cpu']}, {'1 thread' if backend == 'cpu' else threads}"
        commit = (facts["git_commit"] or "unknown")[:10] + ("+" if facts["git_dirty"] else "")
        notes.append(f"{', '.join(names) or 'nothing'}: {machine}, commit {commit}.")
    return notes


def _single_remarks(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why a cell has no time."""
    reasons: dict[str, dict[str, None]] = {}
    for cell in cells:
        if cell["status"] != "ok" and cell["why"]:
            reasons.setdefault(cell["why"], {})[label(cell["implementation"])] = None
    return [f"{', '.join(names)}: {why}" for why, names in reasons.items()]


def _hardware(reported: Iterable[Mapping[str, str]]) -> dict[str, str]:
    places: dict[str, dict[str, None]] = {}
    for row in reported:
        places.setdefault(row["hardware"], {})[row["method"]] = None
    return {where: ", ".join(names) for where, names in places.items()}


# --- Table 5 ---------------------------------------------------------------------------------------------------------


def cmiknn_table5(runs: Sequence[Run], reported: Sequence[Mapping[str, str]]) -> Table:
    """Speedup of each setting's search over the single-threaded CPU version: medians over graphs, by k and N.

    Args:
        reported: rows of results/reported/cmiknn_table5.csv.
    """
    by_place: dict[tuple[str, str, int, int], list[Run]] = {}
    for run in runs:
        problem = run.record["problem"]
        if problem is not None:
            m = run.measured
            place = m.setting, m.backend, problem["k_cmi"], problem["n_variables"]
            by_place.setdefault(place, []).append(run)
    columns = sorted({place[3] for place in by_place} | {int(row["variables"]) for row in reported})
    rows, plain = [], []
    lines = sorted({place[:3] for place in by_place}, key=lambda line: (_order(runs, line[0]), line[1], line[2]))
    for setting, backend, k in lines:
        who = f"{label(setting)}" + (f" ({backend})" if backend != "cpu" else "")
        cells = []
        for p in columns:
            here = by_place.get((setting, backend, k, p), [])
            slow = {run.measured.dataset: run.measured for run in by_place.get((REFERENCE, "cpu", k, p), [])}
            pairs = [(slow.get(run.measured.dataset), run.measured) for run in here]
            ratio = median_speedup([speedup(*pair) for pair in pairs])
            cells.append("" if not here else str(ratio) + mark(*(m for _, m in pairs if not m.reference)))
            seconds = [m.median for _, m in pairs if m.median is not None]
            if here:
                plain.append(
                    {"source": "ours", "setting": setting, "backend": backend, "machine": here[0].measured.machine}
                    | {"k_cmi": k, "variables": p, "graphs": len(here), "finished": len(seconds)}
                    | {"median_s": float(np.median(seconds)) if seconds else None}
                    | {"speedup": ratio.value, "bound": ratio.bound}
                )
        if setting != REFERENCE:
            rows.append([f"ours: {who}", str(k), *(cell or "–" for cell in cells)])
        else:
            times = [
                [run.measured.median for run in by_place.get((setting, backend, k, p), []) if run.measured.median]
                for p in columns
            ]
            shown = [f"{number(float(np.median(found)))} s" if found else "–" for found in times]
            rows.append([f"ours: {who}, seconds", str(k), *shown])
    printed: dict[tuple[str, str], dict[int, str]] = {}
    for row in reported:
        printed.setdefault((row["method"], row["k_cmi"]), {})[int(row["variables"])] = row["value"]
        plain.append(
            {"source": "paper", "setting": row["method"], "machine": row["hardware"], "k_cmi": row["k_cmi"]}
            | {"variables": row["variables"], "speedup": row["value"]}
        )
    for (name, k), found in printed.items():
        rows.append([f"paper: {name}", k, *(f"{found[p]}×" if p in found else "–" for p in columns)])
    names = list(dict.fromkeys(name for row in plain for name in row))
    plain = [{name: row.get(name) for name in names} for row in plain]
    measured = [run.measured for run in runs]
    graphs = sorted({row["graphs"] for row in plain if row["source"] == "ours"})
    notes = [
        f"How many times faster than {REFERENCE} with one worker, the paper's single-threaded CPU version; medians "
        f"over graphs, ours {' or '.join(map(str, graphs)) or 'none'} of each kind, the paper's 10. "
        f"Ours: {_search(runs)}. Paper: n = 1,000, perm = 100.",
        *places(measured),
        *remarks(measured, {m.setting for m in measured}),
        *(f"{PAPER}, Table 5, {names}: {where}." for where, names in _hardware(reported).items()),
    ]
    header = ["speedup over the single-threaded CPU version", "k_CMI", *(f"N = {p}" for p in columns)]
    return Table("Speedups of the search (GPU-CMIknn, Table 5)", header, rows, notes, plain, left=(0,))


def median_speedup(ratios: Sequence[Speedup]) -> Speedup:
    """The median of ratios; a bound where some of them are bounds of the same kind, nothing where they are not."""
    found = [ratio for ratio in ratios if ratio.value is not None]
    bounds = {ratio.bound for ratio in found} - {""}
    if not found or len(found) < len(ratios) or len(bounds) > 1:
        return Speedup(None, why="–")
    return Speedup(float(np.median([ratio.value for ratio in found])), "".join(bounds))


def _order(runs: Sequence[Run], setting: str) -> int:
    return list(dict.fromkeys(run.measured.setting for run in runs)).index(setting)


def _search(runs: Iterable[Run]) -> str:
    """The parameters of the searches."""
    problems = [run.record["problem"] for run in runs if run.record["problem"]]
    names = {"n_samples": "n", "permutations": "perm", "k_perm": "k_perm", "alpha": "alpha"}
    stated = []
    for name, symbol in names.items():
        values = sorted({problem[name] for problem in problems})
        if values:
            stated.append(f"{symbol} = {' or '.join(f'{value:,}' for value in values)}")
    return ", ".join(stated)


# --- Table 10 --------------------------------------------------------------------------------------------------------


def cmiknn_table10(runs: Sequence[Run], reported: Sequence[Mapping[str, str]]) -> Table:
    """Seconds on sparse graphs and gene expressions: a column a data set, a row a setting, ours above the paper's.

    Args:
        reported: rows of results/reported/cmiknn_table10.csv.
    """
    measured = [run.measured for run in runs]
    datasets = list(dict.fromkeys([*(m.dataset for m in measured), *(row["dataset"] for row in reported)]))
    found: dict[tuple[str, str], dict[str, Measured]] = {}
    for m in measured:
        found.setdefault((m.setting, m.backend), {})[m.dataset] = m
    rows, plain = [], []
    for (setting, backend), times in found.items():
        who = f"ours: {label(setting)}" + (f" ({backend})" if backend != "cpu" else "")
        rows.append([who, *(_dnf(times.get(dataset)) for dataset in datasets)])
        plain += [
            {"source": "ours", "setting": setting, "backend": backend, "machine": m.machine, "dataset": m.dataset}
            | {"median_s": m.median, "low_s": m.low, "high_s": m.high, "limit_s": m.limit, "status": m.status}
            | {"edges": m.edges, "tests": m.tests, "verification": m.verification}
            for m in times.values()
        ]
    printed: dict[str, dict[str, str]] = {}
    for row in reported:
        text = row["value"] if row["status"] == "ok" else "DNF"
        printed.setdefault(row["method"], {})[row["dataset"]] = f"{float(text):,g}" if row["status"] == "ok" else text
        plain.append(
            {"source": "paper", "setting": row["method"], "machine": row["hardware"], "dataset": row["dataset"]}
            | {"median_s": row["value"], "limit_s": row["limit_s"], "status": row["status"]}
        )
    for name, values in printed.items():
        rows.append([f"paper: {name}", *(values.get(dataset, "–") for dataset in datasets)])
    names = list(dict.fromkeys(name for row in plain for name in row))
    plain = [{name: row.get(name) for name in names} for row in plain]
    limits = " or ".join(f"{number(limit)} s" for limit in sorted({m.limit for m in measured if m.limit}))
    notes = [
        f"Ours: {_search(runs)}; median of the warm runs. Paper: n = 1,000 for the generated graphs, perm = 100, "
        "k_perm = 15, k_CMI = 7, alpha = 0.01.",
        f"DNF: did not finish within the time limit, ours {limits or 'none'}, the paper's 24 hours.",
        *places(measured),
        *remarks([m for m in measured if m.status != "timeout"], {m.setting for m in measured}),
        *(f"{PAPER}, Table 10, {names}: {where}." for where, names in _hardware(reported).items()),
    ]
    header = ["seconds", *datasets]
    return Table("Sparse graphs and gene expressions (GPU-CMIknn, Table 10)", header, rows, notes, plain, left=(0,))


def _dnf(m: Measured | None) -> str:
    return f"DNF (> {number(m.limit)})" if m is not None and m.status == "timeout" else time_cell(m)


# --- Fig. 1 ----------------------------------------------------------------------------------------------------------

BASE = 7
"""The k that the others are compared with."""


def cmiknn_fig1(
    runs: Sequence[Run],
    truths: Mapping[str, Sequence[Sequence[int]]],
    skeletons: Mapping[str, Skeleton],
    reported: Sequence[Mapping[str, str]],
) -> Drawing:
    """How the distance to the true CPDAG changes with k, against k = 7: minimum, median and maximum over graphs.

    Args:
        truths: by data set, the edges of its true DAG.
        skeletons: by data set, where a search finished.
        reported: rows of results/reported/cmiknn_fig1.csv: what the paper's text says.
    """
    distances: dict[str, dict[int, int]] = {}
    rows = []
    for run in runs:
        m, problem = run.measured, run.record["problem"]
        distance = None
        if m.counts and m.dataset in skeletons:
            skeleton = skeletons[m.dataset]
            dag = dag_of_edges(truths[m.dataset], len(skeleton.names))
            distance = structural_hamming_distance(orient(skeleton), dag)
            distances.setdefault(run.record["dataset"]["source"], {})[problem["k_cmi"]] = distance
        rows.append(
            {"graph": m.dataset, "source": run.record["dataset"].get("source"), "k_cmi": problem and problem["k_cmi"]}
            | {"shd": distance, "edges": m.edges, "true_edges": len(truths.get(m.dataset, ()))}
            | {"setting": m.setting, "backend": m.backend, "status": m.status, "verification": m.verification}
        )
    changes: dict[int, list[int]] = {}
    for by_k in distances.values():
        if BASE in by_k:
            for k, distance in by_k.items():
                changes.setdefault(k, []).append(distance - by_k[BASE])
    for row in rows:
        base = distances.get(row["source"], {}).get(BASE)
        row["change"] = None if row["shd"] is None or base is None else row["shd"] - base
    style.use()
    figure, axes = plt.subplots(figsize=(style.COLUMN_WIDTH, 2.9))
    ks = sorted(changes)
    if ks:
        colour = style.colour(runs[0].measured.method)
        lows, middles, highs = ([float(statistic(changes[k])) for k in ks] for statistic in (np.min, np.median, np.max))
        axes.vlines(ks, lows, highs, color=colour, linewidth=0.8)
        axes.plot(ks, lows, "_", color=colour)
        axes.plot(ks, highs, "_", color=colour)
        axes.plot(ks, middles, "o-", color=colour, markersize=3)
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set_xscale("log")
    axes.set_xticks(ks, [str(k) for k in ks])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(NUMBERS)
    axes.set_xlabel("k_CMI")
    axes.set_ylabel(f"SHD − SHD at k_CMI = {BASE}")
    graphs = sorted({len(found) for found in changes.values()})
    handles = [
        Line2D([], [], color="#666666", marker="o", markersize=3, label="median"),
        Line2D([], [], color="#666666", marker="_", linestyle="none", label="minimum, maximum"),
    ]
    figure.legend(handles=handles, loc="outside lower right", ncols=2)
    count = f"{graphs[0]} to {graphs[-1]}" if len(graphs) > 1 else str(graphs[0]) if graphs else "no"
    heading = [f"Below 0: closer to the truth. Here {count} graphs ({_search(runs)})", f"here: {_trend(changes)}"]
    heading += [f"paper, {row['graphs']} graphs: {row['statement']}" for row in reported]
    figure.suptitle("\n".join(heading), fontsize=5.5, x=0.01, ha="left")
    footer(figure, [run.measured for run in runs])
    return Drawing(figure, rows)


def _trend(changes: Mapping[int, Sequence[int]]) -> str:
    """The medians, in words."""
    medians = [f"{np.median(changes[k]):+g} at {k}" for k in sorted(changes) if k != BASE]
    return f"median {', '.join(medians)}" if medians else "nothing to compare"
