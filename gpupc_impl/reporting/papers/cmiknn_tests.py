"""The single tests of the GPU-CMIknn paper, Tables 1 to 4 and 6 to 9, from their recorded times only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gpupc_impl.measurement.record import commit_name, machine_name
from gpupc_impl.reporting.catalogue import table
from gpupc_impl.reporting.cells import STALE_NOTE, grouped, hardware, label, number, stated, status_word
from gpupc_impl.reporting.papers.cmiknn import CITED, PAPER, REFERENCE, SINGLE_THREADED
from gpupc_impl.reporting.sources import STALE
from gpupc_impl.reporting.tables import Table

DIMENSIONS = {"k_cmi": "k_CMI", "permutations": "perm", "set_size": "|S|", "samples": "n"}
"""The keys of a cell in files of timed tests, with the paper's symbols. Each of Tables 1 to 4 varies one."""

MEDIAN = (0.5,)
PERCENTILES = (0.05, 0.5, 0.95)

CAPTION = """The table shows the {what} seconds of single CI tests with local permutations over {symbol}, as Table
{number} of GPU-CMIknn: ours above the paper's (Nvidia A40; one core of an AMD EPYC 7343). The implementations
``buckets``, ``counting`` and ``insertion`` find the k-th nearest neighbour in different ways with the same result; the
paper uses insertion. DNF means that the tests of a cell did not finish within the time limit for all of them."""
"""The caption of each table; ``what`` names its statistic."""


def single_tests(
    title: str,
    timed: Mapping[str, Any],
    varies: str,
    reported: Sequence[Mapping[str, str]],
    percentiles: Sequence[float] = MEDIAN,
) -> Table:
    """Return the seconds of single CI tests: a column for each varied value, a row for each implementation and k.

    Args:
        timed: the result of `measure_tests`.
        varies: the dimension (of `DIMENSIONS`) of the columns.
        reported: rows of results/reported/cmiknn_table<n>.csv.
        percentiles: the percentiles that have a row for each implementation.
    """
    cells = timed["cells"]
    reported = [{**row, "set_size": row["separation_set"]} for row in reported]
    columns = _ascending({_value(cell, varies) for cell in [*cells, *reported]})
    rows, plain = [], []

    def add(k: str, who: str, percentile: float, by_column: Mapping[str, str]) -> None:
        which = [f"{100 * percentile:g}th"] if len(percentiles) > 1 else []
        rows.append(
            [who, *([k] if varies != "k_cmi" else []), *which, *(by_column.get(column, "–") for column in columns)]
        )

    ours = _by_row(cells, varies)
    for (name, backend, k), by_column in ours.items():
        for percentile in percentiles:
            shown = {value: _cell(cell, percentile) for value, cell in by_column.items()}
            add(k, f"ours: {label(name, backend)}", percentile, shown)
    if len(percentiles) == 1:
        reference = next((cell["implementation"] for cell in cells if _is_reference(cell)), None)
        for (name, backend, k), by_column in ours.items():
            slow = ours.get((reference, "cpu", k), {})
            if name != reference and slow:
                ratios = {value: _ratio(slow.get(value), cell) for value, cell in by_column.items()}
                add(k, f"{label(name, backend)} over {reference}", 0.5, ratios)
    printed: dict[tuple[str, str, float], dict[str, str]] = {}
    for row in reported:
        key = (row["method"], "" if varies == "k_cmi" else _value(row, "k_cmi"), float(row["percentile"]))
        printed.setdefault(key, {})[_value(row, varies)] = row["value"]
    for (name, k, percentile), by_column in printed.items():
        if percentile in percentiles:
            add(k, f"paper: {name}", percentile, by_column)
    for cell in cells:
        plain += [_single_row(cell, percentile) for percentile in percentiles]
    plain += [
        {"source": "paper", "implementation": row["method"], "k_rule": row["k_rule"], "machine": row["hardware"]}
        | {name: row[name] for name in DIMENSIONS}
        | {"percentile": row["percentile"], "seconds": row["value"]}
        for row in reported
        if float(row["percentile"]) in percentiles
    ]
    header = ["seconds", *(["k_CMI"] if varies != "k_cmi" else []), *(["percentile"] if len(percentiles) > 1 else [])]
    header += [f"{DIMENSIONS[varies]} = {value}" for value in columns]
    notes = [
        f"Ours: {_fixed(cells, varies)}; {'medians' if len(percentiles) == 1 else 'percentiles'} of {_tests(cells)}, "
        "the same random tests of one generated data set for all, taken in turns after a cold run each. "
        f"Paper: {_fixed(reported, varies)}; 20 tests.",
        "A time is that from the samples in host memory to the p-value in host memory.",
        *(["adaptive: k_CMI = 0.2 n."] if any(cell["k_rule"] == "adaptive" for cell in cells) else []),
        *_agreement(cells),
        *_places(timed),
        *_single_remarks(cells),
        *(f"{CITED}, {line}." for line in hardware(reported)),
        "The paper's hardware is not ours: compare ratios, not times.",
    ]
    return Table(title, header, rows, notes, plain, left=(0,))


def _enter(number: int, measured: int, varied: str, percentiles: Sequence[float]) -> None:
    """Add a table to the catalogue, given its number and that of the table whose measurements it shows."""

    def make(tests: Mapping[str, Any], varies: str, reported: Sequence[Mapping[str, str]]) -> Table:
        title = f"Single tests over {DIMENSIONS[varies]} (GPU-CMIknn, Table {number})"
        return single_tests(title, tests, varies, reported, percentiles)

    several = len(percentiles) > 1
    what = f"5th, 50th and 95th percentiles of the times of Table {measured}, the" if several else "median"
    make.__doc__ = CAPTION.format(what=what, symbol=DIMENSIONS[varied], number=number)
    table(
        f"cmiknn_table{number}",
        f"Table {number}: single tests over {DIMENSIONS[varied]}{', percentiles' if several else ''}",
        paper=PAPER,
        tests=f"cmiknn_table{measured}",
    )(make)


# Tables 6 to 9 show percentiles of the measurements of Tables 1 to 4.
for _number, _varied in enumerate(DIMENSIONS, 1):
    _enter(_number, _number, _varied, MEDIAN)
    _enter(_number + 5, _number, _varied, PERCENTILES)


def _is_reference(cell: Mapping[str, Any]) -> bool:
    return cell["method"] == REFERENCE and SINGLE_THREADED.items() <= cell["params"].items()


def _value(cell: Mapping[str, Any], dimension: str) -> str:
    """Return a dimension of a cell of ours or of a row of the paper, as text."""
    if dimension == "k_cmi" and cell["k_rule"] != "fixed":
        return "adaptive"
    return f"{cell[dimension]}"


def _ascending(values: Iterable[str]) -> list[str]:
    return sorted(values, key=lambda value: math.inf if value == "adaptive" else float(value))


def _by_row(
    cells: Sequence[Mapping[str, Any]], varies: str
) -> dict[tuple[str, str, str], dict[str, Mapping[str, Any]]]:
    """Return the cells of each row, by implementation, backend and, unless k is the varied dimension, k."""
    lines: dict[tuple[str, str, str], dict[str, Mapping[str, Any]]] = {}
    for cell in cells:
        k = "" if varies == "k_cmi" else _value(cell, "k_cmi")
        lines.setdefault((cell["implementation"], cell["backend"], k), {})[_value(cell, varies)] = cell
    names = list(dict.fromkeys(name for name, _, _ in lines))
    order = _ascending({k for _, _, k in lines} - {""}) or [""]
    return {key: lines[key] for key in sorted(lines, key=lambda key: (names.index(key[0]), order.index(key[2])))}


def _cell(cell: Mapping[str, Any], percentile: float) -> str:
    """Format a percentile of a cell's seconds, or the cell's status."""
    if cell["status"] == "timeout":
        return f"DNF (> {number(cell['limit_s'])})"
    if cell["status"] != "ok":
        return status_word(cell["status"])
    return number(float(np.quantile(cell["seconds"], percentile))) + (f" {STALE}" if cell.get("stale") else "")


def _ratio(slow: Mapping[str, Any] | None, fast: Mapping[str, Any]) -> str:
    """Format the speedup over the reference; a limit is no bound, since it holds for all tests together."""
    if slow is None or slow["status"] != "ok" or fast["status"] != "ok":
        return "–"
    return f"{number(float(np.median(slow['seconds']) / np.median(fast['seconds'])))}×"


def _single_row(cell: Mapping[str, Any], percentile: float) -> dict[str, Any]:
    ok = cell["status"] == "ok"
    return (
        {"source": "ours"}
        | {name: cell[name] for name in ("implementation", "method", "backend", "k_rule", *DIMENSIONS)}
        | {"percentile": percentile, "seconds": float(np.quantile(cell["seconds"], percentile)) if ok else None}
        | {"cold_s": cell["cold_s"], "tests": len(cell["seconds"]), "limit_s": cell["limit_s"]}
        | {"status": cell["status"]}
    )


def _fixed(cells: Sequence[Mapping[str, Any]], varies: str) -> str:
    """Return the values of the dimensions that do not vary, except k."""
    names = [name for name in DIMENSIONS if name not in (varies, "k_cmi")]
    return stated((DIMENSIONS[name], sorted({int(cell[name]) for cell in cells})) for name in names)


def _tests(cells: Sequence[Mapping[str, Any]]) -> str:
    counts = sorted({len(cell["seconds"]) for cell in cells if cell["status"] == "ok"})
    return " or ".join(map(str, counts)) + " tests" if counts else "no tests"


def _agreement(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a note on whether all implementations with our random numbers computed the same p-values."""
    answers: dict[tuple[Any, ...], list[tuple[float, ...]]] = {}
    for cell in cells:
        if cell["status"] == "ok" and not cell["random"]:
            answers.setdefault(tuple(cell[name] for name in DIMENSIONS), []).append(tuple(cell["p_values"]))
    compared = [p_values for p_values in answers.values() if len(p_values) > 1]
    if not compared:
        return []
    same = sum(len(set(p_values)) == 1 for p_values in compared)
    if same == len(compared):
        return [f"All implementations but {REFERENCE}, which has its own random numbers, computed the same p-values."]
    return [f"✗ Implementations differ in their p-values in {len(compared) - same} of {len(compared)} problems."]


def _places(timed: Mapping[str, Any]) -> list[str]:
    """Return notes on the machine and the number of threads of each implementation."""
    notes = []
    for backend, facts in timed["environments"].items():
        here = [cell for cell in timed["cells"] if cell["backend"] == backend and cell["status"] == "ok"]
        names = dict.fromkeys(label(cell["implementation"]) for cell in here)
        where = machine_name(facts, backend, 1 if backend == "cpu" else facts["threads"])
        notes.append(f"{' / '.join(names) or 'nothing'}: {where}, commit {commit_name(facts) or 'unknown'}.")
    return notes


def _single_remarks(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return notes on why cells have no time, and on the mark of stale times."""
    notes = [STALE_NOTE] if any(cell.get("stale") for cell in cells if cell["status"] == "ok") else []
    late = [cell for cell in cells if cell["status"] != "ok" and cell["why"]]
    reasons = grouped((cell["why"], label(cell["implementation"])) for cell in late)
    return notes + [f"{' / '.join(names)}: {why}" for why, names in reasons.items()]
