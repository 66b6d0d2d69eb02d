"""Tables 1 and 2 of cuPC (doi:10.1109/TPDS.2019.2939126), and functions that its other outputs share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from gpupc_impl.reporting.catalogue import CsvRows, table
from gpupc_impl.reporting.cells import (
    Speedup,
    count,
    csv_row,
    geometric_mean,
    label,
    levels_speedup,
    mark,
    number,
    places,
    remarks,
    speedup,
    time_cell,
)
from gpupc_impl.reporting.runs import Runs, VerifiedRecord, by_backend, datasets_of, of_method, of_settings
from gpupc_impl.reporting.tables import Table

PAPER = "cuPC"
CUPC = ("cupc-e", "cupc-s")
BASELINES = ("baseline-1", "baseline-2")
SERIAL, PARALLEL = "stable-serial", "stable-parallel"
AUTHORS = "cupc-authors"
"""The authors' own program of cuPC-S (docs/peers.md)."""

SELECTED = {"cupc-e": {"beta": 2, "gamma": 32}, "cupc-s": {"theta": 64, "delta": 2}}
"""The configurations with which the paper's results were measured (section 5.4)."""


RULES = ("first-come", "canonical")
"""The rules for separating sets in order of preference: the paper's rule, then ours."""


def runs_of(runs: Runs, method: str, rules: Sequence[str] = RULES) -> list[VerifiedRecord]:
    """Return the runs of one setting of a method with the paper's test, preferably in the paper's configuration."""
    same_test = [run for run in runs if run.params.get("inverse") != "pseudo"]
    return of_method(same_test, method, rules, **SELECTED.get(method, {}))


@table("cupc_table1", "Table 1: data sets", paper=PAPER, family="gaussian")
def cupc_table1(problems: Sequence[Mapping[str, Any]], reported: CsvRows) -> Table:
    """The table compares the shapes of the data sets with those in cuPC's Table 1. For a data set that is not available
    it gives the reason; the other tables have no times on that data set.
    """
    paper = {row["dataset"]: row for row in reported}
    plain, rows, reasons = [], [], []
    for facts in problems:
        theirs = paper.get(facts["name"], {})
        ours = facts if facts["available"] else {"n_variables": None, "n_samples": None}
        plain.append(
            {"dataset": facts["name"], "available": facts["available"]}
            | {"variables": ours["n_variables"], "samples": ours["n_samples"]}
            | {f"{name}_reported": theirs.get(name) for name in ("variables", "samples")}
            | {"alpha": facts["alpha"], "source": facts.get("source") or facts.get("url")}
            | {key: facts.get(key) for key in ("licence", "citation", "note", "sha256")}
            | {"why_not": facts["why"]}
        )
        shape = ours["n_variables"], theirs.get("variables"), ours["n_samples"], theirs.get("samples")
        status = "available" if facts["available"] else "not available"
        source = [facts.get("licence") or "–", facts.get("source") or facts.get("url") or "–"]
        rows.append([theirs.get("label", facts["name"]), status, *map(count, shape), *source])
        if facts["why"]:
            reasons.append(facts["why"])
    header = ["data set", "status", "n", "n (paper)", "m", "m (paper)", "licence", "source"]
    notes = ["n: variables; m: samples. Paper: cuPC (doi:10.1109/TPDS.2019.2939126), Table 1.", *reasons]
    if reasons:
        notes.append("To try the network again: snakemake --forcerun fetch_dataset")
    return Table("Data sets (cuPC, Table 1)", header, rows, notes, plain, left=(0, 1, 6, 7))


RUNTIMES = (("T1", None), ("T2", PARALLEL), ("T3", SERIAL), ("T4", "cupc-e"), ("T5", "cupc-s"))
"""The rows of the paper's table, and our methods beside them."""

SPEEDUPS = (
    ("T1/T2", "T3/T2", SERIAL, PARALLEL),
    ("T3/T4", "T3/T4", SERIAL, "cupc-e"),
    ("T3/T5", "T3/T5", SERIAL, "cupc-s"),
)
"""The paper's ratios, our ratios beside them (we have no T1, Stable), the slow and the fast method."""


@table("cupc_table2", "Table 2: runtimes and speedups", paper=PAPER, family="gaussian", methods=CUPC)
def cupc_table2(runs: Runs, reported: CsvRows) -> Table:
    """The table shows runtimes and speedups as cuPC's Table 2, at alpha = {{ config["alpha"] }}: ours (median of the
    warm runs, 20–80 % band) above the paper's (Nvidia GTX 1080; Intel Xeon at 2.5 GHz, 8 cores). cuPC is measured with
    the paper's rule for separating sets, from which speedups are computed, and with canonical sets. Rows with "levels"
    have the time of the levels alone; the other rows have that of whole calls, transfers included, as the paper's.
    † marks a bound that follows from a time limit.
    """
    datasets = datasets_of(runs)
    chosen = {method: runs_of(runs, method) for method in (SERIAL, PARALLEL, *CUPC)}
    settings = {method: [some] for method, some in chosen.items()}
    for method in CUPC:
        canonical = runs_of(runs, method, rules=("canonical",))
        if canonical != chosen[method]:
            settings[method].append(canonical)
    authors = [run for run in runs if run.method == AUTHORS]
    settings["cupc-s"].append(authors)
    lines = []
    for symbol, method in RUNTIMES:
        its = settings.get(method, [])
        lines += _runtimes(symbol, its, datasets) + _reported(symbol, reported, datasets)
        lines += _runtimes(symbol, its, datasets, levels=True) if method in CUPC else []
    for reported_symbol, symbol, slow, fast in SPEEDUPS:
        lines += _speedups(symbol, chosen, slow, fast, datasets) + _reported(reported_symbol, reported, datasets)
        lines += _speedups(symbol, chosen, slow, fast, datasets, levels=True) if fast in CUPC else []
    rows = [row for row, _ in lines if {*row[2:]} != {"–"}]
    plain = [line for _, of_row in lines for line in of_row]
    header = ["", "runtime, speedup", *datasets, "geometric mean (data sets)"]
    notes = [
        "Ours: median of the warm runs, with their 20–80 % band where there are several; from the correlation matrix "
        "in host memory to the skeleton and its separating sets in host memory. The paper counts transfers as well "
        "(section 5.3). Rows with levels leave out what belongs to no level: transfers, and the collection of sets.",
        *(["The authors' program does not time its levels."] * any(run.median for run in authors)),
        *places(runs),
        "Geometric means of cuPC-E and cuPC-S are over the data sets on which both and the serial reference finished "
        "with a verified skeleton; parentheses contain the number of these data sets. The mean of T3/T2 is ours and "
        "that of T1/T2 the paper's, since its Stable (T1, in R) is not among our references.",
        "The paper's hardware is not ours: compare ratios, not times.",
        *remarks(of_settings(runs, [some for both in settings.values() for some in both])),
        "Paper: cuPC (doi:10.1109/TPDS.2019.2939126), Table 2.",
    ]
    columns = (
        "symbol source clock method separating_sets backend machine dataset value low high bound status verification"
    )
    columns = [*columns.split(), "datasets_in_mean"]
    return Table("Runtimes and speedups (cuPC, Table 2)", header, rows, notes, plain, columns=columns)


Line = tuple[list[str], list[dict[str, Any]]]
"""A row of Table 2, and the rows of its CSV with the same numbers."""


def _runtimes(symbol: str, settings: Sequence[Runs], datasets: Sequence[str], levels: bool = False) -> list[Line]:
    """Return the rows with our times of some settings, of whole calls or of the levels alone, one for each setting and
    backend."""
    lines = []
    for backend, by_dataset in (line for runs in settings for line in by_backend(runs).items()):
        first = next(iter(by_dataset.values()))
        who = f"{'authors' if first.method == AUTHORS else 'ours'}: {label(first.setting, backend)}"
        cells = [(_levels_cell if levels else time_cell)(by_dataset.get(dataset)) for dataset in datasets]
        plain = [
            {"symbol": symbol, "source": "ours", "clock": "levels" if levels else "whole call"}
            | csv_row(run, "method separating_sets backend machine dataset")
            | ({"value": run.levels_median} if levels else {"value": run.median, "low": run.low, "high": run.high})
            | csv_row(run, "status verification")
            for run in by_dataset.values()
        ]
        lines.append(([f"{symbol}{' levels' * levels}, s", who, *cells, "–"], plain))
    return lines


def _levels_cell(run: VerifiedRecord | None) -> str:
    return "–" if run is None or run.levels_median is None else number(run.levels_median) + mark(run)


def _speedups(
    symbol: str, chosen: Mapping[str, Runs], slow: str, fast: str, datasets: Sequence[str], levels: bool = False
) -> list[Line]:
    """Return the rows with our speedups of one method over another, by whole calls or by the levels alone, one for each
    backend."""
    slows, lines = {run.dataset: run for run in chosen[slow]}, []
    for backend, fasts in by_backend(chosen[fast]).items():
        pairs = [(slows.get(dataset), fasts.get(dataset)) for dataset in datasets]
        ratios = [Speedup(levels_speedup(*pair), why="–") if levels else speedup(*pair) for pair in pairs]
        cells = [
            str(ratio) + mark(*pair) * (ratio.value is not None) for ratio, pair in zip(ratios, pairs, strict=True)
        ]
        both = [] if backend == "cpu" else [by_backend(chosen[method]).get(backend, {}) for method in CUPC]
        mean, finished = mean_speedup(slows, fasts, both, levels)
        who = f"{label(next(iter(fasts.values())).setting, backend)} over {label(slow)}"
        facts = {"symbol": symbol, "source": "ours", "clock": "levels" if levels else "whole call"}
        facts |= {"method": fast, "backend": backend}
        plain = [
            facts
            | {"machine": run.machine, "dataset": run.dataset, "value": ratio.value, "bound": ratio.bound}
            | csv_row(run, "status verification")
            for ratio, (_, run) in zip(ratios, pairs, strict=True)
            if run
        ]
        plain.append(facts | {"dataset": "geometric mean", "value": mean, "datasets_in_mean": finished})
        mean_cell = "–" if mean is None else f"{number(mean)}× ({finished})"
        lines.append(([symbol + " levels" * levels, f"ours: {who}", *cells, mean_cell], plain))
    return lines


def _reported(symbol: str, reported: CsvRows, datasets: Sequence[str]) -> list[Line]:
    """Return the row with the paper's numbers."""
    rows = [row for row in reported if row["symbol"] == symbol]
    texts = {row["dataset"]: f"{Decimal(row['value']):,}" for row in rows}
    cells = [texts.get(dataset, "–") for dataset in datasets]
    mean = f"{texts['geometric mean']} (6)" if "geometric mean" in texts else "–"
    facts = {"symbol": symbol, "source": "reported", "method": rows[0]["method"], "machine": rows[0]["hardware"]}
    shown = [row for row in rows if row["dataset"] in (*datasets, "geometric mean")]
    plain = [facts | {"dataset": row["dataset"], "value": row["value"]} for row in shown]
    who = f"paper: {rows[0]['method']}, {rows[0]['hardware']}"
    return [([symbol if "/" in symbol else f"{symbol}, s", who, *cells, mean], plain)]


def mean_speedup(
    slows: Mapping[str, VerifiedRecord],
    fasts: Mapping[str, VerifiedRecord],
    others: Sequence[Mapping[str, VerifiedRecord]],
    levels: bool = False,
) -> tuple[float | None, int]:
    """Return the geometric mean over the data sets that all compared methods finished, and their number."""
    finished = [
        (slow, fasts[dataset])
        for dataset, slow in slows.items()
        if all(dataset in times and times[dataset].counts for times in (slows, fasts, *others))
    ]
    ratios = [levels_speedup(*pair) if levels else speedup(*pair).value for pair in finished]
    ratios = [ratio for ratio in ratios if ratio is not None]
    return geometric_mean(ratios), len(ratios)
